"""The demo's trainings, and its last part with finished stages: what it reads, draws and scores."""

import os
import shutil
import subprocess
import sys
from types import SimpleNamespace

import pytest
from corpus import ROOT
from warm import COMMANDS

sys.path.insert(0, str(ROOT / "examples" / "demo"))

import demo  # noqa: E402

pytestmark = pytest.mark.more


def test_the_best_hypothesis_is_read_as_it_is_printed(tmp_path):
    lines = "S-1\tb\nH-1\t-1\ty\nS-0\ta\u00a0b\nH-0\t-1\tx\u00a0y\nH-0\t-2\tworse\n"
    (tmp_path / "generate-test.txt").write_text(lines, encoding="utf-8")
    assert demo.read_translations(tmp_path) == [demo.Translation("a\u00a0b", "x\u00a0y"), demo.Translation("b", "y")]


def test_only_a_missing_folder_is_filled(tmp_path):
    folder, part = tmp_path / "a", tmp_path / "a.part"
    part.mkdir()
    (part / "left").touch()
    with pytest.raises(KeyboardInterrupt):
        demo.stage("Stopped", interrupt, folder, resumes=True)
    assert (part / "left").exists() and not folder.exists()
    demo.stage("Resumed", lambda part: (part / "new").touch(), folder, resumes=True)
    assert sorted(path.name for path in folder.iterdir()) == ["left", "new"] and not part.exists()
    demo.stage("Repeated", interrupt, folder)


def interrupt(*ignored):
    raise KeyboardInterrupt


@pytest.fixture
def training(tmp_path, monkeypatch):
    """A folder for a training by a program that logs its process id, its threads and its progress."""
    program = tmp_path / "train"
    program.write_text(f"""#!{sys.executable}
import os, sys, time
print(os.getpid(), os.environ["OMP_NUM_THREADS"], "loss=3.5, ppl=12.5, wps=9, num_updates=50, lr=1", flush=True)
time.sleep(float(sys.argv[2]))
sys.exit(sys.argv[3] or None)
""")
    program.chmod(0o755)
    monkeypatch.setattr(demo, "tool", lambda name: str(program))
    monkeypatch.setattr(demo, "user_dir", tuple)
    folder = tmp_path / "model.part"
    folder.mkdir()
    return folder


def test_progress_is_told(training, capfd):
    demo.train("data", training, ["2", ""], threads=2)
    assert "\n50 updates, perplexity 12.5\n" in capfd.readouterr().out
    assert (training / "train.log").read_text().split()[1] == "2"


def test_a_failure_shows_the_end_of_the_log(training, capfd):
    with pytest.raises(subprocess.CalledProcessError):
        demo.train("data", training, ["1", "no such option"])
    assert "\nno such option\n" in capfd.readouterr().out
    assert not running(training)


def test_an_interrupt_stops_the_training(training, monkeypatch):
    def sleep(seconds):
        if (training / "train.log").read_text():
            raise KeyboardInterrupt

    monkeypatch.setattr(demo, "time", SimpleNamespace(sleep=sleep))
    with pytest.raises(KeyboardInterrupt):
        demo.train("data", training, ["60", ""])
    assert not running(training)


def running(folder):
    """Return whether the program in the folder is running; if not, it has been waited for."""
    try:
        os.kill(int((folder / "train.log").read_text().split()[0]), 0)
    except ProcessLookupError:
        return False
    return True


def test_attention_is_drawn_and_translations_are_compared(runs, warm, tmp_path, capfd, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    tool = demo.tool
    monkeypatch.setattr(demo, "tool", lambda name: str(warm / name) if name in COMMANDS else tool(name))
    for name in ("corpus", "de/text", "de/bpe"):
        (tmp_path / name).mkdir(parents=True)
    shutil.copytree(runs.data, tmp_path / "de" / "bin")
    words = {"lstm": "kein Sa@@ tz ohne Wörter .", "rnnsearch": "ein Sa@@ tz mit Wörtern ."}
    for name, model in (("lstm", runs.lstm), ("rnnsearch", runs.rnnsearch)):
        folder = tmp_path / "de" / name
        shutil.copytree(model, folder / "model")
        losses = [f"valid on 'valid' subset | nll_loss {9 - k} | num_updates {k}\n" for k in (1, 2)]
        (folder / "model" / "train.log").write_text("".join(losses))
        (folder / "translated").mkdir()
        lines = [f"S-{k}\ta b c d e f g h .\nT-{k}\ty\nH-{k}\t-1\t{words[name]}\n" for k in range(12)]
        (folder / "translated" / "generate-test.txt").write_text("".join(lines))
    (tmp_path / "de" / "text" / "reference.de").write_text("ein Satz mit Wörtern.\n" * 12)
    demo.demo("de", "rnnsearch", tmp_path)
    folder = tmp_path / "de" / "rnnsearch"
    for name in ("attention.png", "curves.png"):
        assert (folder / name).read_bytes().startswith(b"\x89PNG")
    assert "ohne" in (folder / "compare.html").read_text()
    assert (folder / "hypothesis.de").read_text() == "ein Satz mit Wörtern.\n" * 12
    scores = [line.split() for line in capfd.readouterr().out.splitlines() if line.startswith("BLEU")]
    assert [row[1] for row in scores] == ["rnnsearch", "rnnsearch", "lstm"] and scores[0][2] == "100.00"
