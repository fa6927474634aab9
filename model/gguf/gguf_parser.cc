#include "model/gguf/gguf_parser.h"

#include <bit>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace stria {
namespace {

static_assert(std::endian::native == std::endian::little, "values are read as they lie in the file");

constexpr uint32_t kMagic = 0x46554747;  // "GGUF"
constexpr uint64_t kDefaultAlignment = 32;
constexpr size_t kMaxKeyLength = 65535;  // the format's own limit
constexpr int kMaxArrayDepth = 4;
constexpr int kMaxRank = 4;

// The fewest bytes that an entry can take: no count may promise more entries than the rest of the file could
// hold.
constexpr uint64_t kMinMetadataBytes = 8 + 1 + 4 + 1;  // key length, key, type, value
constexpr uint64_t kMinTensorBytes =
    8 + 1 + 4 + 8 + 4 + 8;                  // name length, name, rank, one dimension, type, offset
constexpr uint64_t kMinArrayBytes = 4 + 8;  // element type, count

absl::Status WithContext(const absl::Status& status, std::string_view context) {
  return absl::Status(
      status.code(), absl::StrCat(absl::string_view(context.data(), context.size()), ": ", status.message()));
}

// Bytes of a fixed-size value; 0 for strings, arrays and unknown types.
int ScalarBytes(uint32_t type) {
  switch (static_cast<GgufValueType>(type)) {
    case GgufValueType::kUint8:
    case GgufValueType::kInt8:
    case GgufValueType::kBool: return 1;
    case GgufValueType::kUint16:
    case GgufValueType::kInt16: return 2;
    case GgufValueType::kUint32:
    case GgufValueType::kInt32:
    case GgufValueType::kFloat32: return 4;
    case GgufValueType::kUint64:
    case GgufValueType::kInt64:
    case GgufValueType::kFloat64: return 8;
    case GgufValueType::kString:
    case GgufValueType::kArray: break;
  }
  return 0;
}

absl::Status UnknownValueType(uint32_t type) {
  return absl::InvalidArgumentError(absl::StrCat("unknown value type ", type));
}

absl::Status CheckCount(std::string_view what, uint64_t count, uint64_t min_bytes_each, uint64_t remaining) {
  if (count <= remaining / min_bytes_each) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(count, " ", absl::string_view(what.data(), what.size()),
                                                 " cannot fit into the remaining ", remaining, " bytes"));
}

template <typename T, typename Wide>
absl::StatusOr<GgufValue> ReadAs(ByteCursor& cursor) {
  STRIA_ASSIGN_OR_RETURN(const T value, cursor.Read<T>());
  return GgufValue(static_cast<Wide>(value));
}

}  // namespace

absl::StatusOr<GgufFile> GgufParser::Parse() {
  file_.bytes_ = bytes_;
  STRIA_ASSIGN_OR_RETURN(const uint32_t magic, cursor_.Read<uint32_t>());
  if (magic != kMagic) {
    return absl::InvalidArgumentError(absl::StrCat("not a GGUF file: it starts with 0x",
                                                   absl::Hex(__builtin_bswap32(magic), absl::kZeroPad8)));
  }
  STRIA_ASSIGN_OR_RETURN(file_.version_, cursor_.Read<uint32_t>());
  if (file_.version_ == 0x02000000 || file_.version_ == 0x03000000) {
    return absl::UnimplementedError("big-endian GGUF files are not supported");
  }
  if (file_.version_ != 2 && file_.version_ != 3) {
    return absl::UnimplementedError(
        absl::StrCat("GGUF version ", file_.version_, " is not supported (supported: 2, 3)"));
  }
  STRIA_ASSIGN_OR_RETURN(const uint64_t tensor_count, cursor_.Read<uint64_t>());
  STRIA_ASSIGN_OR_RETURN(const uint64_t metadata_count, cursor_.Read<uint64_t>());
  STRIA_RETURN_IF_ERROR(ParseMetadata(metadata_count));
  STRIA_RETURN_IF_ERROR(ParseTensors(tensor_count));
  return std::move(file_);
}

absl::Status GgufParser::ParseMetadata(uint64_t count) {
  STRIA_RETURN_IF_ERROR(CheckCount("metadata entries", count, kMinMetadataBytes, cursor_.remaining()));
  for (uint64_t i = 0; i < count; ++i) {
    auto key = cursor_.ReadString();
    if (!key.ok()) return WithContext(key.status(), absl::StrCat("key of metadata entry ", i));
    if (key->empty() || key->size() > kMaxKeyLength) {
      return absl::InvalidArgumentError(absl::StrCat("key of metadata entry ", i, " has ", key->size(),
                                                     " bytes, not 1 to ", kMaxKeyLength));
    }
    STRIA_ASSIGN_OR_RETURN(const uint32_t type, cursor_.Read<uint32_t>());
    auto value = ParseValue(type);
    if (!value.ok()) return WithContext(value.status(), absl::StrCat("metadata ", QuoteForError(*key)));
    if (!file_.metadata_.emplace(*key, *std::move(value)).second) {
      return absl::InvalidArgumentError(absl::StrCat("metadata ", QuoteForError(*key), " appears twice"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<GgufValue> GgufParser::ParseValue(uint32_t type) {
  switch (static_cast<GgufValueType>(type)) {
    case GgufValueType::kUint8: return ReadAs<uint8_t, uint64_t>(cursor_);
    case GgufValueType::kInt8: return ReadAs<int8_t, int64_t>(cursor_);
    case GgufValueType::kUint16: return ReadAs<uint16_t, uint64_t>(cursor_);
    case GgufValueType::kInt16: return ReadAs<int16_t, int64_t>(cursor_);
    case GgufValueType::kUint32: return ReadAs<uint32_t, uint64_t>(cursor_);
    case GgufValueType::kInt32: return ReadAs<int32_t, int64_t>(cursor_);
    case GgufValueType::kUint64: return ReadAs<uint64_t, uint64_t>(cursor_);
    case GgufValueType::kInt64: return ReadAs<int64_t, int64_t>(cursor_);
    case GgufValueType::kFloat32: return ReadAs<float, double>(cursor_);
    case GgufValueType::kFloat64: return ReadAs<double, double>(cursor_);
    case GgufValueType::kBool: {
      STRIA_ASSIGN_OR_RETURN(const uint8_t value, cursor_.Read<uint8_t>());
      if (value > 1) return absl::InvalidArgumentError(absl::StrCat("boolean is ", value, ", not 0 or 1"));
      return GgufValue(value == 1);
    }
    case GgufValueType::kString: {
      STRIA_ASSIGN_OR_RETURN(const std::string_view value, cursor_.ReadString());
      return GgufValue(value);
    }
    case GgufValueType::kArray: {
      STRIA_ASSIGN_OR_RETURN(GgufArray array, ParseArray(1));
      return GgufValue(std::move(array));
    }
  }
  return UnknownValueType(type);
}

absl::StatusOr<GgufArray> GgufParser::ParseArray(int depth) {
  if (depth > kMaxArrayDepth) {
    return absl::InvalidArgumentError(absl::StrCat("arrays nested deeper than ", kMaxArrayDepth));
  }
  STRIA_ASSIGN_OR_RETURN(const uint32_t element, cursor_.Read<uint32_t>());
  GgufArray array;
  STRIA_ASSIGN_OR_RETURN(array.count, cursor_.Read<uint64_t>());
  array.element = static_cast<GgufValueType>(element);
  const uint64_t begin = cursor_.position();
  if (const int bytes_each = ScalarBytes(element); bytes_each != 0) {
    STRIA_RETURN_IF_ERROR(CheckCount("array elements", array.count, bytes_each, cursor_.remaining()));
    STRIA_RETURN_IF_ERROR(cursor_.Take(array.count * bytes_each).status());
  } else if (array.element == GgufValueType::kString) {
    STRIA_RETURN_IF_ERROR(CheckCount("strings", array.count, sizeof(uint64_t), cursor_.remaining()));
    array.strings.reserve(array.count);
    for (uint64_t i = 0; i < array.count; ++i) {
      STRIA_ASSIGN_OR_RETURN(const std::string_view text, cursor_.ReadString());
      array.strings.push_back(text);
    }
  } else if (array.element == GgufValueType::kArray) {
    STRIA_RETURN_IF_ERROR(CheckCount("arrays", array.count, kMinArrayBytes, cursor_.remaining()));
    for (uint64_t i = 0; i < array.count; ++i) STRIA_RETURN_IF_ERROR(ParseArray(depth + 1).status());
  } else {
    return UnknownValueType(element);
  }
  array.bytes = bytes_.subspan(begin, cursor_.position() - begin);
  return array;
}

absl::StatusOr<uint64_t> GgufParser::Alignment() const {
  STRIA_ASSIGN_OR_RETURN(const std::optional<int64_t> alignment, file_.Integer("general.alignment"));
  if (!alignment) return kDefaultAlignment;
  if (*alignment <= 0 || !std::has_single_bit(static_cast<uint64_t>(*alignment))) {
    return absl::InvalidArgumentError(
        absl::StrCat("general.alignment is ", *alignment, ", not a power of two"));
  }
  return static_cast<uint64_t>(*alignment);
}

absl::Status GgufParser::ParseTensors(uint64_t count) {
  STRIA_ASSIGN_OR_RETURN(const uint64_t alignment, Alignment());
  STRIA_RETURN_IF_ERROR(CheckCount("tensors", count, kMinTensorBytes, cursor_.remaining()));
  std::vector<uint64_t> offsets;
  for (uint64_t i = 0; i < count; ++i) {
    uint64_t offset = 0;
    auto tensor = ParseTensor(&offset);
    if (!tensor.ok())
      return WithContext(tensor.status(), absl::StrCat("entry ", i, " of the tensor directory"));
    if (!file_.tensor_index_.emplace(tensor->name, static_cast<int>(i)).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor ", QuoteForError(tensor->name), " appears twice"));
    }
    file_.tensors_.push_back(*tensor);
    offsets.push_back(offset);
  }
  file_.header_ = bytes_.first(cursor_.position());

  // The data begins at the next multiple of the alignment; offsets count from there.
  const uint64_t padding = (alignment - cursor_.position() % alignment) % alignment;
  if (count > 0 && padding > cursor_.remaining()) {
    return absl::InvalidArgumentError(
        absl::StrCat("truncated: no tensor data after offset ", cursor_.position()));
  }
  const std::span<const uint8_t> data =
      count > 0 ? bytes_.subspan(cursor_.position() + padding) : bytes_.last(0);
  for (uint64_t i = 0; i < count; ++i) {
    GgufTensor& tensor = file_.tensors_[i];
    if (offsets[i] % alignment != 0) {
      return absl::InvalidArgumentError(absl::StrCat("tensor ", QuoteForError(tensor.name), " at offset ",
                                                     offsets[i], " is not aligned to ", alignment));
    }
    // No overflow: ParseTensor has bounded the number of elements by the file's size.
    const uint64_t size = static_cast<uint64_t>(tensor.rows()) * static_cast<uint64_t>(tensor.row_bytes());
    if (offsets[i] > data.size() || size > data.size() - offsets[i]) {
      return absl::InvalidArgumentError(absl::StrCat("tensor ", QuoteForError(tensor.name), " takes ", size,
                                                     " bytes at offset ", offsets[i], ", beyond the ",
                                                     data.size(), " bytes of tensor data"));
    }
    tensor.data = data.subspan(offsets[i], size);
  }
  return absl::OkStatus();
}

absl::StatusOr<GgufTensor> GgufParser::ParseTensor(uint64_t* offset) {
  GgufTensor tensor;
  STRIA_ASSIGN_OR_RETURN(tensor.name, cursor_.ReadString());
  if (tensor.name.empty()) return absl::InvalidArgumentError("tensor without a name");
  const std::string name = absl::StrCat("tensor ", QuoteForError(tensor.name));
  STRIA_ASSIGN_OR_RETURN(const uint32_t rank, cursor_.Read<uint32_t>());
  if (rank < 1 || rank > kMaxRank) {
    return absl::InvalidArgumentError(absl::StrCat(name, " has ", rank, " dimensions, not 1 to ", kMaxRank));
  }
  tensor.rank = static_cast<int>(rank);
  // Even the smallest type spends more than 1/8 of a byte per element, so more elements than bits cannot be
  // there.
  const uint64_t max_elements = bytes_.size() * 8;
  uint64_t elements = 1;
  for (int i = 0; i < tensor.rank; ++i) {
    STRIA_ASSIGN_OR_RETURN(const uint64_t dim, cursor_.Read<uint64_t>());
    if (dim == 0 || dim > max_elements / elements) {
      return absl::InvalidArgumentError(absl::StrCat(name, " has dimension ", dim, " (number ", i,
                                                     "), which a file of ", bytes_.size(),
                                                     " bytes cannot hold"));
    }
    elements *= dim;
    tensor.dims[i] = static_cast<int64_t>(dim);
  }
  STRIA_ASSIGN_OR_RETURN(const uint32_t type, cursor_.Read<uint32_t>());
  auto supported = SupportedGgmlType(type);
  if (!supported.ok()) return WithContext(supported.status(), name);
  tensor.type = *supported;
  if (const int block = LayoutOf(tensor.type).elements; tensor.cols() % block != 0) {
    return absl::InvalidArgumentError(absl::StrCat(name, " has rows of ", tensor.cols(),
                                                   " elements, not a multiple of ", GgmlTypeName(type),
                                                   "'s block of ", block));
  }
  STRIA_ASSIGN_OR_RETURN(*offset, cursor_.Read<uint64_t>());
  return tensor;
}

}  // namespace stria
