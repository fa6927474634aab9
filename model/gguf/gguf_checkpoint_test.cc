#include "model/gguf/gguf_checkpoint.h"

#include <cmath>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/gguf/tiny_model.h"
#include "model/gguf/tokenizer_spec_gguf.h"

namespace stria {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Keeps the bytes that the checkpoint points into.
struct Opened {
  std::vector<uint8_t> bytes;
  absl::StatusOr<std::unique_ptr<GgufCheckpoint>> checkpoint = absl::InternalError("not opened");

  explicit Opened(const GgufBuilder& builder) : bytes(builder.Build()) {
    auto file = GgufFile::FromBytes(bytes);
    if (file.ok()) {
      checkpoint = GgufCheckpoint::Create(*std::move(file));
    } else {
      checkpoint = file.status();
    }
  }
  explicit Opened(const TinyModel& model) : Opened(model.Build()) {}
  std::string error() const { return std::string(checkpoint.status().message()); }
  const GgufCheckpoint& operator*() const { return **checkpoint; }
};

std::string ErrorWith(std::function<void(GgufBuilder&)> extra, const char* architecture = "llama") {
  return Opened(TinyModel{.architecture = architecture, .extra = std::move(extra)}).error();
}

// The first element of each row of a weight.
std::vector<float> Rows(const Checkpoint& checkpoint, WeightRole role, int rows, int cols) {
  std::vector<float> values(rows * cols), first;
  checkpoint.Read(role, 1, 0, rows, values.data());
  for (int i = 0; i < rows; ++i) first.push_back(values[i * cols]);
  return first;
}

TEST(GgufCheckpoint, ReadsTheShape) {
  const Opened opened(TinyModel{});
  ASSERT_TRUE(opened.checkpoint.ok()) << opened.error();
  const ModelConfig& config = (*opened).config();
  EXPECT_EQ(config.architecture, "llama");
  EXPECT_EQ(config.name, "tiny");
  EXPECT_EQ(config.layers, 2);
  EXPECT_EQ(config.hidden, 8);
  EXPECT_EQ(config.heads, 2);
  EXPECT_EQ(config.kv_heads, 1);
  EXPECT_EQ(config.head_dim, 4);
  EXPECT_EQ(config.ffn, 12);
  EXPECT_EQ(config.vocab, 6);
  EXPECT_EQ(config.context_length, 128);
  EXPECT_EQ(config.norm_epsilon, 1e-6f);
  EXPECT_EQ(config.rope_base, 10000);
  EXPECT_EQ(config.rope_dims, 4);
  EXPECT_EQ(config.rope.kind, RopeScaling::Kind::kNone);
  EXPECT_TRUE(config.tied_embeddings);
  EXPECT_FALSE(config.qkv_bias);
  EXPECT_FALSE(config.qk_norm);
}

TEST(GgufCheckpoint, FamiliesDiffer) {
  const Opened qwen2(TinyModel{.architecture = "qwen2", .tied = false});
  ASSERT_TRUE(qwen2.checkpoint.ok()) << qwen2.error();
  EXPECT_TRUE((*qwen2).config().qkv_bias);
  EXPECT_FALSE((*qwen2).config().tied_embeddings);
  std::vector<float> bias(8, -1);
  (*qwen2).Read(WeightRole::kQueryBias, 0, 0, 1, bias.data());
  EXPECT_EQ(bias[7], 0);

  const Opened qwen3(
      TinyModel{.architecture = "qwen3", .extra = [](GgufBuilder& builder) {
                  builder.U32("qwen3.attention.key_length", 4).U32("qwen3.attention.value_length", 4);
                }});
  ASSERT_TRUE(qwen3.checkpoint.ok()) << qwen3.error();
  EXPECT_TRUE((*qwen3).config().qk_norm);
}

// Worked out by hand: the file's head of 4 channels holds Hugging Face's channels 0, 2, 1, 3.
TEST(GgufCheckpoint, LlamaQueriesAndKeysAreUnpaired) {
  const Opened llama(TinyModel{});
  ASSERT_TRUE(llama.checkpoint.ok()) << llama.error();
  EXPECT_THAT(Rows(*llama, WeightRole::kQuery, 8, 8), ElementsAre(0, 2, 1, 3, 4, 6, 5, 7));
  EXPECT_THAT(Rows(*llama, WeightRole::kKey, 4, 8), ElementsAre(0, 2, 1, 3));
  EXPECT_THAT(Rows(*llama, WeightRole::kValue, 4, 8), ElementsAre(0, 1, 2, 3));
  std::vector<float> part(2 * 8);
  (*llama).Read(WeightRole::kQuery, 0, 5, 7, part.data());
  EXPECT_EQ(part[0], 6);
  EXPECT_EQ(part[8], 5);

  const Opened qwen(TinyModel{.architecture = "qwen2"});
  ASSERT_TRUE(qwen.checkpoint.ok()) << qwen.error();
  EXPECT_THAT(Rows(*qwen, WeightRole::kQuery, 8, 8), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
}

TEST(GgufCheckpoint, TiedOutputIsTheEmbedding) {
  const Opened tied(TinyModel{});
  ASSERT_TRUE(tied.checkpoint.ok());
  EXPECT_THAT(Rows(*tied, WeightRole::kOutput, 6, 8), ElementsAre(0, 1, 2, 3, 4, 5));
}

TEST(GgufCheckpoint, MissingAndMisshapenAndSuperfluousTensors) {
  EXPECT_EQ(Opened(TinyModel{.skip_tensor = "blk.1.ffn_up.weight"}).error(),
            "tensor 'blk.1.ffn_up.weight' is missing");
  EXPECT_EQ(Opened(TinyModel{.skip_tensor = "token_embd.weight"}).error(),
            "tensor 'token_embd.weight' is missing");
  const auto misshapen = [](std::vector<uint64_t> dims) {
    return Opened(TinyModel{.skip_tensor = "blk.0.attn_k.weight",
                            .extra =
                                [&](GgufBuilder& builder) {
                                  builder.F32Tensor("blk.0.attn_k.weight", dims, std::vector<float>(32));
                                }})
        .error();
  };
  EXPECT_EQ(misshapen({8, 4}), "");
  EXPECT_EQ(misshapen({4, 8}), "tensor 'blk.0.attn_k.weight' is [8, 4], not [4, 8]");
  EXPECT_EQ(misshapen({8, 2, 2}), "tensor 'blk.0.attn_k.weight' is [4, 8], not [4, 8]");
  EXPECT_EQ(misshapen({32}), "tensor 'blk.0.attn_k.weight' is [1, 32], not [4, 8]");
  EXPECT_THAT(ErrorWith([](GgufBuilder& b) { b.F32Tensor("blk.0.attn_q.bias", {8}, std::vector<float>(8)); }),
              HasSubstr("tensor 'blk.0.attn_q.bias' is not part of architecture 'llama' with 2 layers"));
  EXPECT_THAT(ErrorWith([](GgufBuilder& b) { b.F32Tensor("rope_freqs.weight", {2}, {1, 1}); }, "qwen2"),
              HasSubstr("tensor 'rope_freqs.weight' is not part of architecture 'qwen2'"));
}

TEST(GgufCheckpoint, MissingAndImpossibleMetadata) {
  for (const char* key : {"block_count", "context_length", "embedding_length", "feed_forward_length",
                          "attention.head_count", "attention.layer_norm_rms_epsilon"}) {
    EXPECT_EQ(Opened(TinyModel{.skip_key = key}).error(),
              std::string("metadata 'llama.") + key + "' is missing");
  }
  const auto replaced = [](const char* key, uint32_t value) {
    return Opened(TinyModel{.skip_key = key,
                            .extra = [&](GgufBuilder& b) { b.U32(std::string("llama.") + key, value); }})
        .error();
  };
  EXPECT_EQ(replaced("block_count", 0), "metadata 'llama.block_count' is 0, not 1 to 4096");
  EXPECT_EQ(replaced("block_count", 4294967295), "metadata 'llama.block_count' is 4294967295, not 1 to 4096");
  EXPECT_EQ(replaced("block_count", 3), "tensor 'blk.2.attn_norm.weight' is missing");
  EXPECT_THAT(replaced("block_count", 1), HasSubstr("tensor 'blk.1.attn_norm.weight' is not part of"));
  EXPECT_EQ(replaced("attention.head_count_kv", 3), "2 query heads are not a multiple of 3 KV heads");
  EXPECT_EQ(replaced("attention.head_count", 3), "metadata 'llama.attention.key_length' is missing");
  EXPECT_EQ(ErrorWith([](GgufBuilder& b) { b.U32("llama.vocab_size", 7); }),
            "metadata 'llama.vocab_size' is 7, but 'token_embd.weight' has 6 rows");
  EXPECT_THAT(ErrorWith([](GgufBuilder& b) { b.F32("llama.rope.freq_base", NAN); }),
              HasSubstr("not positive and finite"));
  EXPECT_THAT(ErrorWith([](GgufBuilder& b) { b.U32("llama.rope.dimension_count", 2); }),
              HasSubstr("4 key, 4 value and 2 rotary channels"));
}

TEST(GgufCheckpoint, UnsupportedThingsAreNamed) {
  EXPECT_EQ(Opened(TinyModel{.architecture = "mamba"}).error(),
            "architecture 'mamba' is not supported (supported: llama, qwen2, qwen3)");
  EXPECT_EQ(ErrorWith([](GgufBuilder& b) { b.U32("llama.expert_count", 8); }),
            "mixture of experts is not supported ('llama.expert_count' is 8)");
  EXPECT_EQ(ErrorWith([](GgufBuilder& b) { b.U32("qwen2.attention.sliding_window", 4096); }, "qwen2"),
            "sliding-window attention is not supported ('qwen2.attention.sliding_window' is 4096)");
  EXPECT_THAT(ErrorWith([](GgufBuilder& b) { b.F32("llama.logit_scale", 0.5f); }),
              HasSubstr("scaled logits"));
  EXPECT_THAT(ErrorWith([](GgufBuilder& b) { b.Bool("llama.attention.causal", 0); }),
              HasSubstr("bidirectional"));
  EXPECT_EQ(
      ErrorWith([](GgufBuilder& b) { b.Bool("llama.attention.causal", 1).U32("llama.expert_count", 0); }),
      "");
  EXPECT_THAT(ErrorWith([](GgufBuilder& b) { b.Text("llama.expert_count", "8"); }),
              HasSubstr("is a string, not a number"));
  EXPECT_THAT(ErrorWith([](GgufBuilder& b) { b.Add<uint16_t>("split.count", GgufValueType::kUint16, 3); }),
              HasSubstr("split over 3 files"));
  EXPECT_EQ(ErrorWith([](GgufBuilder& b) { b.Text("llama.rope.scaling.type", "longrope"); }),
            "rotary scaling 'longrope' is not supported (supported: none, linear, yarn, llama3)");
}

RopeScaling RopeOf(std::function<void(GgufBuilder&)> extra) {
  const Opened opened(TinyModel{.extra = std::move(extra)});
  EXPECT_TRUE(opened.checkpoint.ok()) << opened.error();
  return opened.checkpoint.ok() ? (*opened).config().rope : RopeScaling{};
}

TEST(GgufCheckpoint, RotaryScalings) {
  using Kind = RopeScaling::Kind;
  EXPECT_EQ(RopeOf([](GgufBuilder& b) {
              b.Text("llama.rope.scaling.type", "none").F32("llama.rope.scaling.factor", 4);
            }).kind,
            Kind::kNone);
  const RopeScaling linear = RopeOf([](GgufBuilder& b) { b.F32("llama.rope.scaling.factor", 4); });
  EXPECT_EQ(linear.kind, Kind::kLinear);
  EXPECT_EQ(linear.factor, 4);
  EXPECT_EQ(RopeOf([](GgufBuilder& b) { b.F32("llama.rope.scale_linear", 2); }).factor, 2);

  const RopeScaling yarn = RopeOf([](GgufBuilder& b) {
    b.Text("llama.rope.scaling.type", "yarn").F32("llama.rope.scaling.factor", 4);
    b.U32("llama.rope.scaling.original_context_length", 32);
  });
  EXPECT_EQ(yarn.kind, Kind::kYarn);
  EXPECT_EQ(yarn.original_context, 32);
  EXPECT_FLOAT_EQ(yarn.attention_factor, 1.1386294f);  // 1 + 0.1·ln 4
  EXPECT_EQ(yarn.beta_fast, 32);
  EXPECT_EQ(yarn.beta_slow, 1);
  const RopeScaling tuned = RopeOf([](GgufBuilder& b) {
    b.Text("llama.rope.scaling.type", "yarn")
        .F32("llama.rope.scaling.factor", 4)
        .F32("llama.rope.scaling.attn_factor", 2);
    b.F32("llama.rope.scaling.yarn_beta_fast", 16).F32("llama.rope.scaling.yarn_beta_slow", 2);
  });
  EXPECT_EQ(tuned.original_context, 128);
  EXPECT_FLOAT_EQ(tuned.attention_factor, 2.2772589f);
  EXPECT_EQ(tuned.beta_fast, 16);
  EXPECT_EQ(tuned.beta_slow, 2);

  const RopeScaling llama3 = RopeOf([](GgufBuilder& b) { b.F32Tensor("rope_freqs.weight", {2}, {1, 8}); });
  EXPECT_EQ(llama3.kind, Kind::kLlama3);
  EXPECT_THAT(llama3.frequency_divisors, ElementsAre(1, 8));
  EXPECT_EQ(ErrorWith([](GgufBuilder& b) { b.F32Tensor("rope_freqs.weight", {3}, {1, 1, 1}); }),
            "tensor 'rope_freqs.weight' is [1, 3], not [1, 2]");
  EXPECT_THAT(ErrorWith([](GgufBuilder& b) { b.F32Tensor("rope_freqs.weight", {2}, {1, 0}); }),
              HasSubstr("holds 0"));
  EXPECT_THAT(ErrorWith([](GgufBuilder& b) {
                b.F32("llama.rope.scaling.factor", 4).F32Tensor("rope_freqs.weight", {2}, {1, 1});
              }),
              HasSubstr("together with another rotary scaling"));
  EXPECT_THAT(ErrorWith([](GgufBuilder& b) { b.F32("llama.rope.scaling.factor", -1); }),
              HasSubstr("is -1, not positive"));
  EXPECT_THAT(ErrorWith([](GgufBuilder& b) { b.F32("llama.rope.scaling.attn_factor", 2); }),
              HasSubstr("without YaRN"));
}

TEST(GgufCheckpoint, FingerprintNamesTheModel) {
  const Opened one(TinyModel{}), same(TinyModel{}), untied(TinyModel{.tied = false});
  ASSERT_TRUE(one.checkpoint.ok() && same.checkpoint.ok() && untied.checkpoint.ok());
  EXPECT_EQ((*one).fingerprint().size(), 64u);
  EXPECT_EQ((*one).fingerprint(), (*same).fingerprint());
  EXPECT_NE((*one).fingerprint(), (*untied).fingerprint());
  // Other weights under the same header.
  std::vector<uint8_t> bytes = one.bytes;
  const GgufTensor* tensor = (*one).file().FindTensor("blk.1.ffn_down.weight");
  bytes[tensor->data.data() - one.bytes.data()] ^= 1;
  const auto changed = GgufCheckpoint::Create(*GgufFile::FromBytes(bytes));
  ASSERT_TRUE(changed.ok());
  EXPECT_NE((*one).fingerprint(), (*changed)->fingerprint());
}

TEST(GgufCheckpoint, OpensTheRandomModels) {
  for (const char* name : {"llama_tied", "llama3", "llama_linear", "qwen2", "qwen2_yarn", "qwen3"}) {
    const auto opened = GgufCheckpoint::Open(std::string("model/testdata/random_") + name + ".gguf");
    ASSERT_TRUE(opened.ok()) << opened.status();
    EXPECT_EQ((*opened)->config().vocab, 384);
    EXPECT_TRUE(MakeTokenizerSpec((*opened)->file()).ok());
  }
  EXPECT_THAT(
      std::string(GgufCheckpoint::Open("model/gguf/testdata/dequantize_golden.bin").status().message()),
      HasSubstr("dequantize_golden.bin: not a GGUF file"));
}

TEST(TokenizerSpecGguf, CopiesEverything) {
  const std::vector<uint8_t> bytes = TinyModel{}.Build().Build();
  const auto file = GgufFile::FromBytes(bytes);
  ASSERT_TRUE(file.ok());
  const auto spec = MakeTokenizerSpec(*file);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->model, "gpt2");
  EXPECT_EQ(spec->pre, "smollm");
  EXPECT_THAT(spec->tokens, ElementsAre("a", "b", "c", "ab", "<s>", "</s>"));
  EXPECT_THAT(spec->token_types, ElementsAre(1, 1, 1, 1, 3, 3));
  EXPECT_THAT(spec->merges, ElementsAre("a b"));
  EXPECT_EQ(spec->bos, 4);
  EXPECT_EQ(spec->eos, 5);
  EXPECT_EQ(spec->eot, -1);
  EXPECT_EQ(spec->unk, -1);
  EXPECT_EQ(spec->pad, -1);
  EXPECT_EQ(spec->add_bos, true);
  EXPECT_FALSE(spec->add_eos);
  EXPECT_FALSE(spec->add_space_prefix);
  EXPECT_EQ(spec->chat_template, "{{ messages }}");
}

TEST(TokenizerSpecGguf, RefusesWhatDoesNotFit) {
  const auto error = [](const GgufBuilder& builder) {
    const std::vector<uint8_t> bytes = builder.Build();
    return std::string(MakeTokenizerSpec(*GgufFile::FromBytes(bytes)).status().message());
  };
  const auto tokens = [] { return GgufBuilder().Strings("tokenizer.ggml.tokens", {"a", "b"}); };
  EXPECT_EQ(error(tokens()), "");
  EXPECT_EQ(error(tokens().U32("tokenizer.ggml.padding_token_id", 0xffffffff)), "");
  EXPECT_EQ(error(GgufBuilder()), "metadata 'tokenizer.ggml.tokens' is missing or empty");
  EXPECT_EQ(error(tokens().U32("tokenizer.ggml.eos_token_id", 2)),
            "metadata 'tokenizer.ggml.eos_token_id' is 2, outside the vocabulary of 2");
  EXPECT_EQ(error(tokens().Array<int32_t>("tokenizer.ggml.token_type", GgufValueType::kInt32, {1})),
            "metadata 'tokenizer.ggml.token_type' has 1 entries for 2 tokens");
  EXPECT_EQ(error(tokens().Array<int32_t>("tokenizer.ggml.token_type", GgufValueType::kInt32, {1, 9})),
            "metadata 'tokenizer.ggml.token_type' holds 9");
  EXPECT_THAT(error(tokens().U32("tokenizer.ggml.merges", 9)), HasSubstr("not an array of strings"));
  EXPECT_THAT(error(tokens().U32("tokenizer.ggml.add_bos_token", 1)), HasSubstr("not a boolean"));
}

}  // namespace
}  // namespace stria
