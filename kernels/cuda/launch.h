// The kernels on a GPU: launches, one for each operation. Contracts and shapes are those of the CPU's headers and of the
// parameter structs; every pointer is the device's. A launch returns at once: nullptr, or what CUDA says is wrong.
#pragma once

#include "kernels/attention/decode_device.h"
#include "kernels/attention/prefill_device.h"
#include "kernels/canary/canary_device.h"
#include "kernels/evict/snapkv_device.h"
#include "kernels/format/seal_device.h"

struct CUstream_st;

namespace stria::cuda {

using Stream = CUstream_st*;

const char* LaunchDecodeAttention(const DecodeParams& params, int units, int merges, Stream stream);
const char* LaunchPrefillAttention(const PrefillParams& params, Stream stream);

// jobs [count].
const char* LaunchSeal(const AttentionShape& shape, const SealJob* jobs, int count, Stream stream);
const char* LaunchAppend(const AttentionShape& shape, const AppendJob* jobs, int count, Stream stream);
const char* LaunchCanary(const AttentionShape& shape, const CanaryJob* jobs, int count, Stream stream);

const char* LaunchObservation(const ObservationParams& params, Stream stream);

}  // namespace stria::cuda
