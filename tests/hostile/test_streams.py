"""Full disks, closed pipes, signals, and names that are not text: one sentence, and no partial files."""

import ast
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import LONG

import fairseq_attnvariants_cli
from fairseq_attnvariants_cli.main import main

pytestmark = pytest.mark.hostile

PACKAGES = str(Path(fairseq_attnvariants_cli.__file__).parents[1])
NO_UTF8 = os.fsdecode(b"na\xffme")
GENERATED = "S-0\ta b\nT-0\tx y\nH-0\t-1\tx <unk>\nP-0\t-1 -1 -1\nA-0\t0-0 1-1\n"
ENDING = signal.SIGINT, signal.SIGHUP, signal.SIGTERM
FULL = "cannot be written: No space left on device\n"

# each writes to the file full.*, which is a link to /dev/full
TO_FILES = [
    "lexicon source target --alignments align --output full",
    "lexicon source target --alignments align --output table --save-alignments full",
    "replace-unk generated --source source --output full",
    "links generated --output full",
    "links generated --output align2 --save-source full",
    "aer align --hard align --table full.json",
    "confusion source target --alignments align --source-tags source --target-tags target --table full.csv",
    "overtranslation source target --alignments align --table full.csv",
    "score target --reference target --table full.csv",
    "score target --reference target --source source --group-table full.json",
    "score target --reference target --source source --plot full.png",
    "score target target --name a --name b --reference target --sentence-groups --ngrams 1 --ngram-table full.csv",
    "compare generated --output full",
    "compare generated --output page --plot full.png",
]
TO_STANDARD_OUTPUT = [
    "--help",
    "score --help",
    "--version",
    "user-dir",
    "config-dir",
    "lexicon source target --alignments align --output -",
    "replace-unk generated --source source",
    "links generated",
    "aer align --hard align",
    "aer align --hard align --json",
    "confusion source target --alignments align --source-tags source --target-tags target",
    "overtranslation source target --alignments align",
    "score target --reference target",
    "compare generated --output -",
]
TO_FILES_FROM_MODELS = [
    "align {rnnsearch} --output full",
    "align {rnnsearch} --output pairs --soft full",
    "attention {rnnsearch} --max-len-b 3 --output full.png",
    "attribute {rnnsearch} --max-len-b 3 --steps 2 --html full",
    "eos {rnnsearch} --max-len-b 3 --table full.csv",
    "gates {gated} --max-len-b 3 --values full",
    "gates {gated} --max-len-b 3 --source-table full.csv",
    "neighbours {gated} --table full.csv",
]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current folder, with small files, and links to a disk that is full."""
    files = dict(source="a b\n", target="x y\n", align="0-0 1-1\n", soft="1.0,0 0,1.0\n", generated=GENERATED)
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def full(folder):
    if not os.path.exists("/dev/full"):
        pytest.skip("no /dev/full")
    for suffix in ("", ".csv", ".json", ".png"):
        os.symlink("/dev/full", f"full{suffix}")
    return sorted(os.listdir(folder))


def start(*arguments, **options):
    command = [sys.executable, "-m", "fairseq_attnvariants_cli", *arguments]
    environment = {**os.environ, "PYTHONPATH": PACKAGES, **options.pop("environment", {})}
    pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def interruptible():  # also if the tests run under nohup or in the background of a shell, which ignore signals
        for number in ENDING:
            signal.signal(number, signal.SIG_DFL)

    return subprocess.Popen(command, env=environment, preexec_fn=interruptible, **{**pipes, **options})


def refused(process, message):
    """Assert that the process ends with status 2 and one sentence."""
    error = process.communicate(timeout=60)[1].decode()
    assert process.returncode == 2 and error.count("\n") == 1 and error.endswith(message), error


# ---- links


def test_no_output_is_written_through_a_link_of_a_name_that_can_be_foreseen(folder):
    """A name such as `out.PID.tmp` for the temporary file could be a link that somebody else has prepared."""
    (folder / "mine").write_text("mine")
    for name in ("out.tmp", f"out.{os.getpid()}.tmp"):
        os.symlink("mine", name)
    before = set(os.listdir(folder))
    assert main(["links", "generated", "--output", "out"]) == 0
    assert (folder / "mine").read_text() == "mine" and set(os.listdir(folder)) == before | {"out"}


def test_no_output_replaces_standard_input(folder):
    with open("generated") as stream:
        message = "generated is an input, too, and would be replaced: name another file for the output\n"
        refused(start("links", "-", "--output", "generated", stdin=stream), message)
    with open("generated") as stream:  # a file of this name is not read
        process = start("links", "-", "--output", "./-", stdin=stream)
        assert (process.communicate(timeout=60)[1], process.returncode) == (b"", 0)
    assert (folder / "generated").read_text() == GENERATED and (folder / "-").read_text() == "0-0 1-1\n"


def test_a_new_output_may_be_read_as_any_new_file(folder):
    (folder / "new").touch()
    assert main(["links", "generated", "--output", "out"]) == 0
    assert os.stat("out").st_mode == os.stat("new").st_mode


OTHERS = {  # modules that write files, and why they need not use `write_bytes`
    "fairseq_attnvariants_cli/text/files.py": "it is there",
    "fairseq_attnvariants_cli/main.py": "to os.devnull",
    "fairseq_attnvariants_cli/subcommands/average.py": "to a stream of it",
    "fairseq_attnvariants_cli/shown/pictures.py": "to a stream of it",
    "fairseq_attnvariants_cli/imported/checkpoint.py": "in a new folder, which gets its name in the end",
    "fairseq_attnvariants/patches/loading/plain.py": "in a new folder, which gets its name in the end",
    "fairseq_attnvariants/deploy/package.py": "in a new folder, which gets its name in the end",
    "fairseq_attnvariants/deploy/page.py": "in a new folder, which gets its name in the end",
    "fairseq_attnvariants_cli/subcommands/get_model.py": "in a new folder, which gets its name in the end",
    "fairseq_attnvariants_cli/subcommands/export.py": "in a new folder, which gets its name in the end",
    "fairseq_attnvariants/architectures/make_yaml.py": "the package's own file, for its developers",
    "fairseq_attnvariants/patches/training/resuming.py": "scratch files of fairseq's names",
    "fairseq_attnvariants/patches/training/lock.py": "a file that no link leads to",
    "hydra_plugins/fairseq_attnvariants.py": "in a folder of a random name, which it makes",
}


def writes(node):
    """Return whether a node of a syntax tree opens a file to write to it."""
    if not isinstance(node, ast.Call):
        return False
    function = ast.unparse(node.func)
    modes = [*node.args[1:2], *(keyword.value for keyword in node.keywords if keyword.arg == "mode")]
    opens = any(isinstance(mode, ast.Constant) and {*"wax+"} & {*str(mode.value)} for mode in modes)
    return (
        function.rpartition(".")[2].startswith("open")
        and opens
        or function.endswith((".write_text", ".write_bytes", ".savefig", ".mkstemp"))
        or function in ("torch.save", "np.save", "numpy.save", "shutil.copy", "shutil.copy2", "shutil.copyfile")
    )


def test_one_function_writes_all_outputs():
    root, found = Path(PACKAGES), set()
    for folder in ("fairseq_attnvariants", "fairseq_attnvariants_cli", "hydra_plugins"):
        for path in (root / folder).rglob("*.py"):
            if any(map(writes, ast.walk(ast.parse(path.read_text())))):
                found.add(str(path.relative_to(root)))
    assert found == set(OTHERS)


# ---- a full disk


@pytest.mark.parametrize("line", TO_FILES)
def test_a_file_on_a_full_disk(folder, full, capfd, line):
    if "--plot" in line:
        pytest.importorskip("matplotlib")
    assert main(line.split()) == 2
    out, error = capfd.readouterr()
    assert error.endswith(FULL) and error.count("\n") == 1 and "/full" not in out
    assert sorted(set(os.listdir(folder)) - {"table", "align2"}) == full, "no temporary file is left"


@pytest.mark.parametrize("line", TO_FILES_FROM_MODELS)
def test_a_file_from_a_model_on_a_full_disk(runs, gated, folder, full, capfd, line):
    if ".png" in line:
        pytest.importorskip("matplotlib")
    paths = {"rnnsearch": runs.rnnsearch / "checkpoint_best.pt", "gated": gated}
    models = {name: f"{runs.data} --path {path} --cpu" for name, path in paths.items()}
    assert main(line.format(**models).split()) == 2
    assert capfd.readouterr().err.endswith(FULL) and sorted(set(os.listdir(folder)) - {"pairs"}) == full


@pytest.mark.parametrize("line", TO_STANDARD_OUTPUT)
def test_standard_output_on_a_full_disk(full, line):
    with open("/dev/full", "wb") as stream:
        refused(start(*line.split(), stdout=stream), f"standard output {FULL}")


@pytest.mark.parametrize("line", ["--help", "links generated", "aer align --hard align"])
def test_a_reader_that_is_gone(folder, line):
    """A reader such as ``head`` may end first."""
    reading, writing = os.pipe()
    os.close(reading)
    process = start(*line.split(), stdout=writing)
    os.close(writing)
    assert process.communicate(timeout=60)[1] == b"" and process.returncode == 1


# ---- signals


@pytest.mark.parametrize("number, status, message", [
    (signal.SIGTERM, 143, b""), (signal.SIGHUP, 129, b""), (signal.SIGINT, 130, b"fairseq-attnvariants: interrupted\n"),
])  # fmt: skip
def test_a_signal_leaves_nothing(folder, number, status, message):
    """The signal comes while the subcommand waits for input, after it has begun its output."""
    os.mkfifo("pipe")
    process = start("links", "pipe", "--output", "out")
    with open("pipe", "w") as stream:
        stream.write(GENERATED)
        stream.flush()
        deadline = time.monotonic() + LONG
        while not (begun := [name for name in os.listdir(folder) if name.startswith("out")]):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        time.sleep(0.2)
        process.send_signal(number)
        error = process.communicate(timeout=LONG)[1]
    assert len(begun) == 1 and re.fullmatch(r"out\.[0-9a-f]{8}\.tmp", begun[0])
    assert (process.returncode, error) == (status, message)
    assert not [name for name in os.listdir(folder) if name.startswith("out")]


def test_the_tests_run_where_signals_are_ignored(folder):
    """``nohup`` and a shell's background ignore signals, but processes that tests start still end by each signal."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in ENDING}
    try:
        os.mkfifo("pipe")
        for number in ENDING:
            process = start("links", "pipe", "--output", "out")
            with open("pipe", "w"):  # once it reads, it has set its handlers
                process.send_signal(number)
                process.communicate(timeout=LONG)
            assert process.returncode == 128 + number
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_nohup_keeps_a_command_going(folder):
    """A signal that is ignored at the start stays ignored."""
    os.mkfifo("pipe")
    ignoring = subprocess.Popen(
        ["nohup", sys.executable, "-m", "fairseq_attnvariants_cli", "links", "pipe", "--output", "out"],
        env={**os.environ, "PYTHONPATH": PACKAGES},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with open("pipe", "w") as stream:
        ignoring.send_signal(signal.SIGHUP)
        stream.write(GENERATED)
    assert ignoring.communicate(timeout=60)[0] == b"" and ignoring.returncode == 0 and os.path.exists("out")


# ---- names and encodings


def test_a_file_name_that_is_no_text(folder):
    os.rename("target", NO_UTF8)
    for line in (["score", NO_UTF8, "--reference", NO_UTF8, "--json"], ["user-dir"]):
        process = start(*line)
        assert (process.communicate(timeout=60)[1], process.returncode) == (b"", 0)
    refused(start("score", NO_UTF8 + "x", "--reference", NO_UTF8), "cannot be read: No such file or directory\n")


def test_a_file_name_that_is_no_text_with_standard_output_closed(folder):
    Path(NO_UTF8).write_text("0-0\n")
    line = f'"{sys.executable}" -m fairseq_attnvariants_cli aer align --hard "$1" >&-'
    (folder / "align").write_text("0-0\n")
    command = ["sh", "-c", line, "sh", NO_UTF8]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": PACKAGES}, stderr=subprocess.PIPE, timeout=60)
    assert (done.stderr, done.returncode) == (b"", 0)


def test_a_name_that_is_no_text(folder, capfd):
    assert main(["score", "target", "--reference", "target", "--name", NO_UTF8, "--table", "t.json", "--json"]) == 0
    for text in (capfd.readouterr().out, Path("t.json").read_text(encoding="utf-8")):
        assert "na\\\\udcffme" in text and json.loads(text)
    assert main(["compare", "generated", "--name", NO_UTF8, "--output", f"{NO_UTF8}.html"]) == 0
    assert "<title>na\\udcffme" in Path(f"{NO_UTF8}.html").read_text(encoding="utf-8")
    Path(NO_UTF8).write_text("0-0\n")
    assert main(["aer", NO_UTF8, "--hard", NO_UTF8, "--table", "t.csv"]) == 0
    assert "na\\udcffme" in Path("t.csv").read_text(encoding="utf-8")


def test_standard_output_in_ascii(folder):
    ascii_only = {"PYTHONIOENCODING": "ascii"}
    line = ["score", "target", "--reference", "target", "--bootstrap", "5", "--name", "größer"]
    process = start(*line, environment=ascii_only)
    out, error = process.communicate(timeout=60)
    assert (process.returncode, error) == (0, b"") and b"95% \\xb1" in out and b"gr\\xf6\\xdfer" in out
    process = start("compare", "generated", "--name", "größer", "--output", "-", environment=ascii_only)
    assert "größer" in process.communicate(timeout=60)[0].decode("utf-8") and process.returncode == 0
