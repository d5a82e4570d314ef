"""Stacks of what the steps made, which autograd keeps as the steps' own tensors.

The steps keep them anyway, so a stack would hold everything twice: 0.4 GiB of ``ava`` with 100 x 300 characters.
"""

from typing import Any, List, NamedTuple, Sequence

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks


class Stack(NamedTuple):
    """``N x ...`` tensors of ``T`` steps, and their stack, ``N x T x ...``."""

    whole: Tensor
    steps: List[Tensor]


def stack(steps: Sequence[Tensor]) -> Stack:
    """One after another along a new second dimension."""
    return Stack(torch.stack(tuple(steps), dim=1), [step.detach() for step in steps])


def kept_as_steps(*stacks: Stack) -> saved_tensors_hooks:
    """Inside, what is kept of a stack for the backward pass is the steps, which are stacked again there."""
    # what is kept must not hold the graph that holds it: so here are places of stacks, and below a tensor without graph
    places = [(whole.data_ptr(), whole.numel(), steps) for whole, steps in stacks]

    def pack(tensor: Tensor) -> Any:
        for place, size, steps in places:
            if tensor.data_ptr() == place and tensor.numel() == size:
                return steps, tensor.shape
        return tensor.detach()

    def unpack(kept: Any) -> Tensor:
        if isinstance(kept, Tensor):
            return kept
        steps, shape = kept
        return torch.stack(steps, dim=1).view(shape)

    return saved_tensors_hooks(pack, unpack)
