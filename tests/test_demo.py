"""The end of the demo, on stages that are there: what it reads, draws and scores."""

import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "demo"))

from demo import Translation, demo, read_translations  # noqa: E402


def test_the_best_hypothesis_is_read_as_it_is_printed(tmp_path):
    lines = "S-1\tb\nH-1\t-1\ty\nS-0\ta\u00a0b\nH-0\t-1\tx\u00a0y\nH-0\t-2\tworse\n"
    (tmp_path / "generate-test.txt").write_text(lines, encoding="utf-8")
    assert read_translations(tmp_path) == [Translation("a\u00a0b", "x\u00a0y"), Translation("b", "y")]


def test_attention_is_drawn_and_translations_are_scored(runs, tmp_path, capfd, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
    for name in ("corpus", "de/text", "de/bpe", "de/rnnsearch/translated"):
        (tmp_path / name).mkdir(parents=True)
    shutil.copytree(runs.data, tmp_path / "de" / "bin")
    shutil.copytree(runs.rnnsearch, tmp_path / "de" / "rnnsearch" / "model")
    sentences = [f"S-{k}\ta b c d e f g h .\nH-{k}\t-1\tein Sa@@ tz mit Wörtern .\n" for k in range(12)]
    (tmp_path / "de" / "rnnsearch" / "translated" / "generate-test.txt").write_text("".join(sentences))
    (tmp_path / "de" / "text" / "reference.de").write_text("ein Satz mit Wörtern.\n" * 12)
    demo("de", "rnnsearch", tmp_path)
    assert (tmp_path / "de" / "rnnsearch" / "attention.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "de" / "rnnsearch" / "hypothesis.de").read_text() == "ein Satz mit Wörtern.\n" * 12
    [bleu] = [line for line in capfd.readouterr().out.splitlines() if line.startswith("BLEU")]
    assert bleu.split()[1:3] == ["rnnsearch", "100.00"]
