// The case table on this machine's processor, every instruction set that it has.
#include <limits>

#include "kernels/attention/decode_attention_cases.h"

namespace stria {
namespace {

DecodeFunction OnThreads(Target target, int threads) {
  return [=](const AttentionShape& shape, const std::vector<SequenceKv>& kv, const std::vector<float>& q) {
    const auto attention = DecodeAttention::Create(shape, target, threads);
    std::vector<float> out(q.size(), std::numeric_limits<float>::quiet_NaN());
    attention->Plan(TokensOf(kv));
    attention->Run(kv.data(), q.data(), out.data(), kv.data());
    return out;
  };
}

}  // namespace

const std::vector<DecodePath>& DecodePaths() {
  static const std::vector<DecodePath> paths = [] {
    std::vector<DecodePath> all;
    for (Target target : AvailableTargets())
      all.push_back({Name(target), OnThreads(target, 1), {OnThreads(target, 2), OnThreads(target, 3)}});
    return all;
  }();
  return paths;
}

}  // namespace stria
