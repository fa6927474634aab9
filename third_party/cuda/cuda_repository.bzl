"""The CUDA toolkit, where there is one; elsewhere an empty stand-in, so that everything else builds all the same."""

_BUILD = """
package(default_visibility = ["//visibility:public"])

# Static, so that a binary starts on a machine without a driver and asks at run time what there is.
cc_library(
    name = "cudart",
    srcs = ["lib/libcudart_static.a"],
    linkopts = ["-ldl", "-lrt", "-lpthread"],
)
"""

def _cuda_repository_impl(ctx):
    root = ctx.path(ctx.os.environ.get("CUDA_PATH", "/usr/local/cuda"))
    found = root.get_child("bin").get_child("nvcc").exists
    ctx.file("defs.bzl", 'CUDA_PATH = "%s"\n' % (root if found else ""))
    if found:
        ctx.symlink(root.get_child("lib64").get_child("libcudart_static.a"), "lib/libcudart_static.a")
    ctx.file("BUILD", _BUILD if found else "")

cuda_repository = repository_rule(
    implementation = _cuda_repository_impl,
    environ = ["CUDA_PATH"],
    local = True,
)
