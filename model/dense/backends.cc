// Which arithmetic this machine gets.
#include "kernels/target.h"
#include "model/dense/byte_int8.h"
#include "model/dense/dense_layer.h"
#include "model/dense/onednn_float.h"
#include "model/dense/simd_float.h"
#include "model/dense/simd_int8.h"
#include "oneapi/dnnl/dnnl.hpp"

namespace stria {
namespace {

// oneDNN's instruction-set names are sets of bits, each containing what it builds on.
bool Has(dnnl::cpu_isa isa) {
  const int wanted = static_cast<int>(isa);
  return (static_cast<int>(dnnl::get_effective_cpu_isa()) & wanted) == wanted;
}

}  // namespace

std::unique_ptr<DenseBackend> MakeFloatBackend(const DenseOptions& options) {
  if (Has(dnnl::cpu_isa::avx512_core_bf16)) return MakeOneDnnFloatBackend(options, /*bf16=*/true);
  return MakeSimdFloatBackend(options);
}

std::unique_ptr<DenseBackend> MakeInt8Backend(const DenseOptions& options) {
  if (BestTarget() == Target::kAvx512Vnni) return MakeByteInt8Backend(options, Target::kAvx512Vnni);
  return MakeSimdInt8Backend(options);
}

}  // namespace stria
