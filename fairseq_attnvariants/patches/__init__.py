"""Patches of fairseq, each with its reason: it starts on a current machine, and loads, trains and complains well.

``docs/checkpoints.md`` has the one table of everything that is replaced, with the reason and the cost of each.  A
patch without a row in that table fails a test.
"""


def patch_fairseq() -> None:
    """Import every patch, which applies it; the models and tasks of this package have to be registered before."""
    from . import search, transformer  # noqa: F401
    from .loading import archives, checkpoints, evaluation  # noqa: F401
    from .messages import arguments, data, names, overrides  # noqa: F401
    from .training import alignments, batches, clipping, plateau, resuming, sections, validation  # noqa: F401

    evaluation.replace_eval()
