"""``config/sweep.yaml`` with hydra's launchers."""

import itertools
import queue
import re
from contextlib import nullcontext

import hydra
import pytest
import torch
from corpus import SCRIPTS, SIZES, USER_DIR, run
from fairseq.data.iterators import BackgroundConsumer
from fairseq.dataclass.initialize import hydra_init
from hydra.core.global_hydra import GlobalHydra
from hydra.core.utils import JobReturn, JobStatus
from omegaconf import OmegaConf, read_write

from fairseq_attnvariants.patches.training.resuming import stop_loading
from hydra_plugins.fairseq_attnvariants import FailedRuns

pytestmark = pytest.mark.commands

MODEL = [f"model.{name.strip('-').replace('-', '_')}={size}" for name, size in zip(SIZES[::2], SIZES[1::2])]
FIXED = ["common.cpu=true", "optimization.max_epoch=1", *MODEL]


def sweep(data, folder, *more, command="fairseq-hydra-train"):
    overrides = [f"common.user_dir={USER_DIR}", f"task.data={data}", *FIXED, *more]
    arguments = ["-m", "--config-dir", f"{USER_DIR}/config", "--config-name", "sweep", *overrides]
    return run(command, *arguments, cwd=folder, check=False)


def finished(folder):
    """Return the names of the runs that have a checkpoint, without their hashes."""
    paths = folder.glob("sweep/*/checkpoints/checkpoint_last.pt")
    return sorted(path.parent.parent.name.rpartition("-")[0] for path in paths)


@pytest.mark.parametrize(
    "launcher",
    ["basic", pytest.param("joblib", marks=pytest.mark.more), pytest.param("submitit_local", marks=pytest.mark.more)],
)
def test_launchers(launcher, data, tmp_path):
    """A run that fails does not stop the others; its log has the reason, and the end names it, with status 1."""
    if launcher != "basic":
        pytest.importorskip(f"hydra_plugins.hydra_{launcher.partition('_')[0]}_launcher")
    more = [f"hydra/launcher={launcher}", "+model.decoder_condition=true", "model.decoder_cell=gru,lstm"]
    result = sweep(data, tmp_path, *more, "model._name=rnsearch,recatt", "common.seed=1")
    assert result.returncode == 1 and finished(tmp_path) == ["recatt-1"]
    wrong, reason = "Error: model._name=rnsearch: there is no such", "--decoder-condition adds to a GRU's state"
    summary = result.stderr[result.stderr.index("failed: 3 of the sweep's runs") :]
    assert (summary.count(wrong), summary.count(reason)) == (2, 1) and "Traceback" not in summary
    logs = [path.read_text() for path in tmp_path.glob("sweep/*/hydra_train.log")]
    assert (sum(wrong in log for log in logs), sum(reason in log for log in logs)) == (2, 1)
    assert not (tmp_path / "sweep" / ".failed").exists()


def test_costs_are_each_models_own(data, tmp_path):
    """One criterion serves a sweep of several architectures."""
    names = "model._name=rnnsearch,conddec,bridge_direct"
    criterion = "criterion._name=label_smoothed_cross_entropy_with_costs"
    result = sweep(data, tmp_path, names, criterion)
    assert result.returncode == 0, result.stderr[-3000:]
    logged = {
        path.parent.name.partition("-")[0]: {*re.findall(r"\| (\w+_loss) ", path.read_text())}
        for path in tmp_path.glob("sweep/*/hydra_train.log")
    }
    common = {"nll_loss"}
    own = {"rnnsearch": set(), "conddec": {"decay_loss", "left_loss"}, "bridge_direct": {"bridging_loss"}}
    assert {name: found - common for name, found in logged.items()} == own


def test_a_repeated_sweep_resumes(data, tmp_path):
    """Another override is another run; a finished run is not trained again."""
    for dropout in ("0.1", "0.1,0.2"):
        result = sweep(data, tmp_path, "model._name=rnnsearch", f"model.dropout={dropout}")
        assert result.returncode == 0, result.stderr[-3000:]
    assert finished(tmp_path) == ["rnnsearch-1", "rnnsearch-1"]
    logs = [path.read_text() for path in tmp_path.glob("sweep/*/hydra_train.log")]
    assert sorted(log.count("Loaded checkpoint") for log in logs) == [0, 1]
    assert [log.count("end of epoch") for log in logs] == [1, 1]


def test_a_process_that_has_imported_nothing(data, tmp_path):
    """A command as a user starts it, without ``warm.py``, composes the same configuration and trains the same model."""
    for folder, command in (("warm", "fairseq-hydra-train"), ("cold", SCRIPTS / "fairseq-hydra-train")):
        (tmp_path / folder).mkdir()
        values = ["model._name=conddec", "criterion._name=label_smoothed_cross_entropy_with_costs"]
        result = sweep(data, tmp_path / folder, *values, "optimization.max_update=2", command=command)
        assert result.returncode == 0, result.stderr[-3000:]
    warm, cold = (
        torch.load(next((tmp_path / folder).glob("sweep/*/checkpoints/checkpoint_last.pt")), weights_only=True)
        for folder in ("warm", "cold")
    )
    for group in ("model", "criterion", "optimizer", "lr_scheduler", "dataset", "optimization", "checkpoint"):
        assert warm["cfg"][group] == cold["cfg"][group]
    assert all(value.equal(cold["model"][name]) for name, value in warm["model"].items())


def test_runs_of_one_process_do_not_know_of_each_other(data, tmp_path):
    """Stock fairseq keeps the best score and the patience, so a later, worse run would have no best checkpoint."""
    two, alone = tmp_path / "two", tmp_path / "alone"
    for folder, rates in ((two, "[0.01],[0.0001]"), (alone, "[0.0001]")):
        folder.mkdir()
        rest = ["model._name=rnnsearch", "checkpoint.patience=1", "optimization.max_epoch=2"]
        assert sweep(data, folder, f"optimization.lr={rates}", *rest).returncode == 0
    [path] = alone.glob("sweep/*/checkpoints/checkpoint_best.pt")
    expected = torch.load(path, weights_only=True)
    found = torch.load(two / path.relative_to(alone), weights_only=True)
    assert found["extra_state"]["best"] == expected["extra_state"]["best"]
    assert all(torch.equal(found["model"][name], value) for name, value in expected["model"].items())


def test_the_thread_of_a_training_that_ended_early_is_stopped():
    """A thread that still loads, or waits for a place in the queue, may crash the interpreter."""
    for size in (0, 2):
        thread = BackgroundConsumer(queue.Queue(size), itertools.count(), None, None)
        thread.daemon = True
        thread.start()
        assert thread.is_alive()
        stop_loading()
        assert not thread.is_alive()


@pytest.mark.parametrize("launcher", ["submitit_slurm", "submitit_local", "joblib", "basic"])
def test_composition(launcher):
    """Every launcher accepts all keys of the configuration."""
    if launcher != "basic":
        pytest.importorskip(f"hydra_plugins.hydra_{launcher.partition('_')[0]}_launcher")
    GlobalHydra.instance().clear()
    hydra_init("sweep")
    with hydra.initialize_config_dir(f"{USER_DIR}/config", version_base="1.1"):
        cfg = hydra.compose("sweep", [f"hydra/launcher={launcher}", "common.seed=3"], return_hydra_config=True)
    name = {"basic": "Basic", "joblib": "Joblib", "submitit_local": "Local", "submitit_slurm": "Slurm"}[launcher]
    assert cfg.hydra.launcher._target_.endswith(f".{name}Launcher") and cfg.hydra.sweep.dir == "sweep"
    assert cfg.common.seed == 3 and cfg.dataset.num_workers == 0


@pytest.mark.parametrize(
    ("gpu", "more", "jobs"),
    [(True, [], 1), (True, ["common.cpu=true"], -1), (True, ["hydra.launcher.n_jobs=3"], 3), (False, [], -1)],
)
def test_runs_at_a_time_on_a_gpu(gpu, more, jobs, monkeypatch):
    """Without ``n_jobs``, joblib starts one run per core, too many for one GPU."""
    pytest.importorskip("hydra_plugins.hydra_joblib_launcher")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    GlobalHydra.instance().clear()
    hydra_init("sweep")
    with hydra.initialize_config_dir(f"{USER_DIR}/config", version_base="1.1"):
        cfg = hydra.compose("sweep", ["hydra/launcher=joblib", *more], return_hydra_config=True)
    FailedRuns().on_multirun_start(config=cfg)
    assert cfg.hydra.launcher.n_jobs == jobs


@pytest.mark.parametrize(
    ("folder", "shared"), [("/a", True), ("../a", True), ("/a/${common.seed}", False), ("a", False)]
)
def test_runs_do_not_share_a_folder(folder, shared):
    """In a shared folder, the second run would resume from the first one's checkpoint."""
    GlobalHydra.instance().clear()
    hydra_init("sweep")
    with hydra.initialize_config_dir(f"{USER_DIR}/config", version_base="1.1"):
        cfg = hydra.compose("sweep", [f"checkpoint.save_dir='{folder}'"], return_hydra_config=True)
    with pytest.raises(SystemExit, match=f"checkpoint.save_dir={folder} would be of all") if shared else nullcontext():
        FailedRuns().on_multirun_start(config=cfg)


@pytest.mark.parametrize("given, shared", [
    (["hydra.sweep.subdir=same"], True),
    (["hydra.sweep.subdir=${model._name}"], True),
    (["checkpoint.save_dir=/a/${model._name}"], True),
    (["checkpoint.save_dir=/a/${model._name}-${common.seed}"], False),
    (["hydra.sweep.subdir=${model._name}", "checkpoint.save_dir=saved-${common.seed}"], False),
    (["hydra.sweep.subdir=${hydra.job.num}"], False),
    (["hydra.sweep.subdir=${task.target_lang}", "task.target_lang=${model._name}-${common.seed}"], False),
    ([], False),
])  # fmt: skip
def test_values_of_a_sweep_that_share_a_folder_are_refused(given, shared):
    """Otherwise the second seed would find the first one's checkpoint, and end at once."""
    GlobalHydra.instance().clear()
    hydra_init("sweep")
    with hydra.initialize_config_dir(f"{USER_DIR}/config", version_base="1.1"):
        cfg = hydra.compose("sweep", [one.replace("=", "='") + "'" for one in given], return_hydra_config=True)
    with read_write(cfg.hydra):
        cfg.hydra.overrides.task = ["model._name=rnnsearch,recatt", "common.seed=1,2"]
    said = "does not change a run's folder: give one value"
    with pytest.raises(SystemExit, match=said) if shared else nullcontext():
        FailedRuns().on_multirun_start(config=cfg)


def test_runs_that_fail_in_folders_of_one_name_are_all_named(tmp_path):
    runs = FailedRuns()
    runs.folder = tmp_path / ".failed" / "this"
    for name in ("gru", "lstm"):
        config = OmegaConf.create({"hydra": {"runtime": {"output_dir": str(tmp_path / name / "1")}}})
        runs.on_job_end(config, JobReturn(status=JobStatus.FAILED, _return_value=ValueError(f"no {name}")))
    with pytest.raises(SystemExit, match="failed: 2 .*\n.*/gru/1: ValueError: no gru\n.*/lstm/1: ValueError: no lstm"):
        runs.on_multirun_end(OmegaConf.create({"hydra": {"sweep": {"dir": "sweep"}}}))


def test_what_a_folder_is_not_named_after_has_one_value(data, tmp_path):
    """Otherwise the second run would find the first one's checkpoint, and end at once."""
    result = sweep(data, tmp_path, "model._name=rnnsearch", "dataset.required_seq_len_multiple=1,4")
    assert result.returncode == 1 and not finished(tmp_path)
    assert "dataset.required_seq_len_multiple does not change a run's folder: give one value" in result.stderr
    name = "${dataset.required_seq_len_multiple}-${attnvariants.hash:${hydra.job.override_dirname}}"
    own = [f"hydra.sweep.subdir='{name}'"]
    result = sweep(data, tmp_path, "optimization.max_update=1", "dataset.required_seq_len_multiple=1,4", *own)
    assert result.returncode == 0 and len(finished(tmp_path)) == 2, result.stderr[-3000:]
