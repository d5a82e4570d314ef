"""What is there for speed alone; each is equal to the plain way, and says what it brings."""

import torch


def compiling() -> bool:
    """Whether ``torch.compile`` looks on, which there is in torch 2.3 and later."""
    return getattr(torch.compiler, "is_compiling", bool)()


def transforming() -> bool:
    """Whether a transform of ``torch.func`` looks on, such as its ``grad``, which knows PyTorch's operations alone."""
    return getattr(torch._C, "_are_functorch_transforms_active", bool)()
