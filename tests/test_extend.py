"""The example of a part from outside the package: it is checked, trained, resumed and translated by ``--user-dir``."""

from pathlib import Path

import corpus
import pytest
import torch

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "examples" / "extend" / "cosine_decay"


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("extend")
    corpus.write_corpus(folder)
    return corpus.preprocess(folder)


def test_the_page_shows_the_whole_file():
    code = (FOLDER / "__init__.py").read_text()
    assert f"```python\n{code}```" in (ROOT / "docs" / "extend.md").read_text()
    assert len([line for line in code.splitlines() if line]) < 40


def test_check():
    done = corpus.run("fairseq-attnvariants", "check", "--user-dir", FOLDER, "--arch", "cosine_decay")
    assert done.stdout.endswith("all hold\n")


def test_train_resume_translate(data, tmp_path):
    """A resumed training ends in the same bits, with a rate that the checkpoint keeps."""

    def train(name, updates):
        arguments = corpus.train_arguments(data, tmp_path / name, "--max-update", updates, arch="cosine_decay")
        arguments[arguments.index("--user-dir") + 1] = str(FOLDER)
        corpus.run("fairseq-train", *arguments, "--part-args", '{"decay": {"rate": 0.9}}', cwd=tmp_path)

    for name, updates in (("whole", 6), ("resumed", 3), ("resumed", 6)):
        train(name, updates)
    paths = [tmp_path / name / "checkpoint_last.pt" for name in ("whole", "resumed")]
    whole, resumed = (torch.load(path, weights_only=True) for path in paths)
    assert '"rate": 0.9' in whole["cfg"]["model"]["part_args"]
    assert all(value.equal(resumed["model"][name]) for name, value in whole["model"].items())
    output = corpus.run("fairseq-generate", data, "--user-dir", FOLDER, "--path", paths[1], "--cpu").stdout
    assert "BLEU" in output and output.count("\nH-") == 12
