// What the tests against real vocabularies share.
#pragma once

#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "model/gguf/gguf_file.h"
#include "model/gguf/tokenizer_spec_gguf.h"
#include "model/tokenizer/tokenizer.h"

namespace stria {

// The GGUF file that holds a test's vocabulary. Aborts the test if the environment does not say where it is.
inline std::string VocabularyPath(const std::string& name) {
  const bool model = name == "smollm2" || name == "gpt2";
  const char* const variable = model ? "STRIA_MODEL" : "STRIA_TESTDATA";
  const char* const value = std::getenv(variable);
  if (value == nullptr) {
    ADD_FAILURE() << variable << " is not set: it names "
                  << (model ? "the file SmolLM2-135M-Instruct.Q4_1.gguf" : "the folder of ggml-vocab-*.gguf");
    return "";
  }
  if (model) return value;
  return std::string(value) + (name == "llama3" ? "/ggml-vocab-llama-bpe.gguf" : "/ggml-vocab-qwen2.gguf");
}

// Fails the test and returns nothing if the file can't be had.
inline std::unique_ptr<TokenizerSpec> LoadSpec(const std::string& name) {
  const std::string path = VocabularyPath(name);
  if (path.empty()) return nullptr;
  const auto file = GgufFile::Open(path);
  if (!file.ok()) {
    ADD_FAILURE() << file.status();
    return nullptr;
  }
  auto spec = MakeTokenizerSpec(*file);
  if (!spec.ok()) {
    ADD_FAILURE() << spec.status();
    return nullptr;
  }
  if (name == "gpt2") spec->pre = "gpt-2";  // GPT-2's rule over the vocabulary of SmolLM2
  return std::make_unique<TokenizerSpec>(*std::move(spec));
}

inline std::unique_ptr<Tokenizer> LoadTokenizer(const std::string& name) {
  const auto spec = LoadSpec(name);
  if (spec == nullptr) return nullptr;
  auto tokenizer = Tokenizer::Create(*spec);
  if (!tokenizer.ok()) {
    ADD_FAILURE() << tokenizer.status();
    return nullptr;
  }
  return *std::move(tokenizer);
}

inline std::vector<std::string> ReadLines(const std::string& file) {
  std::ifstream in("model/tokenizer/testdata/" + file);
  EXPECT_TRUE(in) << file;
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

}  // namespace stria
