#include "worker/next_token_kl.h"

#include <cmath>

#include "worker/sampler.h"

namespace stria {

double NextTokenKl(std::span<const float> p_logits, double p_log_sum, std::span<const float> q_logits, double q_log_sum) {
  double sum = 0;
  for (size_t i = 0; i < p_logits.size(); ++i) {
    const double log_p = p_logits[i] - p_log_sum;
    if (log_p < -30) continue;  // together less than 1e-8 of the mass even for 100,000 tokens
    sum += std::exp(log_p) * (log_p - (q_logits[i] - q_log_sum));
  }
  return sum < 0 ? 0 : sum;  // rounding; NaN stays
}

double NextTokenKl(std::span<const float> p_logits, std::span<const float> q_logits) {
  return NextTokenKl(p_logits, LogSumExp(p_logits), q_logits, LogSumExp(q_logits));
}

}  // namespace stria
