"""Additive energies of which a step keeps the arguments alone.

What there is between them and the energies would be the largest tensor of training, kept once a step; the backward pass
computes it again.  On a CPU it is made for a few sentences at a time, so that it fits the processor's cache and leaves
no large holes in memory.
"""

from typing import Any, Iterator, List, Tuple

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from ..additive import KeyFeatures, additive_energies, compared
from . import compiling

BLOCK = 2**18  # numbers in the largest tensor of a block of sentences


def kept_small(query: Tensor, keys: Tensor, vector: Tensor, *features: KeyFeatures) -> Tensor:
    """As :func:`~..additive.additive_energies`, of which only the arguments are kept."""
    if compiling():  # decides itself what to keep
        return additive_energies(query, keys, vector, *features)
    return _Energies.apply(query, keys, vector, *(part for feature in features for part in feature))


class _Energies(Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, keys: Tensor, vector: Tensor, *features: Tensor) -> Tensor:
        ctx.save_for_backward(query, keys, vector, *features)
        matrices = features[1::2]
        blocks = [
            additive_energies(own, k, vector, *zip(values, matrices))
            for own, k, *values in by_sentences(query, keys, *features[::2])
        ]
        return torch.cat(blocks) if len(blocks) > 1 else blocks[0]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        saved = ctx.saved_tensors  # once: --recompute-steps makes them when they are asked for
        query, keys, vector, *features = saved
        matrices = features[1::2]
        of_rows: List[List[Tensor]] = []
        of_vector, *of_matrices = (torch.zeros_like(matrix, dtype=grad.dtype) for matrix in (vector, *matrices))
        for own, k, energies, *values in by_sentences(query, keys, grad, *features[::2]):
            tanh = tanh_(compared(own, k, *zip(values, matrices)))  # B x k x S x A, as is the next
            of_vector += energies.flatten() @ tanh.flatten(0, 2)
            inner = torch.ops.aten.tanh_backward(energies.unsqueeze(-1) * vector, tanh)
            of_keys = inner.squeeze(1) if len(inner[0]) == 1 else inner.sum(1)
            of_rows.append([inner.sum(2), of_keys, *(inner @ matrix.to(inner.dtype) for matrix in matrices)])
            for total, value in zip(of_matrices, values):
                total += inner.flatten(0, 2).T @ value.flatten(0, 2).to(inner.dtype)
        rows = [torch.cat(parts) if len(parts) > 1 else parts[0] for parts in zip(*of_rows)]
        ordered = [*rows[:2], of_vector, *(part for feature in zip(rows[2:], of_matrices) for part in feature)]
        return tuple(gradient.to(part.dtype) for gradient, part in zip(ordered, saved))


def by_sentences(query: Tensor, keys: Tensor, *others: Tensor) -> Iterator[Tuple[Tensor, ...]]:
    """The same tensors in blocks of sentences, on a CPU; elsewhere at once."""
    size = max(1, BLOCK // (query.size(1) * keys[0].numel())) if keys.device.type == "cpu" else len(keys)
    return zip(*(part.split(size) for part in (query, keys, *others)))


def tanh_(values: Tensor) -> Tensor:
    """``tanh(x)`` in the place of ``x``; on a CPU ``2 σ(2x) - 1``, as :func:`~..additive.tanh_product`."""
    return values.tanh_() if values.device.type != "cpu" else values.mul_(2).sigmoid_().mul_(2).sub_(1)
