"""A training that was killed loses nothing, and one whose command is repeated does not change.

Models and criterions of this package refuse wrong options before the first batch.  A training that ends early ends with
its own message: the thread that loads batches is stopped first, because it may otherwise abort the interpreter
(``terminate called without an active exception``).

Stock fairseq copies to ``checkpoint_last.pt`` directly, so a killed training can leave it cut off.  It also makes one
more update each time a training that has reached ``--max-update`` is started again.
"""

import atexit
import contextlib
import glob
import logging
import os
import queue
import shutil
import sys
import threading
import time
from collections.abc import Mapping
from copy import copy as shallow_copy
from typing import Any

from fairseq import checkpoint_utils
from fairseq.data.iterators import BackgroundConsumer
from fairseq.file_io import PathManager
from fairseq.models import BaseFairseqModel
from fairseq.nan_detector import NanDetector

from ...registry import ConfigurationError
from ..loading import checkpoints
from ..messages.data import check_texts
from ..replaced import replaces
from .lock import lock, release
from .plateau import see_last_loss
from .restoring import (
    LAST,
    check_optimizer,
    check_overrides,
    compare_options,
    other_model,
    other_part,
    start_of,
    warn_of_new_start,
)
from .validation import check_validation

logger = logging.getLogger(__name__)


@replaces(PathManager, "open")
def open_new(open_any, path: str, mode: str = "r", *args, **options):
    """Write a temporary file of fairseq, which it renames later, to a new file."""
    if str(path).endswith(".tmp") and mode == "wb":
        with contextlib.suppress(FileNotFoundError):  # a link to another file, or a file that a killed training left
            os.unlink(path)
        mode = "xb"
    return open_any(path, mode, *args, **options)


@replaces(PathManager, "rename")
def rename_whole(rename, source: str, target: str) -> None:
    """Write the file to the disk before renaming it."""
    with open(source, "rb") as stream:
        os.fsync(stream.fileno())  # else, after a power cut, the name may exist without the content
    rename(source, target)


@replaces(PathManager, "copy")
def copy_whole(copy, source: str, target: str, overwrite: bool = False) -> bool:
    """Copy the complete file or nothing."""
    if not PathManager.supports_rename(target):
        return copy(source, target, overwrite)
    scratch = f"{target}.tmp"
    try:
        with open(source, "rb") as content, PathManager.open(scratch, "wb") as stream:
            shutil.copyfileobj(content, stream)
        PathManager.rename(scratch, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(scratch)
        raise
    return True


@replaces(NanDetector, "__init__")
def detect_forwards(detect, self, model, forward=True, backward=True) -> None:
    """Leave out the gradient hooks for models of this package, which fail with them.

    The hooks need modules that return tensors and exist as long as the gradients.
    """
    packages = {type(module).__module__.partition(".")[0] for module in model.modules()}
    detect(self, model, forward, backward and __name__.partition(".")[0] not in packages)


@replaces(checkpoint_utils, "verify_checkpoint_directory")
def verify_folder(verify, folder: str) -> None:
    """Refuse a folder in which no file can be written.

    Raises:
        ConfigurationError: the message has the system's reason.
    """
    try:
        verify(folder)
    except OSError as error:
        raise ConfigurationError(
            f"--save-dir {folder}: no file can be written there ({error.strerror}): give another folder"
        ) from error


@replaces(checkpoint_utils, "load_checkpoint")
def load_checkpoint(load, cfg, trainer, **options):
    """Start or resume a training from a checkpoint that exists and fits.

    Raises:
        ConfigurationError: the checkpoint, the data or the options do not allow it.
    """
    forget_last_training()
    if trainer.data_parallel_rank == 0 and not cfg.no_save:
        lock(cfg.save_dir, trainer)
    try:
        return start(load, cfg, trainer, **options)
    except BaseException:
        release()
        raise


def start(load, cfg, trainer, **options):
    """Load the checkpoint and check the training, for :func:`load_checkpoint`, which has locked the folder."""
    first = trainer.data_parallel_rank == 0
    if first and cfg.restore_file == LAST:
        mend_last(cfg.save_dir, trainer.get_model(), trainer.checkpoint_suffix)
    option, path = start_of(cfg, trainer.checkpoint_suffix)
    if first and option == "--restore-file" and not cfg.no_save:
        warn_of_new_start(cfg, trainer.checkpoint_suffix, path)
    overrides = check_overrides(cfg.optimizer_overrides)
    try:
        state, epochs = load(cfg, trainer, **options)
    except Exception as error:
        if isinstance(error.__context__, ValueError):  # a refusal of the model, which fairseq hides
            advice = "please ensure that the architectures match."
            raise ConfigurationError(str(error).replace(advice, str(error.__context__))) from error
        if reason := other_part(error, trainer, path):
            raise ConfigurationError(reason) from error
        if reason := other_model(error, trainer.get_model(), stored_options(path)):
            instead = f"or --warm-start instead of {option}" if option else "or another --save-dir"
            raise ConfigurationError(f"{path} is of another model ({reason}): give its options, {instead}") from error
        raise
    stored = stored_options(path)
    if state is not None:
        check_optimizer(cfg, trainer, overrides, path, stored)
    if first:
        compare_options(cfg, trainer.get_model(), path, stored)
    check_texts(trainer)
    check_parts(trainer.get_model(), trainer.get_criterion(), trainer.device)
    forget_absent_best(cfg.save_dir, trainer.checkpoint_suffix)
    if not (option or cfg.reset_optimizer):
        without_optimizer(trainer)
    see_last_loss(cfg, trainer, state, epochs)
    optimization = trainer.cfg.optimization
    if 0 < (optimization.max_update or 0) <= trainer.get_num_updates():
        logger.info(f"--max-update {optimization.max_update} is reached: the weights stay as they are")
        optimization.max_epoch = -1  # fairseq compares with max_update only after an update
    else:
        check_validation(trainer)
    return state, epochs


def stored_options(path: str) -> Mapping[str, Any]:
    """The configuration in a checkpoint, if there is one."""
    return checkpoints.load_checkpoint(path).get("cfg") or {} if os.path.isfile(path) else {}


def check_parts(model, criterion, device) -> None:
    """Let a model and a criterion of this package refuse options that cannot train, after the data is loaded."""
    with_costs = hasattr(criterion, "check_model")
    if with_costs:
        criterion.check_model(model)
    if hasattr(model, "before_training"):
        model.before_training(device, with_costs)


@atexit.register
def stop_loading() -> None:
    """End the threads that load batches, each after its current batch; give up after five seconds."""
    loading = [thread for thread in threading.enumerate() if isinstance(thread, BackgroundConsumer)]
    end = time.monotonic() + 5
    for thread in loading:
        thread._max_len = 0
        while thread.is_alive() and time.monotonic() < end:
            with contextlib.suppress(queue.Empty):  # the thread may be waiting for a free place in its queue
                thread._queue.get(timeout=0.05)


def forget_last_training() -> None:
    """Drop what fairseq keeps of an earlier training in this process, as in a sweep: best score, patience, batches."""
    stop_loading()
    train = sys.modules.get("fairseq_cli.train")
    for function in (checkpoint_utils.save_checkpoint, getattr(train, "should_stop_early", None)):
        for name in ("best", "num_runs"):
            getattr(function, "__dict__", {}).pop(name, None)


def forget_absent_best(folder: str, suffix: str) -> None:
    """Drop the best score so far if the folder has no ``checkpoint_best.pt``, so that the next best one is saved.

    fairseq takes this score from a ``--restore-file`` in another folder, and it can be that no later score is better.
    """
    if not PathManager.exists(os.path.join(folder, f"checkpoint_best{suffix}.pt")):
        vars(checkpoint_utils.save_checkpoint).pop("best", None)


def without_optimizer(trainer) -> None:
    """Continue the count of updates from a checkpoint without an optimizer's state, where fairseq starts at 0."""
    updates = (trainer._optim_history or [{}])[-1].get("num_updates", 0)
    if updates > trainer.get_num_updates():
        logger.warning("checkpoint_last.pt has no optimizer state, so the optimizer starts again")
        trainer.set_num_updates(updates)


def mend_last(folder: str, model: BaseFairseqModel, suffix: str = "") -> None:
    """Replace a ``checkpoint_last.pt`` that is damaged or cut off by the complete checkpoint with the most updates.

    Only checkpoints count that a training saved and whose parameters have the names and shapes of ``model``'s.

    Raises:
        ConfigurationError: there is no such checkpoint.
    """
    last = os.path.join(folder, f"checkpoint_last{suffix}.pt")
    if not os.path.isfile(last) or checkpoints.is_whole(last):
        return
    paths = glob.glob(os.path.join(glob.escape(folder), f"checkpoint*{suffix}.pt"))
    complete = {path: place for path in paths if (place := _place(path, model)) is not None}
    if not complete:
        raise ConfigurationError(
            f"{last} is damaged or cut off, and {folder} has no whole one of this model that a training saved: "
            "remove it to start again, or name another by --restore-file"
        )
    newest = max(complete, key=lambda path: complete[path])
    logger.warning(f"{last} is damaged or cut off: continuing from {newest}, the newest complete checkpoint")
    PathManager.copy(newest, last, overwrite=True)


def _place(path: str, model: BaseFairseqModel) -> tuple[int, bool] | None:
    """A checkpoint's updates, and whether it has an optimizer's state; None if a training cannot resume from it."""
    try:
        state = checkpoints.load_checkpoint(path)
        saved = dict(state["model"])
        shallow_copy(model).upgrade_state_dict(saved)  # renames parameters; the model keeps its start
        updates = state["optimizer_history"][-1]["num_updates"]
        by_training = "val_loss" in state["extra_state"]  # an averaged checkpoint has none
    except Exception:  # the checkpoint of another model can cause any error
        return None
    sizes = [{name: value.shape for name, value in values.items()} for values in (saved, model.state_dict())]
    return (updates, bool(state.get("last_optimizer_state"))) if by_training and sizes[0] == sizes[1] else None
