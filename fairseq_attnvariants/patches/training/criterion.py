"""A hydra configuration without a criterion's name gets the architecture's own criterion.

On the command line :mod:`..messages.arguments` chooses it.  In stock fairseq both always have a name.
"""

import dataclasses
import sys

from fairseq.dataclass import initialize
from fairseq.models import ARCH_MODEL_REGISTRY
from fairseq.registry import REGISTRIES
from omegaconf import DictConfig, open_dict

from ...architectures.variants import default_criterion
from ..replaced import replaces

USUAL = "label_smoothed_cross_entropy"


@replaces(initialize, "add_defaults")
def add_defaults(complete, cfg) -> None:
    """Name the criterion as soon as the architecture is known; fairseq asks twice, the second time with all parts."""
    given = cfg.get("criterion")
    nameless = isinstance(given, DictConfig) and "_name" in given and given._name is None
    if nameless and cfg.model._name in ARCH_MODEL_REGISTRY:
        name = default_criterion(cfg.model._name) or USUAL
        settings = REGISTRIES["criterion"]["dataclass_registry"].get(name)
        known = {field.name for field in dataclasses.fields(settings)} if settings else ()
        with open_dict(cfg):
            cfg.criterion = {**{option: given[option] for option in given if option in known}, "_name": name}
    complete(cfg)


if "fairseq_cli.train" in sys.modules:  # it has taken the other one by then
    sys.modules["fairseq_cli.train"].add_defaults = initialize.add_defaults  # type: ignore[attr-defined]
