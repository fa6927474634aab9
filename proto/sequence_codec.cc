// Frames of the sequences socket.
#include "proto/codec.h"
#include "proto/codec_util.h"
#include "proto/sequences_generated.h"

namespace stria {
namespace {

using internal::AlignedFrame;
using internal::CopyFinite;
using internal::CopyName;
using internal::CopyNumbers;
using internal::CopyText;
using internal::CopyWidth;
using internal::Refuse;

constexpr char kIdentifier[] = "SSQ1";

template <typename Message>
std::string FinishSequence(flatbuffers::FlatBufferBuilder& builder, flatbuffers::Offset<Message> message) {
  builder.Finish(wire::CreateSequenceFrame(builder, wire::SequenceMessageTraits<Message>::enum_value, message.Union()),
                 kIdentifier);
  return internal::Finish(builder);
}

wire::SequenceName ToWire(const SequenceName& name) { return wire::SequenceName(name.id, name.attempt); }

absl::Status CopySequence(const wire::SequenceName* from, SequenceName& to) {
  if (from == nullptr) return Refuse("SequenceName", "absent");
  to = {from->id(), from->attempt()};
  return absl::OkStatus();
}

flatbuffers::Offset<wire::Sampling> ToWire(flatbuffers::FlatBufferBuilder& builder, const SamplingParams& from) {
  std::vector<wire::LogitBias> bias;
  bias.reserve(from.logit_bias.size());
  for (const auto& [token, value] : from.logit_bias) bias.emplace_back(token, value);
  const auto bias_offset = bias.empty() ? 0 : builder.CreateVectorOfStructs(bias);
  return wire::CreateSampling(builder, from.temperature, from.top_p, from.top_k, from.min_p, from.presence_penalty,
                              from.frequency_penalty, from.repetition_penalty, bias_offset, from.seed, from.choice,
                              from.top_logprobs);
}

absl::Status FromWire(const wire::Sampling& from, SamplingParams& to) {
  STRIA_RETURN_IF_ERROR(CopyFinite("Sampling.temperature", from.temperature(), to.temperature));
  STRIA_RETURN_IF_ERROR(CopyFinite("Sampling.top_p", from.top_p(), to.top_p));
  to.top_k = from.top_k();
  STRIA_RETURN_IF_ERROR(CopyFinite("Sampling.min_p", from.min_p(), to.min_p));
  STRIA_RETURN_IF_ERROR(CopyFinite("Sampling.presence_penalty", from.presence_penalty(), to.presence_penalty));
  STRIA_RETURN_IF_ERROR(CopyFinite("Sampling.frequency_penalty", from.frequency_penalty(), to.frequency_penalty));
  STRIA_RETURN_IF_ERROR(CopyFinite("Sampling.repetition_penalty", from.repetition_penalty(), to.repetition_penalty));
  if (from.logit_bias() != nullptr) {
    to.logit_bias.reserve(from.logit_bias()->size());
    for (const wire::LogitBias* bias : *from.logit_bias()) {
      float value = 0;
      STRIA_RETURN_IF_ERROR(CopyFinite("Sampling.logit_bias", bias->bias(), value));
      to.logit_bias.emplace_back(bias->token(), value);
    }
  }
  to.seed = from.seed();
  to.choice = from.choice();
  to.top_logprobs = from.top_logprobs();
  return absl::OkStatus();
}

absl::Status FromWire(const wire::LayerAction& from, LayerAction& to) {
  if (from.kind() > static_cast<uint8_t>(LayerAction::Kind::kInherit)) return Refuse("LayerAction.kind", int{from.kind()});
  to.kind = static_cast<LayerAction::Kind>(from.kind());
  STRIA_RETURN_IF_ERROR(CopyWidth("LayerAction.keys", from.keys(), to.keys));
  STRIA_RETURN_IF_ERROR(CopyWidth("LayerAction.values", from.values(), to.values));
  STRIA_RETURN_IF_ERROR(CopyWidth("LayerAction.latent", from.latent(), to.latent));
  to.rank = from.rank();
  return absl::OkStatus();
}

absl::StatusOr<ToWorker> Decode(const wire::StartSequence& from) {
  StartSequence start;
  STRIA_RETURN_IF_ERROR(CopySequence(from.name(), start.name));
  start.prompt = CopyNumbers(from.prompt());
  if (start.prompt.empty()) return Refuse("StartSequence.prompt", "empty");
  if (from.delivered() > start.prompt.size()) {
    return Refuse("StartSequence.delivered", absl::StrCat(from.delivered(), ", more than its prompt's ", start.prompt.size()));
  }
  start.delivered = from.delivered();
  start.max_new_tokens = from.max_new_tokens();
  start.priority = from.priority();
  start.stop_tokens = CopyNumbers(from.stop_tokens());
  start.forced = CopyNumbers(from.forced());
  if (from.sampling() != nullptr) STRIA_RETURN_IF_ERROR(FromWire(*from.sampling(), start.sampling));
  start.plan.follow_tiers = from.follow_tiers();
  start.plan.keep_tokens = from.keep_tokens();
  if (from.layers() != nullptr) {
    STRIA_RETURN_IF_ERROR(internal::CheckLayers("StartSequence.layers", from.layers()->size()));
    for (const wire::LayerAction* layer : *from.layers()) {
      STRIA_RETURN_IF_ERROR(FromWire(*layer, start.plan.layers.emplace_back()));
    }
  }
  start.plan.widen = from.widen();
  start.share_prefix = from.share_prefix();
  STRIA_RETURN_IF_ERROR(CopyText("StartSequence.cache_salt", from.cache_salt(), start.cache_salt));
  return start;
}

absl::StatusOr<ToWorker> Decode(const wire::AckSequence& from) {
  AckSequence ack;
  STRIA_RETURN_IF_ERROR(CopySequence(from.name(), ack.name));
  ack.tokens = from.tokens();
  ack.finished = from.finished();
  return ack;
}

absl::StatusOr<ToScheduler> Decode(const wire::WorkerHello& from) {
  WorkerHello hello;
  STRIA_RETURN_IF_ERROR(CopyName("WorkerHello.worker", from.worker(), hello.worker));
  hello.incarnation = from.incarnation();
  STRIA_RETURN_IF_ERROR(CopyName("WorkerHello.model", from.model(), hello.model));
  STRIA_RETURN_IF_ERROR(CopyText("WorkerHello.model_name", from.model_name(), hello.model_name));
  STRIA_RETURN_IF_ERROR(CopyText("WorkerHello.http", from.http(), hello.http));
  hello.vocab = from.vocab();
  hello.max_context = from.max_context();
  hello.max_sequences = from.max_sequences();
  hello.sink_pages = from.sink_pages();
  hello.pool_bytes = from.pool_bytes();
  hello.staging_bytes_per_token = from.staging_bytes_per_token();
  hello.staging_bytes_max = from.staging_bytes_max();
  if (from.layers() == nullptr) return hello;
  STRIA_RETURN_IF_ERROR(internal::CheckLayers("WorkerHello.layers", from.layers()->size()));
  for (const wire::LayerBytes* layer : *from.layers()) {
    LayerBytes& to = hello.layers.emplace_back();
    for (int i = 0; i < 4; ++i) {
      to.key_page[i] = layer->key_page()->Get(i);
      to.value_page[i] = layer->value_page()->Get(i);
    }
    to.ring = layer->ring();
  }
  return hello;
}

absl::StatusOr<ToScheduler> Decode(const wire::WorkerStatus& from) {
  WorkerStatus status;
  STRIA_RETURN_IF_ERROR(CopyName("WorkerStatus.worker", from.worker(), status.worker));
  status.incarnation = from.incarnation();
  status.scheduler = from.scheduler();
  status.pool_bytes = from.pool_bytes();
  status.used_bytes = from.used_bytes();
  status.staging_bytes = from.staging_bytes();
  status.running = from.running();
  status.prefilling = from.prefilling();
  status.epoch = from.epoch();
  status.key_bits = CopyNumbers(from.key_bits());
  status.value_bits = CopyNumbers(from.value_bits());
  status.guard_bits = CopyNumbers(from.guard_bits());
  STRIA_RETURN_IF_ERROR(internal::CheckLayers("WorkerStatus.key_bits", status.key_bits.size()));
  if (status.key_bits.size() != status.value_bits.size()) {
    return Refuse("WorkerStatus.value_bits", absl::StrCat(status.value_bits.size(), " layers, keys ", status.key_bits.size()));
  }
  if (!status.guard_bits.empty() && status.guard_bits.size() != status.key_bits.size()) {
    return Refuse("WorkerStatus.guard_bits", absl::StrCat(status.guard_bits.size(), " layers, keys ", status.key_bits.size()));
  }
  for (const auto* bits : {&status.key_bits, &status.value_bits, &status.guard_bits}) {
    for (uint8_t b : *bits) {
      if (!IsWidth(b)) return Refuse("WorkerStatus width", absl::StrCat(b, " bits"));
    }
  }
  status.draining = from.draining();
  status.idle_bytes = from.idle_bytes();
  status.shared_bytes = from.shared_bytes();
  return status;
}

// A vector of tables may name one table many times. `budget` is what a frame of its size can hold without that: elements of
// 8 bytes; beyond it a small frame would grow without bound when copied.
absl::Status FromWire(const wire::SequenceOutput& from, size_t& budget, SequenceOutput& to) {
  const size_t elements = (from.tokens() == nullptr ? 0 : from.tokens()->size()) + (from.top() == nullptr ? 0 : from.top()->size()) +
                          (from.message() == nullptr ? 0 : from.message()->size() / 8) + 1;
  if (elements > budget) return Refuse("StepOutputs", "longer than its frame: outputs share tables");
  budget -= elements;
  STRIA_RETURN_IF_ERROR(CopySequence(from.name(), to.name));
  to.first_index = from.first_index();
  if (from.tokens() != nullptr) {
    to.tokens.reserve(from.tokens()->size());
    for (const wire::TokenLogprob* token : *from.tokens()) {
      to.tokens.push_back({.token = token->token(), .logprob = token->logprob(), .top = {}});
    }
  }
  if (const auto* counts = from.top_counts(); counts != nullptr && counts->size() > 0) {
    const size_t entries = from.top() == nullptr ? 0 : from.top()->size();
    if (counts->size() != to.tokens.size()) return Refuse("SequenceOutput.top_counts", absl::StrCat(counts->size(), " long"));
    size_t next = 0;
    for (size_t i = 0; i < to.tokens.size(); ++i) {
      const size_t count = counts->Get(i);
      if (count > entries - next) return Refuse("SequenceOutput.top", absl::StrCat(entries, " long, too short"));
      to.tokens[i].top.reserve(count);
      for (size_t k = 0; k < count; ++k, ++next) {
        to.tokens[i].top.push_back({from.top()->Get(next)->token(), from.top()->Get(next)->logprob()});
      }
    }
  }
  if (from.finish() > static_cast<uint8_t>(FinishReason::kMoved)) return Refuse("SequenceOutput.finish", int{from.finish()});
  to.finish = static_cast<FinishReason>(from.finish());
  if (from.message() != nullptr) to.message.assign(from.message()->data(), from.message()->size());
  if (const wire::KvUsage* kv = from.kv()) {
    if (!std::isfinite(kv->payload_bits())) return Refuse("KvUsage.payload_bits", kv->payload_bits());
    if (!std::isfinite(kv->bits_per_element())) return Refuse("KvUsage.bits_per_element", kv->bits_per_element());
    if (!std::isfinite(from.guard_bits())) return Refuse("SequenceOutput.guard_bits", from.guard_bits());
    to.kv = {kv->bytes(), kv->tokens(), kv->payload_bits(), kv->bits_per_element(), kv->fp16_bytes(), kv->cached_tokens(), from.guard_bits()};
  }
  to.epoch = from.epoch();
  return absl::OkStatus();
}

absl::StatusOr<ToScheduler> Decode(const wire::StepOutputs& from, size_t frame_bytes) {
  StepOutputs outputs;
  STRIA_RETURN_IF_ERROR(CopyName("StepOutputs.worker", from.worker(), outputs.worker));
  outputs.incarnation = from.incarnation();
  if (from.outputs() == nullptr) return outputs;
  size_t budget = frame_bytes / 8;
  for (const wire::SequenceOutput* output : *from.outputs()) {
    STRIA_RETURN_IF_ERROR(FromWire(*output, budget, outputs.outputs.emplace_back()));
  }
  return outputs;
}

flatbuffers::Offset<wire::SequenceOutput> ToWire(flatbuffers::FlatBufferBuilder& builder, const SequenceOutput& from) {
  std::vector<wire::TokenLogprob> tokens, top;
  std::vector<uint16_t> counts;
  tokens.reserve(from.tokens.size());
  for (const TokenOut& token : from.tokens) {
    tokens.emplace_back(token.token, token.logprob);
    for (const TokenLogprob& entry : token.top) top.emplace_back(entry.token, entry.logprob);
  }
  if (!top.empty()) {
    for (const TokenOut& token : from.tokens) counts.push_back(static_cast<uint16_t>(token.top.size()));
  }
  const auto tokens_offset = builder.CreateVectorOfStructs(tokens);
  const auto counts_offset = counts.empty() ? 0 : builder.CreateVector(counts);
  const auto top_offset = top.empty() ? 0 : builder.CreateVectorOfStructs(top);
  const auto message_offset = from.message.empty() ? 0 : builder.CreateString(from.message);
  const wire::SequenceName name = ToWire(from.name);
  const wire::KvUsage kv(from.kv.bytes, from.kv.tokens, from.kv.payload_bits, from.kv.bits_per_element, from.kv.fp16_bytes,
                         from.kv.cached_tokens);
  return wire::CreateSequenceOutput(builder, &name, from.first_index, tokens_offset, counts_offset, top_offset,
                                    static_cast<uint8_t>(from.finish), message_offset,
                                    from.finish == FinishReason::kNone ? nullptr : &kv, from.epoch,
                                    from.finish == FinishReason::kNone ? 0 : from.kv.guard_bits);
}

}  // namespace

std::string Encode(const SchedulerHello& hello) {
  flatbuffers::FlatBufferBuilder builder(128);
  return FinishSequence(builder, wire::CreateSchedulerHello(builder, hello.incarnation));
}

std::string Encode(const StartSequence& start) {
  flatbuffers::FlatBufferBuilder builder(1024 + 4 * start.prompt.size());
  const wire::SequenceName name = ToWire(start.name);
  std::vector<wire::LayerAction> layers;
  layers.reserve(start.plan.layers.size());
  for (const LayerAction& action : start.plan.layers) {
    layers.emplace_back(static_cast<uint8_t>(action.kind), Bits(action.keys), Bits(action.values), Bits(action.latent), action.rank);
  }
  const auto prompt = builder.CreateVector(start.prompt);
  const auto stop = builder.CreateVector(start.stop_tokens);
  const auto forced = builder.CreateVector(start.forced);
  const auto sampling = ToWire(builder, start.sampling);
  const auto plan = builder.CreateVectorOfStructs(layers);
  const auto salt = start.cache_salt.empty() ? 0 : builder.CreateString(start.cache_salt);
  return FinishSequence(builder, wire::CreateStartSequence(builder, &name, prompt, start.delivered, start.max_new_tokens, stop,
                                                           forced, sampling, start.plan.follow_tiers, plan, start.priority,
                                                           start.plan.keep_tokens, start.share_prefix, salt, start.plan.widen));
}

std::string Encode(const CancelSequence& cancel) {
  flatbuffers::FlatBufferBuilder builder(128);
  const wire::SequenceName name = ToWire(cancel.name);
  return FinishSequence(builder, wire::CreateCancelSequence(builder, &name));
}

std::string Encode(const AckSequence& ack) {
  flatbuffers::FlatBufferBuilder builder(128);
  const wire::SequenceName name = ToWire(ack.name);
  return FinishSequence(builder, wire::CreateAckSequence(builder, &name, ack.tokens, ack.finished));
}

std::string Encode(const WorkerHello& hello) {
  flatbuffers::FlatBufferBuilder builder(4096);
  std::vector<wire::LayerBytes> layers;
  layers.reserve(hello.layers.size());
  for (const LayerBytes& layer : hello.layers) {
    layers.emplace_back(flatbuffers::span<const uint32_t, 4>(layer.key_page, 4), flatbuffers::span<const uint32_t, 4>(layer.value_page, 4),
                        layer.ring);
  }
  return FinishSequence(
      builder, wire::CreateWorkerHello(builder, builder.CreateString(hello.worker), hello.incarnation,
                                       builder.CreateString(hello.model), builder.CreateString(hello.model_name),
                                       builder.CreateString(hello.http), hello.vocab, hello.max_context, hello.max_sequences,
                                       hello.sink_pages, hello.pool_bytes, hello.staging_bytes_per_token,
                                       hello.staging_bytes_max, builder.CreateVectorOfStructs(layers)));
}

std::string Encode(const WorkerStatus& status) {
  flatbuffers::FlatBufferBuilder builder(512);
  return FinishSequence(
      builder, wire::CreateWorkerStatus(builder, builder.CreateString(status.worker), status.incarnation, status.scheduler,
                                        status.pool_bytes, status.used_bytes, status.staging_bytes, status.running,
                                        status.prefilling, status.epoch, builder.CreateVector(status.key_bits),
                                        builder.CreateVector(status.value_bits), status.draining, status.idle_bytes,
                                        status.shared_bytes, builder.CreateVector(status.guard_bits)));
}

std::string Encode(const StepOutputs& step) {
  flatbuffers::FlatBufferBuilder builder(4096);
  std::vector<flatbuffers::Offset<wire::SequenceOutput>> outputs;
  outputs.reserve(step.outputs.size());
  for (const SequenceOutput& output : step.outputs) outputs.push_back(ToWire(builder, output));
  return FinishSequence(builder, wire::CreateStepOutputs(builder, builder.CreateString(step.worker), step.incarnation,
                                                         builder.CreateVector(outputs)));
}

absl::StatusOr<ToWorker> DecodeToWorker(std::string_view frame) {
  const AlignedFrame aligned(frame);
  STRIA_ASSIGN_OR_RETURN(const wire::SequenceFrame* root, aligned.Verify<wire::SequenceFrame>(kIdentifier, "sequence"));
  if (const auto* ack = root->message_as_AckSequence()) return Decode(*ack);
  if (const auto* start = root->message_as_StartSequence()) return Decode(*start);
  if (const auto* cancel = root->message_as_CancelSequence()) {
    CancelSequence to;
    STRIA_RETURN_IF_ERROR(CopySequence(cancel->name(), to.name));
    return to;
  }
  if (const auto* hello = root->message_as_SchedulerHello()) return SchedulerHello{hello->incarnation()};
  return Refuse("message type of a sequence frame to a worker", static_cast<int>(root->message_type()));
}

absl::StatusOr<ToScheduler> DecodeToScheduler(std::string_view frame) {
  const AlignedFrame aligned(frame);
  STRIA_ASSIGN_OR_RETURN(const wire::SequenceFrame* root, aligned.Verify<wire::SequenceFrame>(kIdentifier, "sequence"));
  if (const auto* outputs = root->message_as_StepOutputs()) return Decode(*outputs, frame.size());
  if (const auto* status = root->message_as_WorkerStatus()) return Decode(*status);
  if (const auto* hello = root->message_as_WorkerHello()) return Decode(*hello);
  return Refuse("message type of a sequence frame to the scheduler", static_cast<int>(root->message_type()));
}

}  // namespace stria
