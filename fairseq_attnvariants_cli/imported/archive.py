"""The arrays of a model in numpy's ``.npz``, and the options that are stored with them; no pickle is read."""

import contextlib
import json
import os
import reprlib
import zipfile
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import yaml

from ..text.files import UserError, read_lines

MARIAN = "special:model.yml"  # the array whose bytes are Marian's options
SKIPPED = {"decoder_c_tt", "history_errs", "uidx", "zipped_params"}  # arrays that no equation reads
SHOWN, LONGEST = 5, 100  # most names in a message, and most characters of a name


def shown(value: Any, most: int) -> str:
    """Return a value of JSON or YAML for a message, with ``most`` characters; nested lists may be endless in YAML."""
    return (reprlib.repr(value) if isinstance(value, (list, dict)) else str(value))[:most]


def once(path: str, pairs: Sequence[tuple[Any, Any]]) -> dict[Any, Any]:
    """Return the pairs of a mapping in the file ``path``, of which Python's readers keep the last of equal names.

    Raises:
        UserError: a name is there twice.
    """
    names = [name for name, _ in pairs]
    if len(found := dict(pairs)) < len(pairs):
        twice = next(name for name in names if names.count(name) > 1)
        raise UserError(f"{path}: {str(twice)[:50]!r} is there twice: take out the wrong one")
    return found


class Options(NamedTuple):
    """A toolkit's options of a model."""

    source: str  # the file that has them, for messages
    marian: bool  # Marian's, not Nematus's
    values: dict[str, Any]

    def get(self, *names: str, default: Any = None) -> Any:
        """Return the value of the first of these names that has one, or ``default``."""
        return next((self.values[name] for name in names if self.values.get(name) is not None), default)


class Arrays:
    """Arrays by name, with methods that check the shapes, and that no array is left unread.

    Args:
        path: the file, for messages.
        arrays: all arrays, by name.
    """

    def __init__(self, path: str, arrays: dict[str, np.ndarray]):
        self.path = path
        self.arrays = arrays
        self.left = set(arrays)

    def __contains__(self, name: str) -> bool:
        """Return whether an array has this name."""
        return name in self.arrays

    def shape(self, name: str) -> tuple[int, int]:
        """Return the two sizes of a matrix.

        Raises:
            UserError: no array has this name, or it is not a matrix.
        """
        shape = self._named(name).shape
        if len(shape) != 2 or 0 in shape:
            raise UserError(f"{self.path}: the array {name} is {_size(shape)}, and a matrix is wanted")
        rows, columns = shape
        return rows, columns

    def matrix(self, name: str, rows: int, columns: int) -> np.ndarray:
        """Return a matrix, ``rows x columns``.

        Raises:
            UserError: no array has this name, or it has another shape or values that are not finite.
        """
        return self._taken(name, (rows, columns))

    def vector(self, name: str, size: int) -> np.ndarray:
        """Return a vector; Marian stores it as a matrix of one row.

        Raises:
            UserError: no array has this name, or it has another size or values that are not finite.
        """
        return self._taken(name, (size,), (1, size), (size, 1)).reshape(-1)

    def check_all_read(self) -> None:
        """Refuse a model with unread arrays.

        Raises:
            UserError: there are such arrays; the message names them.
        """
        if self.left:
            raise UserError(
                f"{self.path} has arrays that no model here has an equation for: {_shown(sorted(self.left))}"
            )

    def _named(self, name: str) -> np.ndarray:
        if name not in self.arrays:
            raise UserError(
                f"{self.path} lacks the array {name}: it is damaged, or of another kind of model than Nematus's, or "
                "Marian's of type nematus, amun or s2s"
            )
        return self.arrays[name]

    def _taken(self, name: str, *fitting: tuple[int, ...]) -> np.ndarray:
        array = self._named(name)
        if array.shape not in fitting:
            raise UserError(
                f"{self.path}: the array {name} is {_size(array.shape)}, and with the sizes of the others it has to be "
                f"{_size(fitting[0])}"
            )
        if not np.isfinite(array).all():
            raise UserError(f"{self.path}: the array {name} holds NaN, infinity, or what is too large for float32")
        self.left.discard(name)
        return array


def _size(shape: Sequence[int]) -> str:
    return " x ".join(map(str, shape)) or "a number"


def _shown(names: list[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(name[:LONGEST] for name in names[:SHOWN]) + more


def read_arrays(path: str) -> dict[str, np.ndarray]:
    """Read the arrays of a file, without those of an optimizer.

    All except Marian's options are rounded to float32 and kept in float64, in which products are computed.

    Raises:
        UserError: the file cannot be read, is damaged, or has arrays of anything except plain numbers.
    """
    if path.endswith(".bin"):
        raise UserError(f"{path} is a binary of Marian: make an .npz of it with marian convert -f {path} -t MODEL.npz")
    found: dict[str, np.ndarray] = {}
    try:
        with zipfile.ZipFile(path) as members:
            damaged = members.testzip()  # numpy reads no checksum
        if damaged is not None:
            raise UserError(f"{path} is damaged: the checksum of {damaged} is another one")
        with np.load(path, allow_pickle=False) as archive:
            for name in archive.files:
                if archive.files.count(name) > 1:
                    raise UserError(f"{path} has the array {name} twice: it is damaged")
                if name in SKIPPED or name.startswith("adam"):
                    continue
                array = archive[name]
                if array.dtype.kind not in ("fiu" if name == MARIAN else "f"):
                    raise UserError(
                        f"{path}: the array {name} is of {array.dtype}, and only numbers of float16, float32 and "
                        "float64 are read: give the model before it was quantised"
                    )
                with np.errstate(over="ignore"):  # a number that is too large becomes infinite, which is refused
                    found[name] = array if name == MARIAN else array.astype(np.float32).astype(np.float64)
    except UserError:
        raise
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}") from error
    except Exception as error:  # a damaged file can raise any error
        raise UserError(
            f"{path} is no .npz with arrays of numbers, or is damaged ({type(error).__name__}); arrays of Python's "
            "objects are not read, because they can run programs"
        ) from None
    return found


def read_options(path: str, arrays: dict[str, np.ndarray], given: str | None) -> Options:
    """Return the options of a model: Marian's are among the arrays, Nematus's in a file, ``given`` or ``PATH.json``.

    Raises:
        UserError: the options cannot be read, or ``given`` names a file for a model of Marian.
    """
    if MARIAN in arrays:
        if given is not None:
            raise UserError(f"--config {given}: {path} is of Marian and holds its options itself, leave it out")
        stored = arrays.pop(MARIAN).tobytes().rstrip(b"\0")
        where = f"{path}, {MARIAN}"
        return Options(where, True, _mapping(where, lambda: yaml.safe_load(stored.decode())))
    beside = f"{path}.json"
    if given is None and not os.path.isfile(beside):
        return Options(path, False, {})
    where = given or beside
    return Options(where, False, _mapping(where, lambda: read_json(where)))


def read_json(path: str) -> Any:
    """Read a JSON file.

    Raises:
        UserError: the file cannot be read, or a name is there twice.
        ValueError, RecursionError: the file is no JSON.
    """
    return json.loads("\n".join(read_lines(path)), object_pairs_hook=lambda pairs: once(path, pairs))


def _mapping(where: str, read: Any) -> dict[str, Any]:
    content: Any = None
    with contextlib.suppress(ValueError, yaml.YAMLError, RecursionError):
        content = read()
    if not isinstance(content, dict):
        raise UserError(f"{where} holds no options: a mapping of names to values is wanted")
    return content
