"""A rate that falls when the validation loss does not, as it would have without an interruption.

Stock fairseq saves a checkpoint before ``--lr-scheduler reduce_lr_on_plateau`` sees the epoch's loss, does not show it
that loss when it goes on from there, and does not keep how many epochs have not been better.
"""

from typing import Any, Dict

from fairseq.optim.lr_scheduler.reduce_lr_on_plateau import ReduceLROnPlateauLRSchedule

from ..replaced import replaces


@replaces(ReduceLROnPlateauLRSchedule, "state_dict")
def state_dict(save, self) -> Dict[str, Any]:
    """Keep the count of epochs that were not better."""
    return {**save(self), "num_bad_epochs": self.lr_scheduler.num_bad_epochs}


@replaces(ReduceLROnPlateauLRSchedule, "load_state_dict")
def load_state_dict(load, self, state_dict) -> None:
    """Go on from the count of epochs that were not better."""
    load(self, state_dict)
    self.lr_scheduler.num_bad_epochs = state_dict.get("num_bad_epochs", 0)


def see_last_loss(cfg, trainer, state, epochs) -> None:
    """Show the scheduler the loss of the epoch at whose end the checkpoint was saved, if there was one.

    Args:
        cfg: the ``checkpoint`` section.
        state: fairseq's own state in the checkpoint.
        epochs: the iterator that goes on.
    """
    scheduler = trainer.lr_scheduler
    if cfg.reset_optimizer or cfg.reset_lr_scheduler or not isinstance(scheduler, ReduceLROnPlateauLRSchedule):
        return
    batches = (state or {}).get("train_iterator", {})
    at_end = batches.get("iterations_in_epoch") == 0 and batches.get("epoch") == epochs.epoch
    if at_end and state.get("val_loss") is not None:
        trainer.lr_step(epochs.epoch - 1, state["val_loss"])
