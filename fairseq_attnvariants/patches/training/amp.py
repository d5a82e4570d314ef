"""Gradients with ``--amp``, which stock fairseq divides by the scale of the loss twice.

It divides them for one object when it clips them, and for another one when it updates.  The scale doubles every 2,000
updates, so the gradients of a long training become smaller than Adam's ε, and its updates shrink.
"""

from fairseq.optim.amp_optimizer import AMPOptimizer

from ..replaced import replaces


@replaces(AMPOptimizer, "step")
def step_once_scaled(step, self) -> None:
    """Update with the optimizer whose gradients have been divided already; without finite ones, change nothing."""
    self.scaler.step(self.optimizer)
    self.scaler.update()
