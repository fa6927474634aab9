// The limit that decode attention is measured against: how fast this machine reads memory, right now.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/aligned_buffer.h"

namespace stria {

class ReadProbe {
 public:
  // A buffer far larger than any cache, in huge pages where possible.
  ReadProbe(size_t bytes, int threads);

  // Reads all of it once with `threads` threads; bytes per second.
  double Measure();

 private:
  const int threads_;
  AlignedBuffer<uint64_t> buffer_;
  volatile uint64_t sink_ = 0;
};

}  // namespace stria
