#include "model/gguf/gguf_file.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "model/gguf/gguf_parser.h"

namespace stria {
namespace {

// In the order of GgufValue's alternatives.
constexpr const char* kKinds[] = {"an unsigned integer", "a signed integer", "a float",
                                  "a boolean",           "a string",         "an array"};

absl::Status WrongKind(std::string_view key, const GgufValue& value, const char* wanted) {
  return absl::InvalidArgumentError(
      absl::StrCat("metadata ", QuoteForError(key), " is ", kKinds[value.index()], ", not ", wanted));
}

absl::StatusOr<int64_t> ToInt64(std::string_view key, uint64_t value) {
  if (value <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return static_cast<int64_t>(value);
  return absl::InvalidArgumentError(
      absl::StrCat("metadata ", QuoteForError(key), " is ", value, ", out of range"));
}

template <typename T>
std::vector<int64_t> Widen(const GgufArray& array) {
  std::vector<int64_t> out(array.count);
  for (uint64_t i = 0; i < array.count; ++i) {
    T value;
    std::memcpy(&value, array.bytes.data() + i * sizeof(T), sizeof(T));
    out[i] = static_cast<int64_t>(value);
  }
  return out;
}

template <typename T>
absl::StatusOr<std::optional<T>> GetAs(const GgufValue* value, std::string_view key, const char* wanted) {
  if (value == nullptr) return std::optional<T>();
  if (const T* typed = std::get_if<T>(value)) return std::optional<T>(*typed);
  return WrongKind(key, *value, wanted);
}

}  // namespace

absl::StatusOr<GgufFile> GgufFile::Open(const std::string& path) {
  STRIA_ASSIGN_OR_RETURN(MappedFile mapped, MappedFile::Open(path));
  absl::StatusOr<GgufFile> file = FromBytes(mapped.bytes());
  if (!file.ok())
    return absl::Status(file.status().code(), absl::StrCat(path, ": ", file.status().message()));
  file->file_ = std::move(mapped);
  return file;
}

absl::StatusOr<GgufFile> GgufFile::FromBytes(std::span<const uint8_t> bytes) {
  return GgufParser(bytes).Parse();
}

const GgufValue* GgufFile::Find(std::string_view key) const {
  const auto it = metadata_.find(key);
  return it == metadata_.end() ? nullptr : &it->second;
}

const GgufTensor* GgufFile::FindTensor(std::string_view name) const {
  const auto it = tensor_index_.find(name);
  return it == tensor_index_.end() ? nullptr : &tensors_[it->second];
}

absl::StatusOr<std::optional<int64_t>> GgufFile::Integer(std::string_view key) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) return std::optional<int64_t>();
  if (const int64_t* number = std::get_if<int64_t>(value)) return std::optional<int64_t>(*number);
  const uint64_t* number = std::get_if<uint64_t>(value);
  if (number == nullptr) return WrongKind(key, *value, "an integer");
  STRIA_ASSIGN_OR_RETURN(const int64_t narrowed, ToInt64(key, *number));
  return std::optional<int64_t>(narrowed);
}

absl::StatusOr<std::optional<double>> GgufFile::Number(std::string_view key) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) return std::optional<double>();
  if (const double* number = std::get_if<double>(value)) return std::optional<double>(*number);
  if (const int64_t* number = std::get_if<int64_t>(value))
    return std::optional<double>(static_cast<double>(*number));
  if (const uint64_t* number = std::get_if<uint64_t>(value))
    return std::optional<double>(static_cast<double>(*number));
  return WrongKind(key, *value, "a number");
}

absl::StatusOr<std::optional<bool>> GgufFile::Bool(std::string_view key) const {
  return GetAs<bool>(Find(key), key, "a boolean");
}

absl::StatusOr<std::optional<std::string_view>> GgufFile::String(std::string_view key) const {
  return GetAs<std::string_view>(Find(key), key, "a string");
}

absl::StatusOr<std::optional<std::span<const std::string_view>>> GgufFile::Strings(
    std::string_view key) const {
  using Result = std::optional<std::span<const std::string_view>>;
  const GgufValue* value = Find(key);
  if (value == nullptr) return Result();
  const GgufArray* array = std::get_if<GgufArray>(value);
  if (array == nullptr || (array->element != GgufValueType::kString && array->count > 0)) {
    return WrongKind(key, *value, "an array of strings");
  }
  return Result(array->strings);
}

absl::StatusOr<std::optional<std::vector<int64_t>>> GgufFile::Integers(std::string_view key) const {
  using Result = std::optional<std::vector<int64_t>>;
  const GgufValue* value = Find(key);
  if (value == nullptr) return Result();
  if (const GgufArray* array = std::get_if<GgufArray>(value)) {
    switch (array->element) {
      case GgufValueType::kUint8: return Result(Widen<uint8_t>(*array));
      case GgufValueType::kInt8: return Result(Widen<int8_t>(*array));
      case GgufValueType::kUint16: return Result(Widen<uint16_t>(*array));
      case GgufValueType::kInt16: return Result(Widen<int16_t>(*array));
      case GgufValueType::kUint32: return Result(Widen<uint32_t>(*array));
      case GgufValueType::kInt32: return Result(Widen<int32_t>(*array));
      case GgufValueType::kInt64: return Result(Widen<int64_t>(*array));
      default: break;  // uint64 is not used for anything that we read
    }
  }
  return WrongKind(key, *value, "an array of integers");
}

std::string QuoteForError(std::string_view name) {
  constexpr size_t kLongest = 80;
  const absl::string_view shown(name.data(), std::min(name.size(), kLongest));
  return absl::StrCat("'", absl::CHexEscape(shown), name.size() > kLongest ? "'..." : "'");
}

}  // namespace stria
