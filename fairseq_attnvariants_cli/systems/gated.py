"""The values of a model's gates while it decodes a text: those of Li et al., Tu et al. and Feng et al."""

import contextlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from fairseq_attnvariants.criterions.losses import norms
from fairseq_attnvariants.nn.cells import ContextGatedCell, DeepCell, StackedCell
from fairseq_attnvariants.nn.decoder import Decoded, Decoder
from fairseq_attnvariants.nn.layers import Layer
from fairseq_attnvariants.nn.readout import AdaptiveWeighting

from ..options import BatchOptions
from ..text.files import UserError
from .model import System, Text, run_batches

# components with gates, for messages
GIVEN_BY = {
    "source": "gates in the encoder's cells (--arch adaptive_gru or adaptive_both, or a cell that shows its own)",
    "target": "gates in the decoder's cells (--arch adaptive_gru, adaptive_both or context_gate, or a cell that shows "
    "its own), an adaptive output (--arch adaptive_output or adaptive_both) or a condition (--arch conddec)",
}


class Gates(NamedTuple):
    """The gates of source or target tokens, from the output of a module that runs one step or several at once."""

    side: str
    names: Sequence[str]
    module: nn.Module
    read: Callable[[Any], Tensor]  # from the module's output to gates x B x steps x width; no sentence has padding
    backward: bool = False  # the first call reads the last token


class Gated(NamedTuple):
    """The values of the gates for one sentence pair, whose tokens are those of :class:`~.model.Pair`."""

    number: int
    source: list[str]
    target: list[str]
    values: dict[str, np.ndarray]  # of each side, gates x tokens, in percent


def weight(gate: Tensor) -> Tensor:
    """Return the gates ``g`` (Li et al. 2018 eq. 13) or ``z`` (Tu et al. 2017) of one step, ``B x n``."""
    return gate[None, :, None]


def remainder(decoded: Decoded) -> Tensor:
    """Return ``||sd_i|| / ||sd_0||`` (Feng et al. 2016 §5)."""
    assert decoded.conditions is not None
    lengths = norms(decoded.conditions)  # B x (T+1)
    return (lengths[:, 1:] / lengths[:, :1])[None, ..., None]


def cell_gates(side: str, layers: Sequence[Mapping[str, Any]]) -> Iterator[Gates]:
    """Yield the gates of layers' cells by place; several layers are counted from the lowest."""
    for number, cells in enumerate(layers, start=1):
        for place, cell in cells.items():
            backward = place == "backward"
            where = place if len(layers) == 1 else f"{place}, layer {number}"
            cell = cell.cells[0] if isinstance(cell, DeepCell) else cell  # the others read only the state
            if isinstance(cell, ContextGatedCell):
                yield Gates(side, [f"z {where}"], cell.share, weight, backward)
                cell = cell.cell
            for name in getattr(cell, "shown", ()):  # there may be no cell
                if isinstance(gate := getattr(cell, name, None), nn.Module):
                    yield Gates(side, [f"{'g' if name == 'share' else name} {where}"], gate, weight, backward)
                elif name != "share":
                    raise UserError(f"the cell {type(cell).__name__} shows {name!r}, and has no module of this name")


def encoder_gates(encoder: nn.Module) -> Iterator[Gates]:
    """Yield the gates of the encoder."""
    layers = [module for module in encoder.modules() if isinstance(module, Layer)]
    yield from cell_gates("source", [dict(zip(("forward", "backward"), layer.cells)) for layer in layers])


def decoder_gates(decoder: Decoder) -> Iterator[Gates]:
    """Yield the gates of the decoder's cells, its readout and its condition."""
    transition, above = decoder.transition, decoder.above
    both: Any = transition.before, transition.after
    before, after = (list(cell.cells) if isinstance(cell, StackedCell) else [cell] for cell in both)
    layers: Any = () if above is None else above.layers
    after += [layer.cells[0] for layer in layers]
    pairs = zip_longest(before, after)
    yield from cell_gates("target", [{"before attention": one, "after attention": other} for one, other in pairs])
    for module in decoder.modules():
        if isinstance(module, AdaptiveWeighting):
            # α_s, α_y, α_c (Li et al. 2018 eq. 19)
            yield Gates("target", ("alpha_s", "alpha_y", "alpha_c"), module, lambda alpha: alpha)
    if transition.condition is not None:
        yield Gates("target", ("condition left",), decoder, remainder)


def gates_of(system: System) -> list[Gates]:
    """Return all gates of the model.

    Raises:
        UserError: the model has no gates, its gates are not of single tokens, or the system is an ensemble.
    """
    model = system.model
    source = [*encoder_gates(model.encoder)]
    target = [one for part in model.decoder.modules() if isinstance(part, Decoder) for one in decoder_gates(part)]
    if not source + target:
        raise UserError(f"{system.path}: the model has neither {GIVEN_BY['source']} nor {GIVEN_BY['target']}")
    encoder = str(model.cfg.encoder_type)
    if source and encoder != "bidirectional":
        raise UserError(f"{system.path}: the gates of a {encoder} encoder are not those of its tokens")
    if source and model.encoder.first_feature is not None:
        raise UserError(
            f"{system.path}: the encoder's cells do not read features that are attended to, which have no gates"
        )
    return source + target


def gate_names(gates: Sequence[Gates]) -> dict[str, list[str]]:
    """Return the names of the gates of each side, in the order of :func:`read_gates`."""
    names: dict[str, list[str]] = defaultdict(list)
    for one in gates:
        names[one.side] += one.names
    return dict(names)


def read_gates(system: System, gates: Sequence[Gates], text: Text, limits: BatchOptions) -> Iterator[Gated]:
    """Yield gates from forced decoding of the targets, in the order of :func:`~.model.run_batches`."""
    caught: list[list[Tensor]] = [[] for _ in gates]  # of a batch, call by call

    def catch(one: Gates, calls: list[Tensor]) -> Callable[[nn.Module, Any, Any], None]:
        return lambda module, arguments, given: calls.append(100 * one.read(given).float().mean(-1))

    with contextlib.ExitStack() as hooked:
        for one, calls in zip(gates, caught):
            hooked.enter_context(one.module.register_forward_hook(catch(one, calls)))
        for _, _, pairs in run_batches(system, text, limits):
            sides: dict[str, list[Tensor]] = defaultdict(list)
            for one, calls in zip(gates, caught):
                sides[one.side].append(torch.cat(calls[::-1] if one.backward else calls, dim=2))
                calls.clear()
            values = {side: torch.cat(several).cpu().numpy() for side, several in sides.items()}
            for row, pair in enumerate(pairs):
                yield Gated(*pair, {side: found[:, row, : len(getattr(pair, side))] for side, found in values.items()})
