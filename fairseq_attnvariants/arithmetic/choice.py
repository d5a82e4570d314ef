"""Number types of matrix products: as asked for, or chosen by timing products of the model's own sizes."""

import logging
from typing import Any, Optional, Tuple

import torch
from torch import distributed, nn

from ..nn.device import on_gpu
from .reduced import Timing, time_search, time_training

logger = logging.getLogger(__name__)

CHOICE = "dtype_version"  # fairseq's moving averages (--store-ema) leave buffers with "version" in their name alone
DTYPES = "undecided", "float32", "bfloat16"  # by the number in the buffer
GAIN = 1.1  # bfloat16 changes results, so it has to be this much quicker to be chosen


def choose(option: str, asked: str, timing: Timing) -> str:
    """``bfloat16`` if that is asked for, or for ``auto`` the quicker type; the log says what was measured."""
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

    The choice of ``auto`` is a buffer of the model, so the checkpoint has it.  A resumed training computes as before,
    whatever is quicker by then.
    """

    def __init__(self, asked: str):
        self.asked = asked
        self.dtype = asked if asked == "float32" else None

    def register(self, model: nn.Module) -> None:
        """Give the model its buffer, if there is something to choose."""
        if self.asked == "auto":
            model.register_buffer(CHOICE, torch.tensor(0))

    def decide(self, model: nn.Module) -> None:
        """Decide, once; several processes compute as the first one does."""
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
            if on_gpu(next(model.parameters())):  # which waits for the small products of a step
                chosen = "float32"
                logger.info("--compute-dtype auto: float32; on a GPU bfloat16 was no quicker")
            else:
                chosen = choose("--compute-dtype", self.asked, time_training(model))
            choice.fill_(DTYPES.index(chosen))
        if several:
            distributed.broadcast(choice, 0)
        self.dtype = DTYPES[int(choice)]


def match_choice(model: nn.Module, state_dict, prefix: str = "") -> None:
    """Add a choice to a state dict without one, or take it out, as the model has one or not."""
    name, choice = f"{prefix}{CHOICE}", getattr(model, CHOICE, None)
    if choice is None:
        state_dict.pop(name, None)
    else:
        state_dict.setdefault(name, torch.zeros_like(choice))


class SearchDtype:
    """``--search-dtype`` of a decoder, decided at the first search, and anew once parameters are of another kind."""

    def __init__(self, asked: str):
        self.asked = asked
        self.dtype = "float32"
        """that of products; ``float32`` leaves them to the parameters' own"""
        self.decided: Optional[Tuple[torch.dtype, torch.device]] = None
        """for which parameters"""

    def __reduce__(self) -> Tuple[Any, ...]:
        """A copy, and what is loaded, decides by itself."""
        return type(self), (self.asked,)

    def decide(self, network: nn.Module, projection: nn.Linear) -> None:
        """Time the products, and say so if what is asked for cannot be had."""
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
