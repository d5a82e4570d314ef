"""Several processes, shards of data and other machines, through fairseq's training code."""

import pytest
import torch
from corpus import run, train_arguments, warm
from fairseq import options

from fairseq_attnvariants.patches.loading.checkpoints import load
from fairseq_attnvariants.registry import ConfigurationError

pytestmark = pytest.mark.commands

UPDATES = ["--max-epoch", "2", "--dropout", "0", "--sentence-avg"]
SMOOTHED = "label_smoothed_cross_entropy"
COSTS = ["--criterion", "label_smoothed_cross_entropy_with_costs", "--decoder-condition"]
COSTS += ["--step-decay-weight", "0.1", "--left-over-weight", "0.1", "--coverage-weight", "0.1"]


def weights(folder):
    return torch.load(folder / "checkpoint_last.pt", weights_only=True)["model"]


def torchrun(processes, *arguments):
    launch = ["--standalone", "--nproc-per-node", processes, "--no-python", warm() / "fairseq-train"]
    gloo = ["--distributed-backend", "gloo", "--ddp-backend", "legacy_ddp", "--distributed-world-size", processes]
    return run("torchrun", *launch, *arguments, *gloo, "--distributed-no-spawn")


@pytest.mark.parametrize("processes,arch,more", [
    (4, "rnnsearch", COSTS),
    (2, "rnnsearch", ["--criterion", SMOOTHED]),
    (2, "conddec_rnnatt", ["--criterion", f"{SMOOTHED}_with_costs"]),
    (2, "bridge_direct", ["--criterion", f"{SMOOTHED}_with_costs"]),
    (2, "bridge_direct", ["--criterion", SMOOTHED]),
])  # fmt: skip
def test_processes_agree_with_one(processes, arch, more, data, tmp_path):
    """Several processes end in the same weights as one with ``--update-freq``, except for rounding."""
    many, one = tmp_path / "many", tmp_path / "one"
    torchrun(processes, *train_arguments(data, many, *UPDATES, *more, arch=arch))
    run("fairseq-train", *train_arguments(data, one, "--update-freq", processes, *UPDATES, *more, arch=arch))
    found, expected = weights(many), weights(one)
    close = 1e-4 if processes == 2 else 1e-3
    for name in expected:
        torch.testing.assert_close(found[name], expected[name], atol=close, rtol=close, msg=name)


def test_processes_go_on(data, tmp_path):
    """The second process gets the checkpoint that the first one read, also the Namespace of sgd's options."""
    folder = tmp_path / "two"
    for epochs in ("1", "2"):
        out = torchrun(2, *train_arguments(data, folder, "--max-epoch", epochs, "--optimizer", "sgd"))
    assert "Loaded checkpoint" in out.stdout + out.stderr
    history = load(folder / "checkpoint_last.pt")["optimizer_history"]
    assert [run["num_updates"] for run in history] == [8, 16]


def test_shards(data, tmp_path):
    """``data0:data1`` trains an epoch on each."""
    folder = data.parent
    lines = {side: (folder / f"train.{side}").read_text().splitlines(keepends=True) for side in ("xx", "yy")}
    shards = []
    for k, size in enumerate((80, 40)):
        for side, text in lines.items():
            (tmp_path / f"train{k}.{side}").write_text("".join(text[80 * k : 80 * k + size]))
        files = [f"--trainpref={tmp_path}/train{k}", f"--validpref={folder}/valid", f"--srcdict={data}/dict.xx.txt"]
        run("fairseq-preprocess", "-s", "xx", "-t", "yy", *files, "--joined-dictionary", "--destdir", tmp_path / f"{k}")
        shards.append(str(tmp_path / f"{k}"))
    out = run("fairseq-train", *train_arguments(":".join(shards), tmp_path / "run", *UPDATES))
    assert [f"{shard}/train.xx-yy" in out.stdout + out.stderr for shard in shards] == [True, True]
    state = torch.load(tmp_path / "run" / "checkpoint_last.pt", weights_only=True)
    assert state["optimizer_history"][-1]["num_updates"] == 80 // 8 + 40 // 8


@pytest.mark.parametrize("flag", ["--bf16", "--memory-efficient-bf16", "--tpu"])
def test_without_a_tpu_what_asks_for_one_is_refused(flag):
    """Stock fairseq takes --bf16 for a request of a TPU, and ends with an AttributeError."""
    arguments = ["data", "--arch", "dl4mt", "--batch-size", "8", flag]
    with pytest.raises(ConfigurationError, match=f"^{flag} asks fairseq for a TPU.*--compute-dtype bfloat16"):
        options.parse_args_and_arch(options.get_training_parser(), arguments)


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_half_precision_without_a_gpu_is_refused():
    arguments = ["data", "--arch", "dl4mt", "--batch-size", "8", "--fp16"]
    with pytest.raises(ConfigurationError, match="^--fp16 needs a GPU: leave it out, or use --compute-dtype bfloat16"):
        options.parse_args_and_arch(options.get_training_parser(), arguments)
    for option in ("--memory-efficient-fp16", "--fp16-no-flatten-grads"):
        options.parse_args_and_arch(options.get_training_parser(), [*arguments, option])
