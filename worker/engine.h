// The engine: owns the sequences, their caches and the step loop's order. No sockets, no threads of its own:
// one thread calls it; kernels open OpenMP teams inside.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/width.h"
#include "kernels/target.h"
#include "model/transformer/transformer.h"
#include "proto/cache_report.h"
#include "proto/sequences.h"
#include "proto/telemetry.h"
#include "proto/tiers.h"
#include "worker/prefix_stats.h"

namespace stria {

// Sees every row of logits before its token is chosen: how evaluation gets whole distributions.
class LogitsObserver {
 public:
  virtual ~LogitsObserver() = default;
  // logits [vocab] decide token `index` of the sequence. Within a step, sequences come in the order in which
  // they were started.
  virtual void OnLogits(const SequenceName& name, uint32_t index, std::span<const float> logits) = 0;
};

// Shadows measure what tiers cost. A seeded sample of the requests that follow the tiers keeps an FP16 cache beside its own; each of its
// decode steps computes a second row over that, with the same tokens, whose next-token distribution is what the sequence's own is compared
// with. Nobody waits for a shadow: it begins where there is room, and whoever wants its memory takes it.
struct ShadowOptions {
  double share = 0;        // of the requests that follow the tiers and evict nothing; 0: none
  uint32_t sequences = 4;  // shadowed at once
  uint64_t bytes = 0;      // of the pool that shadows may hold; 0: an eighth of it
};

struct EngineOptions {
  uint64_t pool_bytes = uint64_t{1} << 30;  // pages, rings and prefill staging together
  uint32_t max_sequences = 64;              // running at once
  uint32_t max_context = 0;                 // 0: the model's
  uint32_t prefill_chunk = 256;             // prompt rows per (layer, chunk) unit; borders fixed by position
  double prefill_steps = 2;                 // time of prefill in a turn that decodes too, in undisturbed decode steps
  uint32_t sink_pages = 1;                  // first pages of every sequence stay FP16
  uint64_t prefix_cache_bytes = 0;          // of the pool that shared prefixes may keep; 0: none are shared
  std::string model_fingerprint = "";       // tells one model's prefixes from another's
  int threads = 1;
  Target target = BestTarget();
  uint64_t canary_seed = 1;  // of firings, and of the requests that are shadowed
  ShadowOptions shadows = {};
  LogitsObserver* observer = nullptr;  // outlives the engine
  bool poison = false;                 // tests: memory not yet or no more written reads as NaN
};

// Rows of the largest decode step: what the transformer is made for.
uint32_t MostDecodeRows(const EngineOptions& options);

// One page as an operator sees it.
struct PageInfo {
  Width width;
  uint64_t hash;  // of its bytes: a sealed page's never changes
};
struct LayerInfo {  // empty where the layer inherits
  std::vector<PageInfo> key_pages, value_pages;
  uint32_t tail = 0;
};
struct SequenceInfo {
  SequenceName name;
  uint32_t tokens = 0;     // in the cache
  uint32_t positions = 0;  // of the context, evicted tokens included
  bool prefilling = false;
  std::vector<LayerInfo> layers;
};

struct ShadowStats {
  uint32_t sequences = 0;  // shadowed now
  uint64_t bytes = 0;      // held by shadows, given up whenever memory is wanted
  uint64_t begun = 0, dropped = 0;  // dropped: before their sequences ended, for want of memory
  uint64_t rows = 0;    // decode rows computed for shadows
  uint64_t scored = 0;  // of them, positions that counted
  double kl = 0;        // their sum, nats
};

struct EngineStats {
  uint64_t pool_bytes = 0, used_bytes = 0, staging_bytes = 0;  // used: without idle pages and shadows
  uint64_t idle_bytes = 0;    // pages that only the prefix cache holds, given up whenever memory is wanted
  uint64_t shared_bytes = 0;  // what sequences would hold more if none shared pages
  uint64_t pages_used[4] = {};  // by width: INT2, INT4, INT8, FP16
  uint32_t running = 0, prefilling = 0;
  uint64_t steps = 0, prompt_tokens = 0, decode_tokens = 0, firings = 0, preemptions = 0, pages_sealed = 0;
  uint64_t evicted_tokens = 0;  // of prompts
  double prefill_seconds = 0, decode_seconds = 0, canary_seconds = 0;
  PrefixCacheStats prefix;
  ShadowStats shadows;
};

struct TurnResult {
  std::vector<SequenceOutput> outputs;
  // Worker, incarnation, model and number are filled by the caller.
  std::optional<CanaryFrame> canary;
  std::optional<QualityFrame> quality;
};

class Engine {
 public:
  // The transformer was made for at least MostDecodeRows() decode rows and prefill_chunk prompt rows, and
  // outlives the engine.
  static absl::StatusOr<std::unique_ptr<Engine>> Create(Transformer& transformer,
                                                        const EngineOptions& options, const Clock& clock);
  virtual ~Engine() = default;

  // Takes a sequence. InvalidArgument: tokens out of the vocabulary, longer than the context, a plan this
  // model cannot serve, a footprint that no empty pool could hold; the text names the value. A name that is
  // active here is not an error and changes nothing; names that ended are forgotten.
  virtual absl::Status Start(const StartSequence& start) = 0;
  // Pages return at once; the next turn reports the end (kCancelled). Unknown names are fine.
  virtual void Cancel(const SequenceName& name) = 0;

  // Takes effect for pages sealed after it; refuses another number of layers.
  virtual absl::Status ApplyTiers(const TierVector& tiers) = 0;
  virtual const TierVector& tiers() const = 0;

  virtual bool HasWork() const = 0;
  // One turn: some prefill units within the time budget, then one decode step of every sequence that was
  // running before.
  virtual TurnResult Turn() = 0;

  virtual EngineStats stats() const = 0;
  virtual std::vector<SequenceInfo> Describe() const = 0;  // all sequences; reads every page, for debugging
  // What all sequences hold, and the widths of one's pages; reads no page. Worker, incarnation and number are filled by the caller.
  virtual CacheReport ReportCache(uint64_t sequence) const = 0;
  virtual std::vector<LayerBytes> layer_bytes() const = 0;
  virtual uint64_t staging_bytes_per_token() const = 0;
};

}  // namespace stria
