"""Gradient clipping with ``--cpu`` on a machine that has a GPU."""

import torch
from fairseq import utils
from torch import Tensor

from ..replaced import replaces


@replaces(utils, "clip_grad_norm_")
def clip_where_gradients_are(clip, params, max_norm, aggregate_norm_fn=None) -> Tensor:
    """Clip gradients on a CPU there.

    If there is a GPU, fairseq adds up their norms on it and multiplies them by a factor on it, which torch refuses
    (``Expected all tensors to be on the same device``).  Gradients on a GPU are clipped by fairseq as before.
    """
    params = [params] if isinstance(params, Tensor) else list(params)
    gradients = [parameter.grad.detach() for parameter in params if parameter.grad is not None]
    on_cpu = {gradient.device.type for gradient in gradients} == {"cpu"}
    if not on_cpu or not torch.cuda.is_available() or aggregate_norm_fn is not None:
        return clip(params, max_norm, aggregate_norm_fn)
    norm = torch.stack([torch.norm(gradient, dtype=torch.float32) for gradient in gradients]).norm()
    if max_norm > 0:  # without a limit, torch's own function would turn an infinite norm into NaN
        factor = (float(max_norm) / (norm + 1e-6)).clamp(max=1)
        for gradient in gradients:
            gradient.mul_(factor)
    return norm
