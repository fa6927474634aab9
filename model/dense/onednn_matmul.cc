#include "model/dense/onednn_matmul.h"

#include "base/check.h"

namespace stria {
namespace {

using dnnl::memory;

memory::desc RowMajor(int rows, int columns, memory::data_type type) {
  return memory::desc({rows, columns}, type, memory::format_tag::ab);
}

}  // namespace

OneDnnMatmul::OneDnnMatmul(OneDnnContext* context, MatmulTypes types, int out, int in, int typical_rows)
    : context_(context), types_(types), out_(out), in_(in) {
  packed_ =
      Describe(typical_rows, memory::desc({in, out}, types.weights, memory::format_tag::any)).weights_desc();
  weights_ = memory(packed_, context->engine, nullptr);
}

dnnl::matmul::primitive_desc OneDnnMatmul::Describe(int rows, const memory::desc& weights) const {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return dnnl::matmul::primitive_desc(dnnl::matmul::desc(RowMajor(rows, in_, types_.source), weights,
                                                         RowMajor(rows, out_, types_.destination)),
                                      attributes, context_->engine);
}

std::span<std::byte> OneDnnMatmul::Pack(const void* weights) const {
  // Row-major [out, in] is column-major [in, out].
  memory from(memory::desc({in_, out_}, types_.weights, memory::format_tag::ba), context_->engine,
              const_cast<void*>(weights));
  const std::span<std::byte> packed = context_->arena.Take<std::byte>(packed_.get_size());
  memory to(packed_, context_->engine, packed.data());
  dnnl::reorder(from, to).execute(context_->stream, from, to);
  context_->stream.wait();
  return packed;
}

void OneDnnMatmul::Prepare(int rows) {
  if (static_cast<int>(by_rows_.size()) <= rows) by_rows_.resize(rows + 1);
  if (by_rows_[rows] != nullptr) return;
  const auto description = Describe(rows, packed_);
  auto compiled = std::make_unique<Compiled>();
  compiled->primitive = dnnl::matmul(description);
  compiled->source = memory(description.src_desc(), context_->engine, nullptr);
  compiled->destination = memory(description.dst_desc(), context_->engine, nullptr);
  compiled->scratchpad = memory(description.scratchpad_desc(), context_->engine, nullptr);
  context_->ReserveScratchpad(description.scratchpad_desc().get_size());
  by_rows_[rows] = std::move(compiled);
}

void OneDnnMatmul::Run(int rows, const void* source, const void* weights, void* destination) {
  Prepare(rows);
  Compiled& compiled = *by_rows_[rows];
  compiled.source.set_data_handle(const_cast<void*>(source));
  compiled.destination.set_data_handle(destination);
  compiled.scratchpad.set_data_handle(context_->scratchpad.data());
  weights_.set_data_handle(const_cast<void*>(weights));
  // The C interface: the C++ one takes a hash map, built anew on the heap at each call.
  const dnnl_exec_arg_t args[] = {{DNNL_ARG_SRC, compiled.source.get()},
                                  {DNNL_ARG_WEIGHTS, weights_.get()},
                                  {DNNL_ARG_DST, compiled.destination.get()},
                                  {DNNL_ARG_SCRATCHPAD, compiled.scratchpad.get()}};
  STRIA_CHECK(dnnl_primitive_execute(compiled.primitive.get(), context_->stream.get(), 4, args) ==
              dnnl_success);
}

OneDnnMatmul* OneDnnMatmuls::Get(int out, int in) {
  for (const auto& matmul : matmuls_) {
    if (matmul->out() == out && matmul->in() == in) return matmul.get();
  }
  matmuls_.push_back(std::make_unique<OneDnnMatmul>(&context_, types_, out, in, typical_rows_));
  return matmuls_.back().get();
}

void OneDnnMatmuls::Prepare(int rows) {
  for (const auto& matmul : matmuls_) matmul->Prepare(rows);
}

}  // namespace stria
