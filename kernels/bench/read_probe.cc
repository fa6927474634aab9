#include "kernels/bench/read_probe.h"

#include <chrono>

namespace stria {

ReadProbe::ReadProbe(size_t bytes, int threads) : threads_(threads), buffer_(bytes / sizeof(uint64_t)) {}

double ReadProbe::Measure() {
  const auto start = std::chrono::steady_clock::now();
  uint64_t sum = 0;
  const uint64_t* data = buffer_.data();
  const size_t lines = buffer_.size() / 8;
#pragma omp parallel for num_threads(threads_) reduction(+ : sum) schedule(static)
  for (size_t line = 0; line < lines; ++line) {
    const uint64_t* p = data + 8 * line;
    __builtin_prefetch(p + 512);
    sum += ((p[0] ^ p[1]) ^ (p[2] ^ p[3])) ^ ((p[4] ^ p[5]) ^ (p[6] ^ p[7]));
  }
  sink_ = sum;
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  return static_cast<double>(lines * 64) / elapsed.count();
}

}  // namespace stria
