"""Search on a vocabulary shortlist: a short target vocabulary for each batch.

See Jean et al. 2015, section 3.3, and L'Hostis et al. 2016.  The list of a batch has fairseq's special symbols, the
most frequent target words, and the likeliest translations of every source word.  Models get only these rows of their
target embeddings and of their vocabulary layer.  A search numbers symbols by their place in the list, and its results
are renumbered at the end.  Probabilities are normalised over the words of the list, as in Jean et al.
"""

import os
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from fairseq.data import Dictionary
from fairseq.sequence_generator import SequenceGenerator
from torch import Tensor, nn

from ..nn.copying import Copying
from ..nn.twins import shallow, twin
from ..registry import ConfigurationError

SPECIALS = 4  # <s>, <pad>, </s>, <unk>: they keep their numbers
LAYERS = "output_projection", "fc_out"  # names of the vocabulary layer: in models here and transformers, in the lstm


class Candidate(NamedTuple):
    """A line of the table."""

    source: str
    target: str
    links: int
    share: float


class Shortlist:
    """The target words of the shortlist for a batch of sources.

    Args:
        rows: the rows of the table; rows with words that the dictionaries lack are left out.
        source, target: the dictionaries.
        size: the number of likeliest translations of a source word in a list.
        frequent: the number of most frequent words in every list.  Frequency is the number of links; words without
            links follow in the dictionary's order.

    Raises:
        ConfigurationError: the dictionaries have no word of the table.
    """

    def __init__(self, rows: Iterator[Candidate], source: Dictionary, target: Dictionary, size: int, frequent: int):
        candidates: dict[int, list[tuple[float, int]]] = {}
        links: Counter[int] = Counter()
        for row in rows:
            if row.source in source.indices and row.target in target.indices:
                number = target.indices[row.target]
                candidates.setdefault(source.indices[row.source], []).append((-row.share, number))
                links[number] += row.links
        if not candidates:
            raise ConfigurationError(
                "no line of the shortlist's table has words of both dictionaries: make it of the text that was given "
                "to fairseq-preprocess, cut into the same words or subwords"
            )
        self.frequent = frequent
        words = [number for number, _ in links.most_common() if number >= SPECIALS]
        rest = sorted(set(range(SPECIALS, len(target))) - set(words))
        self.by_frequency = torch.tensor([*range(SPECIALS), *words, *rest])
        """all target symbols, the special ones first"""
        self.candidates = torch.full((len(source), size), target.pad())
        """the translations of each source symbol; the other places have padding, which is in every list"""
        for number, found in candidates.items():
            best = torch.tensor([target for _, target in sorted(found)[:size]])
            self.candidates[number, : len(best)] = best

    def symbols(self, sources: Tensor, *others: Tensor, least: int = 0) -> Tensor:
        """Return the list of a batch: the numbers of target symbols, sorted, each once.

        Args:
            sources: the sources' tokens.
            others: further target symbols for the list.
            least: the smallest number of frequent words.
        """
        always = self.by_frequency[: SPECIALS + max(self.frequent, least)]
        words = self.candidates[sources.cpu().unique()]
        parts = (always, words, *(other.cpu() for other in others))
        return torch.cat([part.flatten() for part in parts]).unique().to(sources.device)


def read_candidates(path: str) -> Iterator[Candidate]:
    """Read the table from ``fairseq-attnvariants lexicon --candidates``: source, target, count and share, between tabs.

    Raises:
        ConfigurationError: a line is something else, or the file cannot be read.
    """
    try:
        stream = open(path, encoding="utf-8", errors="replace", newline="\n")  # noqa: SIM115 - it may be a pipe
    except OSError as error:
        raise ConfigurationError(
            f"{path}: {'there is no such file' if not os.path.exists(path) else error.strerror}"
        ) from None
    with stream as lines:
        for number, line in enumerate(lines, start=1):
            try:
                source, target, links, share = line.rstrip("\n").split("\t")
                row = Candidate(source, target, int(links), float(share))
                valid = row.links >= 0 and 0 <= row.share <= 1
            except ValueError:
                valid = False
            if not valid:
                raise ConfigurationError(
                    f"{path}, line {number}: not a source word, a target word, a count and a share of 0 to 1 with tabs "
                    "between, as fairseq-attnvariants lexicon --candidates writes them"
                )
            yield row


class ShortlistGenerator:
    """fairseq's search on shortlists.

    Args:
        generator: the search on the full vocabulary, with any strategy that does not name symbols beforehand.
        shortlist: makes the list of a batch.

    Raises:
        ConfigurationError: a model has no vocabulary layer that can be cut.
    """

    def __init__(self, generator: SequenceGenerator, shortlist: Shortlist):
        self.generator = generator
        self.shortlist = shortlist
        self.symbols_to_strip_from_output = generator.symbols_to_strip_from_output
        # a beam takes twice as many candidates as it is wide, and top-k sampling takes k
        self.least = max(2 * generator.beam_size, getattr(generator.search, "sampling_topk", 0))
        for model in generator.model.models:
            vocabulary_layer(model.decoder)

    @torch.no_grad()
    def generate(
        self,
        models: Any,
        sample: dict[str, Any],
        prefix_tokens: Tensor | None = None,
        constraints: Tensor | None = None,
        bos_token: int | None = None,
    ) -> list[list[dict[str, Tensor]]]:
        """Translate a batch, as :meth:`fairseq.sequence_generator.SequenceGenerator.generate` does.

        The list always has forced prefixes, constraints and the symbols that a model can copy.
        """
        sources, whole = sample["net_input"]["src_tokens"], self.generator
        begin = whole.eos if bos_token is None else bos_token
        forced = [torch.tensor([whole.eos, begin])]
        if prefix_tokens is not None:
            forced.append(prefix_tokens)
        if constraints is not None:
            forced.append(constraints[:, 1:])  # their number precedes them
        for model in whole.model.models:
            forced += [part.symbols[sources.unique()] for part in copying(model)]
        symbols = self.shortlist.symbols(sources, *forced, least=self.least)

        def short(tokens: Tensor) -> Tensor:
            return torch.searchsorted(symbols, tokens.contiguous())

        options: dict[str, Any] = {}
        if prefix_tokens is not None:
            options["prefix_tokens"] = short(prefix_tokens)
        if constraints is not None:
            options["constraints"] = torch.cat([constraints[:, :1], short(constraints[:, 1:])], dim=1)
        generator = twin(whole, {model: cut(model, symbols) for model in whole.model.models}.get)
        generator.vocab_size = len(symbols)
        generator.eos, options["bos_token"] = short(symbols.new_tensor([whole.eos, begin])).tolist()
        found = generator.generate(models, sample, **options)
        for hypotheses in found:
            for hypothesis in hypotheses:
                hypothesis["tokens"] = symbols[hypothesis["tokens"]]
        return found


def vocabulary_layer(decoder: nn.Module) -> str | None:
    """The name of the layer that projects to the vocabulary; None if the embeddings' matrix does this.

    Raises:
        ConfigurationError: the decoder has no vocabulary layer that can be cut.
    """
    embeddings = getattr(decoder, "embed_tokens", None)
    if isinstance(embeddings, nn.Embedding) and getattr(decoder, "adaptive_softmax", None) is None:
        for name in LAYERS:
            layer = getattr(decoder, name, None)
            if isinstance(layer, nn.Linear) and layer.out_features == embeddings.num_embeddings:
                return name
        if getattr(decoder, "share_input_output_embed", False):
            return None
    raise ConfigurationError(
        f"--shortlist cannot cut the vocabulary of a {type(decoder).__name__}, which has no embeddings and no linear "
        "layer with a row for each word: leave it out"
    )


def cut(model: Any, symbols: Tensor) -> Any:
    """Return a model whose target vocabulary is ``symbols`` alone, in this order; it shares all other parameters."""
    decoder, name = model.decoder, vocabulary_layer(model.decoder)
    if len(symbols) == decoder.embed_tokens.num_embeddings:
        return model
    embeddings = decoder.embed_tokens.weight[symbols]
    stand_ins: dict[nn.Module, nn.Module] = {decoder.embed_tokens: nn.Embedding.from_pretrained(embeddings)}
    if name is not None:
        whole = getattr(decoder, name)
        with torch.device("meta"):
            layer = nn.Linear(whole.in_features, len(symbols), bias=whole.bias is not None)
        tied = whole.weight is decoder.embed_tokens.weight
        layer.weight = nn.Parameter(embeddings if tied else whole.weight[symbols], requires_grad=False)
        if whole.bias is not None:
            layer.bias = nn.Parameter(whole.bias[symbols], requires_grad=False)
        stand_ins[whole] = layer
    for part in copying(model):
        stand_ins[part] = copied = shallow(part)
        copied._buffers = {"symbols": torch.searchsorted(symbols, part.symbols)}  # symbols has all that it copies
    parts: dict[nn.Module, nn.Module] = {decoder: twin(decoder, stand_ins.get)}
    return twin(model, parts.get)


def copying(model: Any) -> list[Copying]:
    """The modules of a model that copy source symbols into the target: one or none."""
    return [part for part in model.decoder.modules() if isinstance(part, Copying)]
