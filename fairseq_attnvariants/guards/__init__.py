"""What keeps files from doing harm, and trainings from losing anything: patches of fairseq, and why each is there.

``docs/checkpoints.md`` has the one table of all that is replaced, with the reason and the cost of each.  A guard
without a row there fails a test.
"""


def guard() -> None:
    """Put every guard in its place; the models and tasks of this package have to be registered before."""
    from .alignments import guard_alignments
    from .archives import guard_archives
    from .evaluation import guard_evaluation
    from .loading import guard_loading
    from .names import guard_names
    from .overrides import guard_overrides
    from .plateau import guard_plateau
    from .sampling import guard_sampling
    from .training import guard_training

    guard_loading()
    guard_alignments()
    guard_archives()
    guard_evaluation()
    guard_names()
    guard_overrides()
    guard_plateau()
    guard_sampling()
    guard_training()
