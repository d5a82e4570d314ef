"""Training with ``--cpu`` on a machine that has a GPU."""

import functools

import torch
from fairseq import utils
from torch import Tensor, nn


def clip_where_gradients_are() -> None:
    """Let gradients on a CPU be clipped there.

    fairseq adds up their norms on the GPU wherever there is one, and multiplies them by a factor that lies on it, which
    torch refuses (``Expected all tensors to be on the same device``).  Gradients on a GPU it clips as ever.
    """
    clip = utils.clip_grad_norm_

    @functools.wraps(clip)
    def clip_grad_norm_(params, max_norm, aggregate_norm_fn=None) -> Tensor:
        params = [params] if isinstance(params, Tensor) else list(params)
        devices = {parameter.grad.device.type for parameter in params if parameter.grad is not None}
        if devices != {"cpu"} or not torch.cuda.is_available() or aggregate_norm_fn is not None:
            return clip(params, max_norm, aggregate_norm_fn)
        return nn.utils.clip_grad_norm_(params, max_norm if max_norm > 0 else float("inf"))

    utils.clip_grad_norm_ = clip_grad_norm_
