"""Alignments of ``--load-alignments`` belong to the text, sentence by sentence.

Stock fairseq binarises an alignment file of any length without a word, and training ends later in a traceback.
"""

import functools
import os

from fairseq.data import LanguagePairDataset
from fairseq.tasks import translation


def guard_alignments() -> None:
    """Let the stock translation task compare the number of alignments with that of the sentences, as it loads them."""
    load = translation.load_langpair_dataset

    @functools.wraps(load)
    def load_langpair_dataset(data_path, split, src, src_dict, tgt, *args, **options) -> LanguagePairDataset:
        path = os.path.join(data_path, f"{split}.align.{src}-{tgt}")
        if options.get("load_alignments") and os.path.isfile(f"{path}.bin") and not os.path.getsize(f"{path}.bin"):
            raise ValueError(f"{path}.bin has no links: {advice(split)}")
        pairs = load(data_path, split, src, src_dict, tgt, *args, **options)
        if pairs.align_dataset is not None and len(pairs.align_dataset) != len(pairs.src):
            raise ValueError(
                f"{path}.bin has alignments of {len(pairs.align_dataset)} sentences, and the text has "
                f"{len(pairs.src)}: {advice(split)}"
            )
        return pairs

    translation.load_langpair_dataset = load_langpair_dataset


def advice(split: str) -> str:
    """What to do about alignments that do not fit."""
    return (
        f"give fairseq-preprocess --align-suffix a file of links for {split} with a line for each sentence (an empty "
        "line where there are none), or leave --load-alignments out"
    )
