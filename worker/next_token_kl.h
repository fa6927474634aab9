// How far one next-token distribution is from another.
#pragma once

#include <span>

namespace stria {

// Σ p ln(p / q), nats, of the softmaxes p and q of two rows of logits; in double, never negative. The second form takes the rows'
// LogSumExp from who has them.
double NextTokenKl(std::span<const float> p_logits, std::span<const float> q_logits);
double NextTokenKl(std::span<const float> p_logits, double p_log_sum, std::span<const float> q_logits, double q_log_sum);

}  // namespace stria
