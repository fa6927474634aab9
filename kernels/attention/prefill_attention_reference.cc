#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/attention/prefill_attention.h"

namespace stria {

void PrefillAttentionReference(const AttentionShape& shape, const PrefillAttentionArgs& args) {
  const int dim = shape.head_dim;
  std::vector<double> p(args.query_end);
  for (int row = args.query_begin; row < args.query_end; ++row) {
    for (int head = 0; head < shape.heads; ++head) {
      const size_t at = (size_t{1} * (row - args.query_begin) * shape.heads + head) * dim;
      const Half* keys = args.keys.data + (head / shape.group()) * args.keys.head_stride;
      const Half* values = args.values.data + (head / shape.group()) * args.values.head_stride;
      double max = -std::numeric_limits<double>::infinity(), sum = 0;
      for (int t = 0; t <= row; ++t) {
        double dot = 0;
        for (int c = 0; c < dim; ++c) dot += double{args.q[at + c]} * ToFloat(keys[size_t{1} * t * dim + c]);
        p[t] = dot / std::sqrt(static_cast<double>(dim));
        max = std::max(max, p[t]);
      }
      for (int t = 0; t <= row; ++t) sum += p[t] = std::exp(p[t] - max);
      for (int c = 0; c < dim; ++c) {
        double x = 0;
        for (int t = 0; t <= row; ++t) x += p[t] * ToFloat(values[size_t{1} * t * dim + c]);
        args.out[at + c] = static_cast<float>(x / sum);
      }
    }
  }
}

}  // namespace stria
