"""``--model-overrides`` of options that a checkpoint's version did not have yet, and of single options of parts.

Stock fairseq overrides what a saved configuration has and says nothing of the rest, so it is completed first.  And it
replaces ``part_args`` as a whole: what is not given would no longer be what the model was trained with.
"""

import logging

from fairseq import checkpoint_utils
from fairseq.models import ARCH_MODEL_REGISTRY, MODEL_REGISTRY
from omegaconf import DictConfig

from ...architectures.options import AttentionRNNConfig, complete
from ...architectures.part_args import part_args_over
from ...registry import nearest
from ..replaced import replaces

logger = logging.getLogger(__name__)


@replaces(checkpoint_utils, "overwrite_args_by_name")
def overwrite_args_by_name(overwrite, cfg, overrides) -> None:
    """Complete this package's configurations before fairseq overrides, and keep what parts were trained with."""
    name = getattr(cfg.get("model"), "_name", None)
    model = ARCH_MODEL_REGISTRY.get(name) or MODEL_REGISTRY.get(name)
    if getattr(model, "__dataclass", None) is not AttentionRNNConfig:
        overwrite(cfg, overrides)
        return
    complete(cfg.model)
    warn_of_unknown(cfg, overrides)
    stored = cfg.model.part_args
    overwrite(cfg, overrides)
    cfg.model.part_args = part_args_over(cfg.model, stored, overrides.get("part_args"))


def warn_of_unknown(cfg, overrides) -> None:
    """Warn of overrides that override nothing and seem to be misspelt."""
    known = {str(option) for section in cfg.values() if isinstance(section, DictConfig) for option in section}
    known |= {str(section) for section in cfg}
    for name in overrides:
        meant = "" if name in known else nearest(name, known)
        if meant:
            logger.warning(f"there is no option {name!r} to override{meant}")
