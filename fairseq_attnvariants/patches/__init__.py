"""Patches of fairseq, each with its reason: it starts on a current machine, and loads, trains and complains well.

``docs/checkpoints.md`` has the one table of everything that is replaced, with the reason and the cost of each.  A
patch without a row in that table fails a test.
"""


def patch_fairseq() -> None:
    """Apply every patch; the models and tasks of this package have to be registered before."""
    from .clipping import clip_where_gradients_are
    from .loading.archives import patch_archives
    from .loading.checkpoints import patch_loading
    from .loading.evaluation import patch_evaluation
    from .messages.arguments import patch_arguments
    from .messages.data import patch_data
    from .messages.names import patch_names
    from .messages.overrides import patch_overrides
    from .messages.sampling import patch_sampling
    from .training.alignments import patch_alignments
    from .training.batches import patch_batches
    from .training.plateau import patch_plateau
    from .training.resuming import patch_training
    from .training.validation import patch_validation
    from .transformer import allow_padding_masks

    allow_padding_masks()
    clip_where_gradients_are()
    patch_loading()
    patch_alignments()
    patch_archives()
    patch_arguments()
    patch_data()
    patch_batches()
    patch_evaluation()
    patch_names()
    patch_overrides()
    patch_plateau()
    patch_sampling()
    patch_training()
    patch_validation()
