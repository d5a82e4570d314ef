"""Beam search in tensors that keep their shapes, so that a CUDA graph can run its steps.

fairseq's search reads at every step which hypotheses have ended, and takes finished sentences out of the batch.  On a
GPU each read waits for all launched operations, and launching the small operations of a step takes longer than
computing them.  Here all sentences stay in the batch until the last one is finished.  A step records its choices and
their origins in tensors, and the host reads these every few steps.  So all steps except the first of a batch are the
same operations on the same memory.  A graph, captured once for each shape, runs a step in a single launch.

Hypotheses, scores and attention are the same as in fairseq's search.
"""

import logging
import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any
from weakref import WeakKeyDictionary

import torch
from fairseq.search import BeamSearch
from fairseq.sequence_generator import SequenceGenerator, SequenceGeneratorWithAlignment
from torch import Tensor

from ..nn.fast.capture import RECORDERS
from ..nn.state import each, tensors
from .attention_rnn import IncrementalDecoder, Run

logger = logging.getLogger(__name__)

EVERY = 4  # steps between two reads of the host
KEPT = 32  # shapes whose graphs are kept for a model, the most recently used ones
MEMORY = 2**30  # bytes of their tensors that are kept


class StaticSearch(SequenceGenerator):
    """fairseq's beam search on a GPU as CUDA graphs, for models of this package.

    fairseq's own search handles prefixes, constraints, other strategies than the plain beam, a language model, blocked
    n-grams, shortlists and autocast; and all searches after a graph could not be captured.
    """

    device_type = "cuda"
    """the type of device that uses this search; on a CPU fairseq's is quicker, because its batch shrinks"""

    def _generate(
        self,
        sample: dict[str, Any],
        prefix_tokens: Tensor | None = None,
        constraints: Tensor | None = None,
        bos_token: int | None = None,
    ) -> list[list[dict[str, Tensor]]]:
        sources = sample["net_input"]["src_tokens"]
        longest = min(int(self.max_len_a * sources.size(1) + self.max_len_b), self.max_len - 1)
        free = prefix_tokens is None and constraints is None and self.min_len <= longest
        if free and self._fits(sources):
            try:
                with _searching:
                    return self._search(sample["net_input"], longest, self.eos if bos_token is None else bos_token)
            except RuntimeError as error:
                logger.warning(f"search continues without CUDA graphs, which failed: {error}")
                _beams[self.model.models[0].decoder] = None
        return super()._generate(sample, prefix_tokens, constraints, bos_token)

    def _fits(self, sources: Tensor) -> bool:
        """Whether this class supports the requested search."""
        return (
            sources.device.type == self.device_type
            and type(self.search) is BeamSearch
            and self.lm_model is None
            and self.repeat_ngram_blocker is None
            and not self.match_source_len
            and self.vocab_size == len(self.tgt_dict)
            and not torch.is_autocast_enabled()
            and _beams.get(self.model.models[0].decoder, {}) is not None
        )

    def _search(self, net_input: dict[str, Tensor], longest: int, begin: int) -> list[list[dict[str, Tensor]]]:
        """The hypotheses of a batch.

        Raises:
            RuntimeError: the steps cannot be captured as a graph.
        """
        sources, decoders = net_input["src_tokens"], [model.decoder for model in self.model.models]
        rows = torch.arange(len(sources) * self.beam_size, device=sources.device)
        encoded = self.model.forward_encoder(net_input)
        encoded = self.model.reorder_encoder_out(encoded, rows.div(self.beam_size, rounding_mode="floor"))
        states: list[dict[str, Any]] = [{} for _ in decoders]
        # the first step runs separately, because states have fewer tensors before it than after it
        words = rows.new_full((len(rows), 1), begin)
        log_probs, weights = self.model.forward_decoder(words, encoded, states, self.temperature)
        runs = [decoder.kept(state) for decoder, state in zip(decoders, states)]
        beams = self._beams_for(decoders, runs, log_probs, weights)
        beams.begin(self, runs, longest)
        beams.choose(self, runs, log_probs, weights, first=True)
        noted = []
        for step in range(longest + 1):
            if step:
                beams.advance(self)
            if step % EVERY == EVERY - 1 or step == longest:
                noted.append([tensor[: step % EVERY + 1].clone() for tensor in beams.notes])
                if beams.done.all():
                    return beams.hypotheses(self, noted)
        raise AssertionError(f"a sentence has no translation of at most {longest} words: probabilities are not numbers")

    def _beams_for(
        self, decoders: Sequence[IncrementalDecoder], runs: Sequence[Run], log_probs: Tensor, weights: Tensor
    ) -> "Beams":
        """Return the :class:`Beams` of an earlier batch of these shapes, with their graph, or new ones."""
        # a graph contains addresses and shapes of tensors, and everything else that a module computes with
        held = [tensor.data_ptr() for decoder in decoders for tensor in (*decoder.parameters(), *decoder.buffers())]
        others = [value for decoder in decoders for part in decoder.modules() for value in vars(part).values()]
        plain = [value for value in others if isinstance(value, (bool, int, float, str))]
        modes = [(decoder.search_dtype.dtype, run.network is decoder.network) for decoder, run in zip(decoders, runs)]
        shapes = [(tensor.shape, tensor.dtype) for run in runs for tensor in tensors(run[1:])]
        inference = torch.is_inference_mode_enabled()
        key = self.beam_size, self.temperature, self.eos, inference, *held, *plain, *modes, *shapes
        kept = _beams.setdefault(decoders[0], OrderedDict())
        beams = kept[key] = kept.pop(key, None) or Beams(self, runs, log_probs, weights)  # last: most recently used
        while len(kept) > KEPT or (len(kept) > 1 and sum(one.size for one in kept.values()) > MEMORY):
            kept.popitem(last=False)
        return beams


class StaticSearchWithAlignment(SequenceGeneratorWithAlignment, StaticSearch):
    """A static search with alignments, for ``--print-alignment``."""


class Beams:
    """The hypotheses of ``B`` sentences, ``K`` each, ``N = B·K``, in tensors that every step reads and writes.

    Args:
        search: the search that makes the steps.
        runs: the runs of its models, after the first step.
        log_probs, weights: log-probabilities, ``N x V``, and attention, ``N x S``, of that step.
    """

    def __init__(self, search: StaticSearch, runs: Sequence[Run], log_probs: Tensor, weights: Tensor):
        rows, beam, device = len(weights), search.beam_size, weights.device
        sentences = rows // beam

        def number(*shape: int) -> Tensor:
            return torch.zeros(shape, dtype=torch.long, device=device)

        def score(*shape: int) -> Tensor:
            return log_probs.new_zeros(shape)

        self.runs = [Run(run.network, *each(torch.clone, run[1:])) for run in runs]
        self.step, self.least, self.longest = number(1), number(1), number(1)
        self.added, self.ends = score(search.vocab_size), torch.arange(search.vocab_size, device=device).eq(search.eos)
        self.before = torch.arange(sentences, device=device).unsqueeze(1) * beam  # rows before each sentence's
        self.places = torch.arange(2 * beam, device=device)
        # hypotheses that go on
        self.words, self.totals, self.idle = number(rows, 1), score(sentences, beam), number(sentences, beam).bool()
        # hypotheses that have ended: row, step and total; the last column is written and never read
        self.ended = number(sentences, beam + 1), number(sentences, beam + 1), score(sentences, beam + 1)
        self.count, self.done = number(sentences, 1), number(sentences, 1).bool()
        # the last steps: the row that each hypothesis comes from, its word, its total, and the rows' attention
        looked = torch.zeros(EVERY, *weights.shape, device=device)
        self.notes = number(EVERY, rows), number(EVERY, rows), score(EVERY, rows), looked
        self.graph: Any = None
        own = [*tensors(tuple(run[1:] for run in self.runs)), self.added, *self.notes]
        self.size = sum(tensor.nbytes for tensor in own)

    def begin(self, search: StaticSearch, runs: Sequence[Run], longest: int) -> None:
        """Start a batch, before its first choice."""
        for run, new in zip(self.runs, runs):
            write(run.memory, new.memory)
        for tensor in (self.step, self.count, self.done, self.idle, self.added):
            tensor.zero_()
        self.least.fill_(search.min_len)
        self.longest.fill_(longest)
        self.added[search.unk] = -search.unk_penalty
        self.added[search.pad] = -math.inf
        if search.token_indices_to_suppress is not None:
            self.added[search.token_indices_to_suppress] = -math.inf

    def advance(self, search: StaticSearch) -> None:
        """Make one step; replay the graph once there is one."""
        if self.graph is not None:
            self.graph.replay()
        else:
            self.graph = captured(partial(self.make_step, search), self.words.device)

    def make_step(self, search: StaticSearch) -> None:
        """Make one step, operation by operation."""
        decoders = [model.decoder for model in search.model.models]
        states: list[dict[str, Any]] = [{} for _ in decoders]
        for decoder, state, run in zip(decoders, states, self.runs):
            decoder.keep(state, run)
        nothing: list[dict[str, Any]] = [{} for _ in decoders]  # later steps do not read the encoder's output
        log_probs, weights = search.model.forward_decoder(self.words, nothing, states, search.temperature)
        runs = [decoder.kept(state) for decoder, state in zip(decoders, states)]
        self.choose(search, runs, log_probs, weights)

    def choose(
        self, search: StaticSearch, runs: Sequence[Run], log_probs: Tensor, weights: Tensor, first: bool = False
    ) -> None:
        """Do what fairseq's search does at a step after the models have run.

        Args:
            search: the search that makes the step.
            runs: the runs of its models, after this step.
            log_probs: log-probabilities of the next words, ``N x V``.
            weights: attention, ``N x S``.
            first: whether this is the first step, at which all hypotheses of a sentence are the same.
        """
        (sentences, beam), infinite = self.totals.shape, math.inf
        log_probs = log_probs.nan_to_num(-infinite, infinite, -infinite).add_(self.added)
        barred = torch.where(self.ends, self.step < self.least, self.step >= self.longest)
        log_probs = log_probs.masked_fill_(barred, -infinite).view(sentences, beam, -1)
        scores, words, beams = search.search.step(0 if first else 1, log_probs, self.totals.unsqueeze(2))  # B x 2K
        rows = beams + self.before
        ends = words.eq(search.eos) & scores.ne(-infinite)
        ending = ends[:, :beam] & ~self.idle

        found = ending.cumsum(1)  # if a sentence is done, further ones go to the last column
        column = (self.count + found - 1).masked_fill_(~ending, beam).clamp_(max=beam)
        for store, values in zip(self.ended, (rows, self.step.expand_as(rows), scores)):
            store.scatter_(1, column, values[:, :beam])
        self.count.add_(found[:, -1:]).clamp_(max=beam)
        self.done.logical_or_((self.count.eq(beam) | (self.step >= self.longest)) & found[:, -1:].gt(0))

        # the first K that go on; if there are fewer, idle ones fill the other places
        order = torch.cat([ending | self.idle, ends[:, beam:]], dim=1) * (2 * beam) + self.places[: ends.size(1)]
        order, chosen = order.topk(beam, dim=1, largest=False)
        self.idle.copy_(order >= 2 * beam)
        self.totals.copy_(scores.gather(1, chosen))
        self.words.copy_(words.gather(1, chosen).view(-1, 1))
        origin = rows.gather(1, chosen).view(-1)
        at = self.step.remainder(EVERY)
        for notes, values in zip(self.notes, (origin, self.words.view(-1), self.totals.view(-1), weights.float())):
            notes.index_copy_(0, at, values.unsqueeze(0))
        self.step.add_(1)
        for run, changed in zip(self.runs, runs):
            changed = changed.reordered(origin)
            write((run.state, run.covered), (changed.state, changed.covered))

    def hypotheses(self, search: StaticSearch, noted: Sequence[Sequence[Tensor]]) -> list[list[dict[str, Tensor]]]:
        """Return each sentence's hypotheses on the CPU, in fairseq's form, the best first."""
        origins, words, totals, weights = (torch.cat(parts) for parts in zip(*noted))
        origins, words, totals, count = origins.cpu(), words.cpu(), totals.cpu(), self.count.cpu()
        beam = search.beam_size
        there = torch.arange(beam) < count  # B x K
        row, last, total = (store[:, :beam].cpu()[there] for store in self.ended)
        longest = int(last.max()) + 1
        tokens, rows = (row.new_empty(len(row), longest) for _ in range(2))
        sums = total.new_empty(len(row), longest)
        for step in reversed(range(longest)):  # from the last word of a hypothesis back to its first
            before = step < last
            tokens[:, step] = words[step, row].where(before, tokens.new_tensor(search.eos))
            sums[:, step] = totals[step, row].where(before, total)
            row = origins[step, row].where(before, row)
            rows[:, step] = row
        steps = torch.arange(longest, device=weights.device)
        attention = weights[steps, rows.to(weights.device)].cpu()  # hypotheses x T x S
        positional = sums.diff(dim=1, prepend=sums.new_zeros(len(sums), 1))
        if search.normalize_scores:
            total = total / total.new_tensor([(step + 1) ** search.len_penalty for step in last.tolist()])
        lengths = (last + 1).tolist()

        def hypothesis(number: int) -> dict[str, Tensor]:
            length = lengths[number]
            return {
                "tokens": tokens[number, :length],
                "score": total[number],
                "attention": attention[number, :length].t(),  # S x T
                "alignment": torch.empty(0),
                "positional_scores": positional[number, :length],
            }

        numbers = torch.arange(len(total)).split(count.flatten().tolist())
        return [[hypothesis(i) for i in own[total[own].argsort(descending=True)].tolist()] for own in numbers]


def searchable(model: Any) -> bool:
    """Whether a model's decoder is from this package and does not override how its state is reordered."""
    known = IncrementalDecoder.reorder_incremental_state
    return getattr(type(getattr(model, "decoder", None)), "reorder_incremental_state", None) is known


def write(fixed: Any, entries: Any) -> None:
    """Copy tensors into others of the same shapes.

    Raises:
        RuntimeError: they have other shapes or types, as when a component's carried state grows from step to step.
    """
    old, new = tensors(fixed), tensors(entries)
    if [(tensor.shape, tensor.dtype) for tensor in old] != [(tensor.shape, tensor.dtype) for tensor in new]:
        raise RuntimeError("the decoder's carried state changes its shape")
    torch._foreach_copy_(old, new)


def captured(step: Callable[[], None], device: torch.device) -> Any:
    """Run a step, in which libraries initialise, and return a graph of a step; None on a CPU."""
    if device.type not in RECORDERS:
        step()
        return None
    with recorder(device).trial():
        step()
    return recorder(device).capture(step)


@cache
def recorder(device: torch.device) -> Any:
    """Return the recorder of a GPU's graphs, which share memory, because one ends before another begins."""
    return RECORDERS[device.type](device)


_searching = threading.RLock()  # one search at a time, because searches of equal shapes use the same tensors
_beams: "WeakKeyDictionary[Any, Any]" = WeakKeyDictionary()
"""beams by the first model's decoder and by shape; None once a graph could not be captured"""
