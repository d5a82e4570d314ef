"""No string out of a file is run.

Stock fairseq passes strings of a loaded configuration to ``eval``: ``--decoder-attention`` of its ``lstm``, the
convolutions of ``fconv`` and wav2vec, ``left_pad_source`` of multilingual tasks, and others.  In fairseq's modules
``eval`` is therefore :func:`evaluate`, which computes literals and arithmetic of literals, such as ``[(512, 3)] * 20``,
and refuses everything else.  It also hands the names of FASTA files in a data folder to a shell; there, names that a
shell would not take as they are are refused.
"""

import argparse
import ast
import functools
import shlex
import sys
from collections.abc import Mapping
from typing import Any, Dict, Iterator, Tuple

from fairseq import checkpoint_utils
from fairseq.data import FastaDataset
from omegaconf import OmegaConf

from .damage import check_sums

LITERALS = (ast.Expression, ast.Constant, ast.List, ast.Tuple, ast.Set, ast.Dict, ast.Load)
ARITHMETIC = (ast.UnaryOp, ast.UAdd, ast.USub, ast.Not, ast.BinOp, ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv)

_options: Dict[str, str] = {}  # strings of the checkpoints read so far, and where they stand, for messages


def evaluate(text: Any) -> Any:
    """The value of a literal or of arithmetic with literals, in place of ``eval``.

    Raises:
        ValueError: the string is anything else; the message names the checkpoint and the option it came from.
        TypeError: it is no string, as ``eval`` says it and as fairseq expects it.
    """
    if not isinstance(text, str):
        raise TypeError(f"a string is evaluated, not {type(text).__name__}")
    try:
        tree = ast.parse(text.strip(), mode="eval")
        if all(isinstance(node, LITERALS + ARITHMETIC) for node in ast.walk(tree)):
            return eval(compile(tree, "<option>", "eval"), {"__builtins__": {}})
    except (SyntaxError, ValueError, TypeError, ArithmeticError, RecursionError, MemoryError):
        pass
    raise ValueError(
        f"{_options.get(text, 'an option')} is {text[:200]!r}, which fairseq would run as Python: only literals and "
        "arithmetic with them are accepted there"
    )


def guard_evaluation() -> None:
    """Replace ``eval`` in fairseq's modules, let refusals name the checkpoint, and keep odd names from the shell."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "fairseq":
            setattr(module, "eval", evaluate)  # noqa: B010

    read = checkpoint_utils.load_checkpoint_to_cpu

    @functools.wraps(read)
    def load_checkpoint_to_cpu(path, *args, **kwargs):
        check_sums(path)
        state = read(path, *args, **kwargs)
        for part in ("args", "cfg"):
            for option, text in _strings(state.get(part)):
                _options[text] = f"{path}: option {option}"
                if "${" in text:
                    raise ValueError(
                        f"{_options[text]} is {text[:200]!r}: a checkpoint holds values, no interpolations"
                    )
        return state

    checkpoint_utils.load_checkpoint_to_cpu = load_checkpoint_to_cpu

    index = FastaDataset._build_index

    @functools.wraps(index)
    def build_index(self, path):
        if shlex.quote(path) != path:
            raise ValueError(f"{path}.fasta: fairseq gives this name to a shell, which would not take it as it is")
        return index(self, path)

    FastaDataset._build_index = build_index


def _strings(part: Any, name: str = "") -> Iterator[Tuple[str, str]]:
    """The strings of a nested configuration, interpolations unresolved, and the names of their options."""
    if OmegaConf.is_config(part):
        part = OmegaConf.to_container(part, resolve=False)
    if isinstance(part, argparse.Namespace):
        part = vars(part)
    if isinstance(part, Mapping):
        for key, value in part.items():
            yield from _strings(value, f"{name}.{key}" if name else str(key))
    elif isinstance(part, (list, tuple)):
        for value in part:
            yield from _strings(value, name)
    elif isinstance(part, str):
        yield name, part
