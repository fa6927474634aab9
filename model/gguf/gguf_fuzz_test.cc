// Kept files (testdata/fuzz) and seeded mutations of them: whatever a file holds, it is read or refused, never a crash. A sanitizer's build of
// this test sees any read outside the file too.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "base/fuzz.h"
#include "gtest/gtest.h"
#include "model/gguf/gguf_checkpoint.h"
#include "model/gguf/tokenizer_spec_gguf.h"

namespace stria {
namespace {

struct Outcome {
  bool parsed = false, opened = false;
};

// Reads everything that the file lets itself be read for.
Outcome ReadAll(const std::string& text) {
  // Exactly as large as its contents, so that a sanitizer knows where it ends.
  const std::vector<uint8_t> bytes(text.begin(), text.end());
  auto file = GgufFile::FromBytes(bytes);
  if (!file.ok()) return {};
  MakeTokenizerSpec(*file).IgnoreError();
  const auto checkpoint = GgufCheckpoint::Create(*std::move(file));
  if (!checkpoint.ok()) return {.parsed = true};
  const ModelConfig& config = (*checkpoint)->config();
  std::vector<float> row(std::max({config.hidden, config.ffn, config.q_width()}));
  const auto read = [&](WeightRole role, int layer, int rows) {
    (*checkpoint)->Read(role, layer, 0, 1, row.data());
    (*checkpoint)->Read(role, layer, rows - 1, rows, row.data());
  };
  read(WeightRole::kEmbedding, 0, config.vocab);
  read(WeightRole::kOutput, 0, config.vocab);
  read(WeightRole::kOutputNorm, 0, 1);
  for (int layer = 0; layer < config.layers; ++layer) {
    read(WeightRole::kQuery, layer, config.q_width());
    read(WeightRole::kKey, layer, config.kv_width());
    read(WeightRole::kValue, layer, config.kv_width());
    read(WeightRole::kAttnOutput, layer, config.hidden);
    read(WeightRole::kGate, layer, config.ffn);
    read(WeightRole::kDown, layer, config.hidden);
  }
  return {.parsed = true, .opened = true};
}

// The kept files, by what they begin with: "taken" open as models, "refused" do not.
std::vector<std::string> Corpus(const std::string& beginning) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator("model/gguf/testdata/fuzz")) {
    if (entry.path().filename().string().starts_with(beginning)) paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  std::vector<std::string> files;
  for (const auto& path : paths) {
    std::ifstream file(path, std::ios::binary);
    files.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return files;
}

TEST(GgufFuzz, KeptFilesAreReadOrRefusedAsTheirNamesSay) {
  ASSERT_GE(Corpus("taken").size(), 3u);
  ASSERT_GE(Corpus("refused").size(), 8u);
  for (const std::string& file : Corpus("taken")) EXPECT_TRUE(ReadAll(file).opened);
  for (const std::string& file : Corpus("refused")) EXPECT_FALSE(ReadAll(file).opened);
}

TEST(GgufFuzz, MutatedFilesAreReadOrRefused) {
  std::vector<std::string> corpus = Corpus("taken");
  for (std::string& file : Corpus("refused")) corpus.push_back(std::move(file));
  ByteMutator mutator(std::move(corpus), 20260, /*head=*/3000);
  const uint64_t total = FuzzRounds(30000);
  uint64_t parsed = 0, opened = 0;
  for (uint64_t i = 0; i < total; ++i) {
    const Outcome outcome = ReadAll(mutator.Next());
    parsed += outcome.parsed;
    opened += outcome.opened;
  }
  std::printf("%d files: %d parsed, %d opened as models\n", static_cast<int>(total), static_cast<int>(parsed), static_cast<int>(opened));
  // The mutations must reach all the depths: neither all refused at once, nor all harmless.
  EXPECT_GT(parsed, total / 20);
  EXPECT_GT(opened, total / 50);
  EXPECT_LT(opened, total / 2);
}

}  // namespace
}  // namespace stria
