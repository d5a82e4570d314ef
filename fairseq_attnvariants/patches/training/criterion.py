"""In a configuration of hydra's, no name of a criterion means the architecture's own.

On the command line :mod:`..messages.arguments` chooses it.  Stock fairseq asks neither: there a name always stands.
"""

import dataclasses

from fairseq.registry import REGISTRIES
from fairseq_cli import train
from omegaconf import DictConfig, open_dict

from ...architectures.variants import default_criterion
from ..replaced import replaces

USUAL = "label_smoothed_cross_entropy"


@replaces(train, "add_defaults")
def add_defaults(complete, cfg):
    """Name the criterion before a training reads its configuration, by then with the parts of every ``--user-dir``."""
    given = cfg.get("criterion")
    if isinstance(given, DictConfig) and given.get("_name", USUAL) is None:
        name = default_criterion(cfg.model._name) or USUAL
        settings = REGISTRIES["criterion"]["dataclass_registry"].get(name)
        known = {field.name for field in dataclasses.fields(settings)} if settings else ()
        with open_dict(cfg):
            cfg.criterion = {"_name": name, **{option: given[option] for option in given if option in known}}
    complete(cfg)
