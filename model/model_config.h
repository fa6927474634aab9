// The shape of a decoder-only transformer, whatever file it came from.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace stria {

// How rotary frequencies are stretched beyond the trained context. Anything else is refused by name at load.
struct RopeScaling {
  enum class Kind { kNone, kLinear, kLlama3, kYarn };
  Kind kind = Kind::kNone;
  float factor = 1;
  int original_context = 0;          // kLlama3, kYarn: context the model was first trained at
  float low_freq_factor = 1;         // kLlama3
  float high_freq_factor = 4;        // kLlama3
  float attention_factor = 1;        // kYarn: multiplies cos and sin (GGUF: rope.scaling.attn_factor)
  float beta_fast = 32, beta_slow = 1;  // kYarn
  // kLlama3 in GGUF files: the frequencies' divisors as a tensor, [rope_dims / 2]; empty: computed from the factors.
  std::vector<float> frequency_divisors;
};

struct ModelConfig {
  std::string architecture;  // "llama", "qwen2", "qwen3"
  std::string name;          // for people: general.name
  int layers = 0;
  int hidden = 0;      // width of the residual stream
  int heads = 0;       // query heads
  int kv_heads = 0;    // divides heads
  int head_dim = 0;
  int ffn = 0;
  int vocab = 0;
  int context_length = 0;
  float norm_epsilon = 1e-5f;
  float rope_base = 10000;
  int rope_dims = 0;   // leading channels of a head that rotate; head_dim for all supported families
  RopeScaling rope;
  bool qkv_bias = false;  // Qwen2
  bool qk_norm = false;   // Qwen3: RMS norm per head before the rotation
  bool tied_embeddings = false;

  int q_width() const { return heads * head_dim; }
  int kv_width() const { return kv_heads * head_dim; }
  int group() const { return heads / kv_heads; }  // query heads that share a KV head
};

}  // namespace stria
