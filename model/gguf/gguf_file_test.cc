#include "model/gguf/gguf_file.h"

#include <unistd.h>

#include <fstream>
#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/gguf/gguf_builder.h"

namespace stria {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr uint64_t kHuge = uint64_t{1} << 60;

GgufBuilder Sample() {
  GgufBuilder builder;
  builder.Add<uint8_t>("u8", GgufValueType::kUint8, 200)
      .Add<int8_t>("i8", GgufValueType::kInt8, -100)
      .Add<uint16_t>("u16", GgufValueType::kUint16, 60000)
      .Add<int16_t>("i16", GgufValueType::kInt16, -30000)
      .U32("u32", 4000000000u)
      .Add<int32_t>("i32", GgufValueType::kInt32, -2000000000)
      .F32("f32", 0.25f)
      .Bool("no", 0)
      .Bool("yes", 1)
      .Text("text", "Stria")
      .Strings("words", {"a", "", "ccc"})
      .Array<int32_t>("numbers", GgufValueType::kInt32, {1, -2, 3})
      .Add<uint64_t>("u64", GgufValueType::kUint64, std::numeric_limits<uint64_t>::max())
      .Add<int64_t>("i64", GgufValueType::kInt64, std::numeric_limits<int64_t>::min())
      .Add<double>("f64", GgufValueType::kFloat64, 0.1)
      .F32Tensor("vector", {3}, {1, 2, 3})
      .F32Tensor("matrix", {2, 3}, {1, 2, 3, 4, 5, 6});
  return builder;
}

std::string ErrorOf(const GgufBuilder& builder) {
  const std::vector<uint8_t> bytes = builder.Build();
  const auto file = GgufFile::FromBytes(bytes);
  return file.ok() ? "" : std::string(file.status().message());
}

TEST(GgufFile, ReadsEveryValueType) {
  for (const uint32_t version : {2, 3}) {
    GgufBuilder builder = Sample();
    builder.version = version;
    const std::vector<uint8_t> bytes = builder.Build();
    const auto file = GgufFile::FromBytes(bytes);
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ(file->version(), version);
    EXPECT_EQ(file->Integer("u8")->value(), 200);
    EXPECT_EQ(file->Integer("i8")->value(), -100);
    EXPECT_EQ(file->Integer("u16")->value(), 60000);
    EXPECT_EQ(file->Integer("i16")->value(), -30000);
    EXPECT_EQ(file->Integer("u32")->value(), 4000000000);
    EXPECT_EQ(file->Integer("i32")->value(), -2000000000);
    EXPECT_EQ(file->Integer("i64")->value(), std::numeric_limits<int64_t>::min());
    EXPECT_EQ(file->Number("f32")->value(), 0.25);
    EXPECT_EQ(file->Number("f64")->value(), 0.1);
    EXPECT_EQ(file->Number("i8")->value(), -100);
    EXPECT_FALSE(file->Bool("no")->value());
    EXPECT_TRUE(file->Bool("yes")->value());
    EXPECT_EQ(file->String("text")->value(), "Stria");
    EXPECT_THAT(file->Strings("words")->value(), ElementsAre("a", "", "ccc"));
    EXPECT_THAT(file->Integers("numbers")->value(), ElementsAre(1, -2, 3));
  }
}

TEST(GgufFile, AbsentKeysAndWrongTypesDiffer) {
  const std::vector<uint8_t> bytes = Sample().Build();
  const auto file = GgufFile::FromBytes(bytes);
  ASSERT_TRUE(file.ok());
  EXPECT_FALSE(file->Integer("absent")->has_value());
  EXPECT_FALSE(file->Strings("absent")->has_value());
  EXPECT_EQ(file->Integer("text").status().message(), "metadata 'text' is a string, not an integer");
  EXPECT_EQ(file->Integer("f32").status().message(), "metadata 'f32' is a float, not an integer");
  EXPECT_EQ(file->Integer("u64").status().message(), "metadata 'u64' is 18446744073709551615, out of range");
  EXPECT_EQ(file->Number("yes").status().message(), "metadata 'yes' is a boolean, not a number");
  EXPECT_EQ(file->Bool("u8").status().message(), "metadata 'u8' is an unsigned integer, not a boolean");
  EXPECT_EQ(file->Strings("numbers").status().message(),
            "metadata 'numbers' is an array, not an array of strings");
  EXPECT_EQ(file->Integers("words").status().message(),
            "metadata 'words' is an array, not an array of integers");
}

TEST(GgufFile, TensorsLieWhereTheDirectorySays) {
  const std::vector<uint8_t> bytes = Sample().Build();
  const auto file = GgufFile::FromBytes(bytes);
  ASSERT_TRUE(file.ok());
  ASSERT_EQ(file->tensors().size(), 2u);
  const GgufTensor* matrix = file->FindTensor("matrix");
  ASSERT_NE(matrix, nullptr);
  EXPECT_EQ(matrix->rows(), 3);
  EXPECT_EQ(matrix->cols(), 2);
  EXPECT_EQ(matrix->row_bytes(), 8);
  ASSERT_EQ(matrix->data.size(), 24u);
  float last;
  std::memcpy(&last, matrix->data.data() + 20, 4);
  EXPECT_EQ(last, 6);
  EXPECT_EQ(matrix->data.data() + 24, bytes.data() + bytes.size());
  EXPECT_EQ(file->FindTensor("absent"), nullptr);
}

TEST(GgufFile, EveryTruncationIsRefused) {
  const std::vector<uint8_t> bytes = Sample().Build();
  for (size_t size = 0; size < bytes.size(); ++size) {
    // A copy of its own, so that a sanitizer sees a read beyond the end.
    const std::vector<uint8_t> cut(bytes.begin(), bytes.begin() + size);
    EXPECT_FALSE(GgufFile::FromBytes(cut).ok()) << size;
  }
}

TEST(GgufFile, BadMagicAndVersions) {
  GgufBuilder builder = Sample();
  builder.magic = 0x4c4d4747;
  EXPECT_EQ(ErrorOf(builder), "not a GGUF file: it starts with 0x47474d4c");
  builder = Sample();
  builder.version = 1;
  EXPECT_THAT(ErrorOf(builder), HasSubstr("version 1 "));
  builder.version = 4;
  EXPECT_THAT(ErrorOf(builder), HasSubstr("version 4 "));
  builder.version = 0x03000000;
  EXPECT_THAT(ErrorOf(builder), HasSubstr("big-endian"));
}

TEST(GgufFile, CountsBeyondTheFile) {
  GgufBuilder builder = Sample();
  builder.extra_metadata = kHuge;
  EXPECT_THAT(ErrorOf(builder), HasSubstr("1152921504606846991 metadata entries cannot fit"));
  builder = Sample();
  builder.extra_tensors = kHuge;
  EXPECT_THAT(ErrorOf(builder), HasSubstr("1152921504606846978 tensors cannot fit"));
  builder.extra_tensors = -3;  // 2^64 - 1
  EXPECT_THAT(ErrorOf(builder), HasSubstr("18446744073709551615 tensors cannot fit"));
  EXPECT_THAT(ErrorOf(GgufBuilder().ArrayHead("a", GgufValueType::kUint64, kHuge)),
              HasSubstr("1152921504606846976 array"));
  EXPECT_THAT(ErrorOf(GgufBuilder().ArrayHead("a", GgufValueType::kString, kHuge)),
              HasSubstr("'a': 1152921504606846976 strings"));
  EXPECT_THAT(ErrorOf(GgufBuilder().ArrayHead("a", GgufValueType::kArray, kHuge)),
              HasSubstr("1152921504606846976 arrays"));
  // 2^61 elements of 8 bytes are 2^64: 0 to whoever multiplies first.
  EXPECT_THAT(ErrorOf(GgufBuilder().ArrayHead("a", GgufValueType::kUint64, kHuge * 2)),
              HasSubstr("2305843009213693952"));
}

TEST(GgufFile, StringsBeyondTheFile) {
  for (const uint64_t length : {uint64_t{100}, kHuge, std::numeric_limits<uint64_t>::max()}) {
    const GgufBuilder builder = GgufBuilder().Add("s", GgufValueType::kString, length);
    EXPECT_THAT(ErrorOf(builder),
                HasSubstr("metadata 's': truncated: " + std::to_string(length) + " bytes wanted"));
  }
}

TEST(GgufFile, BadValues) {
  EXPECT_THAT(ErrorOf(GgufBuilder().Bool("b", 2)), HasSubstr("'b': boolean is 2"));
  EXPECT_THAT(ErrorOf(GgufBuilder().Add("x", static_cast<GgufValueType>(13), 0)),
              HasSubstr("'x': unknown value type 13"));
  EXPECT_THAT(ErrorOf(GgufBuilder().ArrayHead("x", static_cast<GgufValueType>(99), 0)),
              HasSubstr("unknown value type 99"));
  EXPECT_THAT(ErrorOf(GgufBuilder().U32("", 1)), HasSubstr("has 0 bytes"));
  EXPECT_THAT(ErrorOf(GgufBuilder().U32(std::string(70000, 'k'), 1)), HasSubstr("has 70000 bytes"));
  EXPECT_EQ(ErrorOf(GgufBuilder().U32("twice", 1).U32("twice", 2)), "metadata 'twice' appears twice");
  EXPECT_EQ(ErrorOf(GgufBuilder().U32("a\n\x01", 1).U32("a\n\x01", 2)), "metadata 'a\\n\\x01' appears twice");
}

TEST(GgufFile, NestedArraysHaveALimit) {
  for (const int depth : {1, 4, 5, 1000}) {
    GgufBuilder builder;
    builder.ArrayHead("deep", depth == 1 ? GgufValueType::kUint8 : GgufValueType::kArray, 1);
    for (int i = 2; i <= depth; ++i) {
      builder.Raw(static_cast<uint32_t>(i == depth ? GgufValueType::kUint8 : GgufValueType::kArray))
          .Raw(uint64_t{1});
    }
    builder.Raw(uint8_t{7});
    if (depth <= 4) {
      EXPECT_EQ(ErrorOf(builder), "") << depth;
    } else {
      EXPECT_EQ(ErrorOf(builder), "metadata 'deep': arrays nested deeper than 4") << depth;
    }
  }
}

TEST(GgufFile, Alignment) {
  for (const uint32_t alignment : {1, 8, 64, 4096}) {
    GgufBuilder builder = Sample();
    builder.alignment = alignment;
    // Sample placed its tensors at 0 and 32: fine for 1 and 8 only.
    builder.U32("general.alignment", alignment);
    if (alignment <= 8) {
      EXPECT_EQ(ErrorOf(builder), "");
    } else {
      EXPECT_THAT(ErrorOf(builder), HasSubstr("'matrix' at offset 32 is not aligned to"));
    }
  }
  for (const uint32_t alignment : {0u, 3u, 48u, 4294967295u}) {
    EXPECT_EQ(ErrorOf(Sample().U32("general.alignment", alignment)),
              "general.alignment is " + std::to_string(alignment) + ", not a power of two");
  }
  EXPECT_THAT(ErrorOf(Sample().Add<int64_t>("general.alignment", GgufValueType::kInt64, -32)),
              HasSubstr("is -32"));
  EXPECT_THAT(ErrorOf(Sample().Text("general.alignment", "32")), HasSubstr("a string, not an integer"));
  EXPECT_THAT(ErrorOf(Sample().Add("general.alignment", GgufValueType::kUint64, kHuge)),
              HasSubstr("no tensor data"));
}

TEST(GgufFile, HostileTensors) {
  const auto with = [](uint32_t rank, const std::vector<uint64_t>& dims, uint32_t type, uint64_t offset) {
    return ErrorOf(Sample().RawTensor("bad", rank, dims, type, offset));
  };
  EXPECT_THAT(with(1, {kHuge}, 0, 0), HasSubstr("tensor 'bad' has dimension 1152921504606846976"));
  EXPECT_THAT(with(2, {1 << 8, kHuge}, 0, 0), HasSubstr("dimension 1152921504606846976"));
  EXPECT_THAT(with(4, {1 << 10, 1 << 10, 1 << 10, 1 << 10}, 0, 0), HasSubstr("cannot hold"));
  EXPECT_THAT(with(2, {uint64_t{1} << 32, uint64_t{1} << 32}, 0, 0), HasSubstr("cannot hold"));
  EXPECT_THAT(with(1, {1024}, 0, 0),
              HasSubstr("tensor 'bad' takes 4096 bytes at offset 0, beyond the 56 bytes"));
  EXPECT_THAT(with(2, {0, 4}, 0, 0), HasSubstr("dimension 0"));
  EXPECT_THAT(with(0, {}, 0, 0), HasSubstr("0 dimensions"));
  EXPECT_THAT(with(5, {1, 1, 1, 1, 1}, 0, 0), HasSubstr("5 dimensions"));
  EXPECT_THAT(with(4000000000u, {1}, 0, 0), HasSubstr("4000000000 dimensions"));
  EXPECT_THAT(with(1, {256}, 10, 0), HasSubstr("tensor 'bad': storage type Q2_K is not supported"));
  EXPECT_THAT(with(1, {4}, 4294967295u, 0), HasSubstr("number 4294967295"));
  EXPECT_THAT(with(1, {48}, 2, 0), HasSubstr("rows of 48 elements, not a multiple of Q4_0's block of 32"));
  EXPECT_THAT(with(2, {64, 4}, 12, 0), HasSubstr("not a multiple of Q4_K's block of 256"));
  EXPECT_THAT(with(1, {4}, 0, 16), HasSubstr("at offset 16 is not aligned to 32"));
  EXPECT_THAT(with(1, {4}, 0, 64), HasSubstr("takes 16 bytes at offset 64"));
  EXPECT_THAT(with(1, {4}, 0, kHuge), HasSubstr("at offset 1152921504606846976"));
  EXPECT_THAT(with(1, {4}, 0, uint64_t{0} - 32), HasSubstr("at offset 18446744073709551584"));
  EXPECT_EQ(ErrorOf(Sample().F32Tensor("vector", {1}, {0})), "tensor 'vector' appears twice");
  EXPECT_THAT(ErrorOf(Sample().F32Tensor("", {1}, {0})), HasSubstr("tensor without a name"));
}

TEST(GgufFile, OpensFilesAndNamesThemInErrors) {
  const std::string path = ::testing::TempDir() + "/sample-" + std::to_string(getpid()) + ".gguf";
  const std::vector<uint8_t> bytes = Sample().Build();
  std::ofstream(path, std::ios::binary).write(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  {
    auto file = GgufFile::Open(path);
    ASSERT_TRUE(file.ok()) << file.status();
    const GgufFile moved = *std::move(file);
    EXPECT_EQ(moved.String("text")->value(), "Stria");
    EXPECT_EQ(moved.FindTensor("vector")->rows(), 1);
  }
  ASSERT_EQ(truncate(path.c_str(), 40), 0);
  EXPECT_THAT(std::string(GgufFile::Open(path).status().message()), HasSubstr(path + ": "));
  ASSERT_EQ(truncate(path.c_str(), 0), 0);
  EXPECT_THAT(std::string(GgufFile::Open(path).status().message()),
              HasSubstr("truncated: 4 bytes wanted at offset 0"));
  EXPECT_EQ(GgufFile::Open(path + ".absent").status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(GgufFile::Open(::testing::TempDir()).status().message()),
              HasSubstr("not a regular file"));
  unlink(path.c_str());
}

}  // namespace
}  // namespace stria
