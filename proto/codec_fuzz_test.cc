// Kept frames (testdata/frames.txt) and seeded mutations of them: whatever the bytes, each decoder gives an error or a struct, never a crash
// and never much more memory than the frame; and what a decoder takes is well-formed, so that its encoding is taken too.
#include <array>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

#include "absl/strings/escaping.h"
#include "base/fuzz.h"
#include "proto/codec.h"

namespace stria {
namespace {

template <typename... Messages>
std::string Again(const std::variant<Messages...>& message) {
  return std::visit([](const auto& one) { return Encode(one); }, message);
}
std::string Again(const TierVector& tiers) { return Encode(tiers); }

template <typename Decoded>
bool Takes(absl::StatusOr<Decoded> (*decode)(std::string_view), std::string_view frame) {
  const absl::StatusOr<Decoded> decoded = decode(frame);
  if (!decoded.ok()) {
    EXPECT_FALSE(decoded.status().message().empty());
    return false;
  }
  const auto again = decode(Again(*decoded));
  EXPECT_TRUE(again.ok()) << again.status();
  return true;
}

struct Decoder {
  const char* name;
  bool (*takes)(std::string_view frame);
};
constexpr std::array<Decoder, 5> kDecoders = {{
    {"worker", [](std::string_view frame) { return Takes(&DecodeToWorker, frame); }},
    {"scheduler", [](std::string_view frame) { return Takes(&DecodeToScheduler, frame); }},
    {"controller", [](std::string_view frame) { return Takes(&DecodeToController, frame); }},
    {"tiers", [](std::string_view frame) { return Takes(&DecodeTierVector, frame); }},
    {"telemetry", [](std::string_view frame) { return Takes(&DecodeTelemetry, frame); }},
}};

struct Kept {
  std::string decoder;  // the one that takes it; "none"
  std::string frame;
};

std::vector<Kept> Corpus() {
  std::ifstream file("proto/testdata/frames.txt");
  std::vector<Kept> corpus;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string decoder, hex;
    words >> decoder >> hex;
    if (!decoder.empty() && decoder[0] != '#') corpus.push_back({decoder, absl::HexStringToBytes(hex)});
  }
  return corpus;
}

// Frames of earlier builds stay readable: services of two versions talk to each other during an upgrade.
TEST(CodecFuzz, KeptFramesAreTakenByTheirOwnDecoderAlone) {
  const std::vector<Kept> corpus = Corpus();
  ASSERT_GE(corpus.size(), 16u);
  for (const Kept& kept : corpus) {
    for (const Decoder& decoder : kDecoders) {
      EXPECT_EQ(decoder.takes(kept.frame), kept.decoder == decoder.name) << decoder.name << " " << absl::BytesToHexString(kept.frame);
    }
  }
}

TEST(CodecFuzz, MutatedFramesAreTakenOrRefused) {
  std::vector<std::string> frames;
  for (const Kept& kept : Corpus()) frames.push_back(kept.frame);
  ByteMutator mutator(std::move(frames), 20240607);
  const uint64_t rounds = FuzzRounds(200000);
  std::array<uint64_t, kDecoders.size()> taken{};
  for (uint64_t round = 0; round < rounds && !testing::Test::HasFailure(); ++round) {
    const std::string frame = mutator.Next();
    for (size_t i = 0; i < kDecoders.size(); ++i) taken[i] += kDecoders[i].takes(frame);
  }
  for (size_t i = 0; i < kDecoders.size(); ++i) {  // mild enough to reach the fields, and not all harmless
    EXPECT_GT(taken[i], rounds / 1000) << kDecoders[i].name;
    EXPECT_LT(taken[i], rounds / 2) << kDecoders[i].name;
  }
}

}  // namespace
}  // namespace stria
