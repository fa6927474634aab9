// A vocabulary for tests: one token for each byte (id = the byte), a few words, and the two tokens of ChatML. As a tokenizer, and as
// a GGUF file without tensors.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>

#include "base/check.h"
#include "model/tokenizer/tokenizer.h"
#include "model/tokenizer/utf8.h"

namespace stria {

inline constexpr int32_t kTestHello = 256, kTestWorld = 257, kTestTurn = 258, kTestEnd = 259, kTestVocab = 260;

inline TokenizerSpec TestTokenizerSpec() {
  TokenizerSpec spec;
  spec.model = "gpt2";
  spec.pre = "smollm";
  // GPT-2's printable stand-ins for bytes.
  uint32_t next = 256;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    std::string token;
    AppendUtf8(printable ? byte : next++, &token);
    spec.tokens.push_back(token);
  }
  spec.token_types.assign(256, kTokenNormal);
  for (const char* word : {"hello", "world"}) {
    spec.tokens.push_back(word);
    spec.token_types.push_back(kTokenNormal);
  }
  for (const char* control : {"<|im_start|>", "<|im_end|>"}) {
    spec.tokens.push_back(control);
    spec.token_types.push_back(kTokenControl);
  }
  spec.eos = kTestEnd;
  spec.chat_template =
      "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
      "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";
  return spec;
}

inline std::unique_ptr<Tokenizer> TestTokenizer() {
  auto tokenizer = Tokenizer::Create(TestTokenizerSpec());
  STRIA_CHECK(tokenizer.ok());
  return *std::move(tokenizer);
}

// The bytes of the file.
inline std::string TestGguf() {
  const TokenizerSpec spec = TestTokenizerSpec();
  std::string out = "GGUF";
  const auto number = [&](auto value) { out.append(reinterpret_cast<const char*>(&value), sizeof value); };
  const auto text = [&](std::string_view s) {
    number(static_cast<uint64_t>(s.size()));
    out += s;
  };
  constexpr uint32_t kInt32 = 5, kString = 8, kArray = 9;
  number(uint32_t{3});
  number(uint64_t{0});  // tensors
  number(uint64_t{6});  // metadata
  for (const auto& [key, value] : {std::pair<const char*, std::string>{"tokenizer.ggml.model", spec.model},
                                   {"tokenizer.ggml.pre", spec.pre},
                                   {"tokenizer.chat_template", spec.chat_template}}) {
    text(key);
    number(kString);
    text(value);
  }
  text("tokenizer.ggml.eos_token_id");
  number(kInt32);
  number(int32_t{spec.eos});
  text("tokenizer.ggml.tokens");
  number(kArray);
  number(kString);
  number(static_cast<uint64_t>(spec.tokens.size()));
  for (const std::string& token : spec.tokens) text(token);
  text("tokenizer.ggml.token_type");
  number(kArray);
  number(kInt32);
  number(static_cast<uint64_t>(spec.token_types.size()));
  for (const int type : spec.token_types) number(static_cast<int32_t>(type));
  return out;
}

}  // namespace stria
