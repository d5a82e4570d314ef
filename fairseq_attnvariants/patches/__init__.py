"""Patches of fairseq, each with its reason: it starts on a current machine, and loads, trains and complains well.

``docs/checkpoints.md`` has the one table of everything that is replaced, with the reason and the cost of each.  A
patch without a row in that table fails a test.
"""


def patch_fairseq() -> None:
    """Apply every patch; the models and tasks of this package have to be registered before."""
    from .clipping import clip_where_gradients_are
    from .loading.archives import guard_archives
    from .loading.checkpoints import guard_loading
    from .loading.evaluation import guard_evaluation
    from .messages.arguments import guard_arguments
    from .messages.data import guard_data
    from .messages.names import guard_names
    from .messages.overrides import guard_overrides
    from .messages.sampling import guard_sampling
    from .training.alignments import guard_alignments
    from .training.batches import guard_batches
    from .training.plateau import guard_plateau
    from .training.resuming import guard_training
    from .training.validation import guard_validation
    from .transformer import allow_padding_masks

    allow_padding_masks()
    clip_where_gradients_are()
    guard_loading()
    guard_alignments()
    guard_archives()
    guard_arguments()
    guard_data()
    guard_batches()
    guard_evaluation()
    guard_names()
    guard_overrides()
    guard_plateau()
    guard_sampling()
    guard_training()
    guard_validation()
