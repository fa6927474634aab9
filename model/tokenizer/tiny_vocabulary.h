// A vocabulary small enough to work out tests by hand: the 256 bytes (id = byte), then tokens that merges make.
#pragma once

#include <string>
#include <vector>

#include "model/tokenizer/tokenizer_spec.h"
#include "model/tokenizer/utf8.h"

namespace stria {

inline constexpr int kTinyHe = 256, kTinyLl = 257, kTinyHell = 258, kTinyHello = 259, kTinySpaceHello = 260,
                     kTinyEnd = 261, kTinyEndLong = 262, kTinyTool = 263, kTinyBos = 264, kTinyUnused = 265;

inline TokenizerSpec TinySpec(const std::string& pre = "gpt-2") {
  TokenizerSpec spec;
  spec.model = "gpt2";
  spec.pre = pre;
  // GPT-2's alphabet: printable Latin-1 stands for itself, the rest for U+0100, U+0101, ... in order.
  int hidden = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable = (byte > 0x20 && byte < 0x7F) || (byte > 0xA0 && byte != 0xAD);
    std::string token;
    AppendUtf8(printable ? byte : hidden++, &token);
    spec.tokens.push_back(token);
  }
  for (const char* token : {"he", "ll", "hell", "hello", "\u0120hello", "<end>", "<end>!", "<tool>", "<bos>", "[PAD265]"}) {
    spec.tokens.push_back(token);
  }
  spec.token_types.assign(spec.tokens.size(), kTokenNormal);
  spec.token_types[kTinyEnd] = spec.token_types[kTinyEndLong] = spec.token_types[kTinyBos] = kTokenControl;
  spec.token_types[kTinyTool] = spec.token_types[kTinyUnused] = kTokenUserDefined;
  spec.merges = {"h e", "l l", "he ll", "hell o", "\u0120 hello"};
  spec.bos = kTinyBos;
  spec.eos = kTinyEnd;
  return spec;
}

}  // namespace stria
