"""Checkpoints from strangers: none of their strings runs, and a refusal is one sentence that names file and reason."""

import argparse
import ast
import sys
from pathlib import Path

import corpus
import fairseq
import fairseq_cli.generate
import pytest
import torch
from fairseq import hub_utils, utils

from fairseq_attnvariants.compat.evaluation import evaluate
from fairseq_attnvariants_cli.files import UserError
from fairseq_attnvariants_cli.model import load

pytestmark = pytest.mark.filterwarnings("ignore")  # stock fairseq's own are many


@pytest.fixture
def marker(tmp_path):
    """A folder that is there only if code of a checkpoint has run."""
    return tmp_path / "made by code in the checkpoint"


@pytest.fixture
def changed(runs, tmp_path):
    """A checkpoint of the stock lstm, whose configuration is a Namespace, after a change."""

    def write(change, source=None):
        state = torch.load(source or runs.lstm / "checkpoint_last.pt", weights_only=True)
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


def verb(path, runs, monkeypatch):
    load(str(path), str(runs.data), cpu=True)


@pytest.mark.parametrize("read", [generate, from_pretrained, verb])
@pytest.mark.parametrize("place, option", [(in_model, "model"), (in_old_arguments, "model"), (in_task, "task")])
def test_no_string_of_a_checkpoint_runs(runs, changed, marker, monkeypatch, read, place, option):
    if read is generate and place is in_task:
        pytest.skip("fairseq-generate takes the task from its command line")
    path = changed(lambda state: place(state, evil(marker)))
    with pytest.raises(Exception) as refusal:
        read(path, runs, monkeypatch)
    assert not marker.exists()
    message = str(refusal.value)
    assert message.startswith(f"{path}: option {option}.") and "only literals" in message and "\n" not in message


@pytest.mark.parametrize("option", ["model", "task", "bpe"])
def test_interpolations_are_refused(runs, changed, option):
    """They could send a variable of the environment to a server, in the address of a file to be fetched."""

    def change(state):
        state["cfg"][option] = {"_name": option, "url": "https://stranger/${oc.env:HOME}"}

    path = changed(change)
    with pytest.raises(UserError, match=rf"^{path}: option {option}.url is .*no interpolations"):
        load(str(path), str(runs.data), cpu=True)


@pytest.mark.parametrize("text, value", [("[(512, 3)] * 2 + [(1, -1)]", [(512, 3), (512, 3), (1, -1)]), ("True", True)])
def test_literals_and_arithmetic_are_computed(text, value):
    assert evaluate(text) == value == utils.eval("  " + text)


@pytest.mark.parametrize(
    "text", ["print", "f'{1}'", "(lambda: 1)()", "[x for x in (1,)]", "9**9**9", "(" * 10**5, "1/0"]
)
def test_nothing_else_is(text):
    with pytest.raises(ValueError, match="only literals"):
        evaluate(text)


@pytest.mark.parametrize("code", [b"1 + 1", compile("1 + 1", "", "eval"), True])
def test_what_is_no_string_is_not_evaluated(code):
    with pytest.raises(TypeError):
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
