"""Comparison of a graph with fairseq's search on the same sentences, by their n-best lists."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import onnx_ir as ir
import onnxruntime
import torch
from fairseq.data import data_utils
from fairseq.sequence_generator import SequenceGenerator
from torch import Tensor

from ..arithmetic.choice import SearchDtype
from ..registry import ConfigurationError
from ..tasks.shortlist import Shortlist, ShortlistGenerator
from ..tasks.string_dictionary import first_feature
from .graphs import order
from .search import Hypothesis, hypotheses

CLOSE = 1e-4
MOST_TIES = 0.05
"""the share of lists that may differ, because a tie in the middle of a search may have another outcome"""


class Search(NamedTuple):
    """The settings of a search."""

    beam: int = 5
    lenpen: float = 1.0
    unkpen: float = 0.0
    min_len: int = 1
    max_len_a: float = 0.0
    max_len_b: int = 200
    normalize: bool = True
    largest_target: int = 1024

    def most(self, length: int) -> int:
        """The most symbols of the translation of a source, EOS not counted."""
        return min(int(self.max_len_a * length + self.max_len_b), self.largest_target - 1)


class Proof(NamedTuple):
    """The agreement of a graph with fairseq's search."""

    sentences: int
    lists: int
    equal: int
    """lists with the same hypotheses"""
    translations: float
    """share of equal best translations"""
    score: float
    """largest difference of scores in equal lists"""
    attention: float
    """largest difference of attention weights in equal lists; relative for weights above 1, as of some normalizers"""
    where: str
    """the first step that differs, and the length of its source; empty if none differs"""

    @property
    def holds(self) -> bool:
        """Whether the graph translates as the model does."""
        return self.score <= CLOSE and self.attention <= CLOSE and self.equal >= (1 - MOST_TIES) * self.lists


@contextlib.contextmanager
def refused() -> Iterator[None]:
    """Turn errors of ONNX Runtime, which have no common class, into sentences.

    Raises:
        ConfigurationError: ONNX Runtime failed; with the first line of its message.
    """
    try:
        yield
    except Exception as error:
        why = str(error) or type(error).__name__
        raise ConfigurationError(f"ONNX Runtime cannot run it: {why.splitlines()[0]}") from error


def session(graph: bytes) -> Any:
    """A session of ONNX Runtime on one thread of the processor.

    Raises:
        ConfigurationError: ONNX Runtime refuses the graph.
    """
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    with refused():
        return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])


def translate(graph: Any, sources: Sequence[Tensor], pad: int, search: Search) -> dict[str, np.ndarray]:
    """The outputs of a graph, by name.

    Raises:
        ConfigurationError: ONNX Runtime cannot run the graph.
    """
    padded = data_utils.collate_tokens(list(sources), pad, left_pad=False)
    inputs = {
        "source": padded.numpy(),
        "beam": np.array(search.beam),
        # of the longest source, as in fairseq
        "max_len": np.full(len(sources), search.most(padded.size(1))),
        "min_len": np.array(search.min_len),
        "unkpen": np.array(search.unkpen, dtype=np.float32),
    }
    with refused():
        return dict(zip([output.name for output in graph.get_outputs()], graph.run(None, inputs)))


class Batch(NamedTuple):
    """Sources, and the settings of their search."""

    sources: Sequence[Tensor]
    search: Search


@torch.no_grad()
def prove(graph: Any, model: Any, batches: Sequence[Batch], shortlist: Shortlist | None = None) -> Proof:
    """Translate by a graph and by fairseq's search, and compare n-best lists; sets the model's search to float32."""
    model.decoder.search_dtype = SearchDtype("float32")
    eos, pad = model.decoder.dictionary.eos(), model.encoder.dictionary.pad()
    lists = equal = best = 0
    score = attention = 0.0
    where = ""
    for sources, search in batches:
        generator = fairseq_search(model, search, shortlist)
        padded = data_utils.collate_tokens(list(sources), pad, left_pad=True)
        lengths = torch.tensor([len(source) for source in sources])
        expected = generator.generate([model], {"net_input": {"src_tokens": padded, "src_lengths": lengths}})
        orders = [order(model.encoder, source) for source in sources]
        out = translate(graph, [source[places] for source, places in zip(sources, orders)], pad, search)
        for number, (source, places, wanted) in enumerate(zip(sources, orders, expected)):
            found = hypotheses(out, number, len(source), eos, search.lenpen, search.normalize)
            lists += 1
            best += found[0].symbols == wanted[0]["tokens"].tolist()
            same = alike(found, wanted)
            equal += same
            by_symbols = {tuple(one.symbols): one for one in found}
            for one in wanted if same else ():
                ours = by_symbols.get(tuple(one["tokens"].tolist()))
                if ours is not None:
                    score = float(np.maximum(score, abs(ours.score - one["score"].item())))  # NaN remains
                    weights = one["attention"][-len(source) :][places].T.numpy()  # the padding is on the left
                    differences = np.abs(np.stack(ours.attention) - weights) / np.maximum(weights, 1)
                    attention = float(np.maximum(attention, differences.max()))
            if not where and not (same and score <= CLOSE and attention <= CLOSE):
                where = f"{difference(found[0], wanted[0])} of the translation of {len(source)} symbols"
    return Proof(sum(len(batch.sources) for batch in batches), lists, equal, best / lists, score, attention, where)


def fairseq_search(model: Any, search: Search, shortlist: Shortlist | None) -> Any:
    """fairseq's search with these settings."""
    generator = SequenceGenerator(
        [model],
        model.decoder.dictionary,
        beam_size=search.beam,
        max_len_a=search.max_len_a,
        max_len_b=search.max_len_b,
        max_len=search.largest_target,
        min_len=search.min_len,
        normalize_scores=search.normalize,
        len_penalty=search.lenpen,
        unk_penalty=search.unkpen,
    )
    return generator if shortlist is None else ShortlistGenerator(generator, shortlist)


def alike(found: Sequence[Hypothesis], wanted: Sequence[dict[str, Tensor]]) -> bool:
    """Whether two n-best lists have the same hypotheses; hypotheses that tie with the last one may differ."""
    ours = {tuple(one.symbols): one.score for one in found}
    theirs = {tuple(one["tokens"].tolist()): one["score"].item() for one in wanted}
    if len(found) != len(wanted) or len(found) == 1:
        return ours.keys() == theirs.keys()
    ranks = zip(sorted(ours.values()), sorted(theirs.values()))
    last = max(min(ours.values()), min(theirs.values())) + CLOSE
    differing = [{**ours, **theirs}[symbols] for symbols in ours.keys() ^ theirs.keys()]
    return all(abs(one - other) <= CLOSE for one, other in ranks) and all(total <= last for total in differing)


def difference(found: Hypothesis, wanted: dict[str, Tensor]) -> str:
    """The first step at which the two best hypotheses differ, as text."""
    tokens, totals = wanted["tokens"].tolist(), wanted["positional_scores"].cumsum(0).tolist()
    for step, (one, other, total, expected) in enumerate(zip(found.symbols, tokens, found.sums, totals), start=1):
        if one != other or abs(total - expected) > CLOSE:
            return f"step {step}"
    return "another hypothesis"


def random_sources(model: Any, end: list[int], count: int) -> list[Tensor]:
    """Sources of random symbols, from an empty one to one of thirty symbols.

    If the model reads features, each source has up to four of them.
    """
    dictionary, generator = model.encoder.dictionary, torch.Generator().manual_seed(1)
    first = first_feature(dictionary)
    features = torch.arange(first, len(dictionary))
    room = model.encoder.max_source_positions - len(end)
    few = min(4, len(features), room)
    most = min(30, room - few)
    found = []
    for number, length in enumerate(torch.linspace(0, most, count).long().tolist()):
        symbols = torch.randint(dictionary.nspecial, first, (length,), generator=generator)
        chosen = torch.randperm(len(features), generator=generator)[: number % (few + 1)].sort().values
        found.append(torch.cat([features[chosen], symbols, torch.tensor(end)]))
    return found


def compared(
    graph: ir.Model, model: Any, batches: Sequence[Batch], shortlist: Shortlist | None = None
) -> tuple[bytes, Proof]:
    """Return a graph as bytes, and its comparison with the model.

    Raises:
        ConfigurationError: ONNX Runtime refuses the graph.
    """
    content = ir.to_proto(graph).SerializeToString()
    return content, prove(session(content), model, batches, shortlist)


def proved(
    graph: ir.Model, model: Any, batches: Sequence[Batch], shortlist: Shortlist | None = None
) -> tuple[bytes, Proof]:
    """Return a graph as bytes, and the proof that it translates as the model does.

    Raises:
        ConfigurationError: the graph translates differently, and the message says where; or ONNX Runtime refuses it.
    """
    content, proof = compared(graph, model, batches, shortlist)
    if not proof.holds:
        raise ConfigurationError(
            f"the exported model translates differently, first at {proof.where}: {proof.equal} of {proof.lists} n-best "
            f"lists are equal to fairseq's, and in these scores differ by up to {proof.score:.2g} and attention by "
            f"{proof.attention:.2g}"
        )
    return content, proof
