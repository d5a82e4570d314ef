"""Loading a file never runs code from it, whatever the environment or the caller says.

Stock fairseq calls ``torch.load`` with its defaults.  ``TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD=1`` makes that run code from
the file, and so would ``weights_only=False`` in a changed fairseq.  In fairseq's modules that load files, ``torch`` is
therefore :class:`Torch`, whose ``load`` is :func:`load` or :func:`load_checkpoint`: always ``weights_only=True``.
``torch.load`` of other code does not change, and neither do the classes that other code has allowed, in any thread:
torch gets its list of allowed classes from a function, which returns ours while :func:`load` reads a file in a thread.

Besides tensors, stock fairseq writes ``argparse.Namespace`` (for every component without a dataclass) and, with
``--eval-bleu``, numpy arrays of numbers.  numpy's functions never get unchecked content of a file, because they would
make objects at addresses that the file names.  :class:`Array` and :class:`DType` replace them and check it first.
"""

import argparse
import contextlib
import contextvars
import functools
import importlib
import logging
import math
import os
import re
import tarfile
import types
import zipfile
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import torch
from fairseq import checkpoint_utils
from fairseq.distributed import utils as distributed
from omegaconf import OmegaConf

from ...models.hub import PLAIN
from ...registry import ConfigurationError
from ..environment import release
from ..replaced import replaces
from .configuration import as_dict, check_configuration, update_configuration
from .plain import load as load_plain

logger = logging.getLogger(__name__)

OTHERS = (  # modules of fairseq that load other files than checkpoints, most of them for speech
    "fairseq.data.codedataset",
    "fairseq.models.speech_to_text.xm_transformer",
    "fairseq.models.text_to_speech.vocoder",
    "fairseq.modules.quantization.pq.em",
)
WITHOUT_HOLES = (2, 10)  # the first torch in which CVE-2025-32434 and CVE-2026-24747 are fixed
PLAIN_NUMBERS = re.compile(r"b1|[iu][1248]|f[248]")
GLOBAL = re.compile(r"GLOBAL ([\w.]+)|function <[^>]*?([\w.]+)( at \w+)?>")
CAN_ALLOW = hasattr(torch._weights_only_unpickler, "_get_user_allowed_globals")  # torch 2.4 and later


class Stored:
    """A value stored by numpy, not checked yet: nothing is computed while a file is being read."""

    state: Any = None
    value: Callable[[], Any]  # a method of each subclass: numpy's value, or ValueError if it is more than plain numbers
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, *arguments: Any):
        self.arguments = arguments

    def __setstate__(self, state: Any) -> None:
        """Keep the state for :meth:`value`."""
        self.state = state


class DType(Stored):
    """Replaces ``numpy.dtype``."""

    def value(self) -> numpy.dtype:
        """A plain numeric dtype, whose state holds only the byte order."""
        code, *_ = self.arguments
        orders = [(3, order, None, None, None, -1, -1, 0) for order in "<>|="]
        if not (isinstance(code, str) and PLAIN_NUMBERS.fullmatch(code) and self.state in (None, *orders)):
            raise ValueError("not of plain numbers")
        return numpy.dtype(code if self.state is None else self.state[1] + code)


class Array(Stored):
    """Replaces ``numpy.ndarray`` and the function that makes an empty one."""

    def value(self) -> numpy.ndarray:
        """An array with newly allocated memory and as many numbers as its shape says."""
        _, shape, dtype, columns_first, data = self.state
        dtype = dtype.value()
        if any(type(size) is not int or size < 0 for size in shape):
            raise ValueError("sizes that are none")
        if type(data) is not bytes or math.prod(shape) * dtype.itemsize != len(data):
            raise ValueError("of another size than its content")
        return numpy.frombuffer(data, dtype).reshape(shape, order="F" if columns_first else "C").copy()


class Scalar(Stored):
    """Replaces the function that makes one number."""

    def value(self) -> numpy.generic:
        """The number."""
        dtype, data = self.arguments
        [number] = numpy.frombuffer(data, dtype.value())
        return number


# the names in a file, and what is made instead
ALLOWED: dict[str, type] = {"argparse.Namespace": argparse.Namespace, "numpy.dtype": DType, "numpy.ndarray": Array}
# numpy 2 moved these functions, and a checkpoint may come from an older or newer numpy than the one that reads it
for core in ("core", "_core"):
    ALLOWED[f"numpy.{core}.multiarray._reconstruct"] = Array
    ALLOWED[f"numpy.{core}.multiarray.scalar"] = Scalar

_allowed: contextvars.ContextVar[dict[str, type] | None] = contextvars.ContextVar("allowed", default=None)


@contextlib.contextmanager
def allowed(kinds: dict[str, type]) -> Iterator[None]:
    """Let torch make objects of ``kinds`` only, by their names in a file, in the block and in this thread.

    torch's list of allowed classes, which holds for the process, does not change.
    """
    token = _allowed.set(kinds)
    try:
        yield
    finally:
        _allowed.reset(token)


def load(file: Any, map_location: Any = "cpu", **ignored: Any) -> Any:
    """Load the tensors and plain data of a file instead of ``torch.load``, whose other arguments have no effect.

    Args:
        file: a path, or a stream, whose name is then the path.
        map_location: as in ``torch.load``.
        ignored: other arguments of ``torch.load``, such as ``weights_only``.

    Raises:
        OSError: the file cannot be read.
        ConfigurationError: it holds anything else, or is damaged; the message is one sentence that names the file.
    """
    path = file if isinstance(file, (str, os.PathLike)) else getattr(file, "name", None)
    path = os.fspath(path) if isinstance(path, (str, os.PathLike)) else "what is loaded"
    _warn_of_holes()
    if os.path.isfile(path):
        if zipfile.is_zipfile(path) and not is_whole(path):  # a file that is cut off is no archive; torch refuses it
            raise ConfigurationError(f"{path}: damaged, its content is not what was written")
        if _is_tar(path):
            raise ConfigurationError(f"{path}: not loaded: it is a tar archive, from a torch before 0.1.10")
    try:
        with allowed(ALLOWED):
            content = torch.load(file, map_location=map_location, weights_only=True)
        return _checked(content, {})
    except OSError:
        raise
    except Exception as error:  # a damaged file can cause any error
        raise ConfigurationError(f"{path}: {_reason(error)}") from None  # torch's message advises to run the file


def load_checkpoint(file: Any, map_location: Any = "cpu", **ignored: Any) -> dict[str, Any]:
    """Load a checkpoint of fairseq with :func:`load`, and check that its configuration holds plain values.

    :func:`~.plain.load` reads ``model.safetensors`` in a folder of plain files.

    Raises:
        OSError: the file cannot be read.
        ConfigurationError: it is no checkpoint of this kind; the message is one sentence that names the file.
    """
    path = os.fspath(file) if isinstance(file, (str, os.PathLike)) else getattr(file, "name", "the checkpoint")
    plain = os.path.basename(str(path)) == PLAIN
    state = load_plain(os.path.dirname(path)) if plain else load(file, map_location)
    if not _is_checkpoint(state):
        raise ConfigurationError(f"{path} is not a checkpoint of fairseq 0.12")
    for name in state["model"]:
        if not name.isprintable():
            raise ConfigurationError(f"{path}: the parameter {name[:200]!a} has a name that cannot be printed")
    check_configuration(path, state)
    update_configuration(path, state)
    return state


def is_whole(path: str) -> bool:
    """Whether a checkpoint is complete and unchanged since it was written, by checksums that torch does not compare."""
    try:
        with zipfile.ZipFile(path) as archive:
            # torch never compresses; a few compressed bytes can expand to more than the memory holds
            stored = all(part.compress_type == zipfile.ZIP_STORED for part in archive.infolist())
            return stored and archive.testzip() is None
    except Exception:  # a damaged archive can cause any error
        return False


def _is_tar(path: str) -> bool:
    with contextlib.suppress(Exception), tarfile.open(path, "r:"):
        return True
    return False


def _is_checkpoint(state: Any) -> bool:
    if not isinstance(state, dict) or not isinstance(state.get("model"), dict):
        return False
    fits = all(isinstance(name, str) and torch.is_tensor(value) for name, value in state["model"].items())
    history, extra = state.get("optimizer_history", [{}]), state.get("extra_state", {})
    fits &= isinstance(history, list) and bool(history) and all(isinstance(part, dict) for part in history)
    return fits and isinstance(extra, dict) and (state.get("args") is not None or state.get("cfg") is not None)


def _checked(part: Any, seen: dict[int, Any]) -> Any:
    """Replace placeholders by numpy's values, in place except in tuples, and check the tensors' sizes."""
    if isinstance(part, Stored):
        return part.value()
    if isinstance(part, torch.Tensor):
        _check_size(part)
    if not isinstance(part, (dict, list, tuple, argparse.Namespace)):
        return part
    if id(part) in seen:
        return seen[id(part)]
    seen[id(part)] = part
    if isinstance(part, tuple):
        values = [_checked(value, seen) for value in part]
        if any(one is not other for one, other in zip(values, part, strict=True)):
            seen[id(part)] = tuple(values)
        return seen[id(part)]
    content = as_dict(part)
    for key, value in list(enumerate(part) if isinstance(part, list) else content.items()):
        new = _checked(value, seen)
        if new is not value:
            content[key] = new
    return part


def _check_size(tensor: torch.Tensor) -> None:
    """Refuse a tensor that repeats a few stored numbers: a copy of it would fill the memory."""
    plain = tensor.layout == torch.strided and tensor.device.type == "cpu" and not tensor.is_quantized
    if plain and tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
        raise ValueError("a tensor of more numbers than are stored")


def _reason(error: Exception) -> str:
    asked = GLOBAL.search(str(error))
    if asked is None:
        return f"not loaded: it is damaged or no checkpoint ({type(error).__name__})"
    name = asked[1] or asked[2]
    if name in ALLOWED:
        return f"it holds {name}, which torch {torch.__version__} cannot load safely: use 2.4 or later"
    return f"not loaded: it asks for {name}, and a checkpoint holds nothing but tensors and plain data"


@functools.cache
def _warn_of_holes() -> None:
    if release(torch.__version__) < WITHOUT_HOLES:
        logger.warning(
            f"torch {torch.__version__} has known security holes in its safe loading (CVE-2026-24747, and up to 2.5.1 "
            "CVE-2025-32434), fixed in 2.10: load only checkpoints that you trust"
        )


class Torch(types.ModuleType):
    """The module ``torch`` with another ``load``."""

    def __init__(self, load: Any):
        super().__init__("torch")
        self.load = load

    def __getattr__(self, name: str) -> Any:
        """Everything else comes from torch."""
        return getattr(torch, name)


def load_broadcast(buffer: Any, map_location: Any = None, **ignored: Any) -> Any:
    """Load the checkpoint that the first process sends to the others, and that it has loaded with :func:`load`.

    It holds only checked content of a file and, instead of tensors, fairseq's placeholders.  So before torch 2.4, which
    cannot allow these, ``weights_only`` is False.
    """
    if not CAN_ALLOW:
        return torch.load(buffer, map_location=map_location, weights_only=False)
    with allowed({**ALLOWED, "fairseq.distributed.utils._TensorPlaceholder": distributed._TensorPlaceholder}):
        return _checked(torch.load(buffer, map_location=map_location, weights_only=True), {})


for name in OTHERS:
    importlib.import_module(name).torch = Torch(load)  # type: ignore[attr-defined]
checkpoint_utils.torch = Torch(load_checkpoint)
distributed.torch = Torch(load_broadcast)

if CAN_ALLOW:

    @replaces(torch._weights_only_unpickler, "_get_user_allowed_globals")
    def get_user_allowed_globals(get) -> dict[str, Any]:
        """The classes that :func:`allowed` allows in this thread; outside its block, those on torch's list."""
        mine = _allowed.get()
        return get() if mine is None else mine


@replaces(distributed, "_split_tensors_from_obj")
def split_tensors_from_obj(split, obj, tensors):
    """Turn omegaconf's configurations into plain data before a checkpoint is broadcast."""
    return split(OmegaConf.to_container(obj) if OmegaConf.is_config(obj) else obj, tensors)
