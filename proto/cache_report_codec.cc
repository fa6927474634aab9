// CacheQuery and CacheReport on the tiers socket.
#include <algorithm>

#include "proto/tier_codec.h"

namespace stria {
namespace {

std::vector<uint8_t> BitsOf(const std::vector<Width>& widths) {
  std::vector<uint8_t> bits(widths.size());
  std::transform(widths.begin(), widths.end(), bits.begin(), [](Width width) { return static_cast<uint8_t>(Bits(width)); });
  return bits;
}

absl::Status CopyWidths(const char* field, const flatbuffers::Vector<uint8_t>* from, std::vector<Width>& to) {
  if (from == nullptr) return absl::OkStatus();
  to.resize(from->size());
  for (uint32_t i = 0; i < from->size(); ++i) STRIA_RETURN_IF_ERROR(internal::CopyWidth(field, from->Get(i), to[i]));
  return absl::OkStatus();
}

absl::StatusOr<SequenceHeld> Decode(const wire::SequenceHeld& from) {
  SequenceHeld held;
  held.name = {from.id(), from.attempt()};
  held.tokens = from.tokens();
  held.positions = from.positions();
  held.tail = from.tail();
  held.ring_keys = from.ring_keys();
  held.prefilling = from.prefilling();
  if (from.page_bytes() != nullptr) {
    if (from.page_bytes()->size() != held.page_bytes.size()) {
      return internal::Refuse("SequenceHeld.page_bytes", absl::StrCat(from.page_bytes()->size(), " widths"));
    }
    std::copy(from.page_bytes()->begin(), from.page_bytes()->end(), held.page_bytes.begin());
  }
  held.ring_bytes = from.ring_bytes();
  held.bytes = from.bytes();
  held.fp16_bytes = from.fp16_bytes();
  return held;
}

}  // namespace

std::string Encode(const CacheQuery& query) {
  flatbuffers::FlatBufferBuilder builder(64);
  return internal::FinishTier(builder, wire::CreateCacheQuery(builder, query.number, query.sequence));
}

std::string Encode(const CacheReport& report) {
  flatbuffers::FlatBufferBuilder builder(4096);
  std::vector<flatbuffers::Offset<wire::SequenceHeld>> sequences;
  for (const SequenceHeld& held : report.sequences) {
    const auto page_bytes = builder.CreateVector(held.page_bytes.data(), held.page_bytes.size());
    sequences.push_back(wire::CreateSequenceHeld(builder, held.name.id, held.name.attempt, held.tokens, held.positions, held.tail,
                                                 held.ring_keys, held.prefilling, page_bytes, held.ring_bytes, held.bytes,
                                                 held.fp16_bytes));
  }
  std::vector<flatbuffers::Offset<wire::LayerPages>> layers;
  for (const LayerPages& pages : report.layers) {
    const auto keys = builder.CreateVector(BitsOf(pages.keys)), values = builder.CreateVector(BitsOf(pages.values));
    layers.push_back(wire::CreateLayerPages(builder, keys, values));
  }
  const auto worker = builder.CreateString(report.worker);
  const auto all = builder.CreateVector(sequences);
  return internal::FinishTier(
      builder, wire::CreateCacheReport(builder, worker, report.incarnation, report.number, report.epoch, report.pool_bytes,
                                       report.used_bytes, all, report.pages_of, builder.CreateVector(layers)));
}

absl::StatusOr<ToController> internal::DecodeReport(const wire::CacheReport& from) {
  CacheReport report;
  STRIA_RETURN_IF_ERROR(CopyName("CacheReport.worker", from.worker(), report.worker));
  report.incarnation = from.incarnation();
  report.number = from.number();
  report.epoch = from.epoch();
  report.pool_bytes = from.pool_bytes();
  report.used_bytes = from.used_bytes();
  if (from.sequences() != nullptr) {
    for (const wire::SequenceHeld* held : *from.sequences()) {
      STRIA_ASSIGN_OR_RETURN(report.sequences.emplace_back(), Decode(*held));
    }
  }
  report.pages_of = from.pages_of();
  if (from.layers() != nullptr) {
    STRIA_RETURN_IF_ERROR(CheckLayers("CacheReport.layers", from.layers()->size()));
    for (const wire::LayerPages* pages : *from.layers()) {
      LayerPages& layer = report.layers.emplace_back();
      STRIA_RETURN_IF_ERROR(CopyWidths("LayerPages.keys", pages->keys(), layer.keys));
      STRIA_RETURN_IF_ERROR(CopyWidths("LayerPages.values", pages->values(), layer.values));
    }
  }
  return report;
}

}  // namespace stria
