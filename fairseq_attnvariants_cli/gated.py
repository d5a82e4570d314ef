"""The gates of adaptive weighting (Li et al.) and of CondDec (Feng et al.) in a model that decodes a text."""

import contextlib
from collections import defaultdict
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Sequence, Tuple

from .model import Limits, System, Text, run_batches, symbols

# isort: split
import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fairseq_attnvariants.losses import norms
from fairseq_attnvariants.nn.cells import AdaptiveGRUCell, DeepCell
from fairseq_attnvariants.nn.decoder import Decoded, Decoder
from fairseq_attnvariants.nn.layers import Layer
from fairseq_attnvariants.nn.readout import AdaptiveWeighting

from .files import UserError


def adaptive_gates(layer: Layer, arguments: Tuple[Tensor, Sequence[int], Tensor], found: Tuple[Tensor, Any]) -> Tensor:
    """``g_t`` (Li et al. 2018 eq. 13) of each direction, ``d x B x T x n``."""
    data, sizes, _ = arguments  # of sources of one length: none is padded, and they keep their order
    read, states = (flat.unflatten(0, (len(sizes), -1)) for flat in (data, found[0]))  # T x B x ...
    gates = []
    for reverse, (cell, own) in enumerate(zip(first_cells(layer), states.chunk(len(layer.cells), dim=2))):
        # zero before the first step, which in reverse is the last
        before = F.pad(own[1:], (0, 0, 0, 0, 0, 1)) if reverse else F.pad(own[:-1], (0, 0, 0, 0, 1, 0))
        gate = (cell.project("input", read) + cell.recall(before)).chunk(4, dim=-1)[3]
        gates.append(torch.sigmoid(gate).transpose(0, 1))
    return torch.stack(gates)


def first_cells(layer: Layer) -> List[Any]:
    """Those of each direction that read the layer's input, of which a deep transition has others after them."""
    return [cell.cells[0] if isinstance(cell, DeepCell) else cell for cell in layer.cells]


def weights(_: AdaptiveWeighting, arguments: Any, output: Tensor) -> Tensor:
    """``α`` (Li et al. 2018 eq. 21)."""
    return output


def remainder(_: Decoder, arguments: Any, decoded: Decoded) -> Tensor:
    """``||sd_i|| / ||sd_0||`` (Feng et al. 2016 §5)."""
    assert decoded.conditions is not None
    lengths = norms(decoded.conditions)  # B x (T+1)
    return (lengths[:, 1:] / lengths[:, :1])[None, ..., None]


class Gates(NamedTuple):
    """What a part of a model weighs, for each token of a side."""

    side: str
    part: str  # with its article and its architectures, for messages
    names: Sequence[str]
    found: Callable[[nn.Module], bool]  # whether a module is the part
    read: Callable[[Any, Any, Any], Tensor]  # of the part, its arguments and its output, ``gates x B x tokens x width``
    joined: int  # the dimension along which several parts, or several passes, follow one another


KINDS = (
    Gates(
        "source", "an adaptive GRU in the encoder (--arch adaptive_gru or adaptive_both)", ("g forward", "g backward"),
        lambda module: isinstance(module, Layer) and isinstance(first_cells(module)[0], AdaptiveGRUCell),
        adaptive_gates, joined=0,
    ),
    Gates(
        "target", "an adaptive output (--arch adaptive_output or adaptive_both)", ("alpha_s", "alpha_y", "alpha_c"),
        lambda module: isinstance(module, AdaptiveWeighting), weights, joined=2,
    ),
    Gates(
        "target", "a condition (--arch conddec)", ("condition left",),
        lambda module: isinstance(module, Decoder) and module.transition.condition is not None, remainder, joined=2,
    ),
)  # fmt: skip

Parts = Dict[Gates, List[Any]]  # the modules of each kind that the model has, from the lowest


def gated_parts(system: System) -> Parts:
    """The modules of the model that have gates.

    Raises:
        UserError: there are none, they are not of single tokens, or the system is an ensemble.
    """
    halves = {"source": system.model.encoder, "target": system.model.decoder}
    found = {kind: [part for part in halves[kind.side].modules() if kind.found(part)] for kind in KINDS}
    if not any(found.values()):
        raise UserError(f"{system.path}: the model lacks {' or '.join(kind.part for kind in KINDS)}")
    encoder = str(system.model.cfg.encoder_type)
    if found[KINDS[0]] and encoder != "bidirectional":
        raise UserError(f"{system.path}: the gates of a {encoder} encoder are not those of its tokens")
    return {kind: parts for kind, parts in found.items() if parts}


def gate_names(parts: Parts) -> Dict[str, List[str]]:
    """What :func:`read_gates` gives for each side; the encoder's layers are counted from the lowest."""
    names: Dict[str, List[str]] = defaultdict(list)
    for kind, modules in parts.items():
        layers = [layer.cells for layer in modules] if kind.side == "source" else []
        if len(layers) > 1:  # of one direction or of two
            numbered = enumerate(layers, start=1)
            names[kind.side] += [f"{name}, layer {n}" for n, cells in numbered for name in kind.names[: len(cells)]]
        else:
            names[kind.side] += kind.names
    return dict(names)


def tokens_of(system: System, text: Text, side: str) -> List[List[str]]:
    """One side of each sentence, EOS last."""
    dictionary = getattr(system.task, f"{side}_dictionary")
    return [symbols(dictionary, sentence.item[side], getattr(sentence, f"{side}_line")) for sentence in text.sentences]


def read_gates(system: System, parts: Parts, text: Text, limit: Limits) -> Iterator[Tuple[int, Dict[str, np.ndarray]]]:
    """Forced decoding of the targets, in the order of :func:`~.model.run_batches`.

    Yields:
        the number of a sentence, from 0, and for each side the gates of its tokens, ``gates x tokens``, in percent.
    """
    caught: Dict[Gates, List[Tensor]] = {kind: [] for kind in parts}  # of a batch

    def catch(kind: Gates) -> Callable[[nn.Module, Any, Any], None]:
        return lambda *forward: caught[kind].append(kind.read(*forward))

    items = {sentence.item["id"]: sentence.item for sentence in text.sentences}
    with contextlib.ExitStack() as hooked:
        for kind, modules in parts.items():
            for module in modules:
                hooked.enter_context(module.register_forward_hook(catch(kind)))
        for sample, _ in run_batches(system, text, limit):
            means: Dict[str, List[np.ndarray]] = defaultdict(list)
            for kind, gates in caught.items():
                means[kind.side].append(100 * torch.cat(gates, kind.joined).float().mean(-1).cpu().numpy())
                gates.clear()
            sides = {side: np.concatenate(several) for side, several in means.items()}
            for row, number in enumerate(sample["id"].tolist()):
                yield number, {side: gates[:, row, : len(items[number][side])] for side, gates in sides.items()}
