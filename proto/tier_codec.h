// What the codecs of the tiers socket share.
#pragma once

#include <string>
#include <utility>

#include "proto/codec.h"
#include "proto/codec_util.h"
#include "proto/tiers_generated.h"

namespace stria::internal {

inline constexpr char kTierIdentifier[] = "STI1";

template <typename Message>
std::string FinishTier(flatbuffers::FlatBufferBuilder& builder, flatbuffers::Offset<Message> message) {
  builder.Finish(wire::CreateTierFrame(builder, wire::TierMessageTraits<Message>::enum_value, message.Union()), kTierIdentifier);
  return Finish(builder);
}

// cache_report_codec.cc
absl::StatusOr<ToController> DecodeReport(const wire::CacheReport& from);

}  // namespace stria::internal
