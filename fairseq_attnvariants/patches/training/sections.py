"""Sections of a hydra configuration that fit the components that they name.

``config/train.yaml`` lists options that only some components have.  Other components do not get them, and if such an
option was changed, it is refused.  Without a criterion's name a training gets the architecture's criterion; on the
command line :mod:`..messages.arguments` chooses it.  In stock fairseq both always have a name.
"""

import dataclasses
import sys
from pathlib import Path
from typing import Any

import yaml
from fairseq.dataclass import initialize
from fairseq.models import ARCH_MODEL_NAME_REGISTRY, ARCH_MODEL_REGISTRY, MODEL_DATACLASS_REGISTRY
from fairseq.registry import REGISTRIES
from fairseq.tasks import TASK_DATACLASS_REGISTRY
from fairseq.utils import import_user_module
from omegaconf import DictConfig, open_dict
from omegaconf.errors import ValidationError

from ...architectures.options import AttentionRNNConfig
from ...architectures.variants import default_criterion
from ...registry import ConfigurationError, nearest
from ..loading.configuration import registries
from ..messages.names import check_names
from ..replaced import replaces
from .validation import check_numbers

USUAL = "label_smoothed_cross_entropy"
TRAIN = Path(__file__).parents[2] / "config" / "train.yaml"


@replaces(initialize, "add_defaults")
def add_defaults(complete, cfg) -> None:
    """Fit each section to its component; fairseq calls this twice, before and after it has resolved ``${...}``.

    Raises:
        ConfigurationError: a component lacks a given option, a name is unknown, or a value is impossible.
    """
    import_user_module(cfg.common)  # which may register the names
    check_names(cfg)
    check_numbers(cfg)
    given = cfg.get("criterion")
    usual = isinstance(given, DictConfig) and "_name" in given and given._name is None
    if usual and cfg.model._name in ARCH_MODEL_REGISTRY:
        given._name = default_criterion(cfg.model._name) or USUAL
    for section, listed in yaml.safe_load(TRAIN.read_text()).items():
        part = cfg.get(section)
        if isinstance(part, DictConfig) and part.get("_name") is not None:
            with open_dict(cfg):
                cfg[section] = fitting(part, listed, section)
    try:
        complete(cfg)
    except ValidationError as error:
        raise ConfigurationError(f"{place_of(error, cfg)}: {str(error).splitlines()[0]}") from None


def place_of(error: ValidationError, cfg: DictConfig) -> str:
    """The key of a value that has a wrong type; omegaconf leaves out the section."""
    for section in registries():
        name = getattr(cfg.get(section), "_name", None)
        if name is not None and dataclass_of(section, name) is error.object_type:
            return f"{section}.{error.full_key}"
    return str(error.full_key)


def dataclass_of(section: str, name: str) -> Any:
    """The dataclass of a component's options, or None for components without one."""
    if section == "model":
        return MODEL_DATACLASS_REGISTRY.get(ARCH_MODEL_NAME_REGISTRY.get(name, name))
    known = TASK_DATACLASS_REGISTRY if section == "task" else REGISTRIES[section]["dataclass_registry"]
    return known.get(name)


def fitting(given: DictConfig, listed: dict[str, Any], section: str) -> dict[str, Any]:
    """Return the given options, without those that the component lacks and that have ``train.yaml``'s value.

    An option that ``train.yaml`` takes from another section counts as unchanged.  Components without a dataclass take
    any option.  An architecture of fairseq does not take null, which means the default here.

    Raises:
        ConfigurationError: the component lacks an option whose value was changed.
    """
    name = given._name
    settings = dataclass_of(section, name)
    options = {field.name for field in dataclasses.fields(settings)} if settings else {*map(str, given)}
    takes_null = section != "model" or (settings and issubclass(settings, AttentionRNNConfig))
    kept = {}
    for option, value in ((str(option), given[option]) for option in given):
        usual = listed.get(option, ...)
        if option in options:
            if takes_null or value is not None:
                kept[option] = value
        elif value != usual and not str(usual).startswith("${"):
            raise ConfigurationError(
                f"{section}.{option}: the {section} {name} has no such option{nearest(option, options)}: correct it or "
                f"leave it out, or choose another {section} by {section}._name"
            )
    return kept


if "fairseq_cli.train" in sys.modules:  # it has imported the original function already
    sys.modules["fairseq_cli.train"].add_defaults = initialize.add_defaults  # type: ignore[attr-defined]
