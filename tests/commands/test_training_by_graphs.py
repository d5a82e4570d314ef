"""``--cuda-graphs`` with stock commands on a CPU, without graphs, and with a substitute that replays them there."""

import pytest
import torch
from conftest import TORCH
from corpus import ROOT, USER_DIR, run, train_arguments, train_here, warm
from replaying import Graph, Recorder

from fairseq_attnvariants.nn.fast import capture
from fairseq_attnvariants.registry import ConfigurationError

pytestmark = [pytest.mark.commands, pytest.mark.skipif(TORCH < (2, 4), reason="--cuda-graphs needs torch 2.4")]

FORCED = ["--criterion", "label_smoothed_cross_entropy_with_costs", "--student-forcing", "0.5"]
# replaces the GPU in processes that fairseq starts
PLUGIN = f"""
import atexit, logging, sys
sys.path += [{str(ROOT / "tests")!r}]
import fairseq_attnvariants
from fairseq_attnvariants.nn.fast.capture import RECORDERS
from replaying import Graph, Recorder

RECORDERS["cpu"] = Recorder
atexit.register(lambda: print(f"replayed {{Graph.replayed}} graphs"))
"""


def weights(folder, name="checkpoint_last.pt"):
    return torch.load(folder / name, weights_only=True)["model"]


def assert_equal(found, expected):
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


@pytest.fixture
def replaying(monkeypatch):
    monkeypatch.setitem(capture.RECORDERS, "cpu", Recorder)
    monkeypatch.setattr(Graph, "replayed", 0)


@pytest.mark.parametrize("arch,more", [
    ("dl4mt", ["--update-freq", "2"]),
    ("conddec_rnnatt", [*FORCED, "--rdrop-weight", "5", "--required-seq-len-multiple", "4"]),
    ("rnnsearch", ["--compute-dtype", "bfloat16", "--decoder-dropout-hidden", "0.2"]),
])  # fmt: skip
def test_a_training_is_the_same(arch, more, data, tmp_path, replaying):
    """Graphs do not change the weights of a training with validation and dropout that stops and resumes."""
    for name, options in (("plain", []), ("graphs", ["--cuda-graphs"])):
        for epochs in ("2", "3"):
            train_here(*train_arguments(data, tmp_path / name, *more, *options, "--max-epoch", epochs, arch=arch))
        assert (Graph.replayed > 20) == bool(options)
    assert_equal(weights(tmp_path / "graphs"), weights(tmp_path / "plain"))


def test_two_processes(data, tmp_path):
    """Two processes over gloo capture the shapes that each of them meets."""
    (tmp_path / "replaying_plugin").mkdir()
    (tmp_path / "replaying_plugin" / "__init__.py").write_text(PLUGIN)
    for name, more in (("graphs", ["--cuda-graphs"]), ("plain", [])):
        arguments = train_arguments(data, tmp_path / name, *FORCED, "--max-epoch", "3", *more, arch="dl4mt")
        arguments[arguments.index(USER_DIR)] = tmp_path / "replaying_plugin"
        launch = ["--standalone", "--nproc-per-node", 2, "--no-python", warm() / "fairseq-train"]
        gloo = ["--distributed-backend", "gloo", "--ddp-backend", "legacy_ddp", "--distributed-world-size", 2]
        done = run("torchrun", *launch, *arguments, *gloo, "--distributed-no-spawn")
        replayed = [int(line.split()[1]) for line in done.stdout.splitlines() if line.startswith("replayed ")]
        assert len(replayed) == 2 and all((count > 0) == bool(more) for count in replayed), done.stdout[-2000:]
    assert_equal(weights(tmp_path / "graphs"), weights(tmp_path / "plain"))


def test_without_a_gpu(data, tmp_path):
    """The log says once that the option changes nothing; the weights are the same, and translating works."""
    common = ["--max-epoch", "1", "--save-interval-updates", "5"]
    done = run("fairseq-train", *train_arguments(data, tmp_path, *common, "--cuda-graphs"))
    sentence = "--cuda-graphs changes nothing: there is no GPU here"
    assert (done.stdout + done.stderr).count(sentence) == 1
    plain = tmp_path / "plain"
    run("fairseq-train", *train_arguments(data, plain, *common))
    assert_equal(weights(tmp_path), weights(plain))
    checkpoint = ["--path", tmp_path / "checkpoint_last.pt", "--user-dir", USER_DIR, "--cpu"]
    assert sentence not in run("fairseq-generate", data, *checkpoint, "--max-len-b", "10").stderr


def test_not_with_compile(data, tmp_path):
    with pytest.raises(ConfigurationError, match="--cuda-graphs replays recorded kernels.* leave one of them out"):
        train_here(*train_arguments(data, tmp_path, "--max-epoch", "1", "--cuda-graphs", "--compile"))
    assert not (tmp_path / "checkpoint_last.pt").exists()
