"""Make ``0.1.0.tar.xz`` in this folder: what version 0.1.0 trained, computed and translated.

It was made once, with a checkout of that version (commit b3cfe3e) in CHECKOUT:

    PYTHONPATH=CHECKOUT:tests OMP_NUM_THREADS=1 python tests/data/make_0_1_0.py

``NAME.pt`` is a checkpoint as fairseq's trainer writes it, in the middle of an epoch, without dropout.
``expected.pt`` has, by NAME, the results of :func:`observe`, and the parameters after one more update.
"""

import os
import shutil
import tarfile
import tempfile
from pathlib import Path

import corpus
import torch
from fairseq import checkpoint_utils
from omegaconf import OmegaConf

HERE = Path(__file__).parent
ARCHIVE = HERE / "0.1.0.tar.xz"
UPDATES = 6  # an epoch is four
SIZES = ["--encoder-embed-dim", "3", "--encoder-hidden-size", "4", "--decoder-embed-dim", "3"]
SIZES += ["--decoder-hidden-size", "4"]
CHARACTERS = ["--task", "char_translation", "--encoder-char-hidden-size", "4", "--decoder-out-embed-dim", "4"]
CHARACTERS += ["--attention-dim", "4", "--attention-via-dim", "3"]
CRITERIONS = {"conddec": "fertility", "bridge_direct": "bridging"}

# combinations of options that are no architecture
COMPOSITIONS = {
    "joined_history": ["rnnsearch", "--attention-history", "context+convolution+distance+state"],
    "deep": ["dl4mt", "--encoder-layers", "2", "--decoder-layers", "2"],
    "lstm_cell": ["rnnsearch_star", "--encoder-cell", "lstm", "--decoder-cell", "lstm"],
    "output_swapped": ["adaptive_output", "--adaptive-output-swapped"],
    "via_on_words": ["rnnsearch", "--encoder-layers", "2", "--attention-via"],
    "tied": ["bridge_target", "--share-decoder-input-output-embed"],
    "triton": ["rnnsearch"],
}
GONE = {"triton": ["--kernels", "triton"]}  # flags that were removed later


def options(name):
    """Return the options of fairseq-train for the model and its training, except the data and the folder."""
    arch, *more = COMPOSITIONS.get(name, [name])
    if arch.startswith("ava"):
        more += CHARACTERS
    criterion = next((f"_with_{cost}" for start, cost in CRITERIONS.items() if arch.startswith(start)), "")
    common = ["--criterion", f"label_smoothed_cross_entropy{criterion}", "--label-smoothing", "0.1", "--dropout", "0"]
    # with a smaller epsilon, Adam would make steps from gradients that are zero except for rounding
    common += ["--optimizer", "adam", "--adam-eps", "1e-4", "--lr", "0.05", "--clip-norm", "1", "--init-std", "0.3"]
    common += ["--batch-size", "8", "--cpu", "--num-workers", "0", "--seed", "3", "--disable-validation"]
    return ["--arch", arch, *SIZES, *more, *common, "--no-epoch-checkpoints", "--log-format", "none"]


def binarise(folder):
    """Binarise the text of this folder as words, ``folder/words``, and as characters, ``folder/characters``."""
    prefixes = [f"--{split}pref={HERE / split}" for split in ("train", "test")]
    for kind in ("words", "characters"):
        task = ["--task", "char_translation"] if kind == "characters" else []
        corpus.preprocess_here("-s", "xx", "-t", "yy", *prefixes, *task, "--destdir", folder / kind)


def train(name, data, folder, updates, *gone):
    """Train until ``updates`` are made, from the checkpoint in the folder if it has one; return the last checkpoint."""
    kind = "characters" if name.startswith("ava") else "words"
    more = ["--valid-subset", "test", "--save-dir", folder, "--max-update", updates]
    corpus.train_here(data / kind, *options(name), *more, *gone)
    return folder / "checkpoint_last.pt"


def parameters(path):
    """Return all parameters of a checkpoint as one vector, without the fingerprints, ``dictionary_version``."""
    model = torch.load(path, weights_only=True)["model"]
    return torch.cat([value.flatten() for name, value in model.items() if not name.endswith("_version")])


def observe(path, data):
    """Return what a checkpoint computes for the test set, which is one padded batch."""
    state = checkpoint_utils.load_checkpoint_to_cpu(str(path))
    data = data / ("characters" if state["cfg"].task._name == "char_translation" else "words")
    [model], _, task = checkpoint_utils.load_model_ensemble_and_task([str(path)], {"data": str(data)})
    model.eval()
    task.load_dataset("test")
    pairs = task.dataset("test")
    batch = pairs.collater([pairs[i] for i in range(len(pairs))])
    generation = {"beam": 4, "max_len_a": 1.5, "max_len_b": 5}
    generator = task.build_generator([model], OmegaConf.create(generation))
    with torch.no_grad():
        logits, extra = model(**batch["net_input"])
        found = task.inference_step(generator, [model], batch)
    return {
        "parameters": [name for name, _ in model.named_parameters()],
        "logits": logits,
        "attention": extra["attn"][0],
        "translations": [[hypothesis["tokens"].tolist() for hypothesis in hypotheses] for hypotheses in found],
        "scores": [[hypothesis["score"].item() for hypothesis in hypotheses] for hypotheses in found],
    }


def make(names, archive):
    """Make an archive with a checkpoint for every name in ``names``, a mapping of names to compositions."""
    COMPOSITIONS.update(names)
    expected, data = {}, Path("data")
    os.chdir(tempfile.mkdtemp())  # a checkpoint keeps the paths that it was trained with
    binarise(data)
    for name in names:
        gone = GONE.get(name, [])
        path = train(name, data, Path(name), UPDATES, *gone)
        shutil.copy(path, f"{name}.pt")
        expected[name] = observe(path, data)
        train(name, data, Path(name), UPDATES + 1, *gone)
        expected[name]["updated"] = parameters(path)
    torch.save(expected, "expected.pt")
    with tarfile.open(archive, "w:xz") as files:
        for path in sorted(Path().glob("*.pt")):
            files.add(path)


if __name__ == "__main__":
    from fairseq_attnvariants.architectures.variants import VARIANTS

    make({name: COMPOSITIONS.get(name, [name]) for name in [*VARIANTS, *COMPOSITIONS]}, ARCHIVE)
