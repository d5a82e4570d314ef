"""Stacks of what the steps made, which autograd keeps as the steps' own tensors.

The steps keep them anyway, so a stack would hold everything twice: 0.4 GiB of ``ava`` with 100 x 300 characters.
"""

from typing import Any, List, Sequence, Tuple

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks


class Stack:
    """``N x ...`` tensors of ``T`` steps and their stack, ``N x T x ...``."""

    def __init__(self, steps: Sequence[Tensor]):
        self.steps = [step.detach() for step in steps]
        self.whole = torch.stack(tuple(steps), dim=1)

    def holds(self, tensor: Tensor) -> bool:
        """Whether a tensor is the whole stack, perhaps in another shape."""
        return tensor.data_ptr() == self.whole.data_ptr() and tensor.numel() == self.whole.numel()


def kept_as_steps(*stacks: Stack) -> saved_tensors_hooks:
    """Inside, what is kept of a stack for the backward pass is the steps, which are stacked again there."""

    def pack(tensor: Tensor) -> Any:
        for stack in stacks:
            if stack.holds(tensor):
                return stack.steps, tensor.shape
        return tensor

    def unpack(kept: Any) -> Tensor:
        if isinstance(kept, Tensor):
            return kept
        steps: List[Tensor]
        shape: Tuple[int, ...]
        steps, shape = kept
        return torch.stack(steps, dim=1).view(shape)

    return saved_tensors_hooks(pack, unpack)
