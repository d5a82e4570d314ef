"""Number types of matrix products: the requested type, or the choice after timing products of the model's sizes."""

import logging
from typing import Any

import torch
from torch import distributed, nn

from ..nn.device import on_gpu
from .reduced import Timing, time_search, time_training

logger = logging.getLogger(__name__)

CHOICE = "dtype_version"  # fairseq's moving averages (--store-ema) skip buffers with "version" in their name
DTYPES = "undecided", "float32", "bfloat16"  # indexed by the number in the buffer
GAIN = 1.1  # bfloat16 changes results, so it is chosen only if it is quicker by this factor


def choose(option: str, asked: str, timing: Timing) -> str:
    """Return the requested type; for ``auto``, bfloat16 if it is quicker by :data:`GAIN`, else float32.

    Logs the times for ``auto``, and warns if the requested bfloat16 is slower.
    """
    times = (
        f"products of this model's sizes take {timing.reduced:.2f} ms in bfloat16 and {timing.float32:.2f} in float32"
    )
    if asked == "auto":
        chosen = "bfloat16" if timing.float32 >= GAIN * timing.reduced else "float32"
        logger.info(f"{option} auto: {chosen}; {times}")
        return chosen
    if timing.reduced > timing.float32:
        logger.warning(f"{option} {asked} is slower than float32 here: {times}")
    return asked


class TrainingDtype:
    """``--compute-dtype`` of a model, decided before the first batch.

    The choice of ``auto`` is a buffer of the model, so the checkpoint has it.  A resumed training keeps its type, even
    if the other type is quicker by then.
    """

    def __init__(self, asked: str):
        self.asked = asked
        self.dtype = asked if asked == "float32" else None

    def register(self, model: nn.Module) -> None:
        """Register the buffer of the choice in the model, for ``auto``."""
        if self.asked == "auto":
            model.register_buffer(CHOICE, torch.tensor(0))

    def decide(self, model: nn.Module) -> None:
        """Decide, once; with ``auto``, all processes follow the choice of the first one."""
        if self.dtype is not None:
            return
        choice = getattr(model, CHOICE, None)
        if choice is None:
            self.dtype = choose("--compute-dtype", self.asked, time_training(model))
            return
        if choice:
            self.dtype = DTYPES[int(choice)]
            if self.dtype != "float32":
                choose("--compute-dtype", self.dtype, time_training(model))
            logger.info(f"--compute-dtype auto: {self.dtype}, as this training has computed so far")
            return
        several = distributed.is_available() and distributed.is_initialized()
        if not several or distributed.get_rank() == 0:
            if on_gpu(next(model.parameters())):  # it waits between the small products of a step
                chosen = "float32"
                logger.info("--compute-dtype auto: float32; on a GPU bfloat16 was no quicker")
            else:
                chosen = choose("--compute-dtype", self.asked, time_training(model))
            choice.fill_(DTYPES.index(chosen))
        if several:
            distributed.broadcast(choice, 0)
        self.dtype = DTYPES[int(choice)]


def match_choice(model: nn.Module, state_dict, prefix: str = "") -> None:
    """Make a state dict fit a model: add a missing choice if the model has one, and else remove the choice."""
    name, choice = f"{prefix}{CHOICE}", getattr(model, CHOICE, None)
    if choice is None:
        state_dict.pop(name, None)
    else:
        state_dict.setdefault(name, torch.zeros_like(choice))


class SearchDtype:
    """``--search-dtype`` of a decoder, decided at the first search, and again if parameters change type or device."""

    def __init__(self, asked: str):
        self.asked = asked
        self.dtype = "float32"
        """the type of products; with ``float32``, products have the type of the parameters"""
        self.decided: tuple[torch.dtype, torch.device] | None = None
        """the type and device of the parameters at the last decision"""

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and save only the option, so that a copied or loaded object decides again."""
        return type(self), (self.asked,)

    def decide(self, network: nn.Module, projection: nn.Linear) -> None:
        """Decide after timing the products; warn if the requested type is not available."""
        parameters = projection.weight.dtype, projection.weight.device
        if self.asked == "float32" or self.decided == parameters:
            return
        self.decided, self.dtype = parameters, "float32"
        if projection.weight.dtype == torch.float32:
            self.dtype = choose("--search-dtype", self.asked, time_search(network, projection))
        else:
            own = str(projection.weight.dtype).removeprefix("torch.")
            logger.warning(
                f"--search-dtype {self.asked} is not available: search is in {own}, because the parameters are {own}, "
                "not float32"
            )
