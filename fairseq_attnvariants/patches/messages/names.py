"""Messages about unknown names that suggest the nearest one, and help for trainings with the model's options.

Stock fairseq lists all architectures if ``--arch`` is mistyped, and fails with a ``KeyError: "'_name'"`` if the name
in a configuration is wrong.  It prints help before it has added the options of ``--arch``.
"""

import argparse
import dataclasses
from collections.abc import Sequence

from fairseq import models, options
from fairseq.dataclass.configs import FairseqConfig
from omegaconf import DictConfig

from ...architectures.variants import BASE
from ...registry import ConfigurationError, nearest
from ..loading.configuration import registries
from ..replaced import replaces

NEEDED = {  # what every training has, and its option; without a criterion it has the architecture's own
    "model": "--arch",
    "task": "--task",
    "optimizer": "--optimizer",
    "lr_scheduler": "--lr-scheduler",
}
MODEL_OPTIONS = "Model-specific configuration"  # fairseq's title of the group that it adds after reading --arch


@replaces(models, "build_model")
def build_model(build, cfg, *args, **options):
    """Refuse an unknown architecture and name the nearest one.

    Raises:
        ConfigurationError: there is no architecture of this name.
    """
    name = getattr(cfg, "_name", None)
    known = {*models.ARCH_MODEL_REGISTRY, *models.MODEL_DATACLASS_REGISTRY}
    if name is not None and name not in known:
        raise ConfigurationError(f"model._name={name}: {no_such(str(name), known)}")
    return build(cfg, *args, **options)


def check_names(cfg: DictConfig) -> None:
    """Refuse missing and unknown names: of components, and of options that were added with hydra's plus.

    Raises:
        ConfigurationError: naming the first.
    """
    for section in dataclasses.fields(FairseqConfig):
        if dataclasses.is_dataclass(section.type):
            names = [option.name for option in dataclasses.fields(section.type)]
            for key in map(str, cfg.get(section.name) or ()):
                if key not in names:
                    raise ConfigurationError(f"{section.name}.{key}: there is no such option{nearest(key, names)}")
    for kind, known in registries().items():
        part = cfg.get(kind)
        name = part.get("_name") if isinstance(part, DictConfig) else None
        if kind in NEEDED and name is None and not isinstance(part, argparse.Namespace):  # of one without a dataclass
            raise ConfigurationError(f"{NEEDED[kind]} is needed (by hydra {kind}._name)")
        if kind != "model" and name is not None and name not in known:  # build_model checks the model's name
            raise ConfigurationError(f"{kind}._name={name}: {no_such(name, known, what=kind)}")


@replaces(options, "add_model_args")
def add_model_args(add, parser):
    """Make a wrong ``--arch`` name the nearest architecture, and delay ``--help`` with :class:`LateHelp`."""
    group = add(parser)
    for action in group._group_actions:
        if action.dest == "arch":
            action.type, action.choices = architecture, None  # with choices, argparse would list all 200
    for action in parser._actions:
        if isinstance(action, argparse._HelpAction):
            action.__class__ = LateHelp
    return group


class LateHelp(argparse._HelpAction):
    """``--help`` of a parser that parses twice: it prints the help once the model's options have been added.

    Without ``--arch`` it prints the options of ``rnnsearch``.
    """

    def __call__(self, parser, namespace, values, option_string=None):
        """Print the help and exit, or let the parser continue until the model's options have been added."""
        if any(group.title == MODEL_OPTIONS for group in parser._action_groups):
            super().__call__(parser, namespace, values, option_string)
        namespace.arch = namespace.arch or BASE


def architecture(name: str) -> str:
    """Return the name of an architecture, as the type of ``--arch``.

    Raises:
        argparse.ArgumentTypeError: there is no such architecture.
    """
    if name not in models.ARCH_MODEL_REGISTRY:
        raise argparse.ArgumentTypeError(f"{name}: {no_such(name, models.ARCH_MODEL_REGISTRY)}")
    return name


def no_such(name: str, known, folders: Sequence[str] = (), what: str = "architecture") -> str:
    """Return the message about a name that is not ``known``; ``folders`` are those of ``--user-dir``, if given."""
    more = "if it is your own, or another plugin's, give its --user-dir"
    if folders:
        more = f"the --user-dir {' and '.join(folders)} registers none of this name"
    return f"there is no such {what} here{nearest(name, known)}; {more}"
