#include "model/gguf/gguf_checkpoint.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/sha256.h"
#include "base/status_macros.h"
#include "model/gguf/dequantize.h"
#include "model/gguf/gguf_config.h"

namespace stria {
namespace {

struct Expected {
  WeightRole role;
  std::string name;
  int rows;
  int cols;
};

std::vector<Expected> LayerWeights(const ModelConfig& config, int layer) {
  const std::string prefix = absl::StrCat("blk.", layer, ".");
  const int hidden = config.hidden, q = config.q_width(), kv = config.kv_width();
  std::vector<Expected> weights = {
      {WeightRole::kAttnNorm, prefix + "attn_norm.weight", 1, hidden},
      {WeightRole::kQuery, prefix + "attn_q.weight", q, hidden},
      {WeightRole::kKey, prefix + "attn_k.weight", kv, hidden},
      {WeightRole::kValue, prefix + "attn_v.weight", kv, hidden},
      {WeightRole::kAttnOutput, prefix + "attn_output.weight", hidden, q},
      {WeightRole::kFfnNorm, prefix + "ffn_norm.weight", 1, hidden},
      {WeightRole::kGate, prefix + "ffn_gate.weight", config.ffn, hidden},
      {WeightRole::kUp, prefix + "ffn_up.weight", config.ffn, hidden},
      {WeightRole::kDown, prefix + "ffn_down.weight", hidden, config.ffn},
  };
  if (config.qkv_bias) {
    weights.push_back({WeightRole::kQueryBias, prefix + "attn_q.bias", 1, q});
    weights.push_back({WeightRole::kKeyBias, prefix + "attn_k.bias", 1, kv});
    weights.push_back({WeightRole::kValueBias, prefix + "attn_v.bias", 1, kv});
  }
  if (config.qk_norm) {
    weights.push_back({WeightRole::kQueryNorm, prefix + "attn_q_norm.weight", 1, config.head_dim});
    weights.push_back({WeightRole::kKeyNorm, prefix + "attn_k_norm.weight", 1, config.head_dim});
  }
  return weights;
}

bool ExistsOnce(WeightRole role) {
  return role == WeightRole::kEmbedding || role == WeightRole::kOutputNorm || role == WeightRole::kOutput;
}

}  // namespace

absl::StatusOr<std::unique_ptr<GgufCheckpoint>> GgufCheckpoint::Open(const std::string& path) {
  STRIA_ASSIGN_OR_RETURN(GgufFile file, GgufFile::Open(path));
  auto checkpoint = Create(std::move(file));
  if (checkpoint.ok()) return checkpoint;
  return absl::Status(checkpoint.status().code(), absl::StrCat(path, ": ", checkpoint.status().message()));
}

absl::StatusOr<std::unique_ptr<GgufCheckpoint>> GgufCheckpoint::Create(GgufFile file) {
  std::unique_ptr<GgufCheckpoint> checkpoint(new GgufCheckpoint(std::move(file)));
  STRIA_ASSIGN_OR_RETURN(checkpoint->config_, ReadModelConfig(checkpoint->file_));
  STRIA_RETURN_IF_ERROR(checkpoint->MapWeights());
  checkpoint->ComputeFingerprint();
  return checkpoint;
}

absl::StatusOr<GgufCheckpoint::Weight> GgufCheckpoint::Expect(const std::string& name, int rows,
                                                              int cols) const {
  const GgufTensor* tensor = file_.FindTensor(name);
  if (tensor == nullptr) return absl::InvalidArgumentError(absl::StrCat("tensor '", name, "' is missing"));
  if (tensor->rows() != rows || tensor->cols() != cols || tensor->dims[1] != rows) {
    return absl::InvalidArgumentError(absl::StrCat("tensor '", name, "' is [", tensor->rows(), ", ",
                                                   tensor->cols(), "], not [", rows, ", ", cols, "]"));
  }
  return Weight{.tensor = tensor};
}

absl::Status GgufCheckpoint::MapWeights() {
  const GgufTensor* embedding = file_.FindTensor("token_embd.weight");
  if (embedding == nullptr) return absl::InvalidArgumentError("tensor 'token_embd.weight' is missing");
  constexpr int64_t kMaxVocab = 1 << 24;
  if (embedding->dims[1] > kMaxVocab) {
    return absl::InvalidArgumentError(
        absl::StrCat("tensor 'token_embd.weight' has ", embedding->dims[1], " rows, more than ", kMaxVocab));
  }
  config_.vocab = static_cast<int>(embedding->dims[1]);
  STRIA_ASSIGN_OR_RETURN(const auto vocab, file_.Integer(config_.architecture + ".vocab_size"));
  if (vocab && *vocab != config_.vocab) {
    return absl::InvalidArgumentError(absl::StrCat("metadata '", config_.architecture, ".vocab_size' is ",
                                                   *vocab, ", but 'token_embd.weight' has ", config_.vocab,
                                                   " rows"));
  }
  config_.tied_embeddings = file_.FindTensor("output.weight") == nullptr;

  std::set<std::string_view> used;
  const auto add = [&](const Expected& expected, int layer) -> absl::Status {
    STRIA_ASSIGN_OR_RETURN(Weight weight, Expect(expected.name, expected.rows, expected.cols));
    weight.paired = config_.architecture == "llama" &&
                    (expected.role == WeightRole::kQuery || expected.role == WeightRole::kKey);
    used.insert(weight.tensor->name);
    weights_.emplace(std::make_pair(expected.role, layer), weight);
    return absl::OkStatus();
  };
  STRIA_RETURN_IF_ERROR(add({WeightRole::kEmbedding, "token_embd.weight", config_.vocab, config_.hidden}, 0));
  STRIA_RETURN_IF_ERROR(add({WeightRole::kOutputNorm, "output_norm.weight", 1, config_.hidden}, 0));
  const char* output = config_.tied_embeddings ? "token_embd.weight" : "output.weight";
  STRIA_RETURN_IF_ERROR(add({WeightRole::kOutput, output, config_.vocab, config_.hidden}, 0));
  for (int layer = 0; layer < config_.layers; ++layer) {
    for (const Expected& expected : LayerWeights(config_, layer)) STRIA_RETURN_IF_ERROR(add(expected, layer));
  }
  if (config_.rope.kind == RopeScaling::Kind::kLlama3) used.insert("rope_freqs.weight");
  for (const GgufTensor& tensor : file_.tensors()) {
    if (used.contains(tensor.name)) continue;
    return absl::UnimplementedError(
        absl::StrCat("tensor ", QuoteForError(tensor.name), " is not part of architecture '",
                     config_.architecture, "' with ", config_.layers, " layers as it is supported here"));
  }
  return absl::OkStatus();
}

void GgufCheckpoint::Read(WeightRole role, int layer, int row_begin, int row_end, float* out) const {
  const auto it = weights_.find({role, ExistsOnce(role) ? 0 : layer});
  STRIA_CHECK(it != weights_.end());
  const Weight& weight = it->second;
  const GgufTensor& tensor = *weight.tensor;
  STRIA_CHECK(0 <= row_begin && row_begin <= row_end && row_end <= tensor.rows());
  const int64_t cols = tensor.cols(), row_bytes = tensor.row_bytes();
  if (!weight.paired) {
    Dequantize(tensor.type, tensor.data.data() + row_begin * row_bytes, (row_end - row_begin) * cols, out);
    return;
  }
  // The file holds channels 2i and 2i + 1 of a head where Hugging Face has i and i + head_dim / 2.
  const int half = config_.head_dim / 2;
  for (int row = row_begin; row < row_end; ++row) {
    const int channel = row % config_.head_dim;
    const int64_t source = row - channel + channel % half * 2 + channel / half;
    Dequantize(tensor.type, tensor.data.data() + source * row_bytes, cols, out + (row - row_begin) * cols);
  }
}

void GgufCheckpoint::ComputeFingerprint() {
  constexpr size_t kSample = 64;
  Sha256 sha;
  sha.Update(uint64_t{file_.bytes().size()}).Update(uint64_t{file_.header().size()});
  sha.Update(file_.header().data(), file_.header().size());
  for (const GgufTensor& tensor : file_.tensors()) {
    sha.Update(tensor.data.data(), std::min(tensor.data.size(), kSample));
  }
  fingerprint_ = Hex(sha.Finish());
}

}  // namespace stria
