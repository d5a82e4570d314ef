"""What keeps files from doing harm, and trainings from losing anything: patches of fairseq, and why each is there.

| module | replaces in fairseq | because |
|---|---|---|
| `loading` | ``torch.load`` |
"""


def guard() -> None:
    """Put every guard in its place; the models and tasks of this package have to be registered before."""
    from .archives import guard_archives
    from .evaluation import guard_evaluation
    from .loading import guard_loading
    from .names import guard_names
    from .overrides import guard_overrides
    from .training import guard_training

    guard_loading()
    guard_archives()
    guard_evaluation()
    guard_names()
    guard_overrides()
    guard_training()
