"""Demands on custom components: tensors that they overwrite, the devices of their tensors, and their widths."""

import contextlib
import warnings
from collections.abc import Iterator

import torch

from fairseq_attnvariants.deploy.refusal import LINES
from fairseq_attnvariants.models import AttentionRNNModel
from fairseq_attnvariants.registry import ConfigurationError

from ..systems.user_dirs import last_in_user_dir, raised_at
from ..text.files import reason
from .demand import demand
from .outcome import Broken, NotApplicable
from .search import search
from .subject import Subject


@demand
def in_place(subject: Subject) -> None:
    """Run a batch in training, with its backward pass, and beam search.

    Demand: no component changes in place its arguments, or what the backward pass reads
    Otherwise: other steps, hypotheses and the backward pass read what was overwritten: gradients and translations are
        wrong
    """
    try:
        backward(subject)
        search(subject, [subject.shared], subject.pairs())
    finally:  # an error may result from a change in place
        if subject.notes.in_place:
            raise Broken(f"{subject.notes.in_place[0]}: make a new tensor, as in a + b instead of a += b")


def backward(subject: Subject) -> None:
    """Run a forward and a backward pass; if it reads an overwritten tensor, report where the tensor was computed."""
    with warnings.catch_warnings(record=True) as warned, torch.autograd.set_detect_anomaly(True, check_nan=False):
        warnings.simplefilter("always")
        scores = subject.forward(subject.model().train(), subject.pairs()).scores
        try:
            scores.sum().backward()
        except RuntimeError as error:
            if "inplace operation" not in str(error):
                raise
            lines = [line for warning in warned for line in LINES.findall(str(warning.message))]
            raise Broken(
                f"the backward pass reads a tensor{last_in_user_dir(lines)} that was changed in place after it was "
                "computed: make a new tensor, as in a + b instead of a += b"
            ) from error


@demand
@torch.no_grad()
def device(subject: Subject) -> None:
    """Run the decoder on PyTorch's device ``meta``, which has shapes and no values, instead of a GPU.

    Demand: the decoder makes every tensor on the device of the others
    Otherwise: it trains on a CPU, and stops on a GPU
    """
    model, pairs = subject.model(), subject.pairs()
    if not isinstance(model, AttentionRNNModel):
        raise NotApplicable("this is tested for models of this package")
    encoded = model.encoder(pairs.source, pairs.lengths)  # the encoder reads lengths, and so values
    encoded = {name: [value.to("meta") for value in values] for name, values in encoded.items()}
    try:
        with without_autocast():
            model.decoder.to("meta")(pairs.previous.to("meta"), encoder_out=encoded)
    except RuntimeError as error:
        if isinstance(error, NotImplementedError) or "item()" in str(error):
            raise NotApplicable(f"values are read{raised_at(error)}, and meta has none") from error
        if "device" not in str(error):
            raise
        raise Broken(
            f"tensors of two devices meet{raised_at(error)}: write tensor.new_zeros(...), torch.zeros_like(tensor) or "
            "torch.zeros(..., device=tensor.device), and keep constants with register_buffer"
        ) from error


@contextlib.contextmanager
def without_autocast() -> Iterator[None]:
    """Make ``torch.autocast`` do nothing in the block, because it refuses ``meta``."""
    real = torch.autocast
    torch.autocast = lambda *_, **__: contextlib.nullcontext()  # type: ignore[assignment,misc]
    try:
        yield
    finally:
        torch.autocast = real  # type: ignore[misc]


@demand
def widths(subject: Subject) -> None:
    """Check widths that all differ. A component may refuse unequal widths by a :class:`ConfigurationError`.

    Demand: widths may all differ
    Otherwise: it trains at some sizes alone, and no message says which
    """
    error = subject.refusal
    if error is None:
        return
    where = raised_at(error)
    why = f"{reason(error)}{where}"
    if isinstance(error, Broken) or (where and not isinstance(error, ConfigurationError)):
        raise Broken(
            f"only with equal widths, those above, is there a model; with others: {why}. Read each width from what the "
            "constructor is given, or let it raise ConfigurationError with the options that have to be equal"
        )
    raise NotApplicable(f"some have to be equal: {why}")
