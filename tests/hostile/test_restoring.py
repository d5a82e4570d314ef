"""Starts of a training: from a missing file, with another scheduler or metric, from checkpoints without optimizer."""

import ast
import os
import shutil
from types import SimpleNamespace

import corpus
import pytest
import torch
from fairseq.optim.lr_scheduler.reduce_lr_on_plateau import ReduceLROnPlateauLRSchedule

from fairseq_attnvariants.patches.loading.checkpoints import load
from fairseq_attnvariants.patches.training.plateau import see_last_loss
from fairseq_attnvariants.patches.training.restoring import LAST, compare_options, start_of
from fairseq_attnvariants.registry import ConfigurationError

pytestmark = [pytest.mark.hostile, pytest.mark.filterwarnings("ignore")]  # stock fairseq has many


def train(runs, folder, *more):
    corpus.train_here(*corpus.train_arguments(runs.data, folder, *more))
    return load(folder / "checkpoint_last.pt")


@pytest.fixture(scope="module")
def first_update(runs, tmp_path_factory):
    folder = tmp_path_factory.mktemp("begun")
    train(runs, folder, "--max-update", "1")
    return folder


@pytest.fixture
def begun(first_update, tmp_path):
    """The folder of a training that has made one update."""
    return shutil.copytree(first_update, tmp_path / "begun")


@pytest.mark.parametrize("option", ["--restore-file", "--finetune-from-model", "--continue-once"])
@pytest.mark.parametrize("kind", ["missing", "relative", "folder"])
def test_a_file_that_is_not_there_is_no_training_from_scratch(runs, tmp_path, monkeypatch, option, kind):
    """With hydra, paths are often relative, and the working folder is another one."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    path = {"missing": tmp_path / "nothing.pt", "relative": "nothing.pt", "folder": tmp_path / "folder"}[kind]
    hint = f" in {tmp_path} .hydra changes the folder: give it an absolute path." if kind == "relative" else "$"
    with pytest.raises(ValueError, match=f"^{option} {path}: there is no such file{hint}"):
        train(runs, tmp_path / "run", "--max-update", "1", option, path)
    assert not list(tmp_path.glob("**/*.pt"))


def test_two_files_to_start_from_are_refused(runs, tmp_path):
    path = runs.rnnsearch / "checkpoint1.pt"
    with pytest.raises(ValueError, match="^--finetune-from-model and --restore-file both say where to start: leave"):
        train(runs, tmp_path, "--max-update", "1", "--restore-file", path, "--finetune-from-model", path)


@pytest.mark.parametrize("more, said, instead", [
    (["--arch", "dl4mt"], "--arch is rnnsearch there and dl4mt here", "another --save-dir"),
    (["--attention-dim", "7", "--dropout", "0.4"], "--attention-dim is [0-9]+ there and 7 here", "another --save-dir"),
    (["--arch", "dl4mt", "--restore-file"], "--arch is rnnsearch there and dl4mt here",
     "--warm-start instead of --restore-file"),
    (["--arch", "lstm", "--finetune-from-model"], "Missing key.*", "--warm-start instead of --finetune-from-model"),
])  # fmt: skip
def test_a_checkpoint_of_another_model_is_refused_by_what_differs(runs, begun, tmp_path, more, said, instead):
    path, folder = begun / "checkpoint_last.pt", begun
    if more[-1].startswith("--"):
        more, folder = [*more, path], tmp_path / "new"
    with pytest.raises(ValueError, match=rf"^{path} is of another model \({said}\): give its options, or {instead}$"):
        train(runs, folder, "--max-update", "2", *more)


@pytest.mark.parametrize("scheduler", ["reduce_lr_on_plateau", "inverse_sqrt"])
def test_another_scheduler_is_refused_by_name(runs, begun, scheduler):
    content = (begun / "checkpoint_last.pt").read_bytes()
    more = ("--max-update", "2", "--lr-scheduler", scheduler)
    with pytest.raises(ValueError, match=f"checkpoint_last.pt: .* than {scheduler}: .*--reset-lr-scheduler"):
        train(runs, begun, *more)
    assert (begun / "checkpoint_last.pt").read_bytes() == content
    assert train(runs, begun, *more, "--reset-lr-scheduler")["optimizer_history"][-1]["num_updates"] == 2


@pytest.mark.parametrize(
    "more, option",
    [(["--optimizer", "nag"], "Optimizer"), (["--criterion", "label_smoothed_cross_entropy"], "Criterion")],
)
def test_another_optimizer_or_criterion_is_refused_by_name(runs, begun, more, option):
    """Stock fairseq refuses it in one sentence, with a traceback."""
    said = rf"checkpoint_last.pt: {option} does not match; please reset the optimizer \(--reset-optim"
    with pytest.raises(ConfigurationError, match=said):
        train(runs, begun, "--max-update", "2", *more)


@pytest.mark.parametrize("more, name", [
    (["--weight-decay", "0.5"], "weight_decay"), (["--adam-betas", "(0.5, 0.5)"], "betas"),
    (["--adam-eps", "0.01"], "eps"),
])  # fmt: skip
def test_a_setting_that_the_state_of_the_optimizer_replaces_is_refused(runs, begun, more, name):
    """Stock fairseq goes on with the former value, and stores the new one in the checkpoint."""
    option, value = more
    before = load(begun / "checkpoint_last.pt")["last_optimizer_state"]["param_groups"][0][name]
    with pytest.raises(ConfigurationError, match=rf"^{option} .* would change nothing, .*\{{'{name}': ") as refusal:
        train(runs, begun, "--max-update", "2", *more)
    advice = str(refusal.value).partition('--optimizer-overrides "')[2].removesuffix('"')
    state = train(runs, begun, "--max-update", "2", *more, "--optimizer-overrides", advice)
    after = state["last_optimizer_state"]["param_groups"][0][name]
    assert after == ast.literal_eval(value) != before
    assert state["optimizer_history"][-1]["num_updates"] == 2
    train(runs, begun, "--max-update", "3", *more)  # the state has the value now


@pytest.mark.parametrize("optimizer", ["adagrad", "adadelta", "adamax", "nag", "sgd", "adafactor", "fused_adam"])
def test_the_same_settings_are_never_refused(runs, tmp_path, optimizer):
    for updates in (1, 2):
        state = train(runs, tmp_path, "--optimizer", optimizer, "--max-update", updates)
    assert state["optimizer_history"][-1]["num_updates"] == 2


@pytest.mark.parametrize("given, said", [
    ("nonsense", "nonsense: this is no dictionary of Python"), ("{", "{: this is no dictionary of Python"),
    ("[1]", ".1.: this is no dictionary"), ("{'weight_decy': 1}", "the optimizer has no 'weight_decy' .did you mean w"),
    ("{[]: 1}", "{.*}: this is no dictionary"), ("{1: 2}", "the optimizer has no '1'$"),
])  # fmt: skip
def test_overrides_that_override_nothing_are_refused(runs, begun, given, said):
    with pytest.raises(ConfigurationError, match=f"^--optimizer-overrides:? {said}"):
        train(runs, begun, "--max-update", "2", "--optimizer-overrides", given)


def test_a_rate_that_a_plateau_does_not_read_is_refused(runs, tmp_path):
    """The other schedulers compute the rate from --lr at every update."""
    more = ("--lr-scheduler", "reduce_lr_on_plateau", "--max-update")
    train(runs, tmp_path, *more, "1")
    with pytest.raises(
        ConfigurationError, match="^--lr 0.5 would change nothing, .* --optimizer-overrides .{'lr': 0.5}"
    ):
        train(runs, tmp_path, *more, "2", "--lr", "0.5")
    for updates, overrides in (("2", ("--optimizer-overrides", "{'lr': 0.5}")), ("3", ())):
        state = train(runs, tmp_path, *more, updates, "--lr", "0.5", *overrides)
        assert state["last_optimizer_state"]["param_groups"][0]["lr"] == 0.5
    assert train(runs, tmp_path, *more, "1", "--lr", "0.1", "--reset-optimizer")


def test_a_start_that_replaces_a_training_is_told(runs, begun, tmp_path, caplog):
    """A command with --restore-file that is repeated does not continue its training."""
    start = ("--restore-file", begun / "checkpoint_last.pt", "--max-update")
    train(runs, begun, *start, "1")
    assert "leave --restore-file out" not in caplog.text
    for again in (False, True):
        train(runs, tmp_path / "run", *start, "2")
        assert (f"{tmp_path}/run/checkpoint_last.pt is going to be replaced: leave" in caplog.text) == again


def test_an_average_that_begins_in_the_middle_is_refused(runs, begun):
    """Stock fairseq ends in a KeyError."""
    with pytest.raises(ConfigurationError, match="^--store-ema: .*checkpoint_last.pt has no moving average"):
        train(runs, begun, "--max-update", "2", "--store-ema")


def test_a_folder_that_cannot_be_written_is_refused(runs, tmp_path):
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file" / "folder"):
        with pytest.raises(
            ConfigurationError, match=f"^--save-dir {folder}: no file can be written there .* another f"
        ):
            train(runs, folder, "--max-update", "1")


def test_the_best_score_of_another_metric_is_forgotten(runs, begun, caplog):
    before = load(begun / "checkpoint_last.pt")["extra_state"]
    after = train(runs, begun, "--max-update", "2", "--best-checkpoint-metric", "ppl")["extra_state"]
    assert before["best"] == before["val_loss"] < after["best"] == after["val_loss"]
    assert load(begun / "checkpoint_best.pt")["extra_state"]["val_loss"] == after["val_loss"]
    assert "has the best loss, and here --best-checkpoint-metric is ppl" in caplog.text


def test_the_best_score_of_another_folder_is_forgotten(runs, tmp_path):
    """Otherwise no score here may ever be better, and there would be no checkpoint_best.pt."""
    state = load(runs.rnnsearch / "checkpoint1.pt")
    state["extra_state"]["best"] = 0.0
    torch.save(state, tmp_path / "other.pt")
    train(runs, tmp_path / "run", "--restore-file", tmp_path / "other.pt", "--max-epoch", "2")
    assert load(tmp_path / "run" / "checkpoint_best.pt")["extra_state"]["best"] > 0


def test_a_repeated_finetuning_without_the_optimizer_changes_nothing(runs, tmp_path):
    more = ("--finetune-from-model", runs.rnnsearch / "checkpoint1.pt", "--no-save-optimizer-state", "--max-update", 3)
    once = train(runs, tmp_path, *more)
    content = (tmp_path / "checkpoint_last.pt").read_bytes()
    train(runs, tmp_path, *more)
    assert once["optimizer_history"][-1]["num_updates"] == 3
    assert (tmp_path / "checkpoint_last.pt").read_bytes() == content


def test_a_cut_off_checkpoint_without_the_optimizer_is_replaced(runs, tmp_path, caplog):
    more = ("--max-epoch", "2", "--no-save-optimizer-state")
    train(runs, tmp_path, "--max-epoch", "1", *more[2:])
    updates = load(tmp_path / "checkpoint1.pt")["optimizer_history"][-1]["num_updates"]
    last = tmp_path / "checkpoint_last.pt"
    last.write_bytes(last.read_bytes()[:1000])
    assert train(runs, tmp_path, *more)["optimizer_history"][-1]["num_updates"] == 2 * updates
    assert "damaged or cut off: continuing from" in caplog.text


def test_the_newest_checkpoint_is_that_of_the_most_updates(runs, tmp_path, caplog):
    """The date does not count, since a copy of the folder changes it."""
    for name in ("checkpoint1.pt", "checkpoint2.pt"):
        shutil.copy(runs.rnnsearch / name, tmp_path)
    os.utime(tmp_path / "checkpoint2.pt", (0, 0))
    (tmp_path / "checkpoint_last.pt").write_bytes(b"PK")
    state = train(runs, tmp_path, "--max-epoch", "2")
    assert state["extra_state"]["train_iterator"]["epoch"] == 3
    assert f"continuing from {tmp_path / 'checkpoint2.pt'}, the newest complete checkpoint" in caplog.text


@pytest.mark.parametrize("more, seen", [
    ({}, [(2, 0.5)]), (dict(iterations_in_epoch=7), []), (dict(epoch=9), []), (dict(val_loss=None), []),
    (dict(reset_optimizer=True), []), (dict(reset_lr_scheduler=True), []),
])  # fmt: skip
def test_a_plateau_sees_the_loss_of_an_epoch_that_has_ended(more, seen):
    """A plateau sees the loss once, at the end of an epoch, and not that of a validation within the epoch."""
    found, options = [], {"reset_optimizer": False, "reset_lr_scheduler": False, "val_loss": 0.5, "epoch": 3}
    options |= {"iterations_in_epoch": 0, **more}
    scheduler = object.__new__(ReduceLROnPlateauLRSchedule)
    trainer = SimpleNamespace(lr_scheduler=scheduler, lr_step=lambda *given: found.append(given))
    state = {"val_loss": options["val_loss"], "train_iterator": options}
    see_last_loss(SimpleNamespace(**options), trainer, state, SimpleNamespace(epoch=3))
    assert found == seen


def test_an_optimizer_that_is_reset_counts_from_the_beginning(runs, begun, caplog):
    """Stock fairseq does the same."""
    before = train(runs, begun, "--max-update", "1")["model"]
    after = train(runs, begun, "--max-update", "1", "--reset-optimizer")["model"]
    assert any(not value.equal(before[name]) for name, value in after.items())
    assert "has no optimizer state" not in caplog.text


def test_of_two_files_to_start_from_it_is_the_one_that_fairseq_takes(runs, tmp_path):
    both = dict(finetune_from_model=str(runs.rnnsearch / LAST), continue_once=str(tmp_path / "nothing.pt"))
    with pytest.raises(ValueError, match="^--continue-once .*nothing.pt: there is no such file"):
        start_of(SimpleNamespace(save_dir=str(tmp_path), restore_file=LAST, **both), "")


@pytest.mark.parametrize("now, told", [('{"decay": {"rate": 0.9}}', True), ('{"decay": {"rate": 0.5}}', False)])
def test_other_options_of_parts_are_told(now, told, caplog):
    """The options change no size, so the checkpoint loads without an error."""
    model = SimpleNamespace(cfg=SimpleNamespace(part_args=now))
    stored = {"model": {"part_args": '{"decay": {"rate": 0.5}}'}}
    compare_options(SimpleNamespace(best_checkpoint_metric="loss"), model, "a.pt", stored)
    assert ('a.pt was trained with --part-args \'{"decay": {"rate": 0.5}}\', and this' in caplog.text) == told
