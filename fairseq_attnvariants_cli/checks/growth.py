"""Demands on time and memory: both grow no faster than in proportion to either length.

Both are counted, exactly, and with the same result on every machine. The numbers that operations read and write
represent time, and the bytes that are alive at once represent memory.
"""

import functools
import gc
import weakref
from typing import Any, NamedTuple

import torch
from fairseq.models import FairseqIncrementalDecoder
from fairseq.modules import MultiheadAttention
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from fairseq_attnvariants.tasks import CharTranslationTask, StringTransductionTask

from .demand import demand
from .outcome import Broken, NotApplicable
from .subject import LONG_SOURCE, LONG_TARGET, Pairs, Subject

LENGTHS = (8, 17, 26)  # symbols without EOS
MOST = 1.25  # highest ratio of what the last 9 symbols add to what the 9 before them add; 1 is in proportion


class Counter(TorchDispatchMode):
    """Counts what operations do while it is active. It disables garbage collection, whose time is random."""

    def __init__(self) -> None:
        super().__init__()
        self.touched = 0  # numbers read and written
        self._sizes: dict[int, int] = {}  # bytes of storages that were made here and still exist, by address

    @property
    def alive(self) -> int:
        """The bytes of tensors that were made here and still exist."""
        return sum(self._sizes.values())

    def __enter__(self) -> "Counter":
        """Begin to count, and disable garbage collection."""
        self._collects = gc.isenabled()
        gc.disable()
        return super().__enter__()

    def __exit__(self, *raised: Any) -> None:
        """Stop counting, and restore garbage collection."""
        super().__exit__(*raised)
        if self._collects:
            gc.enable()

    def __torch_dispatch__(self, function: Any, types: Any, arguments: tuple[Any, ...] = (), named: Any = None) -> Any:
        """Run the operation, and count it; views read and write nothing."""
        made = function(*arguments, **(named or {}))
        outputs, inputs = (list(filter(torch.is_tensor, tree_flatten(each)[0])) for each in (made, (arguments, named)))
        if not function.is_view:
            self.touched += sum(tensor.numel() for tensor in (*inputs, *outputs))
        own = {tensor.untyped_storage().data_ptr() for tensor in inputs}
        for tensor in outputs:
            storage = tensor.untyped_storage()
            place = storage.data_ptr()
            if place not in own and place not in self._sizes:
                self._sizes[place] = storage.nbytes()
                weakref.finalize(storage, self._sizes.pop, place, None)
        return made


class Cost(NamedTuple):
    """The time and memory of one pass over a pair."""

    time: int  # numbers read and written
    memory: int  # bytes that training keeps for the backward pass, or search for the next step


def line(subject: Subject, words: list[str], length: int) -> str:
    """Return a line of ``length`` words, or of ``length`` characters if the task reads characters."""
    if isinstance(subject.task, (CharTranslationTask, StringTransductionTask)):
        return "".join(word[0] + " " for word in words * length)[: length - 1] + words[0][0]
    return " ".join((words * length)[:length])


def training_cost(model: Any, pairs: Pairs) -> Cost:
    """Return the cost of a forward and a backward pass."""
    model.train()
    with Counter() as counter:
        made = model(pairs.source, pairs.lengths, pairs.previous)[0]
        kept = counter.alive
        made.sum().backward()
    model.zero_grad(set_to_none=True)
    return Cost(counter.touched, kept)


def search_cost(model: Any, pairs: Pairs) -> Cost:
    """Return the cost of decoding known targets step by step."""
    model.eval()
    state: dict[str, Any] = {}
    with Counter() as counter, torch.no_grad():
        encoder_out = model.encoder(pairs.source, src_lengths=pairs.lengths)
        for step in range(pairs.previous.size(1)):
            model.decoder(pairs.previous[:, : step + 1], encoder_out, incremental_state=state)
        return Cost(counter.touched, counter.alive)


@functools.lru_cache(maxsize=8)
def costs(subject: Subject) -> dict[tuple[str, int, int], Cost]:
    """Return the costs of one pair, in training and in search, by the lengths of source and target."""
    found = {}
    model, least = subject.model(), LENGTHS[0]
    ways = {"training": training_cost}
    if isinstance(model.decoder, FairseqIncrementalDecoder):
        ways["search"] = search_cost
    for source, target in [(n, least) for n in LENGTHS] + [(least, n) for n in LENGTHS[1:]]:
        pairs = subject.pairs([line(subject, LONG_SOURCE, source)], [line(subject, LONG_TARGET, target)])
        for way, run in ways.items():
            found[way, source, target] = run(model, pairs)
    return found


def compare(subject: Subject, what: str) -> None:
    """Refuse a field of :class:`Cost` that grows faster than in proportion to a length.

    Raises:
        Broken: the field grows faster.
        NotApplicable: the model has self-attention, which compares every token with every other one.
    """
    if any(isinstance(part, MultiheadAttention) and part.self_attention for part in subject.shared.modules()):
        raise NotApplicable("self-attention compares every token with every other one, by design")
    found, least = costs(subject), LENGTHS[0]
    for way in dict.fromkeys(way for way, *_ in found):
        for side in ("source", "target"):
            pairs = [(n, least) if side == "source" else (least, n) for n in LENGTHS]
            first, second, third = (getattr(found[way, source, target], what) for source, target in pairs)
            less, more = second - first, third - second
            if more > MOST * max(less, first / 10):
                raise Broken(
                    f"in {way}, it grows {more / max(less, 1):.2g} times as much from {LENGTHS[1]} to {LENGTHS[2]} "
                    f"symbols of the {side} as from {least} to {LENGTHS[1]}"
                )


@demand
def time(subject: Subject) -> None:
    """Check the numbers read and written, in training and in search.

    Demand: time grows no faster than in proportion to either length
    Otherwise: long sentences take longer than they need to: something is done at every step that could be done once
    """
    compare(subject, "time")


@demand
def memory(subject: Subject) -> None:
    """Check the bytes that are alive at once, in training and in search.

    Demand: memory grows no faster than in proportion to either length
    Otherwise: long sentences do not fit: something keeps all steps at every step
    """
    compare(subject, "memory")
