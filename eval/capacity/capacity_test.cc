#include "eval/capacity/capacity.h"

#include <fstream>
#include <iterator>
#include <string>

#include <gtest/gtest.h>

#include "eval/capacity/model_shape.h"
#include "worker/cache_layout.h"
#include "worker/page_pool.h"

namespace stria {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;

std::string Text(const char* name) {
  std::ifstream file(std::string("eval/capacity/testdata/") + name);
  return {std::istreambuf_iterator<char>(file), {}};
}

ModelConfig Shape(const char* name) {
  const auto shape = ParseModelShape(Text(name));
  EXPECT_TRUE(shape.ok()) << shape.status();
  return *shape;
}

const WidthCapacity& At(const Capacity& capacity, Width width) {
  for (const WidthCapacity& entry : capacity.widths) {
    if (entry.width == width) return entry;
  }
  ADD_FAILURE();
  return capacity.widths[0];
}

TEST(ModelShape, CountsTheParametersThatModelCardsGive) {
  EXPECT_EQ(ParameterCount(Shape("llama-3.1-70b.json")), 70'553'706'496u);
  EXPECT_EQ(ParameterCount(Shape("qwen2.5-14b.json")), 14'770'033'664u);
  const auto smol = ParseModelShape(R"({"model_type": "llama", "hidden_size": 576, "num_hidden_layers": 30, "num_attention_heads": 9,
      "num_key_value_heads": 3, "intermediate_size": 1536, "vocab_size": 49152, "max_position_embeddings": 8192, "tie_word_embeddings": true})");
  ASSERT_TRUE(smol.ok()) << smol.status();
  EXPECT_EQ(ParameterCount(*smol), 134'515'008u);
}

TEST(ModelShape, NamesWhatIsWrong) {
  const std::pair<const char*, const char*> cases[] = {
      {"[]", "object"},
      {"{", "object"},
      {R"({"model_type": "mamba"})", "mamba"},
      {R"({"model_type": "llama"})", "hidden_size"},
      {R"({"model_type": "llama", "hidden_size": "8192"})", "8192"},
      {R"({"model_type": "llama", "hidden_size": 64, "num_hidden_layers": -1})", "num_hidden_layers"},
      {R"({"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 1000000000000})", "num_hidden_layers"},
      {R"({"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 3,
          "intermediate_size": 64, "vocab_size": 9, "max_position_embeddings": 64})", "3 KV heads"},
  };
  for (const auto& [text, sign] : cases) {
    const auto shape = ParseModelShape(text);
    EXPECT_TRUE(absl::IsInvalidArgument(shape.status())) << text;
    EXPECT_NE(shape.status().message().find(sign), std::string::npos) << shape.status();
  }
}

// EchoKV's figures for Llama-3.1-70B at 128K: a ring of 10 MB, 42 GB of FP16, about 10 GB at 4 bits.
TEST(Capacity, Llama70B) {
  const ModelConfig model = Shape("llama-3.1-70b.json");
  const auto capacity = PlanCapacity(model, {.gpus = 4, .context = 131072});
  ASSERT_TRUE(capacity.ok()) << capacity.status();
  EXPECT_EQ(capacity->key_ring_bytes, 10u << 20);
  EXPECT_EQ(capacity->ring_bytes, 20u << 20);
  EXPECT_EQ(At(*capacity, Width::kFp16).payload_bytes, 40 * kGiB);  // 42.9 GB
  EXPECT_EQ(At(*capacity, Width::kInt4).payload_bytes, 10 * kGiB);
  // Ours also holds scales: 32 bits for each channel of 64 tokens, and for each token of a head of 128.
  EXPECT_DOUBLE_EQ(At(*capacity, Width::kInt4).bits_per_element, 4 + (32.0 / 64 + 32.0 / 128) / 2);
  const double whole = 40.0 * kGiB * (4.375 / 16 * 2047 / 2048 + 1.0 / 2048) + (20 << 20);
  EXPECT_DOUBLE_EQ(static_cast<double>(At(*capacity, Width::kInt4).cache_bytes), whole);
  EXPECT_EQ(capacity->weight_bytes, 2 * capacity->parameters);
  // The same cache on one GPU or on four.
  const auto single = PlanCapacity(model, {.gpus = 1, .context = 131072});
  ASSERT_TRUE(single.ok());
  for (size_t i = 0; i < capacity->widths.size(); ++i) EXPECT_EQ(single->widths[i].cache_bytes, capacity->widths[i].cache_bytes);
  EXPECT_EQ(At(*single, Width::kInt2).contexts, 0u) << "weights alone are larger than the GPU";
  EXPECT_TRUE(absl::IsInvalidArgument(PlanCapacity(model, {.gpus = 3, .context = 64}).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(PlanCapacity(model, {.gpus = 16, .context = 64}).status()));
}

// KV-Kaizen's: 192 KiB a token, 48 GiB for 32 sequences of 8K, 152x for 12 anchors of rank 128 at 4 bits.
TEST(Capacity, Qwen14B) {
  const ModelConfig model = Shape("qwen2.5-14b.json");
  const auto capacity = PlanCapacity(model, {.context = 8192, .sequences = 32});
  ASSERT_TRUE(capacity.ok()) << capacity.status();
  EXPECT_EQ(capacity->token_bytes, 192u << 10);
  EXPECT_EQ(At(*capacity, Width::kFp16).payload_bytes, 48 * kGiB);
  EXPECT_EQ(At(*capacity, Width::kFp16).cache_bytes, 48 * kGiB + 32 * capacity->ring_bytes);
  EXPECT_NEAR(LatentRatio(model, 12, 128, 64, 4.5), 152, 0.5);
}

// A real pool, filled as sequences fill it: pages, rings and one prompt's staging take what the plan says, and one context more does not fit.
TEST(Capacity, ARealPoolHoldsWhatThePlanSays) {
  ModelConfig model;
  model.architecture = "llama";
  model.layers = 3;
  model.hidden = 128;
  model.heads = 4;
  model.kv_heads = 2;
  model.head_dim = 32;
  model.ffn = 256;
  model.vocab = 1000;
  constexpr uint32_t kTokens = 40 * 64 + 17;
  CapacityRequest request{.context = kTokens, .sequences = 5, .gpu_bytes = 24 << 20, .reserve = 0};
  const auto capacity = PlanCapacity(model, request);
  const auto layout = CacheLayout::Create(model, request.sink_pages);
  ASSERT_TRUE(capacity.ok() && layout.ok());
  for (const WidthCapacity& planned : capacity->widths) {
    ASSERT_GT(planned.contexts, 1u) << Name(planned.width);
    auto pool = PagePool::Create(capacity->gpu_room_bytes);
    ASSERT_TRUE(pool.ok());
    ASSERT_TRUE((*pool)->Charge(capacity->gpu_staging_bytes));
    // false: out of pages.
    const auto add_sequence = [&] {
      for (int layer = 0; layer < layout->layers(); ++layer) {
        PageRun ring, keys, values;
        bool got = (*pool)->Allocate(layout->ring_bytes(layer), ring, 1, Placement::kGaps).has_value();
        for (uint32_t page = 0; got && page < kTokens / kPageTokens; ++page) {
          const Width width = page < request.sink_pages ? Width::kFp16 : planned.width;
          got = (*pool)->Allocate(layout->key_page_bytes(layer, width), keys, 1, Placement::kGaps).has_value() &&
                (*pool)->Allocate(layout->value_page_bytes(layer, width), values, 1, Placement::kGaps).has_value();
        }
        for (PageRun* run : {&ring, &keys, &values}) (*pool)->EndRun(*run);
        if (!got) return false;
      }
      return true;
    };
    uint64_t held = 0;
    while (held < planned.contexts) {
      ASSERT_TRUE(add_sequence()) << Name(planned.width) << " " << held;
      if (++held != request.sequences) continue;
      EXPECT_EQ((*pool)->used_bytes() - (*pool)->charged_bytes(), planned.gpu_cache_bytes) << Name(planned.width);
      EXPECT_EQ((*pool)->held_bytes() - (*pool)->charged_bytes(), planned.gpu_pool_bytes) << Name(planned.width);
    }
    EXPECT_FALSE(add_sequence()) << Name(planned.width) << ": the plan says no more than " << planned.contexts;
    ASSERT_GE(planned.contexts, request.sequences) << "so that the bytes were compared";
  }
}

}  // namespace
}  // namespace stria
