#include "worker/teacher_forcing.h"

#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "kernels/attention/decode_attention.h"
#include "worker/cache_layout.h"
#include "worker/canary_probe.h"
#include "worker/decode_cache.h"
#include "worker/page_pool.h"
#include "worker/sequence_cache.h"

namespace stria {
namespace {

// A decode step in which some rows attend by the reference.
class ReferenceRows final : public LayerCache {
 public:
  ReferenceRows(DecodeCache& decode, const AttentionShape& shape, int threads)
      : decode_(decode), shape_(shape), threads_(threads) {}

  // `exact` [batch]: which rows. Both outlive the step.
  void Begin(std::span<SequenceCache* const> batch, const std::vector<char>& exact) {
    batch_ = batch;
    exact_ = &exact;
  }

  void AppendAndAttend(int layer, const AttentionRows& rows) override {
    decode_.AppendAndAttend(layer, rows);
    const size_t width = size_t(shape_.heads) * shape_.head_dim;
#pragma omp parallel for num_threads(threads_) schedule(dynamic)
    for (size_t i = 0; i < batch_.size(); ++i) {
      if ((*exact_)[i]) DecodeAttentionReference(shape_, batch_[i]->View(layer, 1), rows.q + i * width, rows.out + i * width);
    }
  }

 private:
  DecodeCache& decode_;
  const AttentionShape shape_;
  const int threads_;
  std::span<SequenceCache* const> batch_;
  const std::vector<char>* exact_ = nullptr;
};

// Some texts, each under every variant: rows [texts, variants].
class Group {
 public:
  Group(Transformer& transformer, const TeacherForcingOptions& options, std::span<const CacheLayout> layouts,
        std::span<const CacheVariant> variants, PagePool& pool)
      : transformer_(transformer),
        model_(transformer.config()),
        variants_(variants),
        threads_(options.threads),
        layouts_(layouts),
        pool_(pool),
        decode_(layouts[0], options.target, options.threads, options.max_rows),
        reference_rows_(decode_, layouts[0].shape(), options.threads),
        canary_(options.canary),
        canary_from_(options.canary_from),
        probe_(layouts[0], options.target, options.threads, /*seed=*/0, SystemClock()),
        residual_(size_t(options.max_rows) * model_.hidden),
        logits_(size_t(options.max_rows) * model_.vocab) {}

  void Run(std::span<const std::vector<int32_t>> texts, size_t first_text, const LogitsSink& sink) {
    TierVector tiers;
    tiers.layers.resize(model_.layers);
    std::vector<std::unique_ptr<SequenceCache>> caches;
    for (size_t row = 0; row < texts.size() * variants_.size(); ++row) {
      const size_t variant = row % variants_.size();
      caches.push_back(
          std::make_unique<SequenceCache>(layouts_[variant], pool_, counts_, variants_[variant].plan));
      STRIA_CHECK(caches.back()->AllocatePrompt(0, tiers, Placement::kGaps));
    }
    size_t longest = 0;
    for (const auto& text : texts) longest = std::max(longest, text.size());
    for (size_t position = 0; position < longest; ++position)
      Step(texts, position, first_text, tiers, caches, sink);
  }

 private:
  void Step(std::span<const std::vector<int32_t>> texts, size_t position, size_t first_text,
            const TierVector& tiers, std::span<const std::unique_ptr<SequenceCache>> caches,
            const LogitsSink& sink) {
    std::vector<int32_t> tokens, positions;
    std::vector<SequenceCache*> batch;
    std::vector<char> exact;
    std::vector<size_t> live;
    for (size_t i = 0; i < texts.size(); ++i) {
      // The probe reads the batch's first row, so texts take turns in front.
      const size_t text = (position + i) % texts.size();
      if (position >= texts[text].size()) continue;
      live.push_back(text);
      for (size_t variant = 0; variant < variants_.size(); ++variant) {
        SequenceCache* cache = caches[text * variants_.size() + variant].get();
        STRIA_CHECK(cache->AllocateNextPage(tiers, Placement::kNeighbours) ||
                    cache->AllocateNextPage(tiers, Placement::kGaps));
        batch.push_back(cache);
        exact.push_back(variants_[variant].exact_attention);
        tokens.push_back(texts[text][position]);
        positions.push_back(static_cast<int32_t>(position));
      }
    }
    const bool fires = canary_ && position >= canary_from_ &&
                       probe_.Arm(std::span<SequenceCache* const>(batch).first(1), position);
    decode_.Begin(batch, fires ? &probe_ : nullptr);
    reference_rows_.Begin(batch, exact);
    transformer_.Embed(tokens, residual_.data());
    for (int layer = 0; layer < model_.layers; ++layer)
      transformer_.Layer(layer, RowRole::kDecode, positions, residual_.data(), reference_rows_);
    decode_.End();
    if (fires) canary_(first_text + live[0], static_cast<uint32_t>(position), probe_.Read(tiers));
    transformer_.Head(RowRole::kDecode, static_cast<int>(batch.size()), residual_.data(), logits_.data());
    const size_t stride = variants_.size() * model_.vocab;
#pragma omp parallel for num_threads(threads_) schedule(dynamic)
    for (size_t i = 0; i < live.size(); ++i)
      sink(first_text + live[i], static_cast<uint32_t>(position), {logits_.data() + i * stride, stride});
  }

  Transformer& transformer_;
  const ModelConfig& model_;
  std::span<const CacheVariant> variants_;
  const int threads_;
  std::span<const CacheLayout> layouts_;
  PagePool& pool_;
  PageCounts counts_;
  DecodeCache decode_;
  ReferenceRows reference_rows_;
  const CanarySink& canary_;
  const uint32_t canary_from_;
  CanaryProbe probe_;
  std::vector<float> residual_, logits_;
};

}  // namespace

uint32_t QuantisedTokens(const CacheVariant& variant, uint32_t tokens) {
  const uint32_t sealed = tokens / kPageTokens;
  return sealed > variant.sink_pages ? (sealed - variant.sink_pages) * kPageTokens : 0;
}

CachePlan UniformPlan(int layers, Width keys, Width values) {
  LayerAction action;
  action.keys = keys;
  action.values = values;
  CachePlan plan;
  plan.follow_tiers = false;
  plan.layers.assign(layers, action);
  return plan;
}

absl::Status TeacherForce(Transformer& transformer, const TeacherForcingOptions& options,
                          std::span<const std::vector<int32_t>> texts, std::span<const CacheVariant> variants,
                          const LogitsSink& sink) {
  const ModelConfig& model = transformer.config();
  if (variants.empty() || variants.size() > static_cast<size_t>(options.max_rows))
    return absl::InvalidArgumentError(
        absl::StrCat(variants.size(), " caches side by side; the batch holds ", options.max_rows));
  std::vector<CacheLayout> layouts;
  for (const CacheVariant& variant : variants) {
    if (variant.plan.follow_tiers || variant.plan.layers.size() != static_cast<size_t>(model.layers))
      return absl::InvalidArgumentError(
          absl::StrCat("cache ", variant.name, " has no widths for all ", model.layers, " layers"));
    STRIA_ASSIGN_OR_RETURN(layouts.emplace_back(), CacheLayout::Create(model, variant.sink_pages));
  }
  const size_t at_once = options.max_rows / variants.size();
  uint64_t bytes = 0;
  for (size_t first = 0; first < texts.size(); first += at_once) {
    DemandList demand;
    for (size_t text = first; text < std::min(first + at_once, texts.size()); ++text) {
      const size_t tokens = texts[text].size();
      if (tokens == 0 || tokens > static_cast<size_t>(model.context_length))
        return absl::InvalidArgumentError(
            absl::StrCat("text ", text, " has ", tokens, " tokens; the context is ", model.context_length));
      for (size_t variant = 0; variant < variants.size(); ++variant) {
        layouts[variant].AddRings(variants[variant].plan, demand);
        layouts[variant].AddPages(variants[variant].plan, {}, 0, static_cast<uint32_t>(tokens / kPageTokens),
                                  demand);
      }
    }
    bytes = std::max(bytes, PagePool::Footprint(demand.demands(), 0));
  }
  bytes += bytes / 8 + 16 * kSlabBytes;  // gaps between runs
  STRIA_ASSIGN_OR_RETURN(const std::unique_ptr<PagePool> pool, PagePool::Create(bytes));
  Group group(transformer, options, layouts, variants, *pool);
  for (size_t first = 0; first < texts.size(); first += at_once)
    group.Run(texts.subspan(first, std::min(at_once, texts.size() - first)), first, sink);
  return absl::OkStatus();
}

}  // namespace stria
