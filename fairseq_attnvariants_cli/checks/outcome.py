"""The outcomes of a demand other than errors, and silence meanwhile."""

import contextlib
import logging
import warnings
from typing import Iterator


class Broken(Exception):
    """A demand is not met; the message says by how much."""


class NotApplicable(Exception):
    """The model has no part in a demand; the message says why."""


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Let errors only be logged, and nobody warn."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
