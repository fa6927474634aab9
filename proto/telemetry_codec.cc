// Frames of the telemetry socket.
#include "proto/codec.h"
#include "proto/codec_util.h"
#include "proto/telemetry_generated.h"

namespace stria {
namespace {

using internal::AlignedFrame;
using internal::Refuse;

constexpr char kCanaryIdentifier[] = "SCA1", kQualityIdentifier[] = "SQU1";
constexpr size_t kMaxLengths = 32;           // buckets: powers of two of a 32-bit length
constexpr uint64_t kMaxTokens = 1'000'000;   // scored between two frames
constexpr double kMaxKl = 1000;              // nats a token: beyond what any two rows of logits differ by

// The fields that all frames have in common. `name` is the table's, for messages.
template <typename Table>
absl::Status DecodeHeader(const Table& from, const std::string& name, TelemetryHeader& header) {
  const auto field = [&](const char* of) { return absl::StrCat(name, ".", of); };
  STRIA_RETURN_IF_ERROR(internal::CopyName(field("worker").c_str(), from.worker(), header.worker));
  header.incarnation = from.incarnation();
  STRIA_RETURN_IF_ERROR(internal::CopyName(field("model").c_str(), from.model(), header.model));
  if (from.ranks() == 0 || from.rank() >= from.ranks()) {
    return Refuse(field("rank").c_str(), absl::StrCat(from.rank(), " of ", from.ranks()));
  }
  header.rank = from.rank();
  header.ranks = from.ranks();
  if (from.number() == 0) return Refuse(field("number").c_str(), 0);
  header.number = from.number();
  header.epoch = from.epoch();
  return absl::OkStatus();
}

absl::StatusOr<CanaryFrame> Decode(const wire::CanaryFrame& from) {
  CanaryFrame frame;
  STRIA_RETURN_IF_ERROR(DecodeHeader(from, "CanaryFrame", frame));
  frame.step = from.step();
  frame.sequences = from.sequences();
  frame.tokens = from.tokens();
  if (!std::isfinite(from.cost_seconds()) || from.cost_seconds() < 0) {
    return Refuse("CanaryFrame.cost_seconds", from.cost_seconds());
  }
  frame.cost_seconds = from.cost_seconds();
  if (from.readings() == nullptr) return frame;
  STRIA_RETURN_IF_ERROR(internal::CheckLayers("CanaryFrame.readings", from.readings()->size() / 2));  // two kinds a layer
  for (const wire::LayerReading* reading : *from.readings()) {
    if (reading->layer() >= kMaxLayers) return Refuse("LayerReading.layer", reading->layer());
    if (reading->kind() > static_cast<uint8_t>(CacheKind::kLatent)) return Refuse("LayerReading.kind", int{reading->kind()});
    LayerReading& to = frame.readings.emplace_back();
    to.layer = reading->layer();
    to.kind = static_cast<CacheKind>(reading->kind());
    for (size_t i = 0; i < to.kl.size(); ++i) to.kl[i] = reading->kl()->Get(i);
  }
  return frame;
}

absl::StatusOr<QualityFrame> Decode(const wire::QualityFrame& from) {
  QualityFrame frame;
  STRIA_RETURN_IF_ERROR(DecodeHeader(from, "QualityFrame", frame));
  if (from.readings() == nullptr) return frame;
  if (from.readings()->size() > kMaxLengths) return Refuse("QualityFrame.readings", absl::StrCat(from.readings()->size(), " lengths"));
  for (const wire::QualityReading* reading : *from.readings()) {
    const bool ascends = frame.readings.empty() || reading->length() > frame.readings.back().length;
    if (!ascends || (reading->length() & (reading->length() - 1)) != 0) return Refuse("QualityReading.length", reading->length());
    if (reading->tokens() == 0 || reading->tokens() > kMaxTokens) return Refuse("QualityReading.tokens", reading->tokens());
    if (!(reading->kl() >= 0 && reading->kl() <= kMaxKl * static_cast<double>(reading->tokens()))) {  // NaN fails too
      return Refuse("QualityReading.kl", reading->kl());
    }
    frame.readings.push_back({reading->length(), reading->tokens(), reading->kl()});
  }
  return frame;
}

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
                 kCanaryIdentifier);
  return internal::Finish(builder);
}

std::string Encode(const QualityFrame& frame) {
  flatbuffers::FlatBufferBuilder builder(512);
  std::vector<wire::QualityReading> readings;
  for (const QualityReading& reading : frame.readings) readings.emplace_back(reading.length, reading.tokens, reading.kl);
  builder.Finish(wire::CreateQualityFrame(builder, builder.CreateString(frame.worker), frame.incarnation,
                                          builder.CreateString(frame.model), frame.rank, frame.ranks, frame.number, frame.epoch,
                                          builder.CreateVectorOfStructs(readings)),
                 kQualityIdentifier);
  return internal::Finish(builder);
}

absl::StatusOr<Telemetry> DecodeTelemetry(std::string_view bytes) {
  const AlignedFrame aligned(bytes);
  const absl::StatusOr<const wire::QualityFrame*> quality = aligned.Verify<wire::QualityFrame>(kQualityIdentifier, "telemetry");
  if (quality.ok()) {
    STRIA_ASSIGN_OR_RETURN(QualityFrame frame, Decode(**quality));
    return frame;
  }
  STRIA_ASSIGN_OR_RETURN(const wire::CanaryFrame* canary, aligned.Verify<wire::CanaryFrame>(kCanaryIdentifier, "telemetry"));
  STRIA_ASSIGN_OR_RETURN(CanaryFrame frame, Decode(*canary));
  return frame;
}

}  // namespace stria
