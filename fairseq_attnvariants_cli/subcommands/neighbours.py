"""``fairseq-attnvariants neighbours``: the target words nearest to mapped source words (Kuang et al. 2018, table 7).

The direct bridge's ``W`` maps a source embedding to the space of target embeddings. The neighbours of a source word
``x`` are the target words ``y`` of smallest ``||W x - y||`` (eq. 4).
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..options import DataOptions, OneModel, check_distinct, numeric, option, positive
from ..shown.tables import TableOptions, tables
from ..text.files import UserError
from ..text.lexicon import read_lexicon

if TYPE_CHECKING:
    from ..systems.model import System


@dataclass
class Options(TableOptions, DataOptions, OneModel):
    """Print the target words nearest to source words, by the Euclidean distance of embeddings. The direct bridge maps
    the source embedding first. By default the source words are the most frequent ones in the dictionary; a joined
    dictionary counts both languages.

    example: fairseq-attnvariants neighbours data-bin --path checkpoint_best.pt --top 3 --lexicon lexicon.en-de.tsv
    --table table7.csv

    Args:
        path: the model
        words: source words (default: the most frequent)
        count: or how many of the most frequent
        top: target words for each source word
        lexicon: table made by lexicon, shown next to the neighbours
    """

    words: list[str] | None = option("WORD", nargs="+", group="which")
    count: int = numeric(10, type=positive, group="which")
    top: int = numeric(1, "K", positive)
    lexicon: str | None = option("TABLE")


class Neighbour(NamedTuple):
    """A row of the table."""

    source: str
    frequency: int  # of the source word, in the dictionary
    rank: int  # from 1
    target: str
    distance: float
    lexicon: str | None  # the lexical table's translation of the source word


def words(dictionary) -> list[int]:
    """Return the entries of a dictionary that are words: neither special symbols nor fillers (``madeupword0000``)."""
    return [
        k
        for k in range(dictionary.nspecial, len(dictionary))
        if dictionary.count[k] or not re.fullmatch(r"madeupword\d{4}", dictionary[k])
    ]


def most_frequent(dictionary, count: int) -> list[str]:
    """Return the ``count`` most frequent words; equally frequent words are in the dictionary's order."""
    return [dictionary[k] for k in sorted(words(dictionary), key=lambda k: -dictionary.count[k])[:count]]


def nearest(mapped: np.ndarray, embeddings: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return distances and numbers, ``N x count``, of the rows of ``V x m`` nearest to each row of ``N x m``."""
    from scipy.spatial.distance import cdist

    size = len(mapped), min(count, len(embeddings))
    distances, places = np.empty(size), np.empty(size, dtype=int)
    for k in range(len(mapped)):  # N x V distances would fill the memory
        row = cdist(mapped[k : k + 1], embeddings)[0]
        places[k] = row.argsort(kind="stable")[:count]
        distances[k] = row[places[k]]
    return distances, places


def neighbours(
    system: "System", sources: Sequence[str], count: int, lexicon: Mapping[str, str] | None = None
) -> list[Neighbour]:
    """Return the ``count`` nearest target words of each source word.

    Raises:
        UserError: a word is none of the source dictionary, such as ``</s>``; or the model has no direct bridge.
    """
    dictionary, others = system.task.source_dictionary, system.task.target_dictionary
    known = {*words(dictionary)}
    for word in sources:
        if dictionary.index(word) not in known:
            raise UserError(f"--words: {word!r} is no word of the source dictionary: leave it out")
    encoder, decoder = system.model.encoder, system.model.decoder
    if getattr(decoder, "bridge", None) is None:
        raise UserError(f"{system.path}: the model has no direct bridge, as --arch bridge_direct has")
    numbers = [dictionary.index(word) for word in sources]
    mapped = decoder.bridge.projection(encoder.embed_tokens.weight[numbers])
    candidates = words(others)
    vectors = [tensor.detach().float().cpu().numpy() for tensor in (mapped, decoder.embed_tokens.weight[candidates])]
    distances, places = nearest(vectors[0], vectors[1], count)
    table = lexicon or {}
    return [
        Neighbour(word, dictionary.count[number], rank, others[candidates[place]], distance, table.get(word))
        for word, number, row in zip(sources, numbers, zip(distances.tolist(), places.tolist()), strict=True)
        for rank, (distance, place) in enumerate(zip(*row), start=1)
    ]


def run(options: Options) -> None:
    """Load the model, find the neighbours, and print the table."""
    check_distinct("--words", options.words or [])
    lexicon = read_lexicon(options.lexicon) if options.lexicon else None
    with tables(options.json, neighbours=options.table) as write:
        from ..systems.model import load

        system = load(options.path, options.data, options.cpu)
        sources = options.words or most_frequent(system.task.source_dictionary, options.count)
        rows = neighbours(system, sources, options.top, lexicon)
        headers = Neighbour._fields if options.lexicon else Neighbour._fields[:-1]
        write("neighbours", headers, [row[: len(headers)] for row in rows], {"distance": 4})
