// What a model needs of each of N GPUs, and how many contexts fit beside its weights: the worker's own layout and page pool reckon.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/width.h"
#include "model/model_config.h"

namespace stria {

struct CapacityRequest {
  int gpus = 1;
  uint32_t context = 0;                  // tokens of one sequence
  uint32_t sequences = 1;                // for the bytes shown; contexts are counted anyway
  uint64_t gpu_bytes = uint64_t{80} << 30;
  double weight_bits = 16;
  double reserve = 0.1;                  // of a GPU's memory: activations, workspaces, the runtime
  uint32_t sink_pages = 1;
};

struct WidthCapacity {
  Width width = Width::kFp16;
  double bits_per_element = 0;     // of a sealed page, scales included
  uint64_t payload_bytes = 0;      // all sequences, all GPUs: elements times bits, as papers count
  uint64_t cache_bytes = 0;        // the same with scales, first pages and rings: to the byte what the pools hold
  uint64_t gpu_cache_bytes = 0;    // of it on each GPU
  uint64_t gpu_pool_bytes = 0;     // what a pool must have for it: whole slabs
  uint64_t contexts = 0;           // that fit at once, one of them prefilling
};

struct Capacity {
  uint64_t parameters = 0, weight_bytes = 0;
  uint64_t gpu_weight_bytes = 0;       // matrices split evenly
  uint64_t token_bytes = 0;            // one token's FP16 keys and values, all layers
  uint64_t key_ring_bytes = 0;         // one sequence, all GPUs: the last 64 keys of every layer
  uint64_t ring_bytes = 0;             // with the values' tail
  uint64_t gpu_staging_bytes = 0;      // one prompt of `context` tokens while it prefills
  uint64_t gpu_room_bytes = 0;         // what weights and reserve leave
  std::vector<WidthCapacity> widths;   // FP16, INT8, INT4, INT2
};

// InvalidArgument: heads that do not divide over the GPUs, or a shape that no page takes.
absl::StatusOr<Capacity> PlanCapacity(const ModelConfig& model, const CapacityRequest& request);

// The share of the model that one of `gpus` ranks holds: heads are split, the residual stream is not.
absl::StatusOr<ModelConfig> RankShape(const ModelConfig& model, int gpus);

// Kaizen's plan ratio, C0/Σc, for `anchors` layers that hold a latent of `rank` + `rotary` values per token at `bits` each and others that
// inherit. 0.5 more bits for each element pay for a page's scale and middle per channel.
double LatentRatio(const ModelConfig& model, int anchors, int rank, int rotary, double bits);

std::string CapacityText(const ModelConfig& model, const CapacityRequest& request, const Capacity& capacity);
std::string CapacityJson(const CapacityRequest& request, const Capacity& capacity);

}  // namespace stria
