"""No string out of a file is run.

Stock fairseq passes strings of a loaded configuration to ``eval``: ``--decoder-attention`` of its ``lstm``, the
convolutions of ``fconv`` and wav2vec, ``left_pad_source`` of multilingual tasks, and others.  In fairseq's modules
``eval`` is therefore :func:`evaluate`, which computes literals and arithmetic of literals, such as ``[(512, 3)] * 20``,
and refuses everything else.  It also hands the names of FASTA files in a data folder to a shell; there, names that a
shell would not take as they are are refused.
"""

import ast
import functools
import shlex
import sys
from typing import Any

from fairseq.data import FastaDataset

from .configuration import origins

LITERALS = (ast.Expression, ast.Constant, ast.List, ast.Tuple, ast.Set, ast.Dict, ast.Load)
ARITHMETIC = (ast.UnaryOp, ast.UAdd, ast.USub, ast.Not, ast.BinOp, ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv)


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
        f"{origins.get(text, 'an option')} is {text[:200]!r}, which fairseq would run as Python: only literals and "
        "arithmetic with them are accepted there"
    )


def guard_evaluation() -> None:
    """Replace ``eval`` in fairseq's modules, and keep odd names from the shell."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "fairseq":
            setattr(module, "eval", evaluate)  # noqa: B010

    index = getattr(FastaDataset, "_build_index", None)
    if index is None:  # fairseq's main branch has no such step any more
        return

    @functools.wraps(index)
    def build_index(self, path):
        if shlex.quote(path) != path:
            raise ValueError(f"{path}.fasta: fairseq gives this name to a shell, which would not take it as it is")
        return index(self, path)

    FastaDataset._build_index = build_index
