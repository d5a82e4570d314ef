"""The outcomes of a demand other than errors, and a context without logs and warnings."""

import contextlib
import logging
import warnings
from collections.abc import Iterator

NOT_FINITE = "are not finite"  # in messages about NaN and infinity


class Broken(Exception):
    """A demand is not met; the message says by how much."""


class NotApplicable(Exception):
    """A demand does not apply to the model; the message says why."""


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Log only errors in the block, and suppress warnings."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
