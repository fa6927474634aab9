#include "proto/prefix_chain.h"

#include <algorithm>

namespace stria {
namespace {

void AddField(Sha256& hash, std::string_view text) { hash.Update(uint64_t{text.size()}).Update(text); }

}  // namespace

PrefixChain::PrefixChain(std::string_view fingerprint, const CachePlan& plan, std::string_view salt) {
  Sha256 hash;
  AddField(hash, "stria prefix 1");
  AddField(hash, fingerprint);
  // A plan that follows the tiers is plain in every layer.
  std::vector<uint64_t> shapes;
  for (size_t i = 0; i < plan.layers.size(); ++i) {
    const LayerAction& layer = plan.layers[i];
    if (layer.kind == LayerAction::Kind::kPlain) continue;
    shapes.insert(shapes.end(), {i, static_cast<uint64_t>(layer.kind), layer.rank});
  }
  hash.Update(uint64_t{shapes.size()});
  for (uint64_t number : shapes) hash.Update(number);
  AddField(hash, salt);
  last_ = hash.Finish();
}

void PrefixChain::Append(std::span<const int32_t> tokens) {
  while (!tokens.empty()) {
    const size_t taken = std::min(tokens.size(), kPrefixPageTokens - open_.size());
    open_.insert(open_.end(), tokens.begin(), tokens.begin() + taken);
    tokens = tokens.subspan(taken);
    if (open_.size() < kPrefixPageTokens) return;
    last_ = Sha256().Update(last_.data(), last_.size()).Update(open_.data(), open_.size() * sizeof(int32_t)).Finish();
    keys_.push_back(last_);
    open_.clear();
  }
}

}  // namespace stria
