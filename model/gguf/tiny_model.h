// A small llama, qwen2 or qwen3 file in memory, for tests: hidden 8, 2 query heads over 1 KV head of 4
// channels, 2 layers.
#pragma once

#include <functional>
#include <string>

#include "absl/strings/str_cat.h"
#include "model/gguf/gguf_builder.h"

namespace stria {

inline constexpr int kTinyHidden = 8, kTinyFfn = 12, kTinyVocab = 6, kTinyHeadDim = 4, kTinyLayers = 2;

// Element i of every tensor holds its row number, so that a test sees which row it reads.
struct TinyModel {
  std::string architecture = "llama";
  bool tied = true;
  std::string skip_key = {}, skip_tensor = {};  // left out
  std::function<void(GgufBuilder&)> extra = [](GgufBuilder&) {};

  GgufBuilder Build() const {
    GgufBuilder builder;
    const auto u32 = [&](const char* key, uint32_t value) {
      if (key != skip_key) builder.U32(absl::StrCat(architecture, ".", key), value);
    };
    builder.Text("general.architecture", architecture).Text("general.name", "tiny");
    u32("block_count", kTinyLayers);
    u32("context_length", 128);
    u32("embedding_length", kTinyHidden);
    u32("feed_forward_length", kTinyFfn);
    u32("attention.head_count", 2);
    u32("attention.head_count_kv", 1);
    if (skip_key != "attention.layer_norm_rms_epsilon") {
      builder.F32(architecture + ".attention.layer_norm_rms_epsilon", 1e-6f);
    }
    builder.Text("tokenizer.ggml.model", "gpt2").Text("tokenizer.ggml.pre", "smollm");
    builder.Strings("tokenizer.ggml.tokens", {"a", "b", "c", "ab", "<s>", "</s>"});
    builder.Array<int32_t>("tokenizer.ggml.token_type", GgufValueType::kInt32, {1, 1, 1, 1, 3, 3});
    builder.Strings("tokenizer.ggml.merges", {"a b"});
    builder.U32("tokenizer.ggml.bos_token_id", 4).U32("tokenizer.ggml.eos_token_id", 5);
    builder.Bool("tokenizer.ggml.add_bos_token", 1).Text("tokenizer.chat_template", "{{ messages }}");
    const auto tensor = [&](const std::string& name, uint64_t rows, uint64_t cols) {
      if (name == skip_tensor) return;
      std::vector<float> values(rows * cols);
      for (uint64_t i = 0; i < rows * cols; ++i) values[i] = static_cast<float>(i / cols);
      if (rows == 1) {
        builder.F32Tensor(name, {cols}, values);
      } else {
        builder.F32Tensor(name, {cols, rows}, values);
      }
    };
    tensor("token_embd.weight", kTinyVocab, kTinyHidden);
    tensor("output_norm.weight", 1, kTinyHidden);
    if (!tied) tensor("output.weight", kTinyVocab, kTinyHidden);
    for (int layer = 0; layer < kTinyLayers; ++layer) {
      const std::string prefix = absl::StrCat("blk.", layer, ".");
      tensor(prefix + "attn_norm.weight", 1, kTinyHidden);
      tensor(prefix + "attn_q.weight", 2 * kTinyHeadDim, kTinyHidden);
      tensor(prefix + "attn_k.weight", kTinyHeadDim, kTinyHidden);
      tensor(prefix + "attn_v.weight", kTinyHeadDim, kTinyHidden);
      tensor(prefix + "attn_output.weight", kTinyHidden, 2 * kTinyHeadDim);
      tensor(prefix + "ffn_norm.weight", 1, kTinyHidden);
      tensor(prefix + "ffn_gate.weight", kTinyFfn, kTinyHidden);
      tensor(prefix + "ffn_up.weight", kTinyFfn, kTinyHidden);
      tensor(prefix + "ffn_down.weight", kTinyHidden, kTinyFfn);
      if (architecture == "qwen2") {
        tensor(prefix + "attn_q.bias", 1, 2 * kTinyHeadDim);
        tensor(prefix + "attn_k.bias", 1, kTinyHeadDim);
        tensor(prefix + "attn_v.bias", 1, kTinyHeadDim);
      }
      if (architecture == "qwen3") {
        tensor(prefix + "attn_q_norm.weight", 1, kTinyHeadDim);
        tensor(prefix + "attn_k_norm.weight", 1, kTinyHeadDim);
      }
    }
    extra(builder);
    return builder;
  }
};

}  // namespace stria
