"""Functions that find trainings in folders, and group those that are one system with several seeds."""

import glob
import hashlib
import os
import re
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..text.files import UserError, say

GROUPS = ("task", "criterion", "optimizer", "lr_scheduler", "dataset", "optimization", "model")
# options of other groups that change a training
MORE = {
    "common": ("fp16", "bf16", "amp", "memory_efficient_fp16", "memory_efficient_bf16"),
    "checkpoint": ("finetune_from_model", "best_checkpoint_metric", "maximize_best_checkpoint_metric"),
    "distributed_training": ("distributed_world_size",),
}
# options that do not distinguish systems; for stock models fairseq keeps all options together
IGNORED = re.compile(
    r"seed|user_dir|save_dir|restore_file|log_.*|.*_logdir|num_workers|no_progress_bar|arch|required_seq_len_multiple"
)


class Run(NamedTuple):
    """A training."""

    folder: Path
    checkpoint: Path
    data: str  # folder
    seed: int
    name: str  # the name given to its system, or else the architecture
    options: dict[str, str]  # by names such as "criterion.label_smoothing"; "criterion._name" is the criterion's name
    parameters: int
    updates: int  # of the checkpoint, as are the hours
    hours: float


def find_runs(folders: Sequence[str], checkpoint: str, names: Sequence[str] | None = None) -> list[Run]:
    """Return the runs in or under the folders: all folders that contain the file ``checkpoint``.

    Args:
        folders: paths, or patterns such as ``sweep/recatt-*``.
        checkpoint: the name of a file.
        names: the names of the systems in each folder (default: their architectures).

    Raises:
        UserError: a folder has no run, or there are more or fewer names than folders.
    """
    from ..systems.model import read_checkpoint

    if names and len(names) != len(folders):
        raise UserError(f"{len(names)} --name for {len(folders)} folders: give one for each, patterns in quotes")
    runs = []
    given: Sequence[str | None] = names or [None] * len(folders)
    for folder, name in zip(folders, given):
        places = [folder] if os.path.isdir(folder) else sorted(glob.glob(folder))
        if not places:
            raise UserError(f"{folder}: there is no such folder")
        found = find_files(places, checkpoint)
        if not found:
            raise UserError(f"{folder}: there is no {checkpoint} in it or under it")
        for begun in find_files(places, ".hydra/overrides.yaml"):
            if not any(begun.parent.parent in path.parents for path in found):
                say(f"{begun.parent.parent}: there is no {checkpoint} yet, so this run is left out")
        for path in found:
            state = read_checkpoint(str(path))
            run, last = read_run(path, state), path.with_name("checkpoint_last.pt")
            try:
                if last.is_file():
                    warn_of_unfinished(run.folder, state if last == path else read_checkpoint(str(last)))
            except (UserError, AttributeError, TypeError) as error:  # limits or an epoch that are no numbers
                why = error if isinstance(error, UserError) else f"{last} is damaged ({error})"
                say(f"{why}: whether this training has ended is not known")
            runs.append(run if name is None else run._replace(name=name))
    return runs


def find_files(folders: Sequence[str], name: str) -> list[Path]:
    """Return the files of a name, or a pattern, in and under the folders; several links to a folder count once."""
    seen, found = set(), []
    for folder in folders:
        for place, inner, _ in os.walk(folder, followlinks=True):
            if (real := os.path.realpath(place)) in seen:
                inner.clear()
                continue
            seen.add(real)
            inner[:] = sorted(one for one in inner if one[0] != ".")
            found += [Path(place, path) for path in glob.glob(name, root_dir=place)]
    return found


def warn_of_unfinished(folder: Path, state: dict[str, Any]) -> None:
    """Report the progress of a training, from its last checkpoint, unless it has ended."""
    from fairseq_attnvariants.patches.loading.configuration import as_dict

    limits = {**as_dict(state["cfg"].get("optimization") or {}), **as_dict(state["cfg"].get("checkpoint") or {})}
    most, epochs, *others = (
        limits.get(name) or 0 for name in ("max_update", "max_epoch", "patience", "stop_time_hours", "stop_min_lr")
    )
    updates = state["optimizer_history"][-1]["num_updates"]
    made = (state["extra_state"].get("train_iterator") or {}).get("epoch", epochs + 1) - 1
    if max(others) > 0 or 0 < most <= updates or 0 < epochs <= made:
        return
    if most > 0:
        say(f"{folder}: this training has made {updates} of {most} updates")
    elif epochs > 0:
        say(f"{folder}: this training has made {made} of {epochs} epochs")


def read_run(checkpoint: Path, state: dict[str, Any]) -> Run:
    """Read the settings of a training from its checkpoint's content.

    Raises:
        UserError: a setting is missing, or has a value of another type.
    """
    from fairseq_attnvariants.patches.loading.configuration import as_dict

    groups = {name: as_dict(group) for name, group in {**state["cfg"], "extra_state": state["extra_state"]}.items()}

    def told(group: str, option: str, *kinds: Any) -> Any:
        value = (groups.get(group) or {}).get(option)
        if not isinstance(value, kinds) or (float in kinds and not 0 <= value <= sys.float_info.max):
            raise UserError(f"{checkpoint} cannot be listed: its {group}.{option} is {str(value)[:80]!r}")
        return value

    for name in (*GROUPS, *MORE):
        if not isinstance(groups.get(name), (dict, type(None))):
            raise UserError(f"{checkpoint} cannot be listed: its {name} is no mapping of options")
    options = {
        f"{name}.{key}": str(group.get(key))
        for name in (*GROUPS, *MORE)
        for group in [groups.get(name) or {}]
        for key in MORE.get(name, group)
        if not IGNORED.fullmatch(str(key))
    }
    data = told("task", "data", str)
    if "task.data" in options:  # hydra needs absolute paths
        options["task.data"] = os.pathsep.join(map(os.path.realpath, data.split(os.pathsep)))
    return Run(
        checkpoint.parent.parent if checkpoint.parent.name == "checkpoints" else checkpoint.parent,
        checkpoint,
        data,
        told("common", "seed", int),
        told("model", "_name", str),
        options,
        count_parameters(state["model"]),
        state["optimizer_history"][-1]["num_updates"],
        told("extra_state", "previous_training_time", int, float) / 3600,
    )


def count_parameters(tensors: Mapping[str, Any]) -> int:
    """Count the numbers that a model learns. Tied matrices count once, though a checkpoint may have several copies."""
    import torch

    from fairseq_attnvariants.models.warm_start import learned

    sizes: dict[Any, int] = {}
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and learned(name):
            held: Any = tensor.data_ptr()
            if tensor.dim() > 1:
                held = hashlib.sha256(tensor.contiguous().view(torch.uint8).numpy()).digest()
            sizes[held, tensor.shape] = tensor.numel()
    return sum(sizes.values())


def by_system(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """Group runs that differ only in the seed, by name, and by the options in which runs of one name differ.

    An option that only one criterion (or task, optimizer, ...) has distinguishes only runs with this criterion.  An
    option that one group passes on to others, such as ``lr``, is named once.
    """
    found: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        same = [other.options for other in runs if other.name == run.name]
        words = [run.name]
        keys = sorted({key for options in same for key in options}, key=lambda key: ("._name" not in key, key))
        for key in keys:
            group, _, option = key.partition(".")
            kind = f"{group}._name"
            alike = [options for options in same if key == kind or options.get(kind) == run.options.get(kind)]
            own = run.options.get(key, "None")
            if own != "None" and any(options.get(key, "None") != own for options in alike):
                handed_on = {run.options.get(other, "None") for other in keys if other.partition(".")[2] == option}
                label = group if key == kind else option if len(handed_on) == 1 else key
                words.append(f"{label}={own}")
        name = " ".join(dict.fromkeys(words))
        if run.seed in [other.seed for other in found[name]]:
            raise UserError(f"{run.folder} and another run are both {name} with seed {run.seed}: leave one out")
        found[name].append(run)
    return dict(found)
