"""Embeddings that were trained elsewhere, as word2vec, fastText and GloVe write them."""

import logging
import os

import torch
from torch import Tensor, nn

from ..architectures.options import AttentionRNNConfig, flag
from ..registry import ConfigurationError, in_folder

logger = logging.getLogger(__name__)


def load_embeddings(layer: nn.Embedding, dictionary, side: str, cfg: AttentionRNNConfig) -> str:
    """Read embeddings from a file, if there is a path, and freeze the layer if asked to.

    Args:
        side: ``encoder`` or ``decoder``, which options to read.

    Returns:
        why the file cannot be used, or an empty text.  This is no error yet, because a model that is loaded from its
        checkpoint does not need the file.
    """
    path, option = getattr(cfg, f"{side}_embed_path"), flag(f"{side}_embed_path")
    layer.weight.requires_grad_(not getattr(cfg, f"{side}_freeze_embed"))
    if not path:
        return ""
    if not os.path.isfile(path):
        return f"{option} {path}: there is no such file{in_folder(path)}"
    try:
        vectors = read_vectors(path, dictionary, layer.embedding_dim)
    except ConfigurationError as error:
        return f"{option} {path}{error}"
    except OSError as error:
        return f"{option} {path} cannot be read: {error.strerror}"
    words = len(dictionary) - dictionary.nspecial
    if not vectors:
        return f"{option} {path} has none of the {words} words of the dictionary: are they written alike?"
    logger.info(f"{option}: {path} has {len(vectors)} of the {words} words of the dictionary")
    with torch.no_grad():
        for number, vector in vectors.items():
            layer.weight[number] = vector
    return ""


def numbers(texts: list[str]) -> list[float]:
    """Numbers from their texts, or none if one of these is something else."""
    try:
        return [float(text) for text in texts]
    except ValueError:
        return []


def read_vectors(path: str, dictionary, width: int) -> dict[int, Tensor]:
    """The vectors of a dictionary's symbols, by number.

    A line is a word, which may contain spaces, and its numbers.  The first line may give the vectors' count and width.

    Raises:
        ConfigurationError: a line is something else, or vectors have another width.  The text continues
            a sentence that begins with the option and the file.
        OSError: the file cannot be read.
    """
    found: dict[int, Tensor] = {}
    count, number = "", 0
    with open(path, encoding="utf-8", errors="replace", newline="\n") as lines:
        for number, line in enumerate(lines, start=1):
            first = line.split() if number == 1 else []
            if width > 1 and len(first) == 2 and all(map(str.isdecimal, first)):
                count = first[0].lstrip("0")
                if first[1].lstrip("0") != str(width):  # as text: Python refuses numbers of thousands of digits
                    raise ConfigurationError(f" has vectors of width {first[1][:20]}, but the model's is {width}")
                continue
            word, *values = line.rstrip().rsplit(" ", width)
            symbol = dictionary.index(word)
            vector = torch.tensor(numbers(values))
            if first and (len(vector) != width or (symbol == dictionary.unk() and len(numbers(first[1:])) > width)):
                raise ConfigurationError(f" has vectors of width {len(first) - 1}, but the model's is {width}")
            if len(vector) != width:
                raise ConfigurationError(f", line {number}: not a word and {width} numbers with spaces between")
            if not vector.isfinite().all():
                raise ConfigurationError(f", line {number}: a number that is NaN, infinite or too large for float32")
            if symbol != dictionary.unk():
                found[symbol] = vector
    if count and count != str(number - 1):
        logger.warning(f"{path} has {number - 1} vectors, and {count[:20]} by its first line: is it cut off?")
    return found
