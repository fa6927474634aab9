// Frames of the telemetry socket.
#include "proto/codec.h"
#include "proto/codec_util.h"
#include "proto/telemetry_generated.h"

namespace stria {
namespace {

using internal::Refuse;

constexpr char kIdentifier[] = "SCA1";

}  // namespace

std::string Encode(const CanaryFrame& frame) {
  flatbuffers::FlatBufferBuilder builder(2048);
  std::vector<wire::LayerReading> readings;
  readings.reserve(frame.readings.size());
  for (const LayerReading& reading : frame.readings) {
    readings.emplace_back(reading.layer, static_cast<uint8_t>(reading.kind), flatbuffers::make_span(reading.kl));
  }
  builder.Finish(wire::CreateCanaryFrame(builder, builder.CreateString(frame.worker), frame.incarnation,
                                         builder.CreateString(frame.model), frame.rank, frame.ranks, frame.number, frame.epoch,
                                         frame.step, frame.sequences, frame.tokens, frame.cost_seconds,
                                         builder.CreateVectorOfStructs(readings)),
                 kIdentifier);
  return internal::Finish(builder);
}

absl::StatusOr<CanaryFrame> DecodeCanaryFrame(std::string_view bytes) {
  const internal::AlignedFrame aligned(bytes);
  STRIA_ASSIGN_OR_RETURN(const wire::CanaryFrame* from, aligned.Verify<wire::CanaryFrame>(kIdentifier, "telemetry"));
  CanaryFrame frame;
  STRIA_RETURN_IF_ERROR(internal::CopyName("CanaryFrame.worker", from->worker(), frame.worker));
  frame.incarnation = from->incarnation();
  STRIA_RETURN_IF_ERROR(internal::CopyName("CanaryFrame.model", from->model(), frame.model));
  if (from->ranks() == 0 || from->rank() >= from->ranks()) {
    return Refuse("CanaryFrame.rank", absl::StrCat(from->rank(), " of ", from->ranks()));
  }
  frame.rank = from->rank();
  frame.ranks = from->ranks();
  if (from->number() == 0) return Refuse("CanaryFrame.number", 0);
  frame.number = from->number();
  frame.epoch = from->epoch();
  frame.step = from->step();
  frame.sequences = from->sequences();
  frame.tokens = from->tokens();
  if (!std::isfinite(from->cost_seconds()) || from->cost_seconds() < 0) {
    return Refuse("CanaryFrame.cost_seconds", from->cost_seconds());
  }
  frame.cost_seconds = from->cost_seconds();
  if (from->readings() == nullptr) return frame;
  STRIA_RETURN_IF_ERROR(internal::CheckLayers("CanaryFrame.readings", from->readings()->size() / 2));  // two kinds a layer
  for (const wire::LayerReading* reading : *from->readings()) {
    if (reading->layer() >= kMaxLayers) return Refuse("LayerReading.layer", reading->layer());
    if (reading->kind() > static_cast<uint8_t>(CacheKind::kLatent)) return Refuse("LayerReading.kind", int{reading->kind()});
    LayerReading& to = frame.readings.emplace_back();
    to.layer = reading->layer();
    to.kind = static_cast<CacheKind>(reading->kind());
    for (size_t i = 0; i < to.kl.size(); ++i) to.kl[i] = reading->kl()->Get(i);
  }
  return frame;
}

}  // namespace stria
