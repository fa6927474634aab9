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

_TARGET_COPTS = {
    "portable": [],
    "avx2": _AVX2,
    "avx512": _AVX512,
    "avx512vnni": _AVX512 + ["-mavx512vnni"],
}

def simd_library(name, srcs, hdrs = [], copts = [], deps = []):
    """Like cc_library, for sources that put their code into namespace stria::STRIA_SIMD (simd.h).

    -O3 unrolls the small loops over arrays of vectors, so that they live in registers.
    """
    for target, target_copts in _TARGET_COPTS.items():
        cc_library(
            name = "%s_%s" % (name, target),
            srcs = srcs + hdrs,
            copts = ["-O3"] + copts + target_copts,
            visibility = ["//visibility:private"],
            deps = deps + ["//kernels/simd"],
        )
    cc_library(
        name = name,
        hdrs = hdrs,
        visibility = ["//visibility:private"],
        deps = deps + [":%s_%s" % (name, target) for target in _TARGET_COPTS] + ["//kernels/simd"],
    )
