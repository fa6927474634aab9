"""CUDA sources in the build: cuda_library, and cuda_test, cuda_binary for what links one.

Where no toolkit is installed, these make no target but a library's headers: nothing that must build everywhere may depend
on a cuda_library.
"""

load("@cuda//:defs.bzl", "CUDA_PATH")
load("@rules_cc//cc:defs.bzl", "cc_binary", "cc_library", "cc_test")

# Ampere, Hopper, Blackwell: machine code for each.
_ARCHITECTURES = ["80", "90", "100"]

_FLAGS = [
    "-c",
    "-O3",
    "-std=c++20",
    "-ccbin=/usr/bin/g++",
    "--expt-relaxed-constexpr",
    "--objdir-as-tempdir",
    "-Werror=all-warnings",
    "-Xcompiler=-fPIC,-Wall,-Wextra,-Wno-unused-parameter",
    "-Xptxas=-v",
    "-I.",
] + ["-gencode=arch=compute_%s,code=sm_%s" % (arch, arch) for arch in _ARCHITECTURES]

def _nvcc_objects_impl(ctx):
    headers = depset(transitive = [dep[CcInfo].compilation_context.headers for dep in ctx.attr.deps])
    objects, usages = [], []
    for source in ctx.files.srcs:
        stem = "_nvcc/%s/%s" % (ctx.label.name, source.basename)
        object = ctx.actions.declare_file(stem + ".pic.o")
        usage = ctx.actions.declare_file(stem + ".usage.tsv")
        command = [CUDA_PATH + "/bin/nvcc"] + _FLAGS + ctx.attr.nvccopts + [source.path, "-o", object.path]
        ctx.actions.run_shell(
            mnemonic = "Nvcc",
            inputs = depset(ctx.files.hdrs + [source, ctx.file._usage], transitive = [headers]),
            outputs = [object, usage],
            # ptxas tells registers, shared memory and spills on the error stream; a spill is an error.
            command = "set -e; log=%s.log; %s 2> $log || { cat $log >&2; exit 1; }; /usr/bin/python3 %s < $log > %s" % (
                usage.path,
                " ".join(["'%s'" % word for word in command]),
                ctx.file._usage.path,
                usage.path,
            ),
            use_default_shell_env = True,
        )
        objects.append(object)
        usages.append(usage)
    return [DefaultInfo(files = depset(objects)), OutputGroupInfo(usage = depset(usages))]

_nvcc_objects = rule(
    implementation = _nvcc_objects_impl,
    attrs = {
        "srcs": attr.label_list(allow_files = [".cu"]),
        "hdrs": attr.label_list(allow_files = True),
        "deps": attr.label_list(providers = [CcInfo]),
        "nvccopts": attr.string_list(),
        "_usage": attr.label(default = "//third_party/cuda:resource_usage.py", allow_single_file = True),
    },
)

def cuda_library(name, srcs, hdrs = [], deps = [], nvccopts = [], private_hdrs = []):
    """Like cc_library, compiled by nvcc for each architecture. Output group `usage`: a table of each kernel's resources."""
    objects = []
    if CUDA_PATH:
        objects = [":%s_objects" % name]
        _nvcc_objects(name = "%s_objects" % name, srcs = srcs, hdrs = hdrs + private_hdrs, deps = deps, nvccopts = nvccopts)
        native.filegroup(name = "%s_usage" % name, srcs = objects, output_group = "usage")
        deps = deps + ["@cuda//:cudart"]
    cc_library(name = name, srcs = objects, hdrs = hdrs, deps = deps)

def cuda_test(**kwargs):
    if CUDA_PATH:
        cc_test(**kwargs)

def cuda_binary(**kwargs):
    if CUDA_PATH:
        cc_binary(**kwargs)
