"""Checks of custom components: the shapes that their methods return, and the tensors that they change.

A wrong shape or a change in place causes an error of PyTorch elsewhere.  So :func:`watch` checks the result of a method
as soon as it returns.  Letters are those of :mod:`fairseq_attnvariants.nn.state`; sizes come from the arguments of the
method.
"""

import functools
import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from fairseq_attnvariants.nn.attention import Attended, Attention, Normalizer
from fairseq_attnvariants.nn.cells import Cell
from fairseq_attnvariants.nn.histories import Carrying, History, Past
from fairseq_attnvariants.nn.readout import Prediction, Readout, Steps
from fairseq_attnvariants.nn.state import Memory, each
from fairseq_attnvariants.nn.windows import Window
from fairseq_attnvariants.registry import PLAIN, Part

from ..systems.user_dirs import in_user_dir
from ..text.files import reason
from .outcome import Broken


class WrongReturn(Broken):
    """The error of a component that returns a wrong value; the message has this value and what is wanted."""


def shaped(found: Any, letters: str, *sizes: int | None) -> None:
    """Refuse anything except a tensor of these sizes.  A size of None may be any number; ``letters`` name the sizes."""
    if (
        not isinstance(found, Tensor)
        or len(sizes) != found.dim()
        or any(size not in (None, own) for size, own in zip(sizes, found.shape))
    ):
        wanted = " x ".join("any" if size is None else str(size) for size in sizes)
        raise WrongReturn(f"{said(found)}, where {letters}, {wanted}, is wanted")


def handed_on(found: Any, before: Any, count: int) -> None:
    """Refuse a next state that :func:`rows` refuses, or that is None after a state that is not None."""
    if found is None and before is not None:
        raise WrongReturn("None, so that later steps have nothing of what start returned: return the next step's")
    rows(found, "N", count)


def rows(found: Any, letter: str, count: int) -> None:
    """Refuse all that beam search cannot reorder. It reorders tensors of ``count`` rows, None, tuples, dictionaries."""

    def look(tensor: Tensor) -> None:
        if tensor.dim() == 0 or len(tensor) != count:
            raise WrongReturn(f"{said(tensor)}, where {letter} rows, {count}, are wanted")

    try:
        each(look, found)
    except TypeError as error:  # the last word of its message is the type
        kind = str(error).rpartition(" ")[2]
        inside = "" if type(found).__name__ == kind else f" with a {kind} in it"
        raise WrongReturn(
            f"{said(found)}{inside}: carry tensors of {letter} rows, alone or in tuples and dictionaries, such as "
            "torch.zeros_like(memory.positions)"
        ) from None


def said(found: Any) -> str:
    """Return a description of a value: its shape or its type."""
    if isinstance(found, Tensor):
        return " x ".join(map(str, found.shape)) or "a number"
    return "None" if found is None else f"a {type(found).__name__}"


def unnormalised(found: Tensor, wanted: str) -> None:
    """Refuse probabilities over the last dimension, which softmax would make almost even."""
    if found.is_meta or found.size(-1) == 1 or not found.numel():
        return
    values = found.detach().double()
    if (values >= 0).all() and ((values.sum(-1) - 1).abs() < 1e-2).all():
        raise WrongReturn(f"{said(found)} probabilities, of which softmax is taken again: return {wanted}")


def energies(part: Attention, found: Any, query: Tensor, keys: Tensor, *features: Any) -> None:
    """Check the shape of energies. Several heads have one set each, and then the component must define ``read``."""
    heads = [None] * (isinstance(found, Tensor) and found.dim() == 4)
    shaped(found, "B x k x S", *heads, *query.shape[:2], keys.size(-2))
    if heads and len(found) > 1 and type(part).read is Attention.read:
        raise WrongReturn(
            f"{said(found)}, the energies of {len(found)} heads, whose contexts only {type(part).__name__} can put "
            "together: define read(weights, memory), too, as nn.attention.MultiHeadAttention does"
        )
    unnormalised(found, "energies, and leave softmax to the normalizer")


def attended(part: Attention, found: Any, weights: Tensor, memory: Memory) -> None:
    """Check the shapes of the context and the weights, and that terms have rows."""
    if not isinstance(found, Attended):
        raise WrongReturn(f"{said(found)}, where an Attended is wanted")
    count = weights.size(-3) * weights.size(-2)
    shaped(found.context, "of the context N x a", count, None)
    shaped(found.weights, "of the weights N x S", count, weights.size(-1))
    rows(found.terms, "of the terms N", count)


def term(part: History, found: Any, past: Past) -> None:
    """Check a term of the energies, if any, which may be the same for all hypotheses."""
    if found is not None:
        count, hypotheses, length = beside(past)
        shaped(found, "B x k x S", count, 1 if alike(found) else hypotheses, length)


def query_term(part: History, found: Any, past: Past) -> None:
    """Check a term of the query, if any."""
    if found is not None:
        shaped(found, "N x A", len(past.state.hidden), width(past.memory))


def key_features(part: History, found: Any, past: Past) -> None:
    """Check features and their matrix, if any."""
    if found is None:
        return
    if not (isinstance(found, tuple) and len(found) == 2):
        raise WrongReturn(f"{said(found)}, where features and a matrix are wanted")
    shaped(found[0], "of the features B x k x S x f", *beside(past), None)
    shaped(found[1], "of the matrix A x f", width(past.memory), found[0].size(3))


def beside(past: Past) -> Any:
    """Return ``B, k, S``."""
    count, length = past.memory.positions.shape
    return count, len(past.state.hidden) // count, length


def alike(values: Any) -> bool:
    """Return whether there is one row for all hypotheses, ``B x 1 x S``."""
    return isinstance(values, Tensor) and values.dim() == 3 and values.size(1) == 1


def width(memory: Memory) -> int:
    """Return ``A``, of all heads."""
    return memory.keys.size(-1) * (memory.keys.size(1) if memory.keys.dim() == 4 else 1)


def window(part: Window, found: Any, query: Tensor, memory: Memory, *state: Any) -> None:
    """Check a mask of excluded positions, which may be the same for all hypotheses, and a factor or None."""
    if not (isinstance(found, tuple) and len(found) == 2):
        raise WrongReturn(f"{said(found)}, where two are wanted: where not to look, and a factor or None")
    count, length = memory.positions.shape
    for values in found[: 1 if found[1] is None else 2]:
        shaped(values, "B x k x S", count, 1 if alike(values) else len(query) // count, length)


def features(part: Readout, found: Any, hidden: Tensor, *others: Tensor) -> None:
    """Check the width of features: that of the vocabulary layer, unless the component defines ``predict``."""
    own = type(part).predict is not Readout.predict
    shaped(found, "N x T x f", *hidden.shape[:-1], None if own else part.hidden.out_features // part.pieces)


def prediction(part: Readout, found: Any, values: Tensor, project: Any, steps: Steps) -> None:
    """Check that logits are no probabilities, the rows of the carried state, and the rows of the terms."""
    if not isinstance(found, Prediction):
        raise WrongReturn(f"{said(found)}, where a Prediction is wanted")
    shaped(found.output, "of the output N x T x V", *values.shape[:2], None)
    try:
        unnormalised(found.output, "logits, or the logarithm of probabilities")
    except WrongReturn as why:
        raise WrongReturn(f"a Prediction whose output is {why}") from None
    try:
        handed_on(found.carried, steps.carried, len(values))
    except WrongReturn as why:
        raise WrongReturn(f"a Prediction whose carried is {why}") from None
    rows(found.terms, "of the terms N", len(values))


RETURNS: dict[type[Part], dict[str, Callable[..., None]]] = {
    Attention: {"energies": energies, "read": attended},
    Carrying: {
        "remember": lambda part, found, annotations: rows(found, "B", len(annotations)),
        "start": lambda part, found, memory: rows(found, "B", len(memory.positions)),
        "next": lambda part, found, past, weights, hidden: handed_on(found, past.carried, len(weights)),
    },
    History: {"query_term": query_term, "key_features": key_features, "energy_term": term},
    Normalizer: {"normalize": lambda part, found, values: shaped(found, "as the energies", *values.shape)},
    Window: {"forward": window, "look": lambda part, found, past: window(part, found, past.query, past.memory)},
    Cell: {"step": lambda part, found, inputs, recurrent, state: shaped(found, "as the state", *state.shape)},
    Readout: {
        "finish": lambda part, found, total: shaped(
            found, "N x T x f", *total.shape[:-1], total.size(-1) // part.pieces
        ),
        "forward": features,
        "remember": lambda part, found, encoded: rows(found, "B", len(encoded.padding_mask)),
        "start": lambda part, found, memory: rows(found, "B", len(memory.positions)),
        "predict": prediction,
    },
}


def nothing_there(past: Past) -> str:
    """Return the inputs of a history or a window that are None, and why."""
    why = {
        "carried": "start returns nothing",
        "known": "remember returns nothing",
        "hidden": "only next knows the state that the step leaves",
    }
    found = [f"past.{name} ({cause})" for name, cause in why.items() if getattr(past, name) is None]
    found += [f"past.state.{name}" for name, value in zip(past.state._fields, past.state) if value is None]
    return f"None are {', '.join(found)}"


# the positions of arguments that only this method reads, so that it may change them
UNSHARED = {"normalize": (0,), "step": (1,), "finish": (0,), "predict": (0,)}


def tensors(value: Any, name: str) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors in nested tuples and dictionaries, by their names in the method, such as ``past.carried``."""
    if isinstance(value, Tensor):
        yield name, value
    elif isinstance(value, dict):
        for key, entry in value.items():
            yield from tensors(entry, f"{name}[{key!r}]")
    elif isinstance(value, tuple):
        fields = [f".{field}" for field in getattr(value, "_fields", ())]
        for field, entry in zip(fields or (f"[{place}]" for place in range(len(value))), value):
            yield from tensors(entry, f"{name}{field}")


def handed(names: Sequence[str], given: Sequence[Any], unshared: Sequence[int]) -> dict[tuple[str, int, int], Tensor]:
    """Return the tensors in a method's shared arguments, by name, identity and version, which a change alters."""
    shared = [pair for place, pair in enumerate(zip(names, given)) if place not in unshared]
    found = [pair for name, value in shared for pair in tensors(value, name)]
    return {(name, id(tensor), 0 if tensor.is_inference() else tensor._version): tensor for name, tensor in found}


def odd(tensor: Tensor) -> str:
    """Return ``NaN`` or ``infinity`` if the tensor has such a number, else no text."""
    if tensor.is_meta or not tensor.is_floating_point() or torch.isfinite(tensor).all():
        return ""
    return "NaN" if torch.isnan(tensor).any() else "infinity"


OF_MODULES = vars(nn.Module()).keys()  # attributes that every module has


def on_itself(part: Part) -> dict[str, tuple[Any, ...]]:
    """Return a component's attributes and buffers, by name.  An entry differs after its attribute has changed."""
    entries: dict[str, tuple[Any, ...]] = {}
    for name, value in {**vars(part), **part._buffers}.items():  # type: ignore[attr-defined]  # parts are modules
        if name not in OF_MODULES:
            version = value._version if isinstance(value, Tensor) and not value.is_inference() else None
            size = len(value) if isinstance(value, (list, dict, set)) else None
            entries[name] = (value,) if isinstance(value, PLAIN) else (id(value), version, size, value)
    return entries


class Notes(NamedTuple):
    """Notes on the changes that custom components make, each with its place."""

    in_place: list[str]  # changes of arguments
    on_self: list[str]  # changes of the components' attributes
    not_finite: list[str]  # infinite and undefined numbers that they return


def looking(kind: type[Part], name: str, look: Callable[..., None], notes: Notes) -> Callable[..., Any]:
    """Wrap a method of a class: check what it returns by ``look``, and note changes in place and of attributes."""
    method = vars(kind)[name]
    names = [*inspect.signature(method).parameters][1:]

    @functools.wraps(method)
    def wrapped(self: Part, *given: Any, **named: Any) -> Any:
        where = f"{kind.__name__}.{name}{in_user_dir(method.__code__.co_filename, method.__code__.co_firstlineno)}"
        arguments = [*names, *names[-1:] * len(given)], given, UNSHARED.get(name, ())
        before, kept = handed(*arguments), on_itself(self)
        try:
            found = method(self, *given, **named)
        except (AttributeError, TypeError) as error:
            missing = nothing_there(given[0]) if given and isinstance(given[0], Past) else ""
            if missing and "NoneType" in str(error):
                raise WrongReturn(f"{where}: {reason(error)}; {missing}") from error
            raise
        finally:
            changed = {name for name, *_ in before.keys() ^ handed(*arguments).keys()}
            if changed:
                notes.in_place.append(f"{where} changes {min(sorted(changed), key=len)} in place")
            now = on_itself(self)
            notes.on_self.extend(f"{where} changes self.{name}" for name in now if now[name] != kept.get(name))
        try:
            look(self, found, *given, **named)
        except WrongReturn as why:
            raise WrongReturn(f"{where} returns {why}") from None
        if not notes.not_finite:
            numbers = (odd(tensor) for _, tensor in tensors(found, ""))
            notes.not_finite.extend(f"{where} returns {number}" for number in filter(None, numbers))
        return found

    return wrapped


def from_outside(part: Part, notes: Notes) -> dict[str, Callable[..., Any]]:
    """Return the methods of a component that come from outside of the package, wrapped by :func:`looking`."""
    methods = {}
    for base, looks in RETURNS.items():
        for name, look in looks.items() if isinstance(part, base) else ():
            kind = next(kind for kind in type(part).__mro__ if name in vars(kind))
            method = vars(kind)[name]
            if inspect.isfunction(method) and method.__module__.partition(".")[0] != "fairseq_attnvariants":
                methods[name] = looking(kind, name, look, notes)
    return methods


def watch(model: nn.Module, notes: Notes) -> None:
    """Check what the methods of a model's custom components return.

    Each such component becomes an instance of a subclass of its class. The class itself does not change.
    """
    for part in model.modules():
        if isinstance(part, Part) and (methods := from_outside(part, notes)):
            own = type(part)
            part.__class__ = type(own.__name__, (own,), {**methods, "__module__": own.__module__})
