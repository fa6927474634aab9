#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/evict/snapkv.h"

namespace stria {

void AddObservationReference(const AttentionShape& shape, const ObservationArgs& args, double* scores) {
  const int dim = shape.head_dim;
  for (int position = args.query_begin; position < args.query_end; ++position) {
    for (int head = 0; head < shape.heads; ++head) {
      const int kv_head = head / shape.group();
      const float* q = args.q + (size_t{1} * (position - args.query_begin) * shape.heads + head) * dim;
      const Half* keys = args.keys.data + kv_head * args.keys.head_stride;
      std::vector<double> p(position + 1);
      for (int t = 0; t <= position; ++t) {
        for (int c = 0; c < dim; ++c) p[t] += double{q[c]} * ToFloat(keys[size_t{1} * t * dim + c]);
        p[t] /= std::sqrt(static_cast<double>(dim));
      }
      const double max = *std::max_element(p.begin(), p.end());
      double sum = 0;
      for (double& x : p) sum += x = std::exp(x - max);
      for (int t = 0; t < args.scored; ++t) scores[size_t{1} * kv_head * args.scored + t] += p[t] / sum;
    }
  }
}

}  // namespace stria
