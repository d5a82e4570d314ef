"""``--model-overrides`` for options newer than the checkpoint, and for single options of parts.

Stock fairseq overrides only options that a saved configuration has and ignores the others without a message, so this
patch completes the configuration first.  Stock fairseq also replaces all of ``part_args``, so options that are not
given would no longer have the values of the training.
"""

import logging

from fairseq import checkpoint_utils
from fairseq.models import ARCH_MODEL_REGISTRY, MODEL_REGISTRY
from omegaconf import DictConfig

from ...architectures.options import AttentionRNNConfig, complete
from ...architectures.part_args import part_args_over
from ...registry import nearest
from ..loading.configuration import as_dict
from ..replaced import replaces

logger = logging.getLogger(__name__)


@replaces(checkpoint_utils, "overwrite_args_by_name")
def overwrite_args_by_name(overwrite, cfg, overrides) -> None:
    """Complete a configuration of this package before fairseq overrides it; keep ``part_args`` that are not given."""
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
    """Warn of overrides that have no effect and seem to be misspelt."""
    # the options of a task without a dataclass are a Namespace
    sections = map(as_dict, cfg.values())
    known = {str(option) for section in sections if isinstance(section, (dict, DictConfig)) for option in section}
    known |= {str(section) for section in cfg}
    for name in overrides:
        if name not in known and (meant := nearest(name, known)):
            logger.warning(f"there is no option {name!r} to override{meant}")
