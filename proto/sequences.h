// Scheduler ↔ worker. Every command and token is named by (sequence, attempt, token index), so resending is harmless.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "proto/cache_plan.h"

namespace stria {

struct SamplingParams {
  float temperature = 1;  // 0: greedy
  float top_p = 1;
  uint32_t top_k = 0;     // 0: off
  float min_p = 0;
  float presence_penalty = 0, frequency_penalty = 0, repetition_penalty = 1;
  std::vector<std::pair<int32_t, float>> logit_bias;
  uint64_t seed = 0;
  uint32_t choice = 0;       // index among n; draws are keyed by (seed, choice, token index)
  int32_t top_logprobs = -1;  // -1: none; 0: of the token itself; k: the k best too
};

struct SequenceName {
  uint64_t id = 0;       // unique per scheduler incarnation
  uint32_t attempt = 0;  // grows when a sequence is started again elsewhere
  friend auto operator<=>(const SequenceName&, const SequenceName&) = default;
};

struct StartSequence {
  SequenceName name;
  std::vector<int32_t> prompt;     // prompt, then tokens that earlier attempts already delivered
  uint32_t delivered = 0;          // how many of `prompt`'s last tokens those are: token indices go on from there
  uint32_t max_new_tokens = 0;     // in all attempts together
  int32_t priority = 0;            // lower matters more: when pages run out, the newest of the highest number goes first
  std::vector<int32_t> stop_tokens;  // end the sequence; the stop token itself is reported and counted
  std::vector<int32_t> forced;     // teacher forcing: these tokens, in this order, through decode steps; sampling only scores
  SamplingParams sampling;
  CachePlan plan;
  bool share_prefix = true;        // takes pages of equal prompts that came before, and leaves its own
  std::string cache_salt;          // shares with equal salts only: one tenant never sees another's hits
};

struct CancelSequence {
  SequenceName name;
};

// Everything of a sequence up to token index `tokens` (exclusive) has arrived, its end too if `finished`.
struct AckSequence {
  SequenceName name;
  uint32_t tokens = 0;
  bool finished = false;
};

struct TokenLogprob {
  int32_t token = 0;
  float logprob = 0;
};

struct TokenOut {
  int32_t token = 0;
  float logprob = 0;                // if top_logprobs ≥ 0
  std::vector<TokenLogprob> top;    // top_logprobs best, descending
};

enum class FinishReason : uint8_t {
  kNone,
  kStop,       // a stop token
  kLength,     // max_new_tokens or the context is full
  kCancelled,
  kPreempted,  // pages ran out: start it again with a further attempt
  kError,      // see message
  kMoved,      // the worker is leaving: start it again elsewhere with a further attempt
};

struct KvUsage {
  uint64_t bytes = 0;       // held at the end: pages, first page, ring and tail included; shared pages in full
  uint64_t tokens = 0;      // in the cache at the end, what eviction took aside
  double payload_bits = 16;  // mean tier over stored elements, scales aside
  double bits_per_element = 16;  // bytes · 8 / stored elements: layers that inherit store none
  uint64_t fp16_bytes = 0;  // the whole context at FP16 in every layer, evicted tokens too, nothing else
  uint64_t cached_tokens = 0;  // of the prompt, not computed because their pages were there
  double guard_bits = 0;       // of payload_bits, what a widened plan did not ask for
};

// New tokens of one sequence, and its end.
struct SequenceOutput {
  SequenceName name;
  uint32_t first_index = 0;
  std::vector<TokenOut> tokens;
  FinishReason finish = FinishReason::kNone;
  std::string message;  // kError
  KvUsage kv;           // when finished
  uint64_t epoch = 0;   // tier vector in force
};

// Worker → scheduler, all sequences of one step in one message.
struct StepOutputs {
  std::string worker;
  uint64_t incarnation = 0;
  std::vector<SequenceOutput> outputs;
};

// Bytes of one layer's parts, so that a scheduler can estimate without knowing any layout.
struct LayerBytes {
  uint32_t key_page[4]{};    // one page at INT2, INT4, INT8, FP16
  uint32_t value_page[4]{};
  uint32_t ring = 0;         // ring and value tail of one sequence
  friend bool operator==(const LayerBytes&, const LayerBytes&) = default;
};

// Worker → scheduler on connect and whenever asked.
struct WorkerHello {
  std::string worker;
  uint64_t incarnation = 0;
  std::string model;        // fingerprint
  std::string model_name;   // id that clients use
  std::string http;
  uint32_t vocab = 0;
  uint32_t max_context = 0;
  uint32_t max_sequences = 0;
  uint32_t sink_pages = 1;
  uint64_t pool_bytes = 0;
  uint64_t staging_bytes_per_token = 0;  // of a prompt while it prefills
  uint64_t staging_bytes_max = 0;
  std::vector<LayerBytes> layers;
};

// Worker → scheduler, at least once a second while connected.
struct WorkerStatus {
  std::string worker;
  uint64_t incarnation = 0;
  uint64_t scheduler = 0;   // incarnation of the scheduler whose commands it follows
  uint64_t pool_bytes = 0, used_bytes = 0, staging_bytes = 0;
  uint64_t idle_bytes = 0;    // pages of the prefix cache and of shadows alone: as good as free, and not in used_bytes
  uint64_t shared_bytes = 0;  // what sequences would hold more if none shared pages
  uint32_t running = 0, prefilling = 0;
  uint64_t epoch = 0;
  std::vector<uint8_t> key_bits, value_bits;  // per layer, in force
  std::vector<uint8_t> guard_bits;            // per layer: what widened plans are widened to; empty: nothing
  bool draining = false;
};

// Scheduler → worker, the answer to a hello and then once a second: who commands. A worker that sees a new incarnation drops
// the old one's sequences after its grace period; one that hears nothing for that long drops them too.
struct SchedulerHello {
  uint64_t incarnation = 0;
};

}  // namespace stria
