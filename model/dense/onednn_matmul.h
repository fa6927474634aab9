// oneDNN's matmul with weights packed once, compiled per row count and shared by all layers of one shape.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "base/aligned_buffer.h"
#include "model/dense/huge_page_arena.h"
#include "oneapi/dnnl/dnnl.hpp"

namespace stria {

// One oneDNN engine and stream, and the memory that primitives work in. One call at a time.
class OneDnnContext {
 public:
  OneDnnContext() : engine(dnnl::engine::kind::cpu, 0), stream(engine) {}

  void ReserveScratchpad(size_t bytes) {
    if (scratchpad.size() < bytes) scratchpad = AlignedBuffer<std::byte>(bytes);
  }

  dnnl::engine engine;
  dnnl::stream stream;
  AlignedBuffer<std::byte> scratchpad;
  HugePageArena arena;  // packed weights
};

struct MatmulTypes {
  dnnl::memory::data_type source, weights, destination;
};

// destination [rows, out] = source [rows, in] · weights [in, out] for any number of rows.
class OneDnnMatmul {
 public:
  // The weights' layout is the one that oneDNN likes best at `typical_rows`.
  OneDnnMatmul(OneDnnContext* context, MatmulTypes types, int out, int in, int typical_rows);

  // Reorders row-major [out, in] data of types.weights into the packed layout, in memory of the context.
  std::span<std::byte> Pack(const void* weights) const;

  // Compiles the primitive of this row count unless it is there.
  void Prepare(int rows);

  void Run(int rows, const void* source, const void* weights, void* destination);

  int out() const { return out_; }
  int in() const { return in_; }

 private:
  struct Compiled {
    dnnl::matmul primitive;
    dnnl::memory source, destination, scratchpad;
  };

  dnnl::matmul::primitive_desc Describe(int rows, const dnnl::memory::desc& weights) const;

  OneDnnContext* const context_;
  const MatmulTypes types_;
  const int out_, in_;
  dnnl::memory::desc packed_;
  dnnl::memory weights_;
  std::vector<std::unique_ptr<Compiled>> by_rows_;  // index: rows
};

// All shapes of one arithmetic.
class OneDnnMatmuls {
 public:
  OneDnnMatmuls(MatmulTypes types, int typical_rows) : types_(types), typical_rows_(typical_rows) {}

  OneDnnMatmul* Get(int out, int in);
  void Prepare(int rows);
  size_t scratchpad_bytes() const { return context_.scratchpad.bytes(); }

 private:
  const MatmulTypes types_;
  const int typical_rows_;
  OneDnnContext context_;
  std::vector<std::unique_ptr<OneDnnMatmul>> matmuls_;
};

}  // namespace stria
