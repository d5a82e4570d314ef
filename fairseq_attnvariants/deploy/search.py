"""fairseq's beam search as a function of one step, which a loop in the graph repeats.

Shapes as in :mod:`..nn.state`; ``k`` hypotheses per sentence, ``V`` target symbols.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

LOWEST = -float("inf")


def largest_beam(target: Any) -> int:
    """The largest beam width: a step takes twice as many of the target's symbols."""
    return (len(target) - 1) // 2


class Limits(NamedTuple):
    """The options of a search."""

    max_len: Tensor
    """the most symbols of each sentence's translation, ``B``"""
    min_len: Tensor
    """the fewest symbols of a translation"""
    unkpen: Tensor
    """the number that is subtracted from the log-probability of ``<unk>``"""


class Beam(NamedTuple):
    """The hypotheses of a step."""

    words: Tensor
    """their last words, ``B x k``"""
    scores: Tensor
    """sums of log-probabilities, ``B x k``"""
    over: Tensor
    """the number of ended hypotheses, ``B``"""


class Ended(NamedTuple):
    """The best candidates of a step, all ``B x k``."""

    ended: Tensor
    """True for candidates that end a hypothesis"""
    parents: Tensor
    """the hypotheses that the candidates continue"""
    scores: Tensor
    """sums of log-probabilities"""


class Select(nn.Module):
    """The choice of a step's best candidates, as in fairseq's ``SequenceGenerator``."""

    is_eos: Tensor
    is_unk: Tensor
    never: Tensor

    def __init__(self, dictionary: Any):
        super().__init__()
        symbols = torch.arange(len(dictionary))
        self.eos = dictionary.eos()
        self.register_buffer("is_eos", symbols == dictionary.eos())
        self.register_buffer("is_unk", symbols == dictionary.unk())
        self.register_buffer("never", torch.where(symbols == dictionary.pad(), LOWEST, 0.0))

    def forward(
        self,
        scores: Tensor,
        before: Beam,
        finished: Tensor,
        step: Tensor,
        limits: Limits,
        symbols: Tensor | None = None,
    ) -> tuple[Beam, Tensor, Ended, Tensor]:
        """Make one step of the search.

        Args:
            scores: log-probabilities, ``B x k x V``, or ``B x 1 x V`` at the first step.
            before: the beam so far, whose scores are ``B x 1`` at the first step.
            finished: True for finished sentences, ``B``.
            step: the number of the step, from 0.
            limits: the options of the search.
            symbols: the symbols of a shortlist, ``V``; None for all symbols.

        Returns:
            the next beam; the previous hypothesis that each of its hypotheses continues, ``B x k``; the candidates that
            end; and ``finished`` after this step.
        """
        beam = before.words.size(1)
        marks = self.is_eos, self.is_unk, self.never
        is_eos, is_unk, never = marks if symbols is None else (mark[symbols] for mark in marks)
        allowed = never - torch.where(is_unk, limits.unkpen, 0.0)
        scores = scores + torch.where(is_eos & (step < limits.min_len), LOWEST, allowed)
        # first choose for each hypothesis, because one choice of all takes longer; at a sentence's last step only EOS
        likely, words = scores.topk(2 * beam)  # B x k x 2k
        last = step >= limits.max_len  # B
        first = torch.arange(2 * beam) == 0
        only = torch.where(first, scores[:, :, self.eos].unsqueeze(2), LOWEST)  # special symbols are in every shortlist
        likely = torch.where(last.view(-1, 1, 1), only, likely)
        words = torch.where(last.view(-1, 1, 1), self.eos, words if symbols is None else symbols[words])
        totals = likely + before.scores.unsqueeze(2)
        best, places = totals.flatten(1).topk(2 * beam)  # B x 2k
        parents, words = places // (2 * beam), words.flatten(1).gather(1, places)
        ends = (words == self.eos) & (best > LOWEST)
        # EOS comes once for each hypothesis, so at least k candidates do not end
        _, chosen = (ends.long() * (2 * beam) + torch.arange(2 * beam)).topk(beam, largest=False)
        ended = ends[:, :beam] & ~finished.unsqueeze(1)  # B x k
        over = before.over + ended.sum(1)
        beams = Beam(words.gather(1, chosen), best.gather(1, chosen), over)
        done = Ended(ended, parents[:, :beam], best[:, :beam])
        return beams, parents.gather(1, chosen), done, finished | last | (over >= beam)


class Hypothesis(NamedTuple):
    """A translation from the graph."""

    score: float
    symbols: list[int]
    sums: list[float]
    """the sum of log-probabilities up to each symbol"""
    attention: list[Any]
    """the weights of each step, arrays ``S``"""


def hypotheses(
    out: Any, sentence: int, length: int, eos: int, lenpen: float, normalize: bool = True
) -> list[Hypothesis]:
    """The n-best list of a sentence, from the graph's outputs.

    Args:
        out: the graph's outputs by name, arrays.
        sentence: the number of the sentence.
        length: the length of its source.
        eos, lenpen, normalize: as in fairseq's search.
    """
    steps, _, beam = out["words"].shape
    found = []
    ends = [(t, j) for t in range(steps) for j in range(beam) if out["ended"][t, sentence, j]][:beam]
    for t, j in ends:
        row, symbols, sums = out["ended_parents"][t, sentence, j], [eos], [out["ended_scores"][t, sentence, j]]
        attention = [out["attention"][t, sentence, row, :length]]
        for s in range(t - 1, -1, -1):
            symbols.insert(0, int(out["words"][s, sentence, row]))
            sums.insert(0, out["scores"][s, sentence, row])
            row = out["parents"][s, sentence, row]
            attention.insert(0, out["attention"][s, sentence, row, :length])
        score = sums[-1] / (t + 1) ** lenpen if normalize else sums[-1]
        found.append(Hypothesis(float(score), symbols, sums, attention))
    return sorted(found, key=lambda one: -one.score)
