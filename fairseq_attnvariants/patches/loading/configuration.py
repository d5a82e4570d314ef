"""A stored configuration holds plain values: it names no environment variable, no YAML file for hydra, no pipe.

fairseq gives an old checkpoint's ``args`` to hydra, which resolves ``${...}`` and reads a YAML file for every component
that they name.  Models do the same with the ``args`` in their options.  So both forms, ``args`` and ``cfg``, are
checked before that, at every depth.
"""

import argparse
import ast
import contextlib
import json
import logging
import os
import re
import stat
from collections.abc import Iterator, Mapping
from typing import Any

from fairseq.models import ARCH_MODEL_REGISTRY, MODEL_DATACLASS_REGISTRY, MODEL_REGISTRY
from fairseq.registry import REGISTRIES
from fairseq.tasks import TASK_REGISTRY

from ...registry import ConfigurationError

logger = logging.getLogger(__name__)

MOST = 100_000  # the most values of a configuration
TRAINING = ("criterion", "optimizer", "lr_scheduler")  # may come from a plugin that translation does not need
INTERPOLATION = re.compile(r"""\$[\\'"\s]*\{""")  # also with escapes, which hydra removes

origins: dict[str, str] = {}  # strings of the checkpoints read so far, and their file and option, for messages


def check_configuration(path: str, state: Mapping[str, Any]) -> None:
    """Refuse ``args`` and ``cfg`` of a checkpoint unless they hold only plain values, names of components and files.

    Check every mapping and ``Namespace`` at every depth, because models give theirs to hydra again (``w2v_args``), and
    what fairseq parses from a string.

    Raises:
        ConfigurationError: the message is one sentence that names the file ``path`` and the option.
    """
    args, cfg = state.get("args"), state.get("cfg")
    if not isinstance(args, (argparse.Namespace, type(None))):
        raise ConfigurationError(f"{path} is not a checkpoint of fairseq 0.12: its args are {type(args).__name__}")
    if not isinstance(cfg, (dict, type(None))):
        raise ConfigurationError(f"{path} is not a checkpoint of fairseq 0.12: its cfg is {type(cfg).__name__}")
    mappings = []
    try:
        for part in (args, cfg):
            for count, (option, value) in enumerate(_values(part)):
                if count > MOST:
                    raise ConfigurationError(f"{path}: a configuration of more than {MOST} values")
                if not option.isprintable():
                    raise ConfigurationError(f"{path}: the option {option[:200]!a} has a name that cannot be printed")
                if isinstance(value, (dict, argparse.Namespace)):
                    mappings.append(value)
                else:
                    _check_value(f"{path}: option {option}", value)
    except RecursionError:
        raise ConfigurationError(f"{path}: a configuration that is nested too deeply") from None
    for mapping in mappings:
        _check_names(path, mapping, strict=mapping is args)


def update_configuration(path: str, state: Mapping[str, Any]) -> None:
    """Replace option values that no longer exist by the nearest ones that do, with a warning."""
    for part in (state.get("args"), (state.get("cfg") or {}).get("model")):
        options = as_dict(part)
        if isinstance(options, dict) and options.get("search_dtype") == "int8":
            options["search_dtype"] = "auto"
            logger.warning(f"{path} asks for a search in int8, which was removed: auto is used instead")


def _values(part: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the mappings, keys and values of a nested configuration, also in its strings, each with its option."""
    yield name, None if isinstance(part, (list, tuple)) else part
    if isinstance(part, (dict, argparse.Namespace)):
        for key, value in as_dict(part).items():
            option = f"{name}.{key}" if name else str(key)
            yield option, key
            yield from _values(value, option)
    elif isinstance(part, (list, tuple)):
        for value in part:
            yield from _values(value, name)
    elif isinstance(part, str):
        for value in _parsed(part):
            yield from _values(value, name)


def as_dict(part: Any) -> Any:
    """The dictionary of a ``Namespace``; return anything else unchanged."""
    return vars(part) if isinstance(part, argparse.Namespace) else part


def _check_value(place: str, value: Any) -> None:
    if type(value) not in (str, int, float, bool, type(None)):
        raise ConfigurationError(f"{place} is {type(value).__name__}, and a configuration holds plain values")
    if not isinstance(value, str):
        return
    origins[value] = place
    if INTERPOLATION.search(value):
        raise ConfigurationError(f"{place} is {value[:200]!r}: a checkpoint holds values, no interpolations")
    if not place.endswith("log_file") and _is_special(value):
        raise ConfigurationError(f"{place} is {value[:200]!r}, which is no file, but a pipe or a device")


def _parsed(text: str) -> Iterator[Any]:
    """Yield the values of a string with strings in it, which fairseq may parse as a literal or as JSON.

    Raises:
        RecursionError: it is nested too deeply.
    """
    if "'" in text or '"' in text:
        for parse in (ast.literal_eval, json.loads):
            with contextlib.suppress(SyntaxError, ValueError, TypeError, MemoryError):
                yield parse(text)


def _is_special(text: str) -> bool:
    try:
        mode = os.stat(text).st_mode
    except (OSError, ValueError):  # most texts are no paths
        return False
    return text != os.devnull and not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def registries() -> dict[str, Any]:
    """The names that fairseq and its plugins have registered for each kind of component."""
    known = {kind: registry["registry"] for kind, registry in REGISTRIES.items()}
    models = {**ARCH_MODEL_REGISTRY, **MODEL_REGISTRY, **MODEL_DATACLASS_REGISTRY}
    return {**known, "task": TASK_REGISTRY, "model": models}


def _check_names(path: str, part: Any, strict: bool) -> None:
    """Refuse the names of components that are not registered.

    Args:
        path: the checkpoint.
        part: a mapping or a ``Namespace`` of its configuration.
        strict: also check :data:`TRAINING`, whose names may otherwise come from another plugin.
    """
    for kind, known in registries().items():
        legacy = "arch" if kind == "model" else kind
        name = as_dict(part).get(legacy if isinstance(part, argparse.Namespace) else kind)
        if isinstance(name, (dict, argparse.Namespace)):
            options = as_dict(name)
            name = next((options[key] for key in ("_name", legacy) if options.get(key) is not None), None)
        if kind in TRAINING and not strict and re.fullmatch(r"[\w-]+", str(name)):
            continue
        if name is not None and not (isinstance(name, str) and name in known):
            raise ConfigurationError(
                f"{path} needs the {kind} {repr(name)[:80]}, which neither fairseq nor this package has: give the "
                "--user-dir of the folder that has it"
            )
