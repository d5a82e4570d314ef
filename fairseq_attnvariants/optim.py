"""``--optimizer fused_adam``: Adam by PyTorch's fused kernels.

On a GPU fairseq's ``adam`` launches some ten kernels per parameter, unless apex is installed.  A few fused kernels
update all parameters.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from fairseq.optim import FairseqOptimizer, register_optimizer
from fairseq.optim.adam import FairseqAdam
from omegaconf import II
from torch import nn

from .architectures.options import Described
from .nn.device import on_gpu
from .registry import ConfigurationError


@dataclass
class FusedAdamConfig(Described):
    """Options of fairseq's ``adam``.

    Args:
        adam_betas: decay rates of the means of gradients and of their squares
        adam_eps: summand of the denominator
        weight_decay: share of the learning rate by which an update shrinks parameters (Loshchilov & Hutter 2019)
    """

    adam_betas: Any = (0.9, 0.999)
    adam_eps: float = 1e-8
    weight_decay: float = 0.0
    lr: list[float] = II("optimization.lr")


@register_optimizer("fused_adam", dataclass=FusedAdamConfig)
class FusedAdam(FairseqAdam):
    """PyTorch's Adam, fused on a GPU.

    It divides by ``√v̂ + ε``.  fairseq's ``adam`` adds ``ε`` to ``√v`` before the bias correction, so its first
    updates are smaller for gradients about as small as ``ε``.
    """

    def __init__(self, cfg: FusedAdamConfig, params: Iterable[nn.Parameter]):
        FairseqOptimizer.__init__(self, cfg)
        params = list(params)
        self.fused = all(map(on_gpu, params))
        self._optimizer = torch.optim.AdamW(params, fused=self.fused, **self.optimizer_config)

    @property
    def supports_flat_params(self) -> bool:
        """Whether ``--fp16`` may pass all parameters as one flat tensor: yes, Adam updates each number separately."""
        return True

    @property
    def supports_memory_efficient_fp16(self) -> bool:
        """Refuse memory-efficient float16, because PyTorch's Adam does not update float16 in float32.

        Raises:
            ConfigurationError: always; the message says what to use instead.
        """
        raise ConfigurationError(
            "--optimizer fused_adam has no --memory-efficient-fp16 or -bf16: use --optimizer adam, or --fp16"
        )

    def load_state_dict(self, state_dict: dict[str, Any], optimizer_overrides: Any = None) -> None:
        """Load the state, also if the training began on another kind of device."""
        groups = [{**group, "fused": self.fused} for group in state_dict["param_groups"]]
        super().load_state_dict({**state_dict, "param_groups": groups}, optimizer_overrides)
