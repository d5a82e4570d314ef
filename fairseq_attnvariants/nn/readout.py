"""Readouts: from the state, the previous word and the context to the features that the vocabulary layer reads.

The readout is not part of the recurrence, so it runs once over all steps, after the loop.  If a word's probability also
depends on attention, the readout defines the prediction (:meth:`Readout.predict`).

Shapes as in :mod:`.state`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..registry import ConfigurationError, Part, Registry, Widths
from .init import Scheme
from .layer_norm import layer_norm
from .state import Encoded, Memory


class AdaptiveWeighting(nn.Module):
    """Weighs the three terms of the readout's sum (Li et al. 2018 eq. 18-21).

    ``e_k = W_p tanh(W_m p_k + W_r õ + b)`` for ``k`` of ``s``, ``y`` and ``c``, with a second set of projections in
    ``õ = U_c s + V_c y + C_c c``; ``α`` is their softmax over ``k``, separately for each dimension.

    Args:
        widths: of ``s``, ``y`` and ``c``.
        width: width of the terms.
        swapped: as in the authors' code, ``W_m`` reads the second set's projections and ``W_r`` the sum of the
            first set's.
    """

    def __init__(self, widths: Widths, width: int, swapped: bool = False):
        super().__init__()
        self.swapped = swapped
        self.hidden = nn.Linear(widths.hidden, width, bias=False)
        self.target = nn.Linear(widths.target, width, bias=False)
        self.context = nn.Linear(widths.context, width, bias=False)
        self.part = nn.Linear(width, width, bias=False)
        self.whole = nn.Linear(width, width)
        self.score = nn.Linear(width, width, bias=False)

    def initialise(self, scheme: Scheme) -> None:
        """Fill the second set of projections as the readout's first set."""
        for layer in (self.hidden, self.target, self.context):
            scheme.matrix_(layer.weight)

    def forward(self, parts: Tensor, hidden: Tensor, target: Tensor, context: Tensor) -> Tensor:
        """``α_s, α_y, α_c`` for the terms ``p_s, p_y, p_c``, both ``3 x N x T x width``."""
        others = self.hidden(hidden), self.target(target), self.context(context)  # N x T x width
        judged, summed = (torch.stack(others), parts) if self.swapped else (parts, others)
        whole = self.whole(summed[0] + summed[1] + summed[2])  # N x T x width
        energies = self.score(torch.tanh(self.part(judged) + whole))  # 3 x N x T x width
        return torch.softmax(energies, dim=0)


class Steps(NamedTuple):
    """The inputs of a prediction of ``T`` steps, in addition to their features."""

    words: Tensor
    """``y_{t-1}``, numbers of target symbols, ``N x T``."""
    weights: Tensor
    """attention ``w_tj`` to source tokens, ``N x T x S``, float32."""
    memory: Memory
    """the memory of the sentences; ``memory.readout`` comes from :meth:`Readout.remember`."""
    carried: Any
    """the readout's state after the earlier steps."""
    symbols: int = 0
    """``V``, the number of target symbols."""


class Prediction(NamedTuple):
    """A readout's prediction of ``T`` steps."""

    output: Tensor
    """logits, or logarithms of probabilities, which a log-softmax does not change, ``N x T x V``."""
    weights: Tensor | None = None
    """the attention that the model returns, if it is not ``w_tj``, ``N x T x S``, float32."""
    carried: Any = None
    """the readout's state for the next step: tensors with the state's rows, in tuples and dictionaries."""
    terms: dict[str, Tensor] = {}
    """inputs of a loss, by their name in the model's output, ``N x T x ...``."""


class Readout(Part, nn.Module):
    """Sum of three affine maps, ``U s + V y + C c + b``, that the subclasses finish.

    Args:
        widths: of ``s``, ``y`` and ``c``, and of the features; the sum is :attr:`pieces` times as wide as the features.
        weighting: makes the weights of the three maps, or None for a plain sum.
        norm: layer normalisation of each of the three maps.
        biases: give each of the readout's three maps a bias, before its normalisation or weight (Nematus).
    """

    pieces = 1

    def __init__(
        self,
        widths: Widths,
        weighting: AdaptiveWeighting | None = None,
        norm: bool = False,
        *,
        biases: bool = False,
    ):
        super().__init__()
        width = self.pieces * widths.features
        self.weighting = weighting
        self.hidden = nn.Linear(widths.hidden, width)
        self.target = nn.Linear(widths.target, width, bias=biases)
        self.context = nn.Linear(widths.context, width, bias=biases)
        self.hidden_norm, self.target_norm, self.context_norm = (layer_norm(norm, width) for _ in range(3))

    def initialise(self, scheme: Scheme) -> None:
        """Fill the matrices, also square ones, without orthogonal values."""
        for layer in (self.hidden, self.target, self.context):
            scheme.matrix_(layer.weight)

    def forward(self, hidden: Tensor, target: Tensor, context: Tensor) -> Tensor:
        """Return the features of every step.

        Args:
            hidden: ``s_t``, ``N x T x n``.
            target: ``y_{t-1}``, ``N x T x m``.
            context: ``c_t``, ``N x T x a``.

        Returns:
            ``N x T x width / pieces``.
        """
        state = self.hidden_norm(self.hidden(hidden))  # N x T x width, as word and source
        word = self.target_norm(self.target(target))
        source = self.context_norm(self.context(context))
        if self.weighting is None:
            return self.finish(state + word + source)
        parts = torch.stack([state, word, source])  # 3 x N x T x width
        return self.finish((self.weighting(parts, hidden, target, context) * parts).sum(0))

    def finish(self, total: Tensor) -> Tensor:
        """Return the features, from the sum of the three maps."""
        raise self.lacks("a readout defines finish(total) or forward(hidden, target, context)")

    def remember(self, encoded: Encoded) -> Any:
        """Return the readout's entry in the memory, computed once per sentence, with ``B`` rows."""
        return None

    def start(self, memory: Memory) -> Any:
        """Return the readout's state before the first step, with ``B`` rows."""
        return None

    def predict(self, features: Tensor, project: Callable[[Tensor], Tensor], steps: Steps) -> Prediction:
        """Predict the words of all steps.

        Args:
            features: the result of :meth:`forward`, ``N x T x`` any width.
            project: dropout and the vocabulary layer, ``... x F`` to ``... x V``.
            steps: the other inputs.
        """
        return Prediction(project(features))


READOUTS: Registry[type[Readout]] = Registry("readout", Readout)
register_readout = READOUTS.register


@register_readout("maxout")
class MaxoutReadout(Readout):
    """Deep output (Feng et al. 2016 §3.2): a linear map of ``[h; y; c]``, then the maximum of each pair of its units.

    Unit ``k`` of the first half is paired with unit ``k`` of the second.
    """

    pieces = 2

    def finish(self, total: Tensor) -> Tensor:
        return torch.maximum(*total.chunk(2, dim=-1))


@register_readout("tanh")
class TanhReadout(Readout):
    """``tanh(U_o s + V_o y + C_o c + b)`` (Li et al. 2018 eq. 3-4)."""

    def finish(self, total: Tensor) -> Tensor:
        return torch.tanh(total)


@register_readout("linear")
class LinearReadout(Readout):
    """``U s + V y + C c + b`` (See et al. 2017 eq. 4, there without ``y``)."""

    def finish(self, total: Tensor) -> Tensor:
        return total


@register_readout("state")
class StateReadout(Readout):
    """The decoder's output ``s``: the vocabulary layer reads nothing else (NVIDIA's GNMT v2)."""

    def __init__(self, widths: Widths, weighting: AdaptiveWeighting | None = None, norm: bool = False):
        nn.Module.__init__(self)
        if weighting is not None:
            raise ConfigurationError(
                "--adaptive-output weighs the parts of a readout's sum, and --readout state has none: use another "
                "--readout, or leave it out"
            )
        if widths.features != widths.hidden:
            raise ConfigurationError(
                "--readout state hands the decoder's state to the vocabulary layer, so --decoder-out-embed-dim "
                f"({widths.features}) must be as wide as what is read of it, {widths.hidden}: leave it out"
            )

    def initialise(self, scheme: Scheme) -> None:
        """Fill nothing: there are no parameters."""

    def forward(self, hidden: Tensor, target: Tensor, context: Tensor) -> Tensor:
        return hidden.contiguous()  # dropout draws random numbers in the order of memory


@register_readout("relu")
class FeedForwardReadout(Readout):
    """A layer of rectified units, and a second one of half its width (``g`` in the code of Zhao and Zhang 2018)."""

    pieces = 2

    def __init__(self, widths: Widths, *parts: Any, **options: Any):
        super().__init__(widths, *parts, **options)
        self.second = nn.Linear(2 * widths.features, widths.features)

    def finish(self, total: Tensor) -> Tensor:
        return torch.relu(self.second(torch.relu(total)))
