"""Replacements for speed or memory; each computes the same as the plain equations, and documents its gain."""

import torch


def compiling() -> bool:
    """Whether ``torch.compile`` is tracing; always False before torch 2.3."""
    return getattr(torch.compiler, "is_compiling", bool)()


def transforming() -> bool:
    """Whether a transform of ``torch.func`` is active, such as ``grad``, which handles only PyTorch's operations."""
    return torch._C._are_functorch_transforms_active()
