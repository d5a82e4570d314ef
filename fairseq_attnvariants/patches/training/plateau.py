"""The learning rate of ``--lr-scheduler reduce_lr_on_plateau`` after a resumption, the same as without an interruption.

Stock fairseq saves a checkpoint before the scheduler gets the epoch's loss, does not pass it that loss when it resumes
from there, and does not save the number of epochs without improvement.
"""

from typing import Any

from fairseq.optim.lr_scheduler.reduce_lr_on_plateau import ReduceLROnPlateauLRSchedule

from ..replaced import replaces


@replaces(ReduceLROnPlateauLRSchedule, "state_dict")
def state_dict(save, self) -> dict[str, Any]:
    """Save the number of epochs without improvement."""
    return {**save(self), "num_bad_epochs": self.lr_scheduler.num_bad_epochs}


@replaces(ReduceLROnPlateauLRSchedule, "load_state_dict")
def load_state_dict(load, self, state_dict) -> None:
    """Restore the number of epochs without improvement."""
    load(self, state_dict)
    self.lr_scheduler.num_bad_epochs = state_dict.get("num_bad_epochs", 0)


def see_last_loss(cfg, trainer, state, epochs) -> None:
    """Pass the scheduler the loss of the epoch at whose end the checkpoint was saved, if there was one.

    Args:
        cfg: the ``checkpoint`` section.
        state: fairseq's extra state in the checkpoint.
        epochs: the iterator that resumes.
    """
    scheduler = trainer.lr_scheduler
    if cfg.reset_optimizer or cfg.reset_lr_scheduler or not isinstance(scheduler, ReduceLROnPlateauLRSchedule):
        return
    batches = (state or {}).get("train_iterator", {})
    at_end = batches.get("iterations_in_epoch") == 0 and batches.get("epoch") == epochs.epoch
    if at_end and state.get("val_loss") is not None:
        trainer.lr_step(epochs.epoch - 1, state["val_loss"])
