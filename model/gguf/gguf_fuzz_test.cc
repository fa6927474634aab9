// Seeded mutations of a small valid file: whatever a file holds, it is read or refused, never a crash. A
// sanitizer's build of this test sees any read outside the file too.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>

#include "gtest/gtest.h"
#include "model/gguf/gguf_checkpoint.h"
#include "model/gguf/tiny_model.h"
#include "model/gguf/tokenizer_spec_gguf.h"

namespace stria {
namespace {

struct Outcome {
  bool parsed = false, opened = false;
};

// Reads everything that the file lets itself be read for.
Outcome ReadAll(const std::vector<uint8_t>& bytes) {
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

class Mutator {
 public:
  Mutator(std::vector<uint8_t> original, uint32_t seed) : original_(std::move(original)), random_(seed) {}

  std::vector<uint8_t> Next() {
    std::vector<uint8_t> bytes = original_;
    const int steps = 1 + Below(3);
    for (int i = 0; i < steps && !bytes.empty(); ++i) Step(bytes);
    // Exactly as large as its contents, so that a sanitizer knows where it ends.
    return std::vector<uint8_t>(bytes.begin(), bytes.end());
  }

 private:
  size_t Below(size_t bound) { return random_() % bound; }

  void Step(std::vector<uint8_t>& bytes) {
    // Nearly all of the structure is at the front; the data behind it can hold anything.
    const size_t at = Below(Below(8) == 0 ? bytes.size() : std::min<size_t>(bytes.size(), 3000));
    switch (Below(7)) {
      case 0: bytes[at] ^= static_cast<uint8_t>(1 << Below(8)); return;
      case 1: bytes[at] = static_cast<uint8_t>(random_()); return;
      case 2: bytes.resize(at); return;
      case 3: {  // a number of interest over 1, 2, 4 or 8 bytes
        constexpr uint64_t kNumbers[] = {0,
                                         1,
                                         2,
                                         31,
                                         255,
                                         0x7fffffff,
                                         0xffffffff,
                                         uint64_t{1} << 32,
                                         uint64_t{1} << 60,
                                         uint64_t{1} << 61,
                                         uint64_t{1} << 63,
                                         ~uint64_t{0},
                                         ~uint64_t{31}};
        const uint64_t number = kNumbers[Below(std::size(kNumbers))];
        const size_t size = std::min<size_t>(size_t{1} << Below(4), bytes.size() - at);
        std::memcpy(bytes.data() + at, &number, size);
        return;
      }
      case 4: {  // a piece of the file over another place
        const size_t from = Below(bytes.size()), size = Below(64);
        const size_t count = std::min({size, bytes.size() - at, bytes.size() - from});
        std::memmove(bytes.data() + at, bytes.data() + from, count);
        return;
      }
      case 5: {  // a piece inserted
        const size_t from = Below(bytes.size()), count = std::min<size_t>(Below(64), bytes.size() - from);
        const std::vector<uint8_t> piece(bytes.begin() + from, bytes.begin() + from + count);
        bytes.insert(bytes.begin() + at, piece.begin(), piece.end());
        return;
      }
      case 6: {  // a piece removed
        const size_t count = std::min<size_t>(Below(64), bytes.size() - at);
        bytes.erase(bytes.begin() + at, bytes.begin() + at + count);
        return;
      }
    }
  }

  std::vector<uint8_t> original_;
  std::mt19937 random_;
};

TEST(GgufFuzz, MutatedFilesAreReadOrRefused) {
  int parsed = 0, opened = 0, total = 0;
  for (const char* architecture : {"llama", "qwen2", "qwen3"}) {
    const TinyModel model{
        .architecture = architecture, .extra = [&](GgufBuilder& builder) {
          builder.Text(std::string(architecture) + ".rope.scaling.type", "yarn");
          builder.F32(std::string(architecture) + ".rope.scaling.factor", 2);
          builder.U32("general.alignment", 32);
          builder.ArrayHead("nested", GgufValueType::kArray, 1).Raw(uint32_t{0}).Raw(uint64_t{0});
        }};
    const std::vector<uint8_t> original = model.Build().Build();
    ASSERT_TRUE(ReadAll(original).opened);
    Mutator mutator(original, 20260);
    for (int i = 0; i < 10000; ++i, ++total) {
      const Outcome outcome = ReadAll(mutator.Next());
      parsed += outcome.parsed;
      opened += outcome.opened;
    }
  }
  std::printf("%d files: %d parsed, %d opened as models\n", total, parsed, opened);
  // The mutations must reach all the depths: neither all refused at once, nor all harmless.
  EXPECT_GT(parsed, total / 20);
  EXPECT_GT(opened, total / 50);
  EXPECT_LT(opened, total / 2);
}

}  // namespace
}  // namespace stria
