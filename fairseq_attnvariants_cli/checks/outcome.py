"""How the trial of a demand ends, but for errors, and silence meanwhile."""

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
    """Let fairseq and this package log errors only, and nobody warn."""
    loggers = [logging.getLogger(name) for name in ("fairseq", "fairseq_attnvariants")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel("ERROR")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
