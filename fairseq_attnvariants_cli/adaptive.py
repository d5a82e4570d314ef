"""The gates of adaptive weighting (Li et al.) in a model that decodes a text."""

import contextlib
from collections import defaultdict
from typing import Any, Dict, Iterator, List, Sequence, Tuple

from .model import Limits, System, Text, run_batches, symbols

# isort: split
import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence

from fairseq_attnvariants.nn.layers import AdaptiveGRU
from fairseq_attnvariants.nn.readout import AdaptiveWeighting

from .files import UserError

PARTS = {"source": "adaptive GRU in the encoder", "target": "adaptive output"}
WEIGHTS = ("alpha_s", "alpha_y", "alpha_c")

Parts = Dict[str, List[Any]]  # the modules that have gates, from the lowest, by the side whose words have them


def adaptive_parts(system: System) -> Parts:
    """The modules of the model that have gates.

    Raises:
        UserError: there are none, they are not of single tokens, or the system is an ensemble.
    """
    kinds = {"source": (system.model.encoder, AdaptiveGRU), "target": (system.model.decoder, AdaptiveWeighting)}
    found = {side: [part for part in half.modules() if isinstance(part, kind)] for side, (half, kind) in kinds.items()}
    if not any(found.values()):
        raise UserError(f"{system.path}: the model has neither an {' nor an '.join(PARTS.values())}")
    kind = str(system.model.cfg.encoder_type)
    if found["source"] and kind != "bidirectional":
        raise UserError(f"{system.path}: the gates of a {kind} encoder are not those of its tokens")
    return {side: parts for side, parts in found.items() if parts}


def gate_names(parts: Parts) -> Dict[str, Sequence[str]]:
    """What :func:`read_gates` gives for each side; the encoder's layers are counted from the lowest."""
    names: Dict[str, Sequence[str]] = {"source": ("g forward", "g backward"), "target": WEIGHTS}
    layers = [cells for part in parts.get("source", ()) for cells in part.cells]  # of one direction or of two
    if len(layers) > 1:
        numbered = enumerate(layers, start=1)
        names["source"] = [f"{name}, layer {n}" for n, cells in numbered for name in names["source"][: len(cells)]]
    return {side: names[side] for side in parts}


def tokens_of(system: System, text: Text, side: str) -> List[List[str]]:
    """One side of each sentence, EOS last."""
    dictionary = getattr(system.task, f"{side}_dictionary")
    return [symbols(dictionary, sentence.item[side], getattr(sentence, f"{side}_line")) for sentence in text.sentences]


def read_gates(system: System, parts: Parts, text: Text, limit: Limits) -> Iterator[Tuple[int, Dict[str, np.ndarray]]]:
    """Forced decoding of the targets, in the order of :func:`~.model.run_batches`.

    Yields:
        the number of a sentence, from 0, and for each side the gates of its tokens, ``gates x tokens``, in percent.
    """
    caught: Dict[str, List[Tensor]] = defaultdict(list)  # of a batch, gates x B x tokens x width

    def catch_shares(layers: AdaptiveGRU, arguments: Tuple[PackedSequence], _: Any) -> None:
        inputs, _ = pad_packed_sequence(arguments[0], batch_first=True)  # sources of one length: none is padded
        caught["source"].append(layers.shares(inputs))

    def catch_weights(_: AdaptiveWeighting, arguments: Any, output: Tensor) -> None:
        caught["target"].append(output)

    hooks = {"source": catch_shares, "target": catch_weights}
    joined = {"source": 0, "target": 2}  # layer by layer, and piece by piece of the target
    items = {sentence.item["id"]: sentence.item for sentence in text.sentences}
    with contextlib.ExitStack() as hooked:
        for side, modules in parts.items():
            for module in modules:
                hooked.enter_context(module.register_forward_hook(hooks[side]))
        for sample, _ in run_batches(system, text, limit):
            means = {
                side: 100 * torch.cat(gates, joined[side]).float().mean(-1).cpu().numpy()
                for side, gates in caught.items()
            }
            caught.clear()
            for row, number in enumerate(sample["id"].tolist()):
                yield number, {side: mean[:, row, : len(items[number][side])] for side, mean in means.items()}
