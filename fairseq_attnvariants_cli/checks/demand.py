"""Demands, their table, and what is found of them."""

import inspect
import re
from typing import Any, Callable, Dict, NamedTuple, Optional

import torch
from torch import Tensor

from ..systems.user_dirs import raised_at
from ..text.files import reason
from .outcome import Broken, NotApplicable, quiet
from .subject import Output, Subject

RTOL, ATOL = 3e-5, 1e-5  # of float32 that two ways of computing leave
SHIFTED = ": they are shifted by the padding"


class Finding(NamedTuple):
    """The result of a demand."""

    holds: Optional[bool]  # None where it does not apply
    found: str  # by how much it fails, or why it does not apply


class Demand(NamedTuple):
    """Something that fairseq, or who uses it, takes for granted."""

    text: str  # what holds
    means: str  # to a user, where it does not hold
    function: Callable[[Subject], None]  # raises Broken, NotApplicable or an error of the model

    def __call__(self, subject: Subject) -> Finding:
        """Try it; an error of the model is a failure."""
        try:
            with quiet():
                self.function(subject)
        except NotApplicable as why:
            return Finding(None, str(why))
        except Broken as how:
            return Finding(False, f"{how}{subject.hint()}")
        except Exception as error:  # whatever a model of somebody's own raises
            kind, message = type(error).__name__, reason(error)
            message = kind if message == kind else f"{kind}: {message}"
            return Finding(False, f"{message}{raised_at(error)}{subject.hint()}")
        return Finding(True, "")


ADDED: Dict[str, Demand] = {}


def demand(function: Callable[[Subject], None]) -> Callable[[Subject], None]:
    """Add a function to :data:`ADDED`, by its name.

    Its docstring says what holds, after ``Demand:``, and what it means where that does not, after ``Otherwise:``.
    """
    said = dict(re.findall(r"^(\w+): (.*(?:\n    .*)*)", inspect.cleandoc(function.__doc__ or ""), re.MULTILINE))
    text, means = (" ".join(said.get(label, "").split()) for label in ("Demand", "Otherwise"))
    ADDED[function.__name__.replace("_", "-")] = Demand(text, means, function)
    return function


def close(found: Any, expected: Any, what: str, rtol: float = RTOL, atol: float = ATOL) -> None:
    """Refuse tensors that differ by more than rounding does; where both are None they are equal.

    Raises:
        Broken: they do, with the largest difference.
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
    """Refuse outputs that differ by more than rounding does."""
    close(found.scores, expected.scores, f"log-probabilities{what}")
    close(found.attention, expected.attention, f"weights of attention{what}")


def shifted(found: Tensor, real: Tensor, expected: Tensor) -> bool:
    """Whether weights, ``T x S``, that should be in the ``real`` columns are in as many at the other end.

    Args:
        found: of a source with padding.
        real: where the source is no padding, ``S``.
        expected: of the source without padding, ``T x`` its length.
    """
    other = found[:, real.flip(0)]
    return other.shape == expected.shape and torch.allclose(other.double(), expected.double(), RTOL, ATOL)


def finite(values: Tensor, what: str) -> None:
    """Refuse NaN and infinity.

    Raises:
        Broken: there are some.
    """
    if not torch.isfinite(values).all():
        raise Broken(f"{what} are not finite")
