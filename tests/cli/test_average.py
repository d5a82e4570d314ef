import os
import re
import shutil
from functools import partial

import corpus
import pytest
import torch

from fairseq_attnvariants_cli.main import main
from fairseq_attnvariants_cli.systems.averaging import HOW, average, best, last, mean
from fairseq_attnvariants_cli.systems.model import load, read_checkpoint
from fairseq_attnvariants_cli.text.files import UserError

FINGERPRINT = "encoder.dictionary_version"


def names(paths):
    return [os.path.basename(path) for path in paths]


def changed(source, target, change):
    """Write a checkpoint again after ``change(state)``."""
    state = torch.load(source, weights_only=True)
    change(state)
    torch.save(state, target)
    return str(target)


def test_the_mean_by_hand():
    states = [
        {"weight": torch.tensor([1.0, 2.0]), "half": torch.tensor([0.5]).half(), "count": torch.tensor([3])},
        {"weight": torch.tensor([2.0, 6.0]), "half": torch.tensor([1.5]).half(), "count": torch.tensor([4])},
    ]
    found = mean(states)
    assert found["weight"].tolist() == [1.5, 4] and found["half"].tolist() == [1] and found["count"].tolist() == [4]
    assert found["half"].dtype is torch.float16 and states[0]["weight"].tolist() == [1, 2]


def test_small_differences_are_not_lost():
    """A sum of a thousand values in float32 would lose small differences."""
    value = torch.tensor([1 / 3])
    assert torch.equal(mean([{"weight": value}] * 1000)["weight"], value)


def test_what_is_tied_stays_tied():
    states = []
    for value in (1.0, 3.0):
        matrix = torch.full((2, 2), value)
        states.append({"embed": matrix, "project": matrix, "other": matrix.clone()})
    found = mean(states)
    assert found["embed"] is found["project"] and found["embed"].tolist() == [[2, 2], [2, 2]]
    assert found["other"] is not found["embed"] and torch.equal(found["other"], found["embed"])


def test_what_only_some_tie_has_means_of_its_own():
    """Some checkpoints share a matrix and others do not, if a training resumed with shared embeddings, for example."""
    matrix = torch.full((2, 2), 3.0)
    first = {"embed": torch.full((2, 2), 1.0), "project": torch.full((2, 2), 5.0)}
    tied = {"embed": matrix, "project": matrix}
    for states in ([first, tied], [tied, first]):
        found = mean(states)
        assert found["embed"].unique().tolist() == [2] and found["project"].unique().tolist() == [4]


def test_the_last_are_chosen_by_number(runs):
    assert names(last(str(runs.rnnsearch), 2, "epochs")) == ["checkpoint2.pt", "checkpoint1.pt"]
    assert names(last(str(runs.rnnsearch), 2, "updates")) == ["checkpoint_2_20.pt", "checkpoint_1_10.pt"]


@pytest.mark.parametrize("maximize", [False, True])
def test_the_best_are_chosen_by_value_and_copies_count_once(runs, tmp_path, maximize):
    for k, value in enumerate([3.0, 1.0, None, 2.0, float("inf"), float("nan")]):

        def change(state, k=k, value=value):
            state["extra_state"]["val_loss"] = value
            state["optimizer_history"][-1]["num_updates"] = k
            state["cfg"]["checkpoint"]["maximize_best_checkpoint_metric"] = maximize

        changed(runs.rnnsearch / "checkpoint1.pt", tmp_path / f"checkpoint{k}.pt", change)
    shutil.copy(tmp_path / "checkpoint1.pt", tmp_path / "checkpoint_best.pt")
    order = ["checkpoint0.pt", "checkpoint3.pt", "checkpoint1.pt"]
    assert names(best(str(tmp_path), 3)) == (order if maximize else order[::-1])
    with pytest.raises(UserError, match="has 3 different checkpoints with a validation score, and 4 are asked for"):
        best(str(tmp_path), 4)


def test_several_trainings_are_mentioned(runs, tmp_path, capsys):
    paths = [changed(runs.rnnsearch / "checkpoint1.pt", tmp_path / f"{k}.pt", partial(with_seed, k)) for k in (1, 2)]
    assert main(["average", *paths, "--output", str(tmp_path / "mean.pt")]) == 0
    assert (
        "these are trainings with the seeds 1, 2: only checkpoints of one have a good mean" in capsys.readouterr().err
    )
    assert "best" not in read_checkpoint(tmp_path / "mean.pt")["extra_state"]


def with_seed(seed, state):
    state["cfg"]["common"]["seed"] = seed
    state["extra_state"]["best"] = 2.5


def test_a_copy_is_mentioned(runs, tmp_path, capsys):
    paths = [shutil.copy(runs.rnnsearch / "checkpoint1.pt", tmp_path / name) for name in ("one.pt", "two.pt")]
    assert main(["average", *map(str, paths), "--output", str(tmp_path / "mean.pt")]) == 0
    assert "the same number of updates: a copy of another counts twice" in capsys.readouterr().err


def test_models_that_no_training_wrote_are_no_copies(runs, tmp_path, capsys):
    """``import-nematus`` and ``export --safetensors`` write 0 updates."""
    none = lambda state: state["optimizer_history"][-1].update(num_updates=0)  # noqa: E731
    paths = [changed(runs.rnnsearch / f"checkpoint{k}.pt", tmp_path / f"{k}.pt", none) for k in (1, 2)]
    assert main(["average", *paths, "--output", str(tmp_path / "mean.pt")]) == 0
    assert "counts twice" not in capsys.readouterr().err


def test_subcommand_averages_and_fairseq_generates(runs, tmp_path):
    output = tmp_path / "average.pt"
    assert main(["average", "--folder", str(runs.rnnsearch), "--last", "2", "--output", str(output)]) == 0
    first, second = (read_checkpoint(runs.rnnsearch / f"checkpoint{k}.pt")["model"] for k in (1, 2))
    state = read_checkpoint(output)
    assert state["model"].keys() == first.keys() and "last_optimizer_state" not in state
    assert not {"val_loss", "best"} & state["extra_state"].keys()  # they belong to one checkpoint, not to the mean
    for name, tensor in state["model"].items():
        if tensor.is_floating_point():
            torch.testing.assert_close(tensor, (first[name] + second[name]) / 2)
        else:
            assert torch.equal(tensor, first[name])
    assert FINGERPRINT in state["model"]
    process = corpus.run(
        "fairseq-generate", runs.data, "--user-dir", corpus.USER_DIR, "--path", output, "--cpu", "--batch-size", "12"
    )
    assert len(re.findall(r"^H-", process.stdout, flags=re.MULTILINE)) == 12


def test_a_model_without_a_dataclass(runs, tmp_path):
    """The stock lstm's checkpoint holds an argparse.Namespace; all except parameters is that of the newest one."""
    output = str(tmp_path / "average.pt")
    paths = [str(runs.lstm / f"checkpoint{name}.pt") for name in ("1", "_1_10")]
    assert main(["average", *paths, "--output", output]) == 0
    assert read_checkpoint(output)["optimizer_history"][-1]["num_updates"] == 15
    assert load(output, str(runs.data), cpu=True).models


def whole_numbers(state):
    """Make the output layer's bias whole numbers."""
    name = "decoder.output_projection.bias"
    state["model"][name] = state["model"][name].long()


@pytest.mark.parametrize("change, message", [
    (lambda state: state["cfg"]["model"].update(attention_history="context"), "option attention_history is"),
    (lambda state: state["cfg"]["model"].update(_name="dl4mt", attention_dim=3), "option arch is 'dl4mt' in one"),
    (lambda state: state["model"][FINGERPRINT].add_(1), "different dictionaries (encoder)"),
    (lambda state: state["model"].update(extra=torch.zeros(1)), "only one has the parameter extra"),
    (lambda state: state["model"].update({"decoder.output_projection.bias": torch.zeros(1)}),
        "decoder.output_projection.bias is (1,) in one and"),
    (whole_numbers, "decoder.output_projection.bias is of torch.int64 in one and of torch.float32 in the other"),
])  # fmt: skip
def test_checkpoints_that_differ_are_refused(runs, tmp_path, refusal, change, message):
    other = changed(runs.rnnsearch / "checkpoint2.pt", tmp_path / "other.pt", change)
    output = tmp_path / "average.pt"
    error = refusal(["average", other, str(runs.rnnsearch / "checkpoint1.pt"), "--output", str(output)])
    assert "cannot be averaged" in error and message in error
    assert os.listdir(tmp_path) == ["other.pt"]


def test_dropout_may_differ_and_how_it_was_computed(runs, tmp_path):
    path = str(runs.rnnsearch / "checkpoint2.pt")
    how = {"dropout": 0.9, "recompute_steps": 4, "compute_dtype": "bfloat16", "warm_start": "a.pt"}
    other = changed(path, tmp_path / "other.pt", lambda state: state["cfg"]["model"].update(how))
    assert average([path, other])["model"].keys() == read_checkpoint(path)["model"].keys()


def test_what_is_no_plain_data_is_not_loaded(tmp_path):
    """A checkpoint that would run code is refused, and runs none."""

    class Bomb:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "exploded"),)

    torch.save({"model": {}, "extra_state": Bomb(), "optimizer_history": []}, tmp_path / "bomb.pt")
    with pytest.raises(UserError, match="bomb.pt: not loaded"):
        read_checkpoint(str(tmp_path / "bomb.pt"))
    assert not (tmp_path / "exploded").exists()


@pytest.mark.parametrize("more, message", [
    ([], "name the checkpoints, or give --folder and one of --last and --best"),
    (["--folder", "nowhere", "--last", "2"], "--folder nowhere: there is no such folder"),
    (["--folder", "nowhere", "--best", "2"], "--folder nowhere: there is no such folder"),
    (["--folder", os.path.dirname(__file__), "--last", "2"], "has 0 checkpoints saved by epochs, and 2 are asked"),
    (["--folder", ".", "--best", "2", "--by", "updates"], "--by is the unit of --last: give --last, too"),
    (["--folder", "nowhere"], "name the checkpoints, or give --folder"),
    (["nowhere.pt", "./nowhere.pt"], "nowhere.pt is given twice: leave one out"),
    (["nowhere.pt"], "nowhere.pt cannot be loaded: No such file or directory"),
    (["."], ". cannot be loaded: Is a directory"),
])  # fmt: skip
def test_bad_input_is_refused(tmp_path, refusal, more, message):
    error = refusal(["average", *more, "--output", str(tmp_path / "average.pt")])
    assert message in error and os.listdir(tmp_path) == []


def test_the_mean_replaces_none_of_its_checkpoints(runs, tmp_path, refusal):
    """A checkpoint would lose the state of its optimizer."""
    for k in (1, 2):
        shutil.copy(runs.rnnsearch / f"checkpoint{k}.pt", tmp_path)
    (tmp_path / "link.pt").symlink_to("checkpoint2.pt")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    named = [str(tmp_path / f"checkpoint{k}.pt") for k in (1, 2)]
    for inputs in (named, ["--folder", str(tmp_path), "--last", "2"], ["--folder", str(tmp_path), "--best", "2"]):
        for output in (named[0], str(tmp_path / "link.pt")):
            error = refusal(["average", *inputs, "--output", output])
            assert f"{output} is an input, too, and would be replaced" in error
            assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert main(["average", *named, "--output", str(tmp_path / "checkpoint_mean.pt")]) == 0


def test_another_file_is_no_checkpoint(tmp_path):
    torch.save([1, 2], tmp_path / "list.pt")
    with pytest.raises(UserError, match="list.pt is not a checkpoint of fairseq"):
        read_checkpoint(str(tmp_path / "list.pt"))


@pytest.mark.parametrize("option, value", [
    ("best_checkpoint_metric", "ppl"), ("maximize_best_checkpoint_metric", True),
])  # fmt: skip
def test_the_best_by_different_metrics_are_not_compared(runs, tmp_path, option, value):
    for k in (1, 2):

        def change(state, k=k):
            state["cfg"]["checkpoint"].update({option: value} if k == 2 else {})

        changed(runs.rnnsearch / f"checkpoint{k}.pt", tmp_path / f"checkpoint{k}.pt", change)
    with pytest.raises(UserError, match="has checkpoints of runs with different metrics: name those to be averaged"):
        best(str(tmp_path), 2)


@pytest.mark.parametrize("option", sorted(HOW | {"gate_bias", "init", "compile", "cuda_graphs", "search_dtype"}))
def test_how_a_model_is_trained_may_differ(runs, tmp_path, option):
    path = str(runs.rnnsearch / "checkpoint2.pt")
    other = changed(path, tmp_path / "other.pt", lambda state: state["cfg"]["model"].update({option: "other"}))
    assert average([path, other])["model"].keys() == read_checkpoint(path)["model"].keys()


def test_fingerprints_of_an_older_version_are_averaged_with_those_of_today(runs, tmp_path):
    """Version 0.1.0 wrote the same digest as four whole numbers."""

    def older(state):
        for side in ("encoder", "decoder"):
            high, low = state["model"][f"{side}.dictionary_version"].view(4, 2).unbind(1)
            state["model"][f"{side}.dictionary_version"] = (high << 32) | low

    path = str(runs.rnnsearch / "checkpoint1.pt")
    other = changed(runs.rnnsearch / "checkpoint2.pt", tmp_path / "other.pt", older)
    expected = read_checkpoint(path)["model"]["encoder.dictionary_version"]
    assert average([path, other])["model"]["encoder.dictionary_version"].equal(expected)
