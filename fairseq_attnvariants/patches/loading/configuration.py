"""A stored configuration is plain values: it names no variable of the environment, no file to compose, no pipe.

fairseq gives an old checkpoint's ``args`` to hydra, which resolves ``${...}`` and reads a YAML file for every name of a
registry.  So both forms, ``args`` and ``cfg``, are looked through before.
"""

import argparse
import ast
import os
import re
import stat
from typing import Any, Dict, Iterator, Mapping, Tuple

from fairseq.models import ARCH_MODEL_REGISTRY, MODEL_DATACLASS_REGISTRY, MODEL_REGISTRY
from fairseq.registry import REGISTRIES
from fairseq.tasks import TASK_REGISTRY

MOST = 100_000  # values of a configuration
TRAINING = ("criterion", "optimizer", "lr_scheduler")  # may be of a plugin that translation does not need

origins: Dict[str, str] = {}  # strings of the checkpoints read so far, and where they stand, for messages


def check_configuration(path: str, state: Mapping[str, Any]) -> None:
    """Refuse the ``args`` and ``cfg`` of a checkpoint where they are anything but plain values, known names, files.

    Raises:
        ValueError: one sentence that names the file ``path`` and the option.
    """
    args, cfg = state.get("args"), state.get("cfg")
    if not isinstance(args, (argparse.Namespace, type(None))):
        raise ValueError(f"{path} is not a checkpoint of fairseq 0.12: its args are {type(args).__name__}")
    if not isinstance(cfg, (dict, type(None))):
        raise ValueError(f"{path} is not a checkpoint of fairseq 0.12: its cfg is {type(cfg).__name__}")
    try:
        for part in (args, cfg):
            for count, (option, value) in enumerate(_values(part)):
                place = f"{path}: option {option}"
                if count > MOST:
                    raise ValueError(f"{path}: a configuration of more than {MOST} values")
                _check_value(place, value)
    except RecursionError:
        raise ValueError(f"{path}: a configuration that is nested too deeply") from None
    _check_names(path, args, cfg)


def _values(part: Any, name: str = "") -> Iterator[Tuple[str, Any]]:
    """The values of a nested configuration, and the names of their options."""
    if isinstance(part, argparse.Namespace):
        part = vars(part)
    if isinstance(part, dict):
        for key, value in part.items():
            yield from _values(value, f"{name}.{key}" if name else str(key))
    elif isinstance(part, (list, tuple)):
        yield name, None
        for value in part:
            yield from _values(value, name)
    else:
        yield name, part


def _check_value(place: str, value: Any) -> None:
    if type(value) not in (str, int, float, bool, type(None)):
        raise ValueError(f"{place} is {type(value).__name__}, and a configuration holds plain values")
    if not isinstance(value, str):
        return
    origins[value] = place
    if any("${" in text for text in (value, *_literals(value))):
        raise ValueError(f"{place} is {value[:200]!r}: a checkpoint holds values, no interpolations")
    if not place.endswith("log_file") and _is_special(value):
        raise ValueError(f"{place} is {value[:200]!r}, which is no file, but a pipe or a device")


def _literals(text: str) -> Iterator[str]:
    """The strings in what fairseq makes of a string: it evaluates literals in the place of numbers and lists."""
    if "'" in text or '"' in text:
        try:
            value = ast.literal_eval(text)
        except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
            return
        yield from (part for _, part in _values(value) if isinstance(part, str))


def _is_special(text: str) -> bool:
    try:
        mode = os.stat(text).st_mode
    except (OSError, ValueError):  # of most texts, which are no paths
        return False
    return text != os.devnull and not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def registries() -> Dict[str, Any]:
    """The names that fairseq and its plugins have for each kind of component."""
    known = {kind: registry["registry"] for kind, registry in REGISTRIES.items()}
    models = {**ARCH_MODEL_REGISTRY, **MODEL_REGISTRY, **MODEL_DATACLASS_REGISTRY}
    return {**known, "task": TASK_REGISTRY, "model": models}


def _check_names(path: str, args: Any, cfg: Any) -> None:
    for kind, known in registries().items():
        key = "arch" if kind == "model" else kind
        found = [getattr(args, key, None)]
        part = (cfg or {}).get(kind)
        if isinstance(part, argparse.Namespace):
            part = vars(part)
        if isinstance(part, dict):
            part = next((part[name] for name in ("_name", key) if part.get(name) is not None), None)
        if kind not in TRAINING or not re.fullmatch(r"[\w-]+", str(part)):
            found.append(part)
        for name in found:
            if name is not None and not (isinstance(name, str) and name in known):
                raise ValueError(
                    f"{path} needs the {kind} {name!r}, which neither fairseq nor this package has: give the "
                    "--user-dir of the folder that has it"
                )
