"""Demands, their table, and their findings."""

import inspect
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..systems.user_dirs import raised_at
from ..text.files import reason
from .outcome import NOT_FINITE, Broken, NotApplicable, quiet
from .subject import Output, Subject

RTOL, ATOL = 3e-5, 1e-5  # tolerances for two ways of computing in float32
SHIFTED = ": they are shifted by the padding"


class Finding(NamedTuple):
    """The result of a demand."""

    holds: bool | None  # None if the demand does not apply
    found: str  # by how much it fails, or why it does not apply


class Demand(NamedTuple):
    """A property of models that fairseq or its users rely on."""

    text: str  # the property
    means: str  # the consequence for a user if it does not hold
    function: Callable[[Subject], None]  # raises Broken, NotApplicable or an error of the model

    def __call__(self, subject: Subject) -> Finding:
        """Test the demand; an error of the model is a failure."""
        try:
            with quiet():
                self.function(subject)
        except NotApplicable as why:
            return Finding(None, str(why))
        except Broken as how:
            return Finding(False, f"{how}{subject.hint(str(how))}")
        except Exception as error:  # a custom model can raise any error
            kind, message = type(error).__name__, reason(error)
            message = kind if message == kind else f"{kind}: {message}"
            return Finding(False, f"{message}{raised_at(error)}{subject.hint(message)}")
        return Finding(True, "")


ADDED: dict[str, Demand] = {}


def demand(function: Callable[[Subject], None]) -> Callable[[Subject], None]:
    """Add a function to :data:`ADDED`, by its name.

    Its docstring gives the property after ``Demand:``, and the consequence if it does not hold after ``Otherwise:``.
    """
    said = dict(re.findall(r"^(\w+): (.*(?:\n    .*)*)", inspect.cleandoc(function.__doc__ or ""), re.MULTILINE))
    text, means = (" ".join(said.get(label, "").split()) for label in ("Demand", "Otherwise"))
    ADDED[function.__name__.replace("_", "-")] = Demand(text, means, function)
    return function


def close(found: Any, expected: Any, what: str, rtol: float = RTOL, atol: float = ATOL) -> None:
    """Refuse tensors that differ by more than rounding errors. Two Nones are equal.

    Raises:
        Broken: the tensors differ; the message has the largest difference.
    """
    if found is None or expected is None:
        if found is not expected:
            raise Broken(f"{what} are returned in one pass and missing in the other")
        return
    if found.shape != expected.shape:
        raise Broken(f"{what} have the shape {tuple(found.shape)}, not {tuple(expected.shape)}")
    finite(found, what)
    difference = (found.double() - expected.double()).abs()
    if (difference > atol + rtol * expected.double().abs()).any():
        raise Broken(f"{what} differ by up to {difference.max():.2g}")


def agree(found: Output, expected: Output, what: str = "") -> None:
    """Refuse outputs that differ by more than rounding errors."""
    close(found.scores, expected.scores, f"log-probabilities{what}")
    close(found.attention, expected.attention, f"weights of attention{what}")


def shifted(found: Tensor, real: Tensor, expected: Tensor) -> bool:
    """Return whether weights, ``T x S``, that belong in the ``real`` columns are at the other end of the columns.

    Args:
        found: weights of a source with padding.
        real: whether each position of the source is not padding, ``S``.
        expected: weights of the source without padding, ``T x`` its length.
    """
    other = found[:, real.flip(0)]
    return other.shape == expected.shape and torch.allclose(other.double(), expected.double(), RTOL, ATOL)


def finite(values: Tensor, what: str) -> None:
    """Refuse NaN and infinity.

    Raises:
        Broken: a value is NaN or infinite.
    """
    if not torch.isfinite(values).all():
        raise Broken(f"{what} {NOT_FINITE}")
