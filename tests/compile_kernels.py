"""Compile every kernel for GPUs, which needs none: ``python tests/compile_kernels.py``."""

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from fairseq_attnvariants.nn import kernels

SIZES = {"n", "served", "length", "width"}


def source(kernel, kind):
    """The kernel with all its tensors of one type."""
    constants = {name: getattr(kernels, name) for name in kernel.arg_names if name.isupper()}
    constants["dtype"] = tl.float32
    types = {}
    for name in kernel.arg_names:
        number = name in SIZES or name.endswith(("_row", "_position"))
        types[name] = "constexpr" if name in constants else "i32" if number else kind
    return ASTSource(kernel, types, constants)


for capability, kind in ((80, "*fp32"), (90, "*bf16")):
    for name in [name for name in vars(kernels) if name.endswith(("_forward", "_backward"))]:
        compiled = triton.compile(source(getattr(kernels, name), kind), target=GPUTarget("cuda", capability, 32))
        assert f"sm_{capability}" in compiled.asm["ptx"] and compiled.asm["cubin"]
        print(name, kind, capability)
