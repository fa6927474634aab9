// Frames of the tiers socket.
#include "proto/tier_codec.h"

namespace stria {
namespace {

using internal::AlignedFrame;
using internal::CopyName;
using internal::CopyText;
using internal::CopyWidth;
using internal::FinishTier;
using internal::kTierIdentifier;
using internal::Refuse;

absl::StatusOr<ToController> Decode(const wire::TierHello& from) {
  TierHello hello;
  STRIA_RETURN_IF_ERROR(CopyName("TierHello.worker", from.worker(), hello.worker));
  hello.incarnation = from.incarnation();
  STRIA_RETURN_IF_ERROR(CopyName("TierHello.model", from.model(), hello.model));
  STRIA_RETURN_IF_ERROR(CopyText("TierHello.model_name", from.model_name(), hello.model_name));
  STRIA_RETURN_IF_ERROR(internal::CheckLayers("TierHello.layers", from.layers()));
  hello.layers = from.layers();
  if (from.ranks() == 0 || from.rank() >= from.ranks()) {
    return Refuse("TierHello.rank", absl::StrCat(from.rank(), " of ", from.ranks()));
  }
  hello.rank = from.rank();
  hello.ranks = from.ranks();
  hello.epoch = from.epoch();
  STRIA_RETURN_IF_ERROR(CopyText("TierHello.http", from.http(), hello.http));
  return hello;
}

absl::StatusOr<ToController> Decode(const wire::TierAck& from) {
  TierAck ack;
  STRIA_RETURN_IF_ERROR(CopyName("TierAck.worker", from.worker(), ack.worker));
  ack.incarnation = from.incarnation();
  ack.epoch = from.epoch();
  return ack;
}

absl::StatusOr<TierVector> Decode(const wire::TierVector& from) {
  TierVector tiers;
  tiers.epoch = from.epoch();
  STRIA_RETURN_IF_ERROR(CopyName("TierVector.model", from.model(), tiers.model));
  if (from.layers() != nullptr) {
    STRIA_RETURN_IF_ERROR(internal::CheckLayers("TierVector.layers", from.layers()->size()));
    for (const wire::LayerTier* layer : *from.layers()) {
      LayerTier& tier = tiers.layers.emplace_back();
      STRIA_RETURN_IF_ERROR(CopyWidth("LayerTier.keys", layer->keys(), tier.keys));
      STRIA_RETURN_IF_ERROR(CopyWidth("LayerTier.values", layer->values(), tier.values));
      STRIA_RETURN_IF_ERROR(CopyWidth("LayerTier.guard_plain", layer->guard_plain(), tier.guard_plain));
      STRIA_RETURN_IF_ERROR(CopyWidth("LayerTier.guard_latent", layer->guard_latent(), tier.guard_latent));
    }
  }
  if (!(from.canary_rate() >= 0 && from.canary_rate() <= 1)) return Refuse("TierVector.canary_rate", from.canary_rate());
  tiers.canary_rate = from.canary_rate();
  if (from.reference_length() == 0) return Refuse("TierVector.reference_length", 0);
  tiers.reference_length = from.reference_length();
  tiers.frozen = from.frozen();
  return tiers;
}

}  // namespace

std::string Encode(const TierHello& hello) {
  flatbuffers::FlatBufferBuilder builder(512);
  return FinishTier(builder, wire::CreateTierHello(builder, builder.CreateString(hello.worker), hello.incarnation,
                                                   builder.CreateString(hello.model), builder.CreateString(hello.model_name),
                                                   hello.layers, hello.rank, hello.ranks, hello.epoch,
                                                   builder.CreateString(hello.http)));
}

std::string Encode(const TierAck& ack) {
  flatbuffers::FlatBufferBuilder builder(128);
  return FinishTier(builder, wire::CreateTierAck(builder, builder.CreateString(ack.worker), ack.incarnation, ack.epoch));
}

std::string Encode(const TierVector& tiers) {
  flatbuffers::FlatBufferBuilder builder(512);
  std::vector<wire::LayerTier> layers;
  layers.reserve(tiers.layers.size());
  for (const LayerTier& tier : tiers.layers) {
    layers.emplace_back(Bits(tier.keys), Bits(tier.values), Bits(tier.guard_plain), Bits(tier.guard_latent));
  }
  return FinishTier(builder, wire::CreateTierVector(builder, tiers.epoch, builder.CreateString(tiers.model),
                                                    builder.CreateVectorOfStructs(layers), tiers.canary_rate,
                                                    tiers.reference_length, tiers.frozen));
}

absl::StatusOr<ToController> DecodeToController(std::string_view frame) {
  const AlignedFrame aligned(frame);
  STRIA_ASSIGN_OR_RETURN(const wire::TierFrame* root, aligned.Verify<wire::TierFrame>(kTierIdentifier, "tier"));
  if (const auto* hello = root->message_as_TierHello()) return Decode(*hello);
  if (const auto* ack = root->message_as_TierAck()) return Decode(*ack);
  if (const auto* report = root->message_as_CacheReport()) return internal::DecodeReport(*report);
  return Refuse("message type of a tier frame to the controller", static_cast<int>(root->message_type()));
}

absl::StatusOr<FromController> DecodeFromController(std::string_view frame) {
  const AlignedFrame aligned(frame);
  STRIA_ASSIGN_OR_RETURN(const wire::TierFrame* root, aligned.Verify<wire::TierFrame>(kTierIdentifier, "tier"));
  if (const auto* tiers = root->message_as_TierVector()) return Decode(*tiers);
  if (const auto* query = root->message_as_CacheQuery()) return CacheQuery{query->number(), query->sequence()};
  return Refuse("message type of a tier frame to a worker", static_cast<int>(root->message_type()));
}

absl::StatusOr<TierVector> DecodeTierVector(std::string_view frame) {
  STRIA_ASSIGN_OR_RETURN(FromController message, DecodeFromController(frame));
  if (auto* tiers = std::get_if<TierVector>(&message)) return std::move(*tiers);
  return Refuse("message type of a tier frame", "not a vector's");
}

}  // namespace stria
