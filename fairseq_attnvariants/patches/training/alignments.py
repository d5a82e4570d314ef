"""Checks that the texts and alignments of a split exist, with equal numbers of sentences.

Stock fairseq binarises an alignment file of any length without a message, and training ends later in a traceback.
"""

import os

from fairseq.data import LanguagePairDataset
from fairseq.tasks import translation

from ...registry import ConfigurationError
from ..messages.data import check_split
from ..replaced import replaces


@replaces(translation, "load_langpair_dataset")
def load_langpair_dataset(load, data_path, split, src, src_dict, tgt, *args, **options) -> LanguagePairDataset:
    """Refuse a missing split, and different numbers of sentences in the two texts or in the alignments.

    Raises:
        ConfigurationError: a text is missing, or texts and alignments do not fit.
    """
    check_split(data_path, split, src, tgt, options.get("dataset_impl"))
    path = os.path.join(data_path, f"{split}.align.{src}-{tgt}.bin")
    if options.get("load_alignments") and os.path.isfile(path) and not os.path.getsize(path):
        raise ConfigurationError(f"{path} has no links: {advice(split)}")
    if options.get("upsample_primary") == -1:  # stock fairseq's default, but -1 is no number of repetitions
        options["upsample_primary"] = 1
    try:
        pairs = load(data_path, split, src, src_dict, tgt, *args, **options)
    except AssertionError as error:
        if "same number of examples" not in str(error):
            raise
        raise ConfigurationError(
            f"{data_path}: {split}.{src}-{tgt} has not as many lines in {src} as in {tgt}: run fairseq-preprocess "
            "again, on files that belong together"
        ) from error
    pairs.name = f"{data_path}: {split}.{src}-{tgt}"
    links = pairs.align_dataset
    if links is not None and any(size % 2 for size in links.sizes):
        raise ConfigurationError(f"{path} holds no links, which are pairs of numbers: {advice(split)}")
    if links is not None and len(links) != len(pairs.src):
        raise ConfigurationError(
            f"{path} has alignments of {len(links)} sentences, and the text has {len(pairs.src)}: {advice(split)}"
        )
    return pairs


def advice(split: str) -> str:
    """Return the advice about alignments that do not fit."""
    return (
        f"give fairseq-preprocess --align-suffix a file of links for {split} with a line for each sentence (an empty "
        "line where there are none), or leave --load-alignments out"
    )
