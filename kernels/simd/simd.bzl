"""One kernel source, compiled once per target."""

load("@rules_cc//cc:defs.bzl", "cc_library")

_AVX2 = ["-mavx2", "-mfma", "-mf16c"]
_AVX512 = _AVX2 + [
    "-mavx512f",
    "-mavx512bw",
    "-mavx512dq",
    "-mavx512vl",
    # GCC 12 warns about the deliberately undefined vectors in its own intrinsics.
    "-Wno-uninitialized",
    "-Wno-maybe-uninitialized",
]

_AVX512VNNI = _AVX512 + ["-mavx512vnni"]

# The targets of kernels/target.h.
_TARGETS = {
    "portable": [],
    "avx2": _AVX2,
    "avx512": _AVX512,
    "avx512vnni": _AVX512VNNI,
}

# Only for kernels that use bfloat16 dot products where avx512vnni is chosen and the machine has them.
_EXTRA_TARGETS = {
    "avx512bf16": _AVX512VNNI + ["-mavx512bf16"],
}

def simd_library(name, srcs, hdrs = [], copts = [], deps = [], targets = _TARGETS.keys(), extra_targets = []):
    """Like cc_library, for sources that put their code into namespace stria::STRIA_SIMD (simd.h).

    -O3 unrolls the small loops over arrays of vectors, so that they live in registers; reassociation would add up products
    before it adds them to a sum, which keeps more values alive than there are registers.
    """
    copts_of = {target: _TARGETS[target] for target in targets}
    copts_of.update({target: _EXTRA_TARGETS[target] for target in extra_targets})
    for target, target_copts in copts_of.items():
        cc_library(
            name = "%s_%s" % (name, target),
            srcs = srcs + hdrs,
            copts = ["-O3", "-fno-tree-reassoc"] + copts + target_copts,
            visibility = ["//visibility:private"],
            deps = deps + ["//kernels/simd"],
        )
    cc_library(
        name = name,
        hdrs = hdrs,
        visibility = ["//visibility:private"],
        deps = deps + [":%s_%s" % (name, target) for target in copts_of] + ["//kernels/simd"],
    )
