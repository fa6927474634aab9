// Structs ↔ FlatBuffers frames, one function pair per direction of a socket. A frame is one message: size-capped, verified
// before it is read, range-checked, and copied out, so nothing refers to it afterwards. For services only: brains see structs.
//
// Decoders return InvalidArgument naming the offending field and value. They check what makes a struct well-formed (widths
// are widths, vectors of one layer count, finite settings, bounded names); what it means is for the brains: a canary's NaN
// passes, for the controller to refuse and count.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <variant>

#include "absl/status/statusor.h"
#include "proto/cache_report.h"
#include "proto/sequences.h"
#include "proto/telemetry.h"
#include "proto/tiers.h"

namespace stria {

// No frame is longer, in either direction; sockets drop the peer that tries (MAXMSGSIZE).
inline constexpr size_t kMaxFrameBytes = size_t{16} << 20;
inline constexpr size_t kMaxNameBytes = 256;   // names, fingerprints, addresses
inline constexpr size_t kMaxLayers = 4096;

// Sequences socket (scheduler ROUTER, worker DEALER).
using ToWorker = std::variant<SchedulerHello, StartSequence, CancelSequence, AckSequence>;
using ToScheduler = std::variant<WorkerHello, WorkerStatus, StepOutputs>;
// Tiers socket (controller ROUTER, worker DEALER).
using FromController = std::variant<TierVector, CacheQuery>;
using ToController = std::variant<TierHello, TierAck, CacheReport>;
// Telemetry socket (worker PUB, controller SUB).
using Telemetry = std::variant<CanaryFrame, QualityFrame>;

std::string Encode(const SchedulerHello& hello);
std::string Encode(const StartSequence& start);
std::string Encode(const CancelSequence& cancel);
std::string Encode(const AckSequence& ack);
absl::StatusOr<ToWorker> DecodeToWorker(std::string_view frame);

std::string Encode(const WorkerHello& hello);
std::string Encode(const WorkerStatus& status);
std::string Encode(const StepOutputs& outputs);
absl::StatusOr<ToScheduler> DecodeToScheduler(std::string_view frame);

std::string Encode(const TierHello& hello);
std::string Encode(const TierAck& ack);
std::string Encode(const CacheReport& report);
absl::StatusOr<ToController> DecodeToController(std::string_view frame);

std::string Encode(const TierVector& tiers);
std::string Encode(const CacheQuery& query);
absl::StatusOr<FromController> DecodeFromController(std::string_view frame);
// For peers of the controller that hold no cache to tell of: anything but a vector is refused.
absl::StatusOr<TierVector> DecodeTierVector(std::string_view frame);

std::string Encode(const CanaryFrame& frame);
std::string Encode(const QualityFrame& frame);
absl::StatusOr<Telemetry> DecodeTelemetry(std::string_view frame);

}  // namespace stria
