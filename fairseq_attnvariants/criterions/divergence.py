"""R-Drop's cost by sentences, whose predictions a processor's caches hold; the equation is in :mod:`..losses`."""

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


class Divergence(torch.autograd.Function):
    """:func:`~fairseq_attnvariants.losses.symmetric_divergence`, whose gradients are formed on the way.

    Autograd goes some twenty times through tensors of a whole batch's predictions.  With ``d = log P - log Q`` the
    derivatives by ``log P`` and ``log Q`` are ``½ (P - Q + P d)`` and ``-½ (P - Q + Q d)``.
    """

    @staticmethod
    def forward(ctx, pairs: Tensor, target_mask: Tensor) -> Tensor:
        """The sum over real target tokens.

        Args:
            pairs: ``log P`` and ``log Q`` of each sentence, ``B x 2 x T x V``.
            target_mask: True at real target tokens, ``B x T``.
        """
        gradients = torch.empty_like(pairs)
        total = pairs.new_zeros(())
        for (first, second), real, (by_first, by_second) in zip(pairs, target_mask.unsqueeze(2), gradients):  # T x V
            p, q, d = first.exp(), second.exp(), first - second
            apart, half = p - q, real.to(d.dtype) / 2
            total += (torch.linalg.vecdot(apart, d) * half[:, 0]).sum()
            torch.addcmul(apart, p, d, out=by_first).mul_(half)
            torch.addcmul(apart, q, d, out=by_second).mul_(-half)
        ctx.save_for_backward(gradients)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient: Tensor):
        """That of the pairs."""
        [gradients] = ctx.saved_tensors
        return gradients * gradient, None
