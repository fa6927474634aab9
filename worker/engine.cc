#include "worker/engine.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "worker/admission.h"
#include "worker/engine_impl.h"

namespace stria {
namespace {

constexpr uint32_t kHeadRows = 64;  // rows of logits held at a time

absl::Status CheckTokens(const std::vector<int32_t>& tokens, int vocab, const char* what) {
  for (int32_t token : tokens)
    if (token < 0 || token >= vocab)
      return absl::InvalidArgumentError(
          absl::StrCat(what, " token ", token, " is not in the vocabulary of ", vocab));
  return absl::OkStatus();
}

absl::Status CheckSampling(const SamplingParams& sampling, int vocab) {
  const std::pair<const char*, float> numbers[] = {{"temperature", sampling.temperature},
                                                   {"top_p", sampling.top_p},
                                                   {"min_p", sampling.min_p},
                                                   {"presence_penalty", sampling.presence_penalty},
                                                   {"frequency_penalty", sampling.frequency_penalty},
                                                   {"repetition_penalty", sampling.repetition_penalty}};
  for (const auto& [name, value] : numbers)
    if (!std::isfinite(value)) return absl::InvalidArgumentError(absl::StrCat(name, " is ", value));
  if (sampling.repetition_penalty <= 0)
    return absl::InvalidArgumentError(
        absl::StrCat("repetition_penalty is ", sampling.repetition_penalty, ", not positive"));
  for (const auto& [token, bias] : sampling.logit_bias) {
    if (token < 0 || token >= vocab)
      return absl::InvalidArgumentError(
          absl::StrCat("logit_bias token ", token, " is not in the vocabulary of ", vocab));
    if (std::isnan(bias))
      return absl::InvalidArgumentError(absl::StrCat("logit_bias of token ", token, " is NaN"));
  }
  return absl::OkStatus();
}

absl::Status CheckPlan(const CachePlan& plan, int layers) {
  if (plan.follow_tiers) {
    if (!plan.layers.empty()) return absl::InvalidArgumentError("a plan that follows the tiers lists layers of its own");
    if (plan.widen) return absl::InvalidArgumentError("a plan that follows the tiers has nothing to widen");
    return absl::OkStatus();
  }
  if (plan.layers.size() != static_cast<size_t>(layers))
    return absl::InvalidArgumentError(
        absl::StrCat("a plan of ", plan.layers.size(), " layers for a model of ", layers));
  if (plan.layers[0].kind == LayerAction::Kind::kInherit)
    return absl::InvalidArgumentError("layer 0 of the plan inherits, and no layer is before it");
  for (size_t i = 0; i < plan.layers.size(); ++i)
    if (plan.layers[i].kind == LayerAction::Kind::kLatent)
      return absl::InvalidArgumentError(
          absl::StrCat("layer ", i, " of the plan is latent, which needs a pack, and this model has none"));
  return absl::OkStatus();
}

// FNV-1a over 64-bit words: page sizes are multiples of 64 bytes.
uint64_t HashPage(const std::byte* data, size_t bytes) {
  const auto* words = reinterpret_cast<const uint64_t*>(data);
  uint64_t hash = 0xcbf29ce484222325;
  for (size_t i = 0; i < bytes / sizeof(uint64_t); ++i) hash = (hash ^ words[i]) * 0x100000001b3;
  return hash;
}

CachePlan Fp16Plan(int layers) {
  CachePlan plan;
  plan.follow_tiers = false;
  plan.layers.resize(layers);
  for (LayerAction& layer : plan.layers) layer.keys = layer.values = Width::kFp16;
  return plan;
}

void Erase(std::vector<Sequence*>& from, const Sequence* sequence) { std::erase(from, sequence); }

}  // namespace

absl::StatusOr<std::unique_ptr<Engine>> Engine::Create(Transformer& transformer, const EngineOptions& options,
                                                       const Clock& clock) {
  if (!(options.shadows.share >= 0 && options.shadows.share <= 1))
    return absl::InvalidArgumentError(absl::StrCat("a shadow share of ", options.shadows.share, ": must be from 0 to 1"));
  if (options.max_sequences == 0 || options.prefill_chunk == 0 || options.threads <= 0)
    return absl::InvalidArgumentError(absl::StrCat("max_sequences ", options.max_sequences,
                                                   ", prefill_chunk ", options.prefill_chunk, ", threads ",
                                                   options.threads, ": each must be at least 1"));
  STRIA_ASSIGN_OR_RETURN(CacheLayout layout, CacheLayout::Create(transformer.config(), options.sink_pages));
  STRIA_ASSIGN_OR_RETURN(std::unique_ptr<PagePool> pool,
                         PagePool::Create(options.pool_bytes, options.poison));
  return std::make_unique<EngineImpl>(transformer, options, clock, std::move(layout), std::move(pool));
}

EngineImpl::EngineImpl(Transformer& transformer, const EngineOptions& options, const Clock& clock,
                       CacheLayout layout, std::unique_ptr<PagePool> pool)
    : transformer_(transformer),
      options_(options),
      clock_(clock),
      model_(transformer.config()),
      max_context_(options.max_context > 0 ? options.max_context
                                           : static_cast<uint32_t>(model_.context_length)),
      layout_(std::move(layout)),
      pool_(std::move(pool)),
      shadow_plan_(Fp16Plan(model_.layers)),
      prefill_cache_(layout_, options.target, options.threads),
      decode_cache_(layout_, options.target, options.threads, MostDecodeRows(options)),
      probe_(layout_, options.target, options.threads, options.canary_seed, clock),
      prefill_cost_(model_),
      residual_(size_t{MostDecodeRows(options)} * model_.hidden),
      logits_(size_t{std::min(options.max_sequences, kHeadRows)} * model_.vocab),
      scratch_(options.threads) {
  if (options.prefix_cache_bytes > 0) prefix_cache_.emplace(layout_, *pool_, options.prefix_cache_bytes);
  tiers_.layers.resize(model_.layers);
  const size_t rows = MostDecodeRows(options), shadows = rows - options.max_sequences;
  shadow_residual_.resize(2 * shadows * model_.hidden);
  shadow_logits_.resize(2 * shadows * model_.vocab);
  tokens_.reserve(rows);
  positions_.reserve(std::max<size_t>(rows, options.prefill_chunk));
  caches_.reserve(rows);
}

absl::Status EngineImpl::Validate(const StartSequence& start) const {
  if (start.prompt.empty()) return absl::InvalidArgumentError("the prompt is empty");
  if (start.prompt.size() > max_context_)
    return absl::InvalidArgumentError(
        absl::StrCat("a prompt of ", start.prompt.size(), " tokens; the context is ", max_context_));
  if (start.delivered > start.prompt.size())
    return absl::InvalidArgumentError(
        absl::StrCat(start.delivered, " tokens delivered, but the prompt has ", start.prompt.size()));
  STRIA_RETURN_IF_ERROR(CheckTokens(start.prompt, model_.vocab, "prompt"));
  STRIA_RETURN_IF_ERROR(CheckTokens(start.forced, model_.vocab, "forced"));
  STRIA_RETURN_IF_ERROR(CheckSampling(start.sampling, model_.vocab));
  return CheckPlan(start.plan, model_.layers);
}

absl::Status EngineImpl::Start(const StartSequence& start) {
  if (sequences_.contains(start.name)) return absl::OkStatus();
  STRIA_RETURN_IF_ERROR(Validate(start));
  auto sequence = std::make_unique<Sequence>(start, next_order_, max_context_);
  STRIA_RETURN_IF_ERROR(CheckEverFits(layout_, pool_->capacity(), tiers_, *sequence));
  ++next_order_;
  if (sequence->next_index >= sequence->limit()) {  // nothing to generate
    EndOutsideTurn(*sequence, FinishReason::kLength);
    return absl::OkStatus();
  }
  // Where tokens are evicted, page p does not hold the prompt's tokens 64p to 64p + 63.
  if (prefix_cache_ && start.share_prefix && sequence->shape.evicted == 0) {
    sequence->prefix.emplace(options_.model_fingerprint, start.plan, start.cache_salt);
    sequence->prefix->Append(start.prompt);
  }
  sequence->drawn = Draw(*sequence);
  waiting_.push_back(sequence.get());
  sequences_.emplace(start.name, std::move(sequence));
  admission_stale_ = true;
  return absl::OkStatus();
}

void EngineImpl::Cancel(const SequenceName& name) {
  const auto found = sequences_.find(name);
  if (found == sequences_.end()) return;
  const Sequence& sequence = *found->second;
  EndOutsideTurn(sequence, FinishReason::kCancelled);
  Erase(waiting_, &sequence);
  Erase(active_, &sequence);
  sequences_.erase(found);
  admission_stale_ = true;
}

void EngineImpl::EndOutsideTurn(const Sequence& sequence, FinishReason reason) {
  SequenceOutput& output = ended_.emplace_back();
  output.name = sequence.start.name;
  output.first_index = sequence.next_index;
  output.finish = reason;
  output.epoch = tiers_.epoch;
  if (sequence.cache != nullptr) output.kv = sequence.cache->Usage();
}

absl::Status EngineImpl::ApplyTiers(const TierVector& tiers) {
  if (tiers.layers.size() != static_cast<size_t>(model_.layers))
    return absl::InvalidArgumentError(
        absl::StrCat("a tier vector of ", tiers.layers.size(), " layers for a model of ", model_.layers));
  if (tiers.reference_length == 0) return absl::InvalidArgumentError("a tier vector with reference_length 0");
  tiers_ = tiers;
  admission_stale_ = true;  // narrower pages may fit now
  return absl::OkStatus();
}

EngineStats EngineImpl::stats() const {
  EngineStats stats = stats_;
  stats.pool_bytes = pool_->capacity();
  stats.idle_bytes = pool_->idle_bytes();
  stats.shadows.bytes = ShadowBytes();
  stats.used_bytes = pool_->used_bytes() - stats.idle_bytes - stats.shadows.bytes;
  stats.staging_bytes = pool_->charged_bytes();
  uint64_t held = 0;
  for (const Sequence* sequence : active_) held += sequence->cache->bytes();
  stats.shared_bytes = held - (stats.used_bytes - stats.staging_bytes);
  if (prefix_cache_) stats.prefix = prefix_cache_->stats();
  std::copy(std::begin(page_counts_.by_width), std::end(page_counts_.by_width), std::begin(stats.pages_used));
  for (const Sequence* sequence : active_) {
    ++(sequence->staging ? stats.prefilling : stats.running);
    stats.shadows.sequences += sequence->shadow != nullptr;
  }
  return stats;
}

std::vector<SequenceInfo> EngineImpl::Describe() const {
  std::vector<SequenceInfo> all;
  for (const auto& [name, sequence] : sequences_) {
    SequenceInfo& info = all.emplace_back();
    info.name = name;
    info.prefilling = sequence->staging != nullptr;
    if (sequence->cache == nullptr) continue;
    const SequenceCache& cache = *sequence->cache;
    info.tokens = cache.tokens();
    info.positions = cache.positions();
    info.layers.resize(layout_.layers());
    for (int layer = 0; layer < layout_.layers(); ++layer) {
      if (!cache.plan().Holds(layer)) continue;
      LayerInfo& out = info.layers[layer];
      out.tail = cache.tail();
      for (uint32_t page = 0; page < cache.sealed_pages(); ++page) {
        const PageRef &key = cache.key_pages(layer)[page], &value = cache.value_pages(layer)[page];
        out.key_pages.push_back({key.width, HashPage(static_cast<const std::byte*>(key.data),
                                                     layout_.key_page_bytes(layer, key.width))});
        out.value_pages.push_back({value.width, HashPage(static_cast<const std::byte*>(value.data),
                                                         layout_.value_page_bytes(layer, value.width))});
      }
    }
  }
  return all;
}

CacheReport EngineImpl::ReportCache(uint64_t sequence) const {
  CacheReport report;
  report.epoch = tiers_.epoch;
  const EngineStats now = stats();
  report.pool_bytes = now.pool_bytes;
  report.used_bytes = now.used_bytes;
  for (const auto& [name, entry] : sequences_) {
    if (entry->cache == nullptr) {
      report.sequences.push_back({.name = name});  // waits to begin
      continue;
    }
    SequenceHeld& held = report.sequences.emplace_back(entry->cache->Held());
    held.name = name;
    held.prefilling = entry->staging != nullptr;
    if (name.id != sequence) continue;
    report.pages_of = sequence;
    report.layers = entry->cache->PageWidths();
  }
  return report;
}

}  // namespace stria
