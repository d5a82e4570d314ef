"""Why a model cannot be exported, and which of its parts is in the way."""

import contextlib
import os
import re
import sysconfig
import traceback
from importlib import util
from pathlib import Path
from typing import Iterator, Optional

import torch

from ..registry import ConfigurationError

LINES = re.compile(r'File "([^"]+)", line (\d+)')
NAMES = "torch", "onnx_ir", "onnxscript", "fairseq"
LIBRARIES = [Path(__file__).parent, Path(sysconfig.get_path("stdlib"))]
LIBRARIES += [Path(spec.origin).parent for spec in map(util.find_spec, NAMES) if spec and spec.origin]


@contextlib.contextmanager
def lengths_refused() -> Iterator[None]:
    """Refuse ``len(tensor)`` of a size that is free, which would be the example's ever after."""
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


def chain(error: Optional[BaseException]) -> Iterator[BaseException]:
    """An error and its causes, the first cause last."""
    while error is not None:
        yield error
        error = error.__cause__


def why(error: BaseException) -> str:
    """The first line of the first cause."""
    *_, first = chain(error)
    lines = [line.strip(" -") for line in str(first).splitlines() if line.strip(" -")]
    if len(lines) > 1 and lines[0].startswith("Constraints violated"):  # and the next line says which
        lines.pop(0)
    return lines[0] if lines else type(first).__name__


def part(error: BaseException) -> str:
    """The innermost line of a part of the model, and whose it is, in parentheses; nothing if none is known."""
    found = told = ""
    for one in chain(error):
        for frame, line in traceback.walk_tb(one.__traceback__):
            if of_model(frame.f_code.co_filename):
                owner = [type(frame.f_locals["self"]).__name__] if "self" in frame.f_locals else []
                found = place(frame.f_code.co_filename, line, *owner)
        for path, number in LINES.findall(str(one)):  # what the exporter says of a line that it has lost
            told = place(path, int(number)) if of_model(path) else told
    return found or told


def of_model(path: str) -> bool:
    """Whether a file is neither a library's nor of this folder."""
    parents = Path(path).parents
    return not any(folder in parents for folder in LIBRARIES) and Path(path).is_file()


def place(path: str, line: int, *owner: str) -> str:
    """A line, in parentheses."""
    return f" ({', '.join([*owner, os.sep.join(Path(path).parts[-2:]), f'line {line}'])})"
