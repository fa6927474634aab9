#include <nlohmann/json.hpp>

#include "absl/strings/str_format.h"
#include "eval/capacity/capacity.h"

namespace stria {
namespace {

// Both units, because papers use one and machines the other.
std::string Size(uint64_t bytes) {
  const double b = static_cast<double>(bytes);
  if (bytes < 1000 * 1000) return absl::StrFormat("%.1f kB (%.1f KiB)", b / 1e3, b / 1024);
  if (bytes < 1000 * 1000 * 1000) return absl::StrFormat("%.2f MB (%.2f MiB)", b / 1e6, b / (1 << 20));
  return absl::StrFormat("%.2f GB (%.2f GiB)", b / 1e9, b / (1 << 30));
}

}  // namespace

std::string CapacityText(const ModelConfig& model, const CapacityRequest& request, const Capacity& capacity) {
  std::string text;
  absl::StrAppendFormat(&text, "%s, %d layers, %d query heads over %d KV heads of %d; %d GPU%s of %s, %.0f %% of it kept free\n\n", model.architecture,
                        model.layers, model.heads, model.kv_heads, model.head_dim, request.gpus, request.gpus == 1 ? "" : "s",
                        Size(request.gpu_bytes), 100 * request.reserve);
  const auto line = [&text](const char* what, const std::string& value) { absl::StrAppendFormat(&text, "%-44s %s\n", what, value); };
  line("parameters", absl::StrFormat("%d", capacity.parameters));
  line(absl::StrFormat("weights at %g bits", request.weight_bits).c_str(), Size(capacity.weight_bytes));
  line("  on each GPU", Size(capacity.gpu_weight_bytes));
  line("one token of FP16 cache", Size(capacity.token_bytes));
  line("one sequence's ring of FP16 keys", Size(capacity.key_ring_bytes));
  line("  with the tail of FP16 values", Size(capacity.ring_bytes));
  line("staging of one prompt, on each GPU", Size(capacity.gpu_staging_bytes));
  line("room for caches on each GPU", Size(capacity.gpu_room_bytes));
  absl::StrAppendFormat(&text, "\n%d sequence%s of %d tokens:\n%-6s%14s%26s%26s%26s%19s\n", request.sequences, request.sequences == 1 ? "" : "s",
                        request.context, "width", "bits/element", "payload alone", "cache, all GPUs", "pool on each GPU", "contexts that fit");
  for (const WidthCapacity& entry : capacity.widths) {
    absl::StrAppendFormat(&text, "%-6s%14.3f%26s%26s%26s%19d\n", Name(entry.width), entry.bits_per_element, Size(entry.payload_bytes),
                          Size(entry.cache_bytes), Size(entry.gpu_pool_bytes), entry.contexts);
  }
  return text;
}

std::string CapacityJson(const CapacityRequest& request, const Capacity& capacity) {
  nlohmann::ordered_json json = {{"gpus", request.gpus},
                                 {"context", request.context},
                                 {"sequences", request.sequences},
                                 {"parameters", capacity.parameters},
                                 {"weight_bytes", capacity.weight_bytes},
                                 {"gpu_weight_bytes", capacity.gpu_weight_bytes},
                                 {"token_bytes", capacity.token_bytes},
                                 {"key_ring_bytes", capacity.key_ring_bytes},
                                 {"ring_bytes", capacity.ring_bytes},
                                 {"gpu_staging_bytes", capacity.gpu_staging_bytes},
                                 {"gpu_room_bytes", capacity.gpu_room_bytes},
                                 {"widths", nlohmann::ordered_json::array()}};
  for (const WidthCapacity& entry : capacity.widths) {
    json["widths"].push_back({{"width", Name(entry.width)},
                              {"bits_per_element", entry.bits_per_element},
                              {"payload_bytes", entry.payload_bytes},
                              {"cache_bytes", entry.cache_bytes},
                              {"gpu_cache_bytes", entry.gpu_cache_bytes},
                              {"gpu_pool_bytes", entry.gpu_pool_bytes},
                              {"contexts", entry.contexts}});
  }
  return json.dump(2) + "\n";
}

}  // namespace stria
