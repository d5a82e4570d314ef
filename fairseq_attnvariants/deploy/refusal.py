"""The reason why a model cannot be exported, and the line of code that is the cause."""

import contextlib
import os
import re
import sysconfig
import traceback
from collections.abc import Iterator
from importlib import util
from pathlib import Path

import torch

from ..registry import ConfigurationError

LINES = re.compile(r'File "([^"]+)", line (\d+)')
NAMES = "torch", "onnx_ir", "onnxscript", "fairseq"
LIBRARIES = [Path(__file__).parent, Path(sysconfig.get_path("stdlib"))]
LIBRARIES += [Path(spec.origin).parent for spec in map(util.find_spec, NAMES) if spec and spec.origin]


@contextlib.contextmanager
def lengths_refused() -> Iterator[None]:
    """Refuse ``len(tensor)`` of a free size: the graph would have the example's length for every batch."""
    plain = torch.Tensor.__len__

    def length(tensor: torch.Tensor) -> int:
        if tensor.dim() and isinstance(tensor.size(0), torch.SymInt):
            raise ConfigurationError("len(tensor) is a number, and the same for every batch: write tensor.size(0)")
        return plain(tensor)

    torch.Tensor.__len__ = length  # type: ignore[method-assign]
    try:
        yield
    finally:
        torch.Tensor.__len__ = plain  # type: ignore[method-assign]


def chain(error: BaseException | None) -> Iterator[BaseException]:
    """An error and its causes, the first cause last."""
    while error is not None:
        yield error
        error = error.__cause__


def why(error: BaseException) -> str:
    """The first line of the first cause."""
    *_, first = chain(error)
    lines = [line.strip(" -") for line in str(first).splitlines() if line.strip(" -")]
    if len(lines) > 1 and lines[0].startswith("Constraints violated"):  # the next line says which
        lines.pop(0)
    return lines[0] if lines else type(first).__name__


def part(error: BaseException) -> str:
    """The innermost line of an error in the model's code, with class and file, in parentheses; empty if unknown."""
    found = told = ""
    for one in chain(error):
        for frame, line in traceback.walk_tb(one.__traceback__):
            if of_model(frame.f_code.co_filename):
                owner = [type(frame.f_locals["self"]).__name__] if "self" in frame.f_locals else []
                found = place(frame.f_code.co_filename, line, *owner)
        for path, number in LINES.findall(str(one)):  # lines that only the exporter's message names
            told = place(path, int(number)) if of_model(path) else told
    return found or told


def of_model(path: str) -> bool:
    """Whether a file is of a model: neither a library's nor in this folder."""
    parents = Path(path).parents
    return not any(folder in parents for folder in LIBRARIES) and Path(path).is_file()


def place(path: str, line: int, *owner: str) -> str:
    """A line of a file, with its class if there is one, in parentheses."""
    return f" ({', '.join([*owner, os.sep.join(Path(path).parts[-2:]), f'line {line}'])})"
