"""Additive energies of which a step keeps the arguments alone.

What there is between them and the energies would be the largest tensor of training, kept once a step; the backward pass
computes it again, once.
"""

from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd import Function
from torch.utils.checkpoint import checkpoint

from ..additive import KeyFeatures, additive_energies, compared, tanh_
from . import compiling


def kept_small(query: Tensor, keys: Tensor, vector: Tensor, *features: KeyFeatures) -> Tensor:
    """As :func:`~..additive.additive_energies`, of which only the arguments are kept."""
    if not torch.is_grad_enabled():
        return additive_energies(query, keys, vector, *features)
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
        return additive_energies(query, keys, vector, *zip(features[::2], features[1::2]))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        saved = ctx.saved_tensors  # once: --recompute-steps makes them when they are asked for
        query, keys, vector, *flat = saved
        features = [*zip(flat[::2], flat[1::2])]
        if torch.is_grad_enabled():  # second derivatives are autograd's, of the plain equation
            wanted = [part for part, needed in zip(saved, ctx.needs_input_grad) if needed]
            energies = additive_energies(query, keys, vector, *features)
            found = iter(torch.autograd.grad(energies, wanted, grad, create_graph=True))
            return tuple(next(found) if needed else None for needed in ctx.needs_input_grad)
        tanh = tanh_(compared(query, keys, *features))  # B x k x S x A, as is the next
        inner = torch.ops.aten.tanh_backward(grad.unsqueeze(-1) * vector, tanh)
        rows = inner.flatten(0, 2)
        gradients = [
            inner.sum(2),
            inner.squeeze(1) if inner.size(1) == 1 else inner.sum(1),
            grad.flatten() @ tanh.flatten(0, 2),
        ]
        for values, matrix in features:
            gradients += [inner @ matrix.to(inner.dtype), rows.T @ values.flatten(0, 2).to(rows.dtype)]
        return tuple(gradient.to(part.dtype) for gradient, part in zip(gradients, saved))
