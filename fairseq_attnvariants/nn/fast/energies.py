"""Additive energies of which a step keeps the arguments alone.

What there is between them and the energies would be the largest tensor of training, kept once a step; the backward pass
computes it again, once: there are no second derivatives.  On a CPU it is made for a few sentences at a time, so that it
fits the processor's cache and leaves no large holes in memory.
"""

from typing import Any, Iterable, List, Sequence, Tuple, cast

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

from ..additive import KeyFeatures, additive_energies, compared, tanh_
from . import compiling

BLOCK = 2**18  # numbers in the largest tensor of a block of sentences


def kept_small(query: Tensor, keys: Tensor, vector: Tensor, *features: KeyFeatures) -> Tensor:
    """As :func:`~..additive.additive_energies`, of which only the arguments are kept."""
    if compiling():  # which would keep what is between for some histories
        energies = checkpoint(
            additive_energies, query, keys, vector, *features, use_reentrant=False, preserve_rng_state=False
        )
        return cast(Tensor, energies)
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
        return joined(blocks)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        saved = ctx.saved_tensors  # once: --recompute-steps makes them when they are asked for
        query, keys, vector, *features = saved
        blocks = by_sentences(query, keys, grad, *features[::2])
        of_rows, of_shared = zip(*(gradients(vector, features[1::2], *block) for block in blocks))
        of_query, of_keys, *of_values = map(joined, zip(*of_rows))
        of_vector, *of_matrices = (sum(parts[1:], parts[0]) for parts in zip(*of_shared))
        of_features = (part for feature in zip(of_values, of_matrices) for part in feature)
        ordered = of_query, of_keys, of_vector, *of_features
        return tuple(gradient.to(part.dtype) for gradient, part in zip(ordered, saved))


def gradients(
    vector: Tensor, matrices: Sequence[Tensor], query: Tensor, keys: Tensor, grad: Tensor, *values: Tensor
) -> Tuple[List[Tensor], List[Tensor]]:
    """Those of what is each sentence's (query, keys and values), and of what all share (vector and matrices).

    Args:
        vector, matrices: as :func:`~..additive.additive_energies`'s.
        query, keys, values: the same, of some sentences.
        grad: of their energies, ``B x k x S``.
    """
    tanh = tanh_(compared(query, keys, *zip(values, matrices)))  # B x k x S x A, as is the next
    inner = torch.ops.aten.tanh_backward(grad.unsqueeze(-1) * vector, tanh)
    of_keys = inner.squeeze(1) if inner.size(1) == 1 else inner.sum(1)
    rows = [inner.sum(2), of_keys, *(inner @ matrix.to(inner.dtype) for matrix in matrices)]
    flat = inner.flatten(0, 2).T
    shared = [grad.flatten() @ tanh.flatten(0, 2), *(flat @ value.flatten(0, 2).to(flat.dtype) for value in values)]
    return rows, shared


def by_sentences(query: Tensor, keys: Tensor, *others: Tensor) -> Iterable[Tuple[Tensor, ...]]:
    """The same tensors in blocks of sentences, on a CPU; elsewhere at once."""
    large = max(1, query.size(1) * keys.size(1) * keys.size(2))
    size = max(1, BLOCK // large) if keys.device.type == "cpu" else len(keys)
    whole = query, keys, *others
    return [whole] if size >= len(keys) else zip(*(part.split(size) for part in whole))


def joined(blocks: Sequence[Tensor]) -> Tensor:
    """Rows of blocks one after the other."""
    return blocks[0] if len(blocks) == 1 else torch.cat(list(blocks))
