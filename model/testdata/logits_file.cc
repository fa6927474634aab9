#include "model/testdata/logits_file.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>

#include "base/check.h"
#include "base/float16.h"

namespace stria {
namespace {

class Reader {
 public:
  explicit Reader(std::vector<char> bytes) : bytes_(std::move(bytes)) {}

  template <typename T>
  T Next() {
    STRIA_CHECK(at_ + sizeof(T) <= bytes_.size());
    T value;
    std::memcpy(&value, bytes_.data() + at_, sizeof(T));
    at_ += sizeof(T);
    return value;
  }
  double NextProbability() { return std::exp(static_cast<double>(ToFloat(Half{Next<uint16_t>()}))); }
  bool AtEnd() const { return at_ == bytes_.size(); }

 private:
  std::vector<char> bytes_;
  size_t at_ = 0;
};

GoldenPosition ReadPosition(Reader& reader) {
  GoldenPosition position;
  const int count = reader.Next<uint16_t>();
  for (int i = 0; i < count; ++i) position.tokens.push_back(reader.Next<uint16_t>());
  double sum = 0;
  for (int i = 0; i < count; ++i) sum += position.probabilities.emplace_back(reader.NextProbability());
  for (double& rest : position.rest) sum += rest = reader.NextProbability();
  // The file's half-precision logarithms add up to 1 only nearly.
  for (double& probability : position.probabilities) probability /= sum;
  for (double& rest : position.rest) rest /= sum;
  return position;
}

}  // namespace

GoldenLogits ReadGoldenLogits(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    std::fprintf(stderr, "cannot read %s\n", path.c_str());
    std::abort();
  }
  Reader reader(std::vector<char>(std::istreambuf_iterator<char>(file), {}));
  for (const char expected : {'S', 'T', 'R', 'I', 'A', 'L', 'G', '2'})
    STRIA_CHECK(reader.Next<char>() == expected);
  GoldenLogits golden;
  golden.vocab = static_cast<int>(reader.Next<uint32_t>());
  golden.contexts.resize(reader.Next<uint32_t>());
  for (GoldenContext& context : golden.contexts) {
    const uint32_t length = reader.Next<uint32_t>();
    for (uint32_t i = 0; i < length; ++i) context.tokens.push_back(reader.Next<int32_t>());
    for (uint32_t i = 0; i < length; ++i) context.positions.push_back(ReadPosition(reader));
  }
  STRIA_CHECK(reader.AtEnd());
  return golden;
}

double GoldenKl(const GoldenPosition& golden, std::span<const float> logits) {
  const double best = *std::max_element(logits.begin(), logits.end());
  std::vector<double> q(logits.size());
  double sum = 0;
  for (size_t i = 0; i < logits.size(); ++i) sum += q[i] = std::exp(logits[i] - best);
  double kl = 0;
  for (size_t i = 0; i < golden.tokens.size(); ++i) {
    double& probability = q[golden.tokens[i]];
    kl += golden.probabilities[i] * std::log(golden.probabilities[i] / (probability / sum));
    probability = 0;
  }
  std::array<double, kGoldenBuckets> rest = {};
  for (size_t i = 0; i < q.size(); ++i) rest[i % kGoldenBuckets] += q[i] / sum;
  for (int i = 0; i < kGoldenBuckets; ++i) {
    if (golden.rest[i] > 0) kl += golden.rest[i] * std::log(golden.rest[i] / rest[i]);
  }
  return kl;
}

}  // namespace stria
