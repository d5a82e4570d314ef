"""``fairseq-attnvariants export``: a package translates as fairseq-generate does; a refusal leaves no files."""

import contextlib
import importlib.util
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace

import corpus
import numpy as np
import pytest
import torch
from conftest import LONG, Task, build
from fairseq.tasks.translation import TranslationTask
from fairseq.tasks.translation_multi_simple_epoch import TranslationMultiSimpleEpochTask

from fairseq_attnvariants.nn.attention import Softmax
from fairseq_attnvariants.tasks.tsv import symbols
from fairseq_attnvariants_cli import main as command
from fairseq_attnvariants_cli.subcommands import export as subcommand
from fairseq_attnvariants_cli.systems.model import load
from fairseq_attnvariants_cli.text.files import UserError
from fairseq_attnvariants_cli.text.folders import new_folder
from fairseq_attnvariants_run.fairseq_attnvariants_run import PackageError, Subwords

deploy = pytest.importorskip("fairseq_attnvariants.deploy.loop", reason="needs the extra export")
import onnx  # noqa: E402
import onnx_ir as ir  # noqa: E402

from fairseq_attnvariants.deploy import graphs, proof  # noqa: E402
from fairseq_attnvariants.deploy.package import manifest  # noqa: E402
from fairseq_attnvariants.deploy.search import Hypothesis, hypotheses  # noqa: E402

pytestmark = pytest.mark.commands

USER_DIR = ["--user-dir", corpus.USER_DIR]


def export(data, checkpoint, output, *options):
    """Run the subcommand in this process, and return its exit status."""
    return command.main(["export", *map(str, [data, "--path", checkpoint, "--output", output, *options])])


def best(text, kind):
    """Return the first line of a kind for every sentence, in the order of the text, split at tabs."""
    found = {}
    for line in text.splitlines():
        match = re.match(rf"{kind}-(\d+)\t(.*)", line)
        if match:
            found.setdefault(int(match[1]), match[2].split("\t"))
    return [found[number] for number in sorted(found)]


class Package:
    """The format of FORMAT.md, read with numpy and onnxruntime alone."""

    def __init__(self, folder):
        self.manifest = json.loads((folder / "manifest.json").read_text())
        self.source, self.target = (json.loads((folder / f"{side}.json").read_text()) for side in ("source", "target"))
        self.graph = proof.session((folder / "model.onnx").read_bytes())

    def translate(self, line, beam, most):
        """Return the n-best list of a line of words, or of characters."""
        about, special = self.manifest["source"], self.manifest["special"]
        symbols = list(" ".join(line.split())) if about["units"] == "characters" else line.split()
        table = {symbol: number for number, symbol in enumerate(self.source)}
        numbers = [table.get(symbol, special["unk"]) for symbol in symbols] + about["end"]
        inputs = dict(source=np.array([numbers]), beam=np.array(beam), max_len=np.array([most]), min_len=np.array(1))
        names = [output.name for output in self.graph.get_outputs()]
        out = dict(zip(names, self.graph.run(None, {**inputs, "unkpen": np.array(0, dtype=np.float32)})))
        assert {name: out[name].shape[0] for name in names} == dict.fromkeys(names, len(out["words"]))
        return hypotheses(out, 0, len(numbers), special["eos"], 1.0)

    def text(self, symbols):
        """Return the text of symbols, without their EOS."""
        glue = "" if self.manifest["target"]["units"] == "characters" else " "
        return " ".join(glue.join(self.target[symbol] for symbol in symbols[:-1]).split())


NOTHING = {one.name: None for one in fields(subcommand.Options)}


class Mine(TranslationTask):
    """A user's task, whose way to read text is unknown."""


def compare(folder, data, text, checkpoint, *options, most=10):
    """Assert that a package translates each line of a test set as fairseq-generate does."""
    search = "--beam", 4, "--batch-size", 1, "--max-len-b", most
    generated = corpus.run("fairseq-generate", data, "--path", checkpoint, *search, *options)
    package = Package(folder)
    for line, wanted, [scores] in zip(text, best(generated.stdout, "H"), best(generated.stdout, "P"), strict=True):
        score, symbols, sums, _ = package.translate(line, 4, most)[0]
        assert package.text(symbols) == wanted[1]
        assert score / np.log(2) == pytest.approx(float(wanted[0]), abs=1e-3)  # printed with four digits
        found = np.diff(sums, prepend=0) / np.log(2)
        assert found == pytest.approx([float(each) for each in scores.split()], abs=1e-3)


@pytest.fixture(scope="module")
def package(runs, tmp_path_factory):
    """The package of a model on words."""
    folder = tmp_path_factory.mktemp("exported")
    options = "--beam", 4, "--max-len-b", 10, "--title", "reversed"
    with contextlib.redirect_stderr(io.TextIOWrapper(io.BytesIO())) as err:
        assert export(runs.data, runs.rnnsearch / "checkpoint_best.pt", folder / "package", *options) == 0
    err.seek(0)
    [said] = err.read().splitlines()
    assert re.search(r"package: 0\.\d MB; (\d+) of \1 n-best lists are equal", said)
    assert [*folder.iterdir()] == [folder / "package"]
    return folder / "package"


def test_words(runs, package):
    checkpoint = runs.rnnsearch / "checkpoint_best.pt"
    compare(package, runs.data, (runs.text / "test.xx").read_text().splitlines(), checkpoint, *USER_DIR)
    about = json.loads((package / "manifest.json").read_text())
    assert about["search"].items() >= dict(beam=4, max_len_b=10, lenpen=1.0, largest_source=1024).items()
    assert (about["architecture"], about["about"]["title"]) == ("rnnsearch", "reversed")
    assert about["proof"]["equal"] == about["proof"]["lists"] > 30
    assert max(about["proof"]["score"], about["proof"]["attention"]) < 1e-4
    # equal embeddings of both sides are stored once, and so are the weights that the first step shares with others
    parameters = sum(each.numel() for each in torch.load(checkpoint, weights_only=True)["model"].values())
    assert about["files"]["model.onnx"]["bytes"] < 5 * parameters + 100_000


@pytest.mark.more
def test_characters(characters, runs, tmp_path):
    checkpoint = characters.ava
    assert export(characters.data, checkpoint, tmp_path / "package", "--max-len-a", 0.1, "--max-len-b", 9) == 0
    more = *USER_DIR, "--task", "char_translation"
    package = Package(tmp_path / "package")
    assert package.manifest["source"]["end"] == [4, 2]
    assert package.manifest["graph"]["outputs"][-1] == "word_attention"
    compare(tmp_path / "package", characters.data, (runs.text / "test.xx").read_text().splitlines(), checkpoint, *more)


@pytest.fixture(scope="module")
def strings(tmp_path_factory):
    """A folder of tables: letters doubled, Hangul, and the sounds of both."""
    folder = tmp_path_factory.mktemp("strings")
    for name in ("train", "valid", "test"):
        words = ["ab", "e\u0331b", "한b", "éa", "bé", "가"]
        sounds = {letter: f"{letter}ː" for letter in "abé한가"} | {"e\u0331": "ɘ"}
        rows = [f"{word}\t{' '.join(sounds.get(one, one) for one in symbols(word))}\n" for word in words]
        (folder / f"{name}.tsv").write_text("".join(rows), encoding="utf-8")
    return folder


@pytest.mark.parametrize("separator, units", [
    pytest.param("none", "graphemes", marks=pytest.mark.exhaustive),  # tests/run splits these, too
    ("decomposed", "decomposed"),
])  # fmt: skip
def test_strings(strings, tmp_path, caplog, separator, units):
    """The package gives the sounds that fairseq-generate gives; the runtime splits words as training did."""
    data = tmp_path / "data"
    shutil.copytree(strings, data)
    task = "--task", "string_transduction", "--source-separator", separator, "--target-separator", "space"
    save = tmp_path / "model"
    corpus.run("fairseq-train", *corpus.train_arguments(data, save, *task, "--max-update", 60, arch="dl4mt"))
    assert export(data, save / "checkpoint_last.pt", tmp_path / "package", "--max-len-a", 0, "--max-len-b", 9) == 0
    assert not [record for record in caplog.records if record.levelname == "WARNING"]
    about = json.loads((tmp_path / "package" / "manifest.json").read_text())
    found = [about[side][name] for side in ("source", "target") for name in ("units", "language")]
    assert found == [units, "source", "spaced", "target"] and about["source"]["end"] == [2]
    lines = [row.partition("\t")[0] for row in (data / "test.tsv").read_text(encoding="utf-8").splitlines()]
    options = [*USER_DIR, "--task", "string_transduction", "--cpu", "--max-len-a", "0", "--max-len-b", "9"]
    generated = corpus.run("fairseq-generate", data, *options, "--path", save / "checkpoint_last.pt")
    translated = subprocess.run(
        [sys.executable, tmp_path / "package" / "translate.py"],
        input="\n".join(lines),
        capture_output=True,
        encoding="utf-8",
        check=True,
    )
    assert translated.stdout.splitlines() == [hypothesis for _, hypothesis in best(generated.stdout, "H")]
    dictionary = load(str(save / "checkpoint_last.pt"), str(data), cpu=True).task.source_dictionary
    spec = importlib.util.spec_from_file_location("translate", tmp_path / "package" / "translate.py")
    sys.modules["translate"] = runtime = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(runtime)
    translator = runtime.Translator(tmp_path / "package")
    assert [translator.symbols(line, 1) for line in lines] == [dictionary.split(line) for line in lines]


@pytest.mark.parametrize("arch, features", [
    ("dl4mt", "attended"),
    pytest.param("pointer_generator", "prepended", marks=pytest.mark.more),
])  # fmt: skip
def test_features(tmp_path, arch, features):
    """A line of a word, a tab and features is inflected as by fairseq-generate, also with unseen letters."""
    data, save, package = tmp_path / "data", tmp_path / "model", tmp_path / "package"
    data.mkdir()
    endings = {"N;NOM(SG)": "", "N;NOM(PL)": "t", "INE(SG);N": "ssa"}
    for name, words in (("train", ["talo", "kala", "ki\u0304"]), ("valid", ["talo"]), ("test", ["kilo", "zak", "lo"])):
        rows = [f"{word}\t{tags}\t{word}{ending}\n" for word in words for tags, ending in endings.items()]
        (data / f"{name}.tsv").write_text("".join(rows), encoding="utf-8")
    options = "--task", "string_transduction", "--target-column", 3, "--features-column", 2, "--features", features
    corpus.run("fairseq-train", *corpus.train_arguments(data, save, *options, "--max-update", 60, arch=arch))
    assert export(data, save / "checkpoint_last.pt", package, "--beam", 2, "--max-len-a", 0, "--max-len-b", 9) == 0
    about = json.loads((package / "manifest.json").read_text())
    known = json.loads((package / "source.json").read_text())
    assert about["format"] == 2 and about["source"]["features_after"] is (features == "attended")
    tags = ["INE", "INE(SG)", "N", "NOM", "NOM(PL)", "NOM(SG)"]
    assert sorted(name[1:-1] for name in known[about["source"]["features"] :]) == tags
    lines = [row.rpartition("\t")[0] for row in (data / "test.tsv").read_text(encoding="utf-8").splitlines()]
    options = *USER_DIR, "--task", "string_transduction", "--beam", 2, "--max-len-a", 0, "--max-len-b", 9
    options += "--batch-size", 1, "--cpu"
    generated = corpus.run("fairseq-generate", data, *options, "--path", save / "checkpoint_last.pt")
    translated = subprocess.run(
        [sys.executable, package / "translate.py", "--n-best", "2", "--keep-unk"],
        input="\n".join(lines),
        capture_output=True,
        encoding="utf-8",
        check=True,
    )
    found = [line.split("\t") for line in translated.stdout.splitlines()[::2]]
    for (_, score, text), (wanted, expected) in zip(found, best(generated.stdout, "H"), strict=True):
        assert text == expected and float(score) / np.log(2) == pytest.approx(float(wanted), abs=1e-3)


def test_what_a_package_of_strings_cannot_hold(strings, tmp_path, capsys):
    data = tmp_path / "data"
    shutil.copytree(strings, data)
    (data / "train.tsv").write_text("ab\ta_b\n", encoding="utf-8")
    (data / "valid.tsv").write_text("ab\ta_b\n", encoding="utf-8")
    more = "--task", "string_transduction", "--target-separator", "_", "--max-update", 1
    corpus.run("fairseq-train", *corpus.train_arguments(data, tmp_path / "model", *more, arch="dl4mt"))
    said = refused(capsys, tmp_path, data, tmp_path / "model" / "checkpoint_last.pt", tmp_path / "package")
    assert "has symbols separated by '_', and in a package they are separated by spaces" in said


@pytest.mark.more
def test_a_shortlist(runs, tmp_path):
    """The package translates as --task shortlist_translation does, with a part of the vocabulary."""
    checkpoint, lines = runs.rnnsearch / "checkpoint_best.pt", (runs.text / "test.xx").read_text().splitlines()
    words = [line.split()[0] for line in (runs.data / "dict.xx.txt").read_text().splitlines()]
    rows = (f"{word}\t{other}\t9\t0.5\n" for pair in zip(words, words[1:]) for word in pair[:1] for other in pair)
    (tmp_path / "table").write_text("".join(rows))
    options = "--shortlist", tmp_path / "table", "--shortlist-size", 2, "--shortlist-frequent", 0
    assert export(runs.data, checkpoint, tmp_path / "package", *options, "--max-len-b", 10) == 0
    compare(tmp_path / "package", runs.data, lines, checkpoint, *USER_DIR, "--task", "shortlist_translation", *options)


def refused(capsys, folder, *arguments):
    """Return the reason of a refusal, which leaves the folder as it was."""
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    assert export(*arguments) == 2
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before
    [line] = capsys.readouterr().err.splitlines()
    return line.removeprefix("fairseq-attnvariants export: ")


def test_refusals(runs, tmp_path, capsys, monkeypatch):
    checkpoint, output = runs.rnnsearch / "checkpoint_best.pt", tmp_path / "package"
    (tmp_path / "there").mkdir()
    (tmp_path / "codes").write_text("#version: 0.2\na b\na b c\n")

    def why(path, output, *options):
        return refused(capsys, tmp_path, runs.data, path, output, *options)

    assert why(checkpoint, tmp_path / "there").endswith("there exists already: name another folder, or remove it")
    assert "there is no folder" in why(checkpoint, tmp_path / "no" / "package")
    few = why(checkpoint, output, "--beam", 50)
    assert few.startswith("--beam 50: the target has few symbols, which allow at most --beam ")
    assert why(f"{checkpoint}:{checkpoint}", output).endswith("is an ensemble: give one checkpoint")
    assert why(runs.lstm / "checkpoint_best.pt", output).endswith("is a LSTMModel, and not a model of this package")
    assert why(checkpoint, output, "--bpe-codes", tmp_path / "codes").endswith(
        "codes, line 3: not two subwords, as learn-bpe writes them"
    )
    assert "cannot be read" in why(checkpoint, output, "--bpe-codes", tmp_path / "none")
    (tmp_path / "cased").write_bytes(b"Caf\xe9 (1)\n")
    assert "cased, line 1: not UTF-8" in why(checkpoint, output, "--truecase", tmp_path / "cased")
    for option in ("--title", "--license", "--trained", "--score"):
        said = why(checkpoint, output, option, os.fsdecode(b"na\xff"))
        assert said.startswith(f"argument {option}: na\\udcff is not UTF-8: write it as UTF-8")
    monkeypatch.chdir(tmp_path)
    assert why(checkpoint, output, "--page").startswith("--page: a page needs onnxruntime-web")


@pytest.mark.parametrize("codes, message", [
    ("", "is empty"), ("#version: 0.3\na b\n", "only 0.1 and 0.2 are known"),
    ("a\tb\n", "line 1: not two subwords"), ("#version: 0.2\na b\n\n", None),
    ("#version: 0.2\na b</w>\n\u00a0 a</w>\n", None), ("a b\n", None), ("#version: 0.2\n", None),
])  # fmt: skip
def test_codes_are_refused_that_the_runtime_refuses(tmp_path, codes, message):
    (tmp_path / "codes").write_text(codes, encoding="utf-8")
    if message is None:
        Subwords(subcommand.merges(str(tmp_path / "codes")).decode())
        return
    with pytest.raises(UserError, match=f"--bpe-codes {tmp_path}/codes.*{message}"):
        subcommand.merges(str(tmp_path / "codes"))
    with pytest.raises((PackageError, IndexError)):
        Subwords(codes)


def test_subwords_of_a_vocabulary(tmp_path):
    (tmp_path / "codes").write_text("#version: 0.2\na b\n")
    (tmp_path / "vocabulary").write_text("a@@ 3\nb 2\nab@@ 1\n")
    (tmp_path / "damaged").write_text("a@@ 3\nb\n")

    def prepared(**options):
        names = {name: str(tmp_path / value) if isinstance(value, str) else value for name, value in options.items()}
        given = subcommand.Options(**{**NOTHING, **names})
        codes = subcommand.merges(given.bpe_codes) if given.bpe_codes else None
        return subcommand.prepared(given, codes, "xx", "yy")

    text, files = prepared(bpe_codes="codes", bpe_vocabulary="vocabulary", bpe_vocabulary_threshold=2)
    assert (text["bpe"]["vocabulary"], json.loads(files["vocabulary.json"])) == ("vocabulary.json", ["a@@", "b"])
    for options, message in (
        (dict(bpe_vocabulary="vocabulary"), "--bpe-vocabulary is of --bpe-codes, which is not given: add it"),
        (
            dict(bpe_codes="codes", bpe_vocabulary_threshold=2),
            "--bpe-vocabulary-threshold is of --bpe-vocabulary, which",
        ),
        (dict(bpe_codes="codes", bpe_vocabulary="damaged"), "damaged, line 2: not a subword and its count"),
        (
            dict(bpe_codes="codes", bpe_vocabulary="vocabulary", bpe_vocabulary_threshold=9),
            "no subword that was counted 9",
        ),
    ):
        with pytest.raises(UserError, match=message):
            prepared(**options)


@pytest.mark.parametrize("switch, name", [("moses_no_dash_splits", "hyphens"), ("moses_no_escape", "escape")])
def test_switches_of_the_tokeniser(switch, name):
    def tokenizer(**more):
        given = subcommand.Options(**{**NOTHING, "tokenizer": "moses", **more})
        return subcommand.prepared(given, None, "de", "en")[0]["tokenizer"]

    plain = tokenizer()
    assert plain["hyphens"] and plain["escape"] and tokenizer(**{switch: True}) == {**plain, name: False}


def test_the_manifest_says_what_the_options_say(runs, tmp_path):
    (tmp_path / "case").write_text("Ant (3/4) ant (1)\n")
    about = dict(title="reversed", license="MIT", trained="today", score="BLEU 1")
    options = [part for name, value in about.items() for part in (f"--{name}", value)]
    options += ["--int8", "--lowercase", "--truecase", tmp_path / "case"]
    assert export(runs.data, runs.rnnsearch / "checkpoint_best.pt", tmp_path / "package", *options) == 0
    manifest = json.loads((tmp_path / "package" / "manifest.json").read_text())
    assert about.items() <= manifest["about"].items() and manifest["int8"] is True
    assert manifest["text"]["lowercase"] is True
    assert manifest["text"]["truecase"] == {"source": "truecase.source.json"}
    assert (tmp_path / "package" / "truecase.source.json").exists()


def test_the_manifest_says_what_the_model_is(monkeypatch):
    """A runtime reads limits, whether the model copies, and special symbols."""
    sizes = dict(max_source_positions=30, max_target_positions=40)
    graph = ir.Model(ir.Graph([], [], nodes=[], opset_imports={"": 20}), ir_version=9)
    search, same = proof.Search(min_len=2, normalize=False), proof.Proof(3, 3, 3, 1.0, 0.0, 0.0, "")
    for name, copies, adds_up in (("pointer_generator", True, True), ("rnnsearch", False, False)):
        monkeypatch.setattr(Softmax, "adds_up", adds_up)
        task = Task()
        task.cfg = SimpleNamespace(source_lang="xx", target_lang=None)
        model = build(name, task, **sizes)
        found = manifest(task, model, graph, same, search, {}, {"title": "t"}, False)
        assert (found["copies"], found["adds_up"], found["format"], found["shortlist"]) == (copies, adds_up, 1, None)
        limits = dict(largest_beam=(len(task.target_dictionary) - 1) // 2, largest_source=30, largest_target=1024)
        assert found["search"] == {**search._asdict(), **limits}
        assert found["special"] == dict(bos=0, pad=1, eos=2, unk=3) and found["source"]["end"] == [2]
        assert (found["source"]["language"], found["target"]["language"]) == ("xx", "target")
        assert [found[side]["size"] for side in ("source", "target")] == [24, 21]


def test_other_tasks_and_stock_models(runs):
    checkpoint = runs.rnnsearch / "checkpoint_best.pt"
    system = load(str(checkpoint), str(runs.data), cpu=True)
    assert subcommand.check_system(system) is system.models[0]
    for kind in (TranslationMultiSimpleEpochTask, Mine):  # the first has no cfg
        with pytest.raises(UserError, match=f"is of the task {kind.__name__}, and a package holds one pair"):
            subcommand.check_system(system._replace(task=object.__new__(kind)))


def test_files_that_begin_like_a_split_are_none(runs, tmp_path):
    """The command uses the validation set. It ignores a note, and the test set of another pair."""
    system = load(str(runs.rnnsearch / "checkpoint_best.pt"), str(runs.data), cpu=True)
    data = tmp_path / "data"
    shutil.copytree(runs.data, data, ignore=shutil.ignore_patterns("test.*"))
    expected = subcommand.sources(system, str(data))
    for name in ("test.log", "test.xx-zz.xx.idx"):
        (data / name).touch()
    assert len(expected) > 1 and [*map(len, subcommand.sources(system, str(data)))] == [*map(len, expected)]


def test_sentences_that_are_too_long_for_the_model_are_not_compared(runs):
    system = load(str(runs.rnnsearch / "checkpoint_best.pt"), str(runs.data), cpu=True)
    *_, second, longest = sorted({len(source) for source in subcommand.sources(system, str(runs.data))})
    system.model.encoder.max_source_positions = longest - 1
    assert max(map(len, subcommand.sources(system, str(runs.data)))) == second


def test_a_part_that_cannot_be_traced_is_named(runs, tmp_path, capsys, monkeypatch):
    started = graphs.started
    monkeypatch.setattr(graphs, "started", lambda model, source: started(model, untraceable(source)))
    why = refused(capsys, tmp_path, runs.data, runs.rnnsearch / "checkpoint_best.pt", tmp_path / "package")
    assert re.search(r"cannot be exported: .*\(deploy/test_export.py, line \d+\)$", why)


def untraceable(source):
    return source[: max(1, int(source.sum()))]


def test_what_translates_otherwise_is_refused(runs, package, tmp_path, capsys, monkeypatch):
    """The graph doubles the energies, so its attention differs from the model's."""
    graph = ir.from_proto(onnx.load(package / "model.onnx"))
    softmax = next(node for node in graph.graph.all_nodes() if node.op_type == "Softmax")
    scaled = ir.node("Add", [softmax.inputs[0], softmax.inputs[0]])
    softmax.graph.insert_before(softmax, scaled)
    softmax.replace_input_with(0, scaled.outputs[0])
    monkeypatch.setattr(deploy, "export", lambda *_: graph)
    why = refused(capsys, tmp_path, runs.data, runs.rnnsearch / "checkpoint_best.pt", tmp_path / "package")
    assert re.search(r"the exported model translates differently, first at step \d+ of", why)


def test_a_full_disk_and_a_kill_leave_nothing(tmp_path):
    with pytest.raises(UserError, match="cannot be written: No space"), new_folder(str(tmp_path / "package")) as folder:
        Path(folder, "model.onnx").write_bytes(b"x")
        raise OSError(28, "No space left on device")
    assert [*tmp_path.iterdir()] == []
    code = f"""if True:
        import sys, time
        from pathlib import Path
        from fairseq_attnvariants_cli import main
        from fairseq_attnvariants_cli.subcommands import export
        def run(options):
            with export.new_folder(options.output) as folder:
                print("begun", flush=True)
                time.sleep(60)
        export.run = run
        sys.exit(main.main(["export", "data", "--path", "p", "--output", {str(tmp_path / "package")!r}]))
    """
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "begun\n"
    process.send_signal(signal.SIGTERM)
    assert process.wait(LONG) == 128 + signal.SIGTERM
    assert [*tmp_path.iterdir()] == []


def test_without_onnx_it_says_what_to_install(runs, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("fairseq_attnvariants.deploy.NEEDED", ("onnxruntime", "no_such_package"))
    why = refused(capsys, tmp_path, runs.data, runs.rnnsearch / "checkpoint_best.pt", tmp_path / "package")
    assert why == 'no_such_package missing: pip install "fairseq-attnvariants[export]" brings all it needs'


def test_the_search_is_what_the_options_say(runs):
    system = load(str(runs.rnnsearch / "checkpoint_best.pt"), str(runs.data), cpu=True)
    chosen = dict(beam=3, lenpen=0.5, max_len_a=0.25, max_len_b=7)
    found = subcommand.search_of(system, subcommand.Options(**{**NOTHING, **chosen}))
    assert found == proof.Search(**chosen, largest_target=system.model.max_decoder_positions())


def test_a_proof_needs_close_numbers_and_nearly_all_lists():
    found = proof.Proof(40, 40, 38, 1.0, proof.CLOSE, proof.CLOSE, "")
    assert found.holds and not found._replace(equal=37).holds
    for name in ("score", "attention"):
        assert not found._replace(**{name: 2 * proof.CLOSE}).holds


@pytest.mark.parametrize("theirs, same", [
    ({4: -1.0, 5: -2.0}, True),
    ({4: -1.0, 6: -2.00005}, True),  # ties with the last one
    ({4: -1.0, 6: -2.1}, False),
    ({6: -1.0, 5: -2.0}, False),  # another one at the top
    ({4: -1.0}, False),
])  # fmt: skip
def test_lists_are_alike_but_for_ties_with_the_last(theirs, same):
    def found(scores):
        return [Hypothesis(score, [symbol, 2], [], []) for symbol, score in scores.items()]

    wanted = [dict(tokens=torch.tensor([symbol, 2]), score=torch.tensor(score)) for symbol, score in theirs.items()]
    assert proof.alike(found({4: -1.0, 5: -2.0}), wanted) is same
    assert proof.alike(found({4: -1.0}), [dict(tokens=torch.tensor([5, 2]), score=torch.tensor(-1.0))]) is False
