#include "eval/canary_recording.h"

#include <cstdio>
#include <fstream>

#include "gtest/gtest.h"

namespace stria {
namespace {

std::string Write(const std::string& text) {
  const std::string path = testing::TempDir() + "/recording.csv";
  std::ofstream(path) << text;
  return path;
}

TEST(CanaryRecording, ReadsBackToAMillionthOfANat) {
  const RecordedFiring firing{.workload = "w", .text = 3, .tokens = 700, .layers = {{0.5f, 0.0123456f, 4e-5f}, {7, 0, 1e-7f}}};
  const auto read = ReadRecording(Write(FormatFiring(firing) + FormatFiring(firing)));
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ(read->size(), 2u);
  const RecordedFiring& back = read->at(1);
  EXPECT_EQ(back.workload, "w");
  EXPECT_EQ(back.text, 3u);
  EXPECT_EQ(back.tokens, 700u);
  ASSERT_EQ(back.layers.size(), 2u);
  for (size_t l = 0; l < 2; ++l)
    for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(back.layers[l][i], firing.layers[l][i], 5.1e-7);
}

TEST(CanaryRecording, NamesTheLineThatIsNone) {
  for (const char* bad : {"w,0,64,1,2\n", "w,0,64,1,2,x\n", "w,-1,64,1,2,3\n", ",0,64,1,2,3\n", "w,0,64,1,2,3,4,5,6\n", "w,0,64,1,2,-3\n"}) {
    const auto read = ReadRecording(Write(std::string("w,0,64,1,2,3\n") + bad));
    ASSERT_FALSE(read.ok()) << bad;
    EXPECT_NE(read.status().message().find(":2:"), read.status().message().npos);
  }
  EXPECT_FALSE(ReadRecording(Write("")).ok());
  EXPECT_FALSE(ReadRecording("/nowhere/x.csv").ok());
}

}  // namespace
}  // namespace stria
