"""Exact hard attention: a word comes from one source position, and its probability is a sum over all positions.

Shapes as in :mod:`.state`; ``V`` target symbols, ``F`` width of the readout, ``D`` largest move of an alignment.
"""

from collections.abc import Callable
from functools import partial
from itertools import zip_longest
from typing import Annotated, Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import pad
from torch.utils.checkpoint import checkpoint

from ..registry import ConfigurationError, Widths, at_least
from .attention import Attention, register_score
from .layer_norm import at_least_float32
from .readout import AdaptiveWeighting, Prediction, Steps, TanhReadout, register_readout
from .state import Encoded, Memory, grouped

NEVER = -1e30  # the logarithm of a probability of 0; finite, so that no gradient becomes NaN
BLOCK = 1 << 23  # numbers of N x T x S x V computed at once; kept for the backward pass if one block is enough

Project = Callable[[Tensor], Tensor]
Carried = tuple[Tensor, Tensor | None]


class Block(NamedTuple):
    """The results of some steps of a prediction."""

    output: Tensor
    """``log P(y_i)``, ``N x T x V``."""
    priors: Tensor
    """``log P(a_i = j)`` before ``y_i`` is known, ``N x T x S``."""
    posterior: Tensor | None
    """``log P(a_i = j)`` of the last step once ``y_i`` is known, ``N x S``; None if nothing reads it."""
    emissions: Tensor | None
    """``log P(y_i | a_i = j)`` of the last step if ``y_i`` is not known yet, ``N x S x V``."""


@register_readout("hard_attention")
class HardAttention(TanhReadout):
    """``P(y_i) = Σ_j P(a_i = j) P(y_i | a_i = j)``, of zeroth order (Wu, Shapiro and Cotterell 2018).

    ``P(a_i = j)`` is attention's ``w_ij``, and ``P(y_i | a_i = j) = softmax(W tanh(U h_i + V y_{i-1} + C s_j + b))``.

    Every source position projects to the vocabulary, which suits characters.  Training computes small batches at once.
    It computes larger ones block by block, and again in the backward pass.
    """

    def __init__(self, widths: Widths, weighting: AdaptiveWeighting | None = None, norm: bool = False):
        if weighting is not None:
            raise ConfigurationError(
                "--adaptive-output weighs the context, and hard attention has none: use another --readout, or leave it "
                "out"
            )
        super().__init__(widths._replace(context=widths.annotation), norm=norm)

    def remember(self, encoded: Encoded) -> dict[str, Tensor]:
        return {"source": self.context_norm(self.context(encoded.annotations))}  # B x S x F

    def forward(self, hidden: Tensor, target: Tensor, context: Tensor) -> Tensor:
        features: Tensor = self.hidden_norm(self.hidden(hidden)) + self.target_norm(self.target(target))
        return features  # N x T x F

    def predict(self, features: Tensor, project: Project, steps: Steps) -> Prediction:
        rows, length = features.shape[:2]
        before = self.first(steps)
        words = steps.words[:, 1:]  # y_i of all steps except the last
        source = steps.memory.readout["source"]
        size = max(1, BLOCK // (rows * source.size(1) * max(source.size(2), steps.symbols)))
        compute: Any = self.block
        if size < length and torch.is_grad_enabled():
            compute = partial(checkpoint, self.block, use_reentrant=False)
        blocks: list[Block] = []
        for start in range(0, length, size):
            part = slice(start, start + size)
            given = features[:, part], steps.weights[:, part], words[:, part], before
            blocks.append(compute(*given, steps.memory, project))
            before = blocks[-1].posterior
        output, priors = (torch.cat(parts, dim=1) for parts in zip(*(block[:2] for block in blocks)))
        return Prediction(output, priors.exp(), (priors[:, -1], blocks[-1].emissions) if before is not None else None)

    def block(
        self,
        features: Tensor,
        weights: Tensor,
        words: Tensor,
        before: Tensor | None,
        memory: Memory,
        project: Project,
    ) -> Block:
        """Predict some steps; ``words`` are their words, ``N x T``, or one fewer if the last one is not known."""
        source = memory.readout["source"]
        known = grouped(features[..., : source.size(2)], source).unsqueeze(3)  # B x k x T x 1 x F
        emissions = project(self.finish(known + source[:, None, None]))  # B x k x T x S x V
        emissions = at_least_float32(emissions).log_softmax(4).flatten(0, 1)  # log P(y_i | a_i = j), N x T x S x V
        chosen = words.view(*words.shape, 1, 1).expand(-1, -1, emissions.size(2), 1)
        said = emissions[:, : words.size(1)].gather(3, chosen).squeeze(3)  # log P(y_i | a_i = j) of y_i, N x T x S
        priors, posterior = self.align(features, weights, said, before, memory)
        output = torch.logsumexp(priors.unsqueeze(3) + emissions, dim=2)
        unknown = words.size(1) < features.size(1) and before is not None
        return Block(output, priors, posterior, emissions[:, -1] if unknown else None)

    def align(
        self, features: Tensor, weights: Tensor, said: Tensor, before: Tensor | None, memory: Memory
    ) -> tuple[Tensor, Tensor | None]:
        """Return the priors of some steps, ``N x T x S``, and the posterior of the last step."""
        logs = weights.clamp(min=torch.finfo(weights.dtype).tiny).log()  # below it the gradient, 1 / w, is infinite
        return logs.masked_fill(weights == 0, NEVER), None

    def first(self, steps: Steps) -> Tensor | None:
        """``log P(a_{i-1} = j)`` before the first of these steps, ``N x S``; None if ``a_i`` does not depend on it."""
        return None


@register_readout("hard_monotone")
class HardMonotone(HardAttention):
    """First order and monotone (Wu and Cotterell 2019): ``a_i`` is ``a_{i-1} = k`` or one of ``D`` positions after it.

    ``P(a_i = k + d | a_{i-1} = k) = softmax_d(J h_i + K s_k + b)``, over real tokens; ``a_0`` is the first.
    ``P(a_i = j | y_{<i}) = Σ_k P(a_i = j | a_{i-1} = k) P(a_{i-1} = k | y_{<i})`` replaces attention.
    The last factor is ``P(a_{i-1} = k | y_{<i-1}) P(y_{i-1} | a_{i-1} = k)``, scaled to add up to 1.  In search a step
    hands on these two factors.  It hands on the second for every word, because the next step chooses the word.

    Args:
        reach: D, how far the alignment may move in one step.
    """

    def __init__(self, widths: Widths, *parts: Any, reach: Annotated[int, at_least(1)] = 5, **more: Any):
        super().__init__(widths, *parts, **more)
        self.jump = nn.Linear(widths.hidden, reach + 1)
        self.jump_from = nn.Linear(widths.annotation, reach + 1, bias=False)

    def remember(self, encoded: Encoded) -> dict[str, Tensor]:
        return {**super().remember(encoded), "jumps": self.jump_from(encoded.annotations)}  # B x S x (D+1)

    def start(self, memory: Memory) -> Carried:
        first = memory.positions.eq(1) & ~memory.padding_mask  # B x S
        return torch.zeros_like(memory.positions).masked_fill(~first, NEVER), None

    def forward(self, hidden: Tensor, target: Tensor, context: Tensor) -> Tensor:
        return torch.cat([super().forward(hidden, target, context), self.jump(hidden)], dim=2)  # N x T x (f+D+1)

    def first(self, steps: Steps) -> Tensor:
        prior, emissions = steps.carried
        posterior: Tensor = prior  # if there is no word yet
        if emissions is not None:
            words = steps.words[:, :1].unsqueeze(2).expand(-1, prior.size(1), 1)  # N x S x 1
            posterior = (prior + emissions.gather(2, words).squeeze(2)).log_softmax(1)
        return posterior

    def align(
        self, features: Tensor, weights: Tensor, said: Tensor, before: Tensor | None, memory: Memory
    ) -> tuple[Tensor, Tensor | None]:
        source, moves = memory.readout["jumps"], self.jump.out_features  # 0 to D
        jumps = grouped(features[..., -moves:], source).unsqueeze(3) + source[:, None, None]  # B x k x T x S x (D+1)
        nowhere = pad(memory.padding_mask, (0, moves - 1), value=True).unfold(1, moves, 1)  # B x S x (D+1)
        jumps = at_least_float32(jumps).masked_fill(nowhere[:, None, None], NEVER).log_softmax(4).flatten(0, 1)
        priors: list[Tensor] = []
        for step, emission in zip_longest(jumps.unbind(1), said.unbind(1)):  # N x S x (D+1), N x S or None
            joint = (before.unsqueeze(2) + step).unbind(2)  # type: ignore[union-attr]  # for each d, over k
            reached = [pad(part, (d, 0), value=NEVER)[:, : part.size(1)] for d, part in enumerate(joint)]
            priors.append(torch.stack(reached).logsumexp(0))
            before = priors[-1] if emission is None else (priors[-1] + emission).log_softmax(1)
        return torch.stack(priors, dim=1), before


@register_score("level")
class Level(Attention):
    """Gives every position the same energy; for decoders whose steps read no context, because the readout aligns."""

    def __init__(self, widths: Widths, *parts: Any, **options: Any):
        super().__init__(widths, *parts, **options)
        self.query, self.key, self.query_norm, self.key_norm = (nn.Identity() for _ in range(4))

    def energies(self, query: Tensor, keys: Tensor, *features: Any) -> Tensor:
        return at_least_float32(keys.new_zeros(*query.shape[:2], keys.size(1)))
