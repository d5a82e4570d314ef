"""Strings from files are never run as Python or by a shell.

Stock fairseq passes strings of a loaded configuration to ``eval``: ``--decoder-attention`` of its ``lstm``, the
convolutions of ``fconv`` and wav2vec, ``left_pad_source`` of multilingual tasks, and others.  In fairseq's modules
``eval`` is therefore :func:`evaluate`, which computes literals and arithmetic with literals, such as
``[(512, 3)] * 20``, and refuses everything else.  fairseq also passes the names of FASTA files in a data folder to a
shell.  A name that a shell would change is refused.
"""

import ast
import operator
import shlex
import sys
from collections.abc import Callable
from typing import Any

from fairseq.data import FastaDataset

from ...registry import ConfigurationError
from ..replaced import replaces
from .configuration import origins

LONGEST = 10_000  # the most elements of a product of a sequence and a number
OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.UAdd: operator.pos, ast.USub: operator.neg, ast.Not: operator.not_,
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
    ast.Div: operator.truediv, ast.FloorDiv: operator.floordiv,
}  # fmt: skip
SEQUENCES: dict[type[ast.AST], Callable[..., Any]] = {ast.List: list, ast.Tuple: tuple, ast.Set: set}


def evaluate(text: Any) -> Any:
    """The value of a literal or of arithmetic with literals; it replaces ``eval``.

    Raises:
        ConfigurationError: the string is anything else; the message names the checkpoint and the option, if known.
        TypeError: it is no string; fairseq expects this error of ``eval``.
    """
    if not isinstance(text, str):
        raise TypeError(f"a string is evaluated, not {type(text).__name__}")
    try:
        return _value(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, TypeError, LookupError, ArithmeticError, RecursionError, MemoryError):
        raise ConfigurationError(
            f"{origins.get(text, 'an option')} is {text[:200]!r}, which fairseq would run as Python: only literals and "
            "arithmetic with them are accepted there"
        ) from None


def _value(node: Any) -> Any:
    """Return the value of a node of a syntax tree.

    Raises:
        LookupError: it is neither a literal nor arithmetic.
        ValueError: a product has more than :data:`LONGEST` elements.
        Exception: the arithmetic raises it.
    """
    if isinstance(node, ast.Constant):
        return node.value
    if type(node) in SEQUENCES:
        return SEQUENCES[type(node)](map(_value, node.elts))
    if isinstance(node, ast.Dict):
        return dict(zip(map(_value, node.keys), map(_value, node.values)))
    if isinstance(node, ast.UnaryOp):
        return OPERATORS[type(node.op)](_value(node.operand))
    if not isinstance(node, ast.BinOp):
        raise LookupError(type(node).__name__)
    left, right = _value(node.left), _value(node.right)
    sizes = [len(side) if hasattr(side, "__len__") else side for side in (left, right)]
    if isinstance(node.op, ast.Mult) and sizes != [left, right] and sizes[0] * sizes[1] > LONGEST:
        raise ValueError(f"a product of {sizes[0]} and {sizes[1]}")
    return OPERATORS[type(node.op)](left, right)


def replace_eval() -> None:
    """Replace ``eval`` in fairseq's modules."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "fairseq":
            setattr(module, "eval", evaluate)  # noqa: B010


if hasattr(FastaDataset, "_build_index"):  # fairseq's main branch no longer has this method

    @replaces(FastaDataset, "_build_index")
    def build_index(index, self, path):
        """Refuse names that a shell would change.

        Raises:
            ConfigurationError: the name is not safe for a shell.
        """
        if shlex.quote(path) != path:
            raise ConfigurationError(
                f"{path}.fasta: fairseq gives this name to a shell, which would not take it as it is"
            )
        return index(self, path)
