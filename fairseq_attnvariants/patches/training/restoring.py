"""Checks that the checkpoint from which a training starts exists and fits its options.

Stock fairseq trains from scratch if the file of ``--restore-file`` is missing, ends in a ``KeyError`` if the checkpoint
has another learning rate scheduler, and compares new scores with the best score of another metric.
"""

import ast
import logging
import os
import re
from collections.abc import Mapping
from typing import Any

from fairseq import checkpoint_utils
from fairseq.file_io import PathManager
from fairseq.optim.lr_scheduler.reduce_lr_on_plateau import ReduceLROnPlateauLRSchedule

from ...architectures.options import flag
from ...registry import ConfigurationError, in_folder, nearest

logger = logging.getLogger(__name__)

LAST = "checkpoint_last.pt"  # the default of --restore-file
SHAPELESS = re.compile("dropout|^init(_std)?$|embed_path$|^warm_start$")  # options that no parameter's shape depends on


def start_of(cfg: Any, suffix: str) -> tuple[str, str]:
    """The option that names the checkpoint to start from, and its path; no option for the folder's last checkpoint.

    Args:
        cfg: the ``checkpoint`` section.
        suffix: the suffix that a process adds to the names of its checkpoints.

    Raises:
        ConfigurationError: two options name a checkpoint, or the file that an option names does not exist.
    """
    option, path = "", os.path.join(cfg.save_dir, f"checkpoint_last{suffix}.pt")
    if cfg.restore_file != LAST:
        option, path = "--restore-file", cfg.restore_file.replace(".pt", f"{suffix}.pt")
        if cfg.finetune_from_model:
            raise ConfigurationError(
                "--finetune-from-model and --restore-file both say where to start: leave one of them out"
            )
    elif not PathManager.exists(path):
        for name in ("finetune_from_model", "continue_once"):  # the latter counts if both are given, as in fairseq
            if getattr(cfg, name, None) is not None:
                option, path = flag(name), getattr(cfg, name)
    if option and not PathManager.isfile(path):
        raise ConfigurationError(f"{option} {path}: there is no such file{in_folder(path)}")
    return option, path


def other_part(error: Exception, trainer: Any, path: str) -> str | None:
    """The reason why a checkpoint of another optimizer, criterion or scheduler, or without an average, does not fit."""
    if isinstance(error, AssertionError) and "please reset the optimizer" in str(error):
        return f"{path}: {error}"
    if not isinstance(error, KeyError):
        return None
    if error.args == ("model",):  # fairseq has removed the weights before it reads them
        return f"--store-ema: {path} has no moving average to continue: leave it out, as in the former command"
    stored = (trainer._optim_history or [{}])[-1].get("lr_scheduler_state", {})
    if error.args[0] not in trainer.lr_scheduler.state_dict().keys() - stored.keys():
        return None
    return (
        f"{path}: the checkpoint has the state of another --lr-scheduler than {trainer.cfg.lr_scheduler._name}: give "
        "the former, or --reset-lr-scheduler to start this one again"
    )


def check_overrides(text: str) -> dict[str, Any]:
    """The dictionary of ``--optimizer-overrides``.

    Raises:
        ConfigurationError: it is none.
    """
    try:
        found = ast.literal_eval(text)
    except (SyntaxError, ValueError, TypeError):
        found = None
    if not isinstance(found, dict):
        raise ConfigurationError(
            f"""--optimizer-overrides {text}: this is no dictionary of Python, such as "{{'weight_decay': 0.1}}\""""
        )
    return found


def check_optimizer(cfg: Any, trainer: Any, overrides: Mapping[str, Any], path: str, stored: Mapping[str, Any]) -> None:
    """Refuse settings of an optimizer that its restored state has replaced: they would change nothing.

    Raises:
        ConfigurationError: naming the first option, or the override that the optimizer does not have.
    """
    try:
        settings, group = trainer.optimizer.optimizer_config, trainer.optimizer.param_groups[0]
    except NotImplementedError:  # of --optimizer composite, which has several
        return
    for name in map(str, overrides):
        if name not in settings:
            raise ConfigurationError(f"--optimizer-overrides: the optimizer has no {name!r}{nearest(name, settings)}")
    before, now = section(stored, "optimization").get("lr"), trainer.cfg.optimization.lr
    goes_on = not (cfg.reset_optimizer or cfg.finetune_from_model)
    goes_on &= isinstance(trainer.lr_scheduler, ReduceLROnPlateauLRSchedule)  # others compute the rate from --lr
    if goes_on and "lr" not in overrides and before is not None and [*before] != [*now]:
        raise ConfigurationError(
            f"--lr {now[0]} would change nothing, since --lr-scheduler {trainer.cfg.lr_scheduler._name} continues with "
            f"{path}, which began with {before[0]}: give that, or change the present rate by --optimizer-overrides "
            f"\"{{'lr': {now[0]}}}\""
        )
    for name, value in settings.items():
        same = name not in group or plain(group[name]) == plain(value)
        if same or name == "lr" or name in overrides:
            continue
        options = [own for own in section(trainer.cfg, "optimizer") if own == name or own.endswith(f"_{name}")]
        raise ConfigurationError(
            f"{flag(options[0] if options else name)} {value} would change nothing, since the state of the optimizer "
            f"in {path} has {group[name]}: give that, or change it by --optimizer-overrides \"{{'{name}': {value}}}\""
        )


def plain(value: Any) -> Any:
    """A list for a tuple, because a state may come back with the other."""
    return [*value] if isinstance(value, (tuple, list)) else value


def other_model(error: Exception, model: Any, stored: Mapping[str, Any]) -> str | None:
    """The reason why parameters do not fit a model: options that differ, or PyTorch's first reason; else None."""
    first, *reasons = str(error.__context__).splitlines() or [""]
    if not first.startswith("Error(s) in loading state_dict"):
        return None
    now, before = section(vars(model), "cfg"), section(stored, "model")
    before.setdefault("_name", before.get("arch"))
    names = ["_name"] if now.get("_name", before["_name"]) != before["_name"] else now.keys() & before.keys()
    different = [
        f"{flag('arch' if name == '_name' else name)} is {before[name]} there and {now[name]} here"
        for name in sorted(names)
        if str(now[name]) != str(before[name]) and not SHAPELESS.search(name)
    ]
    return ", ".join(different) or reasons[0].strip()


def compare_options(cfg: Any, model: Any, path: str, stored: Mapping[str, Any]) -> None:
    """Warn if ``--part-args`` or the best metric differ from those of a checkpoint, which loads nevertheless.

    Drop the best score of another metric.
    """
    now, before = getattr(getattr(model, "cfg", None), "part_args", None), section(stored, "model").get("part_args")
    if None not in (now, before) and before != now:
        logger.warning(
            f"{path} was trained with --part-args {before!r}, and this training continues with {now!r}: give the "
            "former to continue as before"
        )
    metric, best = section(stored, "checkpoint").get("best_checkpoint_metric"), vars(checkpoint_utils.save_checkpoint)
    if "best" in best and metric not in (None, cfg.best_checkpoint_metric):
        del best["best"]
        logger.warning(
            f"{path} has the best {metric}, and here --best-checkpoint-metric is {cfg.best_checkpoint_metric}: the "
            "best checkpoint is chosen again"
        )


def warn_of_new_start(cfg: Any, suffix: str, path: str) -> None:
    """Warn if ``--restore-file`` starts again in a folder that has a last checkpoint, which is going to be replaced."""
    last = os.path.join(cfg.save_dir, f"checkpoint_last{suffix}.pt")
    if PathManager.exists(last) and os.path.realpath(last) != os.path.realpath(path):
        logger.warning(
            f"--restore-file starts from {path} again, and {last} is going to be replaced: leave --restore-file out "
            "to continue that training"
        )


def section(stored: Mapping[str, Any], name: str) -> dict[str, Any]:
    """A section of a stored configuration as a dictionary; it is a ``Namespace`` for components without a dataclass."""
    part = stored.get(name) or {}
    return dict(part if isinstance(part, Mapping) else vars(part))
