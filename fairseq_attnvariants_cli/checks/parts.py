"""Demands on parts from outside of the package: what they read, and the widths that they are built for."""

from fairseq_attnvariants.registry import ConfigurationError

from ..systems.model import place
from ..text.files import reason
from .demand import demand
from .outcome import Broken, NotApplicable
from .search import search
from .subject import Subject


@demand
def in_place(subject: Subject) -> None:
    """A batch in training, and beam search.

    Demand: no component changes its arguments in place
    Otherwise: other steps, hypotheses and the backward pass read what was overwritten: gradients and translations are
        wrong
    """
    try:
        subject.forward(subject.model().train(), subject.pairs())
        search(subject, [subject.shared], subject.pairs())
    finally:  # an error may be what follows from it
        if subject.changed:
            raise Broken(f"{subject.changed[0]}: make a new tensor, as in a + b instead of a += b")


@demand
def widths(subject: Subject) -> None:
    """Some have to be equal, which a part says by a :class:`ConfigurationError`.

    Demand: widths may all differ
    Otherwise: it trains at some sizes alone, and no message says which
    """
    error = subject.refusal
    if error is None:
        return
    where = place(error)
    why = f"{reason(error)}{where}"
    if isinstance(error, Broken) or (where and not isinstance(error, ConfigurationError)):
        raise Broken(
            f"only with equal widths, those above, is there a model; with others: {why}. Read each width from what the "
            "constructor is given, or let it raise ConfigurationError with the options that have to be equal"
        )
    raise NotApplicable(f"some have to be equal: {why}")
