"""Checkpoints from strangers: no string in them runs, and a refusal is one sentence that names file and reason."""

import argparse
import ast
import random
import sys
from pathlib import Path

import corpus
import fairseq
import fairseq_cli.generate
import pytest
import torch
from fairseq import hub_utils, utils
from fairseq.data.data_utils import load_indexed_dataset

from fairseq_attnvariants.patches.loading import checkpoints as loading
from fairseq_attnvariants.patches.loading.evaluation import evaluate
from fairseq_attnvariants_cli.systems.averaging import average
from fairseq_attnvariants_cli.systems.model import load, read_checkpoint
from fairseq_attnvariants_cli.text.files import UserError

BIAS = "decoder.output_projection.bias"
pytestmark = [pytest.mark.hostile, pytest.mark.filterwarnings("ignore")]  # stock fairseq has many


@pytest.fixture
def marker(tmp_path):
    """A folder that exists only if code of a checkpoint has run."""
    return tmp_path / "made by code in the checkpoint"


@pytest.fixture
def changed(runs, tmp_path):
    """A function that writes a checkpoint of the stock lstm, whose configuration is a Namespace, after a change."""

    def write(change, source=None):
        state = loading.load(source or runs.lstm / "checkpoint_last.pt")
        change(state)
        torch.save(state, tmp_path / "stranger.pt")
        return tmp_path / "stranger.pt"

    return write


def evil(marker):
    return f"__import__('os').mkdir({str(marker)!r}) or True"


def in_model(state, text):
    state["cfg"]["model"].decoder_attention = text


def in_old_arguments(state, text):
    state["args"], state["cfg"] = state["cfg"]["model"], None
    state["args"].decoder_attention = text


def in_task(state, text):
    state["cfg"]["task"] = argparse.Namespace(
        task="multilingual_translation", lang_pairs="xx-yy", source_lang="xx", target_lang="yy", left_pad_source=text
    )


def generate(path, runs, monkeypatch):
    arguments = [runs.data, "--user-dir", corpus.USER_DIR, "--path", path, "--cpu", "--num-workers", "0"]
    monkeypatch.setattr(sys, "argv", ["fairseq-generate", *map(str, arguments)])
    fairseq_cli.generate.cli_main()


def from_pretrained(path, runs, monkeypatch):
    hub_utils.from_pretrained(str(path.parent), path.name, str(runs.data), user_dir=corpus.USER_DIR)


def subcommand(path, runs, monkeypatch):
    load(str(path), str(runs.data), cpu=True)


@pytest.mark.parametrize("read", [generate, from_pretrained, subcommand])
@pytest.mark.parametrize("place, option", [(in_model, "model."), (in_old_arguments, ""), (in_task, "task.")])
def test_no_string_of_a_checkpoint_runs(runs, changed, marker, monkeypatch, read, place, option):
    if read is generate and place is in_task:
        pytest.skip("fairseq-generate takes the task from its command line")
    path = changed(lambda state: place(state, evil(marker)))
    with pytest.raises(Exception) as refusal:
        read(path, runs, monkeypatch)
    assert not marker.exists()
    message = str(refusal.value)
    assert message.startswith(f"{path}: option {option}") and "only literals" in message and "\n" not in message


@pytest.mark.parametrize("option", ["model", "task", "bpe"])
def test_interpolations_are_refused(runs, changed, option):
    """An interpolation could send an environment variable to a server, in the address of a file to be fetched."""

    def change(state):
        state["cfg"][option] = {"_name": option, "url": "https://stranger/${oc.env:HOME}"}

    path = changed(change)
    with pytest.raises(UserError, match=rf"^{path}: option {option}.url is .*no interpolations"):
        load(str(path), str(runs.data), cpu=True)


REPEATED = ["[0] * 300000000", "300000000 * 'a'", "[[0] * 1000] * 1000 * 1000"]  # more than the memory has, perhaps


@pytest.mark.parametrize("text, value", [("[(512, 3)] * 2 + [(1, -1)]", [(512, 3), (512, 3), (1, -1)]), ("True", True)])
def test_literals_and_arithmetic_are_computed(text, value):
    assert evaluate(text) == value == utils.eval("  " + text)


@pytest.mark.parametrize(
    "text", ["print", "f'{1}'", "(lambda: 1)()", "[x for x in (1,)]", "9**9**9", "(" * 10**5, "1/0", *REPEATED]
)
def test_nothing_else_is(text):
    with pytest.raises(ValueError, match="only literals"):
        evaluate(text)


@pytest.mark.parametrize("code", [b"1 + 1", compile("1 + 1", "", "eval"), True])
def test_what_is_no_string_is_not_evaluated(code):
    with pytest.raises(TypeError, match="a string is evaluated, not"):
        evaluate(code)


def test_every_module_of_fairseq_that_evaluates_is_guarded():
    root = Path(fairseq.__file__).parent
    found = []
    for path in root.rglob("*.py"):
        if "examples" in path.parts:  # not imported by fairseq
            continue
        nodes = ast.walk(ast.parse(path.read_text()))
        called = {node.func.id for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
        assert "exec" not in called
        if "eval" in called:
            found.append(".".join(path.relative_to(root.parent).with_suffix("").parts))
    assert len(found) > 10 and all(sys.modules[name].eval is evaluate for name in found)


def without_metric(state):
    del state["cfg"]["checkpoint"]


def test_no_name_in_a_data_folder_reaches_a_shell(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name = tmp_path / "test.xx-$(mkdir made).xx"
    Path(f"{name}.fasta").write_text(">\nACG\n")
    with pytest.raises(ValueError, match="a shell, which would not take it as it is"):
        load_indexed_dataset(str(name), None, None)
    assert not Path("made").exists()


STRUCTURES = {
    "no history": lambda state: state.pop("optimizer_history"),
    "an empty history": lambda state: state.update(optimizer_history=[]),
    "no history at all": lambda state: state.update(optimizer_history=None),
    "updates in words": lambda state: state["optimizer_history"][-1].update(num_updates="many"),
    "no parameters": lambda state: state.update(model=None),
    "a list of parameters": lambda state: state.update(model=[1]),
    "a parameter that is no tensor": lambda state: state["model"].update({BIAS: 3}),
    "a parameter without a name": lambda state: state["model"].update({3: torch.zeros(1)}),
    "a sparse parameter": lambda state: state["model"].update({BIAS: torch.eye(3).to_sparse()}),
    "a parameter without values": lambda state: state["model"].update({BIAS: torch.zeros(3, device="meta")}),
    "no configuration": lambda state: state.update(cfg=None),
    "a list as configuration": lambda state: state.update(cfg=[1]),
    "a text as configuration": lambda state: state.update(cfg="model: rnnsearch"),
    "no model": lambda state: state["cfg"].pop("model"),
    "an empty model": lambda state: state["cfg"].update(model=None),
    "no task": lambda state: state["cfg"].update(task=None),
    "no state": lambda state: state.update(extra_state=None),
}


@pytest.mark.parametrize("change", STRUCTURES.values(), ids=STRUCTURES)
def test_malformed_structures_are_refused_in_one_sentence(runs, changed, tmp_path, refusal, change):
    path, good, output = changed(change, runs.rnnsearch / "checkpoint1.pt"), runs.rnnsearch / "checkpoint2.pt", tmp_path
    (tmp_path / "checkpoint1.pt").write_bytes(path.read_bytes())
    for inputs in ([path, good], [good, path], ["--folder", tmp_path, "--best", "1"]):
        error = refusal(["average", *map(str, inputs), "--output", str(output / "average.pt")])
        assert "is not a checkpoint of fairseq" in error
    with pytest.raises(UserError, match="stranger.pt .*is not a checkpoint of fairseq"):
        load(str(path), str(runs.data), cpu=True)
    assert not (output / "average.pt").exists()


def test_without_the_metric_the_best_are_not_known(runs, changed, tmp_path, refusal):
    (tmp_path / "checkpoint1.pt").write_bytes(changed(without_metric, runs.rnnsearch / "checkpoint1.pt").read_bytes())
    error = refusal(["average", "--folder", str(tmp_path), "--best", "1", "--output", str(tmp_path / "average.pt")])
    assert "checkpoint1.pt does not say which metric is best: name those to be averaged" in error


@pytest.mark.parametrize("part", ["model", "task"])
def test_what_neither_fairseq_nor_the_package_has_is_named(runs, changed, part):
    path = changed(lambda state: state["cfg"][part].update(_name="fancy"), runs.rnnsearch / "checkpoint1.pt")
    with pytest.raises(
        UserError, match=f"^{path} needs the {part} 'fancy', which neither fairseq nor this package has: give"
    ):
        load(str(path), str(runs.data), cpu=True)


@pytest.mark.parametrize("kind", [torch.float32, torch.float64, torch.complex64], ids=str)
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_diverged_model_is_refused(runs, changed, value, kind):
    def diverge(state):
        state["model"][BIAS] = state["model"][BIAS].to(kind)
        state["model"][BIAS][3] = value

    path = str(changed(diverge, runs.rnnsearch / "checkpoint1.pt"))
    for read in (lambda: load(path, str(runs.data), cpu=True), lambda: average([path])):
        with pytest.raises(UserError, match=f"{BIAS} holds NaN or infinity: the training diverged"):
            read()


def test_what_nothing_learns_may_be_anything(runs, changed):
    """fairseq's positions have a buffer that nothing writes, so it holds any content of the memory."""
    buffer = {"encoder.embed_positions._float_tensor": torch.tensor([float("nan")])}
    average([str(changed(lambda state: state["model"].update(buffer), runs.rnnsearch / "checkpoint1.pt"))])


@pytest.mark.parametrize("mark", [torch.tensor(3), torch.zeros(4), torch.zeros(2, 2)], ids=str)
def test_odd_fingerprints_are_refused(runs, changed, mark):
    path = changed(
        lambda state: state["model"].update({"encoder.dictionary_version": mark}), runs.rnnsearch / "checkpoint1.pt"
    )
    with pytest.raises(UserError, match="cannot be averaged"):
        average([str(runs.rnnsearch / "checkpoint2.pt"), str(path)])


@pytest.mark.parametrize("read", [generate, from_pretrained, subcommand])
def test_changed_weights_are_not_used(runs, tmp_path, monkeypatch, read):
    """torch reads changed weights without an error."""
    content = bytearray((runs.rnnsearch / "checkpoint1.pt").read_bytes())
    weights = read_checkpoint(str(runs.rnnsearch / "checkpoint1.pt"))["model"]["encoder.embed_tokens.weight"]
    content[content.index(weights.numpy().tobytes()) + 100] ^= 64
    path = tmp_path / "changed.pt"
    path.write_bytes(content)
    assert torch.load(path, weights_only=True)
    with pytest.raises(Exception, match=f"^{path}: damaged, its content is not what was written$"):
        read(path, runs, monkeypatch)


def test_flipped_bits_are_found(runs, tmp_path):
    """A flipped bit is found anywhere, unless it is in padding."""
    source, path, rng = runs.rnnsearch / "checkpoint1.pt", str(tmp_path / "flipped.pt"), random.Random(1)
    content, expected, refused = source.read_bytes(), read_checkpoint(str(source))["model"], 0
    for _ in range(60):
        flipped = bytearray(content)
        flipped[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        (tmp_path / "flipped.pt").write_bytes(flipped)
        try:
            found = read_checkpoint(path)["model"]  # the bit is in padding between the parts
            assert all(torch.equal(expected[name], found[name]) for name in expected)
        except UserError as error:
            assert str(error).startswith(path) and "\n" not in str(error)
            refused += 1
            with pytest.raises(UserError):
                load(path, str(runs.data), cpu=True)
    assert refused > 40


def test_torch_that_cannot_be_told_what_is_safe(runs, monkeypatch):
    """Before torch 2.4, checkpoints with a Namespace, as all of the stock lstm's, are refused; others load."""
    monkeypatch.setattr(torch._weights_only_unpickler, "_get_user_allowed_globals", dict, raising=False)
    assert read_checkpoint(str(runs.rnnsearch / "checkpoint1.pt"))
    with pytest.raises(UserError, match="holds argparse.Namespace, which torch .* cannot load safely: use 2.4"):
        load(str(runs.lstm / "checkpoint1.pt"), str(runs.data), cpu=True)
