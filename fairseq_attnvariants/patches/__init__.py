"""Patches of fairseq: for current versions of torch, safe loading, resumed trainings and clear messages.

``docs/checkpoints.md`` has a table of everything that is replaced, with the reason and the cost.  A test fails if
a patch has no row in that table.
"""


def patch_fairseq() -> None:
    """Apply every patch by importing it; the models and tasks of this package must be registered before."""
    from . import search, transformer  # noqa: F401
    from .loading import archives, checkpoints, evaluation  # noqa: F401
    from .messages import arguments, data, names, overrides  # noqa: F401
    from .training import alignments, amp, batches, clipping, plateau, resuming, sections, validation  # noqa: F401

    evaluation.replace_eval()
