"""A model as two graphs: from a source to the first step of a search, and from each step to the next.

The first step has a separate graph, because a component may carry other tensors before it than after it.

Shapes as in :mod:`..nn.state`; ``k`` hypotheses per sentence.
"""

import copy
import itertools
import sys
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..arithmetic.choice import SearchDtype
from ..models.attention_rnn import Run
from ..nn.additive import KeyFeatures, compared
from ..nn.attention import AdditiveAttention
from ..nn.fast.projected import projected, projecting
from ..nn.state import Memory, State, each, filled, reorder
from ..tasks.string_dictionary import first_feature
from .padded import pad_encoder
from .search import Beam, Limits, Select

INPUTS = ["source", "beam", *Limits._fields]
RECORD = ["words", "parents", "scores", "ended", "ended_parents", "ended_scores", "attention"]
EXAMPLES = (11, 2, 19, 59), (13, 3, 43, 71)
"""Two examples of inputs: their numbers of sentences, hypotheses, source symbols and shortlist symbols.  Sizes that
differ between the two are free in a graph.  No number equals another size, such as a source's number of segments."""


class Step(NamedTuple):
    """The result of a search step."""

    going: Tensor
    """whether any sentence is not finished"""
    beam: Beam
    finished: Tensor
    """``B``"""
    carried: Any
    """the state for the next step, all tensors ``B x k x ...``"""
    record: tuple[Tensor, ...]
    """the step's part of the outputs: :data:`RECORD` and, with two levels, ``word_attention``"""


def plain(query: Tensor, keys: Tensor, vector: Tensor, *features: KeyFeatures) -> Tensor:
    """Compute :func:`..nn.additive.additive_energies` by operations that every runtime has.

    The vector becomes a matrix of one column, because ONNX Runtime multiplies by such a matrix six times as fast.
    """
    return (compared(query, keys, *features).tanh() @ vector.unsqueeze(1)).squeeze(-1)


class Vocabulary(nn.Module):
    """A vocabulary layer that a shortlist can reduce to some rows."""

    def __init__(self, layer: nn.Linear):
        super().__init__()
        self.weight, self.bias = layer.weight, layer.bias
        self.rows: tuple[Tensor, ...] = self.weight.t(), self.bias

    def chosen(self, symbols: Tensor) -> tuple[Tensor, ...]:
        """The rows of these symbols as columns, and their biases."""
        return self.weight[symbols].t().contiguous(), self.bias[symbols]

    def forward(self, features: Tensor) -> Tensor:
        """Project ``N x ... x f``: in two dimensions, where a runtime adds the biases while it multiplies."""
        weight, bias = self.rows
        return torch.addmm(bias, features.flatten(0, -2), weight).unflatten(0, features.shape[:-1])


def prepared(model: Any) -> Any:
    """A copy of a model that an exporter can follow, in float32 on a CPU."""
    model = copy.deepcopy(model).cpu().float().eval().requires_grad_(False)
    pad_encoder(model.encoder.network)
    model.encoder.max_source_positions = sys.maxsize  # examples may be longer than the model's limit
    model.decoder.search_dtype = SearchDtype("float32")
    model.decoder.output_projection = Vocabulary(model.decoder.output_projection)
    for part in model.modules():
        if isinstance(part, AdditiveAttention):
            part.equation = plain
    return model


class Searching(nn.Module):
    """The code that both graphs share: a step of the model and of the search.

    Args:
        model: a model from :func:`prepared`.
        projects: the result of :func:`projecting_decoder`.
    """

    def __init__(self, model: Any, projects: tuple[Any, Any]):
        super().__init__()
        self.model = model
        self.network, self.readers = projects
        self.select = Select(model.decoder.dictionary)

    def use(self, listed: tuple[Tensor, ...]) -> Tensor | None:
        """Reduce the vocabulary layer to a shortlist, and return its symbols; None without a shortlist."""
        if not listed:
            return None
        self.model.decoder.output_projection.rows = listed[1:]
        return listed[0]

    def step(self, run: Run, words: Tensor) -> tuple[Tensor, list[Tensor], Run]:
        """Return log-probabilities ``N x V``, each level's attention ``N x S``, and the run, after words ``N``."""
        kept: dict[str, Any] = {}
        decoder = self.model.decoder
        decoder.keep(kept, run)
        made = decoder(words.unsqueeze(1), {}, kept)
        # an upper level of layers has no words as columns
        names = ("attn", "word_attn") if self.model.encoder.space is not None else ("attn",)
        levels = [made[1][name][0].squeeze(1) for name in names if name in made[1]]
        scores = self.model.get_normalized_probs(made, log_probs=True).squeeze(1)
        return scores, levels, decoder.kept(kept)


class First(Searching):
    """The graph from sources to the end of the first step."""

    def forward(self, source: Tensor, hypotheses: Tensor, *rest: Tensor) -> tuple[Step, Any]:
        """Return the first step, and what later steps read: the memory of the sentences, and the shortlist.

        Args:
            source: ``B x S``, padded on the right.
            hypotheses: any ``k`` numbers.
            rest: fields of :class:`~.search.Limits`, and the symbols of the shortlist, if there is one.
        """
        limits, listed = rest[: len(Limits._fields)], rest[len(Limits._fields) :]
        listed += self.model.decoder.output_projection.chosen(*listed) if listed else ()
        symbols = self.use(listed)
        batch, beam = source.size(0), hypotheses.size(0)
        begun = Run(self.network, *projected(self.readers, *started(self.model, source)))
        scores, levels, run = self.step(begun, source.new_full((batch,), self.select.eos))
        none = source.new_zeros(batch, beam)
        before = Beam(none, scores.new_zeros(batch, 1), source.new_zeros(batch))
        limit, start = Limits(*limits), source.new_zeros(())
        after, parents, ended, finished = self.select(
            scores.unsqueeze(1), before, source.new_zeros(batch) > 0, start, limit, symbols
        )

        def copies(rows: Tensor) -> Tensor:
            return rows.unsqueeze(1).expand(-1, beam, *rows.shape[1:])

        carried = each(copies, (run.state, run.covered))
        record = after.words, parents, after.scores, *ended, *map(copies, levels)
        return Step(~finished.all(), after, finished, carried, record), (run.memory, listed)


class Following(Searching):
    """The graph from a step to the next.

    Args:
        model, projects: as for :class:`Searching`.
        like: a result of :class:`First`, which gives inputs their structure.
    """

    def __init__(self, model: Any, projects: tuple[Any, Any], like: tuple[Step, Any]):
        super().__init__(model, projects)
        self.like = like

    def forward(self, iteration: Tensor, *rest: Tensor) -> Step:
        """Return the next step.

        Args:
            iteration: the number of the step, from 0 for the second step.
            rest: fields of :class:`~.search.Limits`, tensors of the previous step, and tensors that all steps read.
        """
        given = iter(rest)
        limits = Limits(*itertools.islice(given, len(Limits._fields)))
        step, read = self.like
        beam, finished, (state, covered), (memory, listed) = filled(
            (step.beam, step.finished, step.carried, read), given
        )
        symbols = self.use(listed)
        batch, width = beam.words.shape
        state, covered = each(lambda rows: rows.flatten(0, 1), (state, covered))
        scores, levels, run = self.step(Run(self.network, memory, state, covered), beam.words.flatten())
        scores = scores.unflatten(0, (batch, width))
        after, parents, ended, finished = self.select(scores, beam, finished, iteration + 1, limits, symbols)
        rows = (torch.arange(batch).unsqueeze(1) * width + parents).flatten()

        def grouped(rows: Tensor) -> Tensor:
            return rows.unflatten(0, (batch, width))

        carried = each(grouped, reorder((run.state, run.covered), rows))
        record = after.words, parents, after.scores, *ended, *map(grouped, levels)
        return Step(~finished.all(), after, finished, carried, record)


def started(model: Any, source: Tensor) -> tuple[Memory, State]:
    """The decoder's memory and first state, with contexts that are not projected."""
    encoder_out = model.encoder(source, src_lengths=source.ne(model.encoder.dictionary.pad()).sum(1))
    run: Run = model.decoder.start(encoder_out, search=False)
    return run.memory, run.state


def projecting_decoder(model: Any) -> tuple[Any, Any]:
    """Return the decoder for sentences of any length, and the maps by which search projects annotations.

    A trial on two sources of random symbols finds these maps.  It precedes tracing, which changes components' classes.
    """
    dictionary, generator = model.encoder.dictionary, torch.Generator().manual_seed(1)
    symbols = torch.randint(dictionary.nspecial, first_feature(dictionary), (2, 12), generator=generator)
    memory, state = started(model, torch.cat([symbols, torch.tensor([end(dictionary)] * 2)], dim=1))
    return projecting(model.decoder.network, memory, state, model.decoder.embed_tokens.embedding_dim)


def order(encoder: Any, source: Tensor) -> Tensor:
    """Return the positions of a source in the order in which a graph reads them.

    The network treats features that are attended to as padding, and a graph has the padding on the right.
    """
    if encoder.first_feature is None:
        return torch.arange(len(source))
    return (source >= encoder.first_feature).int().argsort(stable=True)


def end(dictionary: Any) -> list[int]:
    """Return the symbols that end every source."""
    return [*([dictionary.space()] if getattr(dictionary, "units", "") == "characters" else []), dictionary.eos()]
