"""A rate that falls when the validation loss does not, as it would have without an interruption.

Stock fairseq saves a checkpoint before ``--lr-scheduler reduce_lr_on_plateau`` sees the epoch's loss, does not show it
that loss when it goes on from there, and does not keep how many epochs have not been better.
"""

import functools

from fairseq.optim.lr_scheduler.reduce_lr_on_plateau import ReduceLROnPlateauLRSchedule


def patch_plateau() -> None:
    """Let the scheduler keep its count of epochs that were not better."""
    save, load = ReduceLROnPlateauLRSchedule.state_dict, ReduceLROnPlateauLRSchedule.load_state_dict

    @functools.wraps(save)
    def state_dict(self):
        return {**save(self), "num_bad_epochs": self.lr_scheduler.num_bad_epochs}

    @functools.wraps(load)
    def load_state_dict(self, state_dict):
        load(self, state_dict)
        self.lr_scheduler.num_bad_epochs = state_dict.get("num_bad_epochs", 0)

    ReduceLROnPlateauLRSchedule.state_dict = state_dict
    ReduceLROnPlateauLRSchedule.load_state_dict = load_state_dict


def see_last_loss(cfg, trainer, state, epochs) -> None:
    """Show the scheduler the loss of the epoch at whose end the checkpoint was saved, if there was one.

    Args:
        cfg: the ``checkpoint`` section.
        state: what of the checkpoint is fairseq's own.
        epochs: the iterator that goes on.
    """
    scheduler = trainer.lr_scheduler
    if cfg.reset_optimizer or cfg.reset_lr_scheduler or not isinstance(scheduler, ReduceLROnPlateauLRSchedule):
        return
    batches = (state or {}).get("train_iterator", {})
    at_end = batches.get("iterations_in_epoch") == 0 and batches.get("epoch") == epochs.epoch
    if at_end and state.get("val_loss") is not None:
        trainer.lr_step(epochs.epoch - 1, state["val_loss"])
