"""On a GPU, where there is one and ``TEST_GPU`` is in the environment, everything is as on a CPU.

Commands are processes of their own: one forked from another that has seen the GPU could not use it.
"""

import os

import corpus
import pytest
import torch
from conftest import COMPOSED, batch, build
from corpus import SCRIPTS, USER_DIR, train_arguments

from fairseq_attnvariants.architectures.variants import VARIANTS
from fairseq_attnvariants.nn import cells
from fairseq_attnvariants.nn.device import as_captured, capturing
from fairseq_attnvariants.nn.fast import cells as fused
from fairseq_attnvariants.patches.loading.checkpoints import load

pytestmark = pytest.mark.skipif("TEST_GPU" not in os.environ, reason="needs a GPU, and TEST_GPU in the environment")
SMOOTHED = "label_smoothed_cross_entropy"


def run(command, *arguments):
    done = corpus.run(SCRIPTS / command, *arguments)
    return done.stdout + done.stderr


@pytest.mark.parametrize("name", [*VARIANTS, *COMPOSED])
def test_outputs_and_gradients_are_those_of_a_cpu(name, monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)  # in which cuDNN's layers else round what they read
    model, found = build(name, scale=0.5).train(), {}
    for device in ("cpu", "cuda"):
        logits, _ = model.to(device)(*(tensor.to(device) for tensor in batch()))
        logits.square().sum().backward()
        found[device] = {"logits": logits.cpu(), **{part: p.grad.cpu() for part, p in model.named_parameters()}}
        model.zero_grad()
    torch.testing.assert_close(found["cuda"], found["cpu"], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("kind", [cells.GRUCell, cells.LSTMCell])
def test_fused_cells_are_the_cells(kind, dtype, monkeypatch):
    """Also under autocast, which leaves the state's type alone."""
    cell = kind({"input": 5}, 6).cuda().to(dtype)
    torch.nn.init.zeros_(cell.inputs["input"].bias)
    read = [torch.randn(3, width, device="cuda", dtype=dtype, requires_grad=True) for width in (cell.state_dim, 5)]
    for reduced in (False, dtype == torch.float32):
        found = []
        for kernels in (fused.KERNELS, {}):
            with monkeypatch.context() as patch, torch.autocast("cuda", enabled=reduced):
                patch.setattr(fused, "on_gpu", lambda _, on=bool(kernels): on)
                state = cell(read[0], input=read[1])
            assert state.dtype == dtype
            found.append([state, *torch.autograd.grad(state.square().sum(), [*read, *cell.parameters()])])
        exact = dtype in (torch.float64, torch.float32)
        torch.testing.assert_close(*found, **({} if exact else dict(rtol=0.05, atol=0.05)))


@pytest.mark.parametrize("name", ["rnnsearch", "dl4mt", "ava", "adaptive_both"])
def test_deferred_gradients_within_a_capture(name):
    """What a graph of a decoder's passes gives at a replay, with gradients deferred, is what the passes give."""
    model = build(name, scale=0.5).train().cuda()
    source, lengths, previous = (tensor.cuda() for tensor in batch())
    encoded = {n: [v[0].detach()] if v else v for n, v in model.encoder(source, src_lengths=lengths).items()}
    parameters = [*model.decoder.parameters()]

    def passes():
        features, _ = model.decoder(previous, encoder_out=encoded, features_only=True)
        return [features, *torch.autograd.grad(features.square().sum(), parameters, allow_unused=True)]

    expected, side = passes(), torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side), as_captured():
        passes()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        assert capturing()
        found = passes()
    graph.replay()
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("name,options", [
    ("adaptive_both", dict(encoder_layers=2)),
    ("rnnsearch", dict(layer_norm="encoder", encoder_transition_depth=2)),
    ("rnnsearch", dict(encoder_dropout_hidden=0.5)),
])  # fmt: skip
def test_padded_sweeps_wait_for_nothing(name, options):
    """The passes of an encoder that cuDNN has no call for launch and go on."""
    model = build(name, **options).train().cuda()
    source, lengths, _ = (tensor.cuda() for tensor in batch())
    parameters = [*model.encoder.network.parameters()]
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        with as_captured():
            encoded = model.encoder(source, src_lengths=lengths)
        torch.autograd.grad(encoded["annotations"][0].sum(), parameters)
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.filterwarnings("error:RNN module weights")
def test_all_steps_at_once_read_weights_from_one_piece_of_memory():
    """Else cuDNN copies them at every call, and warns."""
    model = build("gnmt_v2").train().cuda()
    model(*(tensor.cuda() for tensor in batch()))[0].sum().backward()


def test_no_tensor_of_all_steps_sources_and_widths_is_kept():
    """Of twice the steps an update holds little more than twice as much, and no block of energies of each."""
    model = build("rnnsearch", scale=0.5, attention_dim=512).train().cuda()
    held = []
    for steps in (10, 20):
        sample = [tensor.cuda() for tensor in batch((60,) * 40, (steps,) * 40)]
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        logits, _ = model(*sample)
        held.append(torch.cuda.memory_allocated() - before)
    assert held[1] - held[0] < 10 * 40 * 60 * 512 * 4 / 4  # a quarter of ten steps' blocks


def train(data, save_dir, arch, *more):
    arguments = train_arguments(data, save_dir, "--distributed-world-size", "1", *more, arch=arch)
    arguments.remove("--cpu")
    return run("fairseq-train", *arguments)


@pytest.mark.parametrize("arch,more", [
    ("rnnsearch_star", ["--fp16"]),
    ("rnnsearch_star", ["--amp"]),
    ("rnnsearch_star", ["--compute-dtype", "bfloat16"]),
    ("rnnsearch_star", ["--compute-dtype", "auto"]),
    ("rnnsearch_star", ["--compile"]),
    ("dl4mt", ["--recompute-steps", "2", "--fp16"]),
    ("conddec_rnnatt", ["--criterion", f"{SMOOTHED}_with_costs", "--fp16"]),
    ("conddec_rnnatt", ["--criterion", f"{SMOOTHED}_with_costs", "--amp"]),
    ("bridge_direct", ["--criterion", f"{SMOOTHED}_with_costs", "--fp16"]),
    ("recatt", ["--amp"]),
    ("pointer_generator", ["--fp16"]),
    ("adaptive_both", ["--fp16"]),
])  # fmt: skip
def test_trains(arch, more, data, tmp_path):
    out = train(data, tmp_path, arch, "--max-epoch", "4", *more)
    losses = [float(line.split("| loss ")[1].split()[0]) for line in out.splitlines() if "valid on" in line]
    assert len(losses) == 4 and losses[-1] < losses[0]
    assert ("--compute-dtype auto: float32" in out) == ("auto" in more)


def test_trains_on_the_cpu_beside_it(data, tmp_path):
    out = run("fairseq-train", *train_arguments(data, tmp_path, "--max-epoch", "1"))
    assert "done training" in out


def test_bfloat16_as_hydra_has_it(data, tmp_path, monkeypatch):
    """fairseq-train's --bf16 means a TPU."""
    monkeypatch.chdir(tmp_path)
    widths = [f"model.{side}_{width}=16" for side in ("encoder", "decoder") for width in ("embed_dim", "hidden_size")]
    out = run(
        "fairseq-hydra-train", "--config-dir", f"{USER_DIR}/config", "--config-name", "train", "common.bf16=true",
        f"common.user_dir={USER_DIR}", f"task.data={data}", f"checkpoint.save_dir={tmp_path}", *widths,
        "model._name=rnnsearch_star", "optimization.max_epoch=2", "distributed_training.distributed_world_size=1",
    )  # fmt: skip
    assert "done training" in out


def test_a_training_goes_on_as_if_it_had_not_stopped(data, tmp_path):
    train(data, tmp_path / "once", "rnnsearch_star", "--max-epoch", "2")
    for epochs in "12":
        train(data, tmp_path / "twice", "rnnsearch_star", "--max-epoch", epochs)
    once, twice = (load(tmp_path / kind / "checkpoint_last.pt")["model"] for kind in ("once", "twice"))
    torch.testing.assert_close(once, twice, rtol=1e-4, atol=1e-5)


def test_translations_are_those_of_a_cpu(data, tmp_path):
    train(data, tmp_path, "rnnsearch_star", "--max-epoch", "10")
    common = [data, "--user-dir", USER_DIR, "--path", tmp_path / "checkpoint_last.pt", "--max-len-b", "10"]
    ways = {"gpu": [], "cpu": ["--cpu"], "half": ["--fp16"], "list": ["--print-alignment", "hard"]}
    found = {}
    for name, more in ways.items():
        lines = run("fairseq-generate", *common, *more).splitlines()
        found[name] = sorted(line.split("\t")[::2] for line in lines if line.startswith("H-"))
    assert len(found["cpu"]) == 12
    assert found["gpu"] == found["cpu"] == found["list"]
    assert sum(one != other for one, other in zip(found["half"], found["cpu"])) <= 1
    path = ["--path", tmp_path / "checkpoint_last.pt"]
    alignments = []
    for name in ("--cpu", None):
        output = tmp_path / f"{name}.align"
        run("fairseq-attnvariants", "align", data, *path, "--output", output, *filter(None, [name]))
        alignments.append(output.read_text())
    assert alignments[0] == alignments[1]
