"""Make ``0.3.0.tar.xz`` in this folder: what version 0.3.0 trained, computed and translated.

It was made once, with a checkout of that version (commit 31ac921) in CHECKOUT:

    PYTHONPATH=CHECKOUT:tests OMP_NUM_THREADS=1 python tests/data/make_0_3_0.py

The files are like those of ``make_0_1_0.py``, with one model of each family after 0.1.0, and of ``ava``.
"""

from pathlib import Path

from data import make_0_1_0 as made

ARCHIVE = Path(__file__).parent / "0.3.0.tar.xz"
CONVOLUTIONS = ["--encoder-filters", "2-1-2", "--encoder-pooling", "2", "--encoder-highway-layers", "1"]
HEADS = ["--attention-score", "multihead", "--attention-heads", "2", "--attention-dim", "4"]
COMPOSITIONS = {
    "gnmt": ["gnmt", "--encoder-layers", "3", "--decoder-layers", "3"],
    "nematus": ["nematus", "--encoder-transition-depth", "2", "--decoder-transition-depth", "3"],
    "char2char": ["char2char", *CONVOLUTIONS],
    "covered": ["context_gate", "--attention-history", "coverage+fertility+coverage_gru"],
    "heads": ["recatt", *HEADS, "--attention-temperature", "0.5"],
    "local": ["dl4mt", "--attention-score", "bilinear", "--attention-window", "predictive"],
    "ava_deep": ["ava_deep", "--encoder-layers", "2"],
}


if __name__ == "__main__":
    made.make(COMPOSITIONS, ARCHIVE)
