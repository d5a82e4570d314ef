"""Additive energies that keep only their arguments for the backward pass.

The intermediate tensor, the argument of tanh, would be the largest of training, kept once per step.  The backward pass
computes it again, for a few sentences at a time.  On a CPU these are very few, because large short-lived tensors
between small lasting ones leave holes in memory.
"""

from collections.abc import Iterable, Sequence
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd import Function
from torch.utils.checkpoint import checkpoint

from ..additive import KeyFeatures, additive_energies, compared, tanh_
from ..device import on_gpu
from . import compiling, transforming

BLOCK = 2**18  # numbers in the largest tensor of a block of sentences
LARGE = 2**26  # the same on a GPU, where each block is a launch; reached if all steps attend at once


def kept_small(query: Tensor, keys: Tensor, vector: Tensor, *features: KeyFeatures) -> Tensor:
    """Return the energies of :func:`~..additive.additive_energies`, keeping only the arguments."""
    if transforming():
        return additive_energies(query, keys, vector, *features)
    if compiling():  # the compiler would keep the intermediate tensor, for some histories
        energies = checkpoint(
            additive_energies, query, keys, vector, *features, use_reentrant=False, preserve_rng_state=False
        )
        return cast(Tensor, energies)
    flat = [part for feature in features for part in feature]
    return (_Energies.apply if torch.is_grad_enabled() else in_blocks)(query, keys, vector, *flat)


def in_blocks(query: Tensor, keys: Tensor, vector: Tensor, *features: Tensor) -> Tensor:
    """Return the energies, computed for a few sentences at a time; ``features`` alternate values and matrices."""
    blocks = by_sentences(query, keys, *features[::2])
    return joined([additive_energies(own, k, vector, *zip(values, features[1::2])) for own, k, *values in blocks])


class _Energies(Function):
    @staticmethod
    def forward(ctx: Any, *arguments: Tensor) -> Tensor:
        ctx.save_for_backward(*arguments)
        return in_blocks(*arguments)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        saved = ctx.saved_tensors  # read once: --recompute-steps computes them again at each access
        query, keys, vector, *features = saved
        values, matrices = features[::2], features[1::2]
        if torch.is_grad_enabled():  # autograd forms second derivatives of the plain equation
            same = [part.view_as(part) for part in saved]  # as independent leaves
            energies = additive_energies(*same[:3], *zip(same[3::2], same[4::2]))
            wanted = [part for part, needed in zip(same, ctx.needs_input_grad) if needed]
            found = iter(torch.autograd.grad(energies, wanted, grad, create_graph=True))
            return tuple(next(found) if needed else None for needed in ctx.needs_input_grad)
        blocks = by_sentences(query, keys, grad, *values)
        of_rows, of_shared = zip(*(gradients(vector, matrices, *block) for block in blocks))
        of_query, of_keys, *of_values = map(joined, zip(*of_rows))
        of_vector, *of_matrices = (sum(parts[1:], parts[0]) for parts in zip(*of_shared))
        of_features = (part for feature in zip(of_values, of_matrices) for part in feature)
        ordered = of_query, of_keys, of_vector, *of_features
        return tuple(gradient.to(part.dtype) for gradient, part in zip(ordered, saved))


def gradients(
    vector: Tensor, matrices: Sequence[Tensor], query: Tensor, keys: Tensor, grad: Tensor, *values: Tensor
) -> tuple[list[Tensor], list[Tensor]]:
    """Return the gradients of tensors per sentence (query, keys, values) and of shared tensors (vector, matrices).

    Args:
        vector, matrices: the arguments of :func:`~..additive.additive_energies`.
        query, keys, values: its other arguments, for some sentences.
        grad: the gradient of their energies, ``B x k x S``.
    """
    tanh = tanh_(compared(query, keys, *zip(values, matrices)))  # B x k x S x A, as inner
    inner = torch.ops.aten.tanh_backward(grad.unsqueeze(-1) * vector, tanh)
    of_keys = inner.squeeze(1) if inner.size(1) == 1 else inner.sum(1)
    rows = [inner.sum(2), of_keys, *(inner @ matrix.to(inner.dtype) for matrix in matrices)]
    flat = inner.flatten(0, 2).T
    shared = [grad.flatten() @ tanh.flatten(0, 2), *(flat @ value.flatten(0, 2).to(flat.dtype) for value in values)]
    return rows, shared


def by_sentences(query: Tensor, keys: Tensor, *others: Tensor) -> Iterable[tuple[Tensor, ...]]:
    """Return the tensors, split into blocks of sentences."""
    large = max(1, query.size(1) * keys.size(1) * keys.size(2))
    size = max(1, (LARGE if on_gpu(keys) else BLOCK) // large)
    whole = query, keys, *others
    return [whole] if size >= len(keys) else zip(*(part.split(size) for part in whole))


def joined(blocks: Sequence[Tensor]) -> Tensor:
    """Return the rows of all blocks, one after the other."""
    return blocks[0] if len(blocks) == 1 else torch.cat(list(blocks))
