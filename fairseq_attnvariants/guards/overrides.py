"""``--model-overrides`` of options that a checkpoint's version did not have yet.

Stock fairseq overrides what a saved configuration has and says nothing of the rest, so it is completed first.
"""

import functools

from fairseq import checkpoint_utils
from fairseq.models import ARCH_MODEL_REGISTRY, MODEL_REGISTRY
from omegaconf import DictConfig

from ..options import AttentionRNNConfig, complete


def guard_overrides() -> None:
    """Let fairseq complete the configuration of this package's models before it overrides."""
    overwrite = checkpoint_utils.overwrite_args_by_name

    @functools.wraps(overwrite)
    def overwrite_args_by_name(cfg, overrides):
        name = getattr(cfg.get("model"), "_name", None) if isinstance(cfg, DictConfig) else None
        model = ARCH_MODEL_REGISTRY.get(name) or MODEL_REGISTRY.get(name)
        if getattr(model, "__dataclass", None) is AttentionRNNConfig:
            complete(cfg.model)
        overwrite(cfg, overrides)

    checkpoint_utils.overwrite_args_by_name = overwrite_args_by_name
