"""What keeps files from doing harm, and trainings from losing anything: patches of fairseq, and why each is there.

| module | replaces | because stock fairseq | costs |
|---|---|---|---|
| `loading` | ``torch.load`` where fairseq's modules call it | runs what a file asks for, if told to | a read |
| `configuration` | (called by `loading`) | resolves what a configuration names | milliseconds |
| `loading` | ``distributed.utils._split_tensors_from_obj`` | sends what safe loading refuses | nothing |
| `alignments` | ``translation.load_langpair_dataset`` | trains until links and sentences differ in number | nothing |
| `archives` | ``file_utils.load_archive_file`` | unpacks ``../`` paths, deletes the archive | nothing |
| `evaluation` | ``eval`` in fairseq's modules, ``FastaDataset._build_index`` | runs strings | nothing |
| `names` | ``models.build_model``, ``options.add_model_args`` | stumbles over unknown names | nothing |
| `overrides` | ``checkpoint_utils.overwrite_args_by_name`` | ignores options that were not saved | nothing |
| `training` | ``checkpoint_utils.load_checkpoint``, ``PathManager.copy`` and ``rename`` | loses trainings | see there |
"""


def guard() -> None:
    """Put every guard in its place; the models and tasks of this package have to be registered before."""
    from .alignments import guard_alignments
    from .archives import guard_archives
    from .evaluation import guard_evaluation
    from .loading import guard_loading
    from .names import guard_names
    from .overrides import guard_overrides
    from .training import guard_training

    guard_loading()
    guard_alignments()
    guard_archives()
    guard_evaluation()
    guard_names()
    guard_overrides()
    guard_training()
