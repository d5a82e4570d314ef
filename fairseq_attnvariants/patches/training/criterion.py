"""A hydra configuration without a criterion's name gets the architecture's own criterion.

On the command line :mod:`..messages.arguments` chooses it.  In stock fairseq both always have a name.  Options that
``config/train.yaml`` lists for other tasks and criterions are left out, unless they were changed.
"""

import dataclasses
import sys
from pathlib import Path
from typing import Any, Dict

import yaml
from fairseq.dataclass import initialize
from fairseq.models import ARCH_MODEL_REGISTRY
from fairseq.registry import REGISTRIES
from fairseq.tasks import TASK_DATACLASS_REGISTRY
from fairseq.utils import import_user_module
from omegaconf import DictConfig, open_dict

from ...architectures.variants import default_criterion
from ...registry import ConfigurationError
from ..messages.names import check_names
from ..replaced import replaces

USUAL = "label_smoothed_cross_entropy"
TRAIN = Path(__file__).parents[2] / "config" / "train.yaml"


@replaces(initialize, "add_defaults")
def add_defaults(complete, cfg) -> None:
    """Name the criterion as soon as the architecture is known; fairseq asks twice, the second time with all parts.

    Raises:
        ConfigurationError: the criterion lacks an option that was given, or nothing has a name that was given.
    """
    import_user_module(cfg.common)  # which may have the names
    check_names(cfg)
    given, task = cfg.get("criterion"), cfg.get("task")
    nameless = isinstance(given, DictConfig) and "_name" in given and given._name is None
    if nameless and cfg.model._name in ARCH_MODEL_REGISTRY:
        name = default_criterion(cfg.model._name) or USUAL
        settings = REGISTRIES["criterion"]["dataclass_registry"].get(name)
        own = fitting(given, settings, "criterion")
        lacking = [] if settings is None else [option for option in own if option not in known(settings)]
        if lacking:
            raise ConfigurationError(
                f"criterion.{lacking[0]}: {name}, by which {cfg.model._name} is trained, has no such option: leave it "
                "out, or choose a criterion that has it by criterion._name"
            )
        with open_dict(cfg):
            cfg.criterion = {**own, "_name": name}
    if isinstance(task, DictConfig) and task.get("_name") in TASK_DATACLASS_REGISTRY:
        with open_dict(cfg):
            cfg.task = fitting(task, TASK_DATACLASS_REGISTRY[task._name], "task")
    complete(cfg)


def known(settings: Any) -> set:
    """The options of a dataclass."""
    return {field.name for field in dataclasses.fields(settings)}


def fitting(given: DictConfig, settings: Any, section: str) -> Dict[str, Any]:
    """Return what was given, without the options that ``settings`` lacks and that have the value of ``train.yaml``.

    An option that ``train.yaml`` takes from another section counts as unchanged.
    """
    listed = yaml.safe_load(TRAIN.read_text())[section]
    options = () if settings is None else known(settings)

    def foreign(option: Any) -> bool:
        usual = listed.get(option, ...)
        return option not in options and (usual == given[option] or str(usual).startswith("${"))

    return {str(option): given[option] for option in given if not foreign(option)}


if "fairseq_cli.train" in sys.modules:  # it has taken the other one by then
    sys.modules["fairseq_cli.train"].add_defaults = initialize.add_defaults  # type: ignore[attr-defined]
