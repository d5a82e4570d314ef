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


@pytest.mark.parametrize("name", [*VARIANTS, *COMPOSED])
def test_replayed_updates_are_those_of_launched_kernels(name):
    """With the same masks; shapes in turn, one of them added up, and steps of an optimizer between."""
    options = dict(scale=0.3, dropout=0.3, decoder_dropout_hidden=0.2)
    replayed, plain = (build(name, cuda_graphs=on, **options).train().cuda() for on in (True, False))
    samples = [[tensor.cuda() for tensor in one] for one in (batch(), batch((2, 6), (3, 1), seed=2))]
    for turn, order in enumerate([(0,), (1,), (0,), (1, 0), (0, 0), (1,), (0, 1, 0)]):
        found = []
        for model in (replayed, plain):
            torch.manual_seed(turn)
            for number in order:
                model(*samples[number])[0].square().mean().backward()
            found.append({part: p.grad.clone() for part, p in model.named_parameters() if p.grad is not None})
            with torch.no_grad():
                for part in model.parameters():
                    part -= 0.1 * part.grad if part.grad is not None else 0.0
            model.zero_grad()
        torch.testing.assert_close(*found, rtol=1e-3, atol=1e-5)
    assert len(replayed.decoder.graphs.pairs) == 2 and not replayed.decoder.graphs.failed


def test_what_cannot_be_captured_is_launched(caplog, monkeypatch):
    """What waits for the GPU is found before a capture; a capture that breaks all the same leaves all in order."""
    sample = [tensor.cuda() for tensor in batch()]
    for waits in (True, False):
        model = build("dl4mt", scale=0.3, cuda_graphs=True, dropout=0.3).train().cuda()
        normalizer = model.decoder.network.transition.attention.normalizer

        def normalize(energies, normalizer=normalizer):
            return torch.softmax(energies / max(1, energies.argmax().item() * 0), dim=-1)

        monkeypatch.setattr(type(normalizer), "normalize", lambda _, energies: normalize(energies))
        if not waits:
            monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", lambda mode: None)
        for _ in range(4):  # dropout draws, and memory comes and goes
            model(*sample)[0].square().mean().backward()
        torch.cuda.empty_cache()
        assert model.decoder.graphs.failed and not model.decoder.graphs.pairs
        assert torch.cuda.current_stream() == torch.cuda.default_stream()
    assert len([one for one in caplog.records if "--cuda-graphs: no more is captured" in one.getMessage()]) == 2


def test_graphs_share_memory():
    """Of eight shapes those of one, and not of each: at most three times what is reserved without graphs."""
    reserved = []
    shapes = [batch((length,) * 80, (length,) * 80) for length in range(12, 28, 2)]
    for on in (False, True):
        model = build(
            "rnnsearch", cuda_graphs=on, encoder_hidden_size=512, decoder_hidden_size=512, decoder_embed_dim=256,
            encoder_embed_dim=256,
        ).train().cuda()  # fmt: skip
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        for sample in shapes * 3:
            model(*(tensor.cuda() for tensor in sample))[0].square().mean().backward()
            model.zero_grad()
        reserved.append(torch.cuda.max_memory_reserved())
        assert not on or len(model.decoder.graphs.pairs) == len(shapes)
        del model
    assert reserved[1] < 3 * reserved[0]  # of which one is a first run, before a capture


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
    ("rnnsearch_star", ["--cuda-graphs", "--required-seq-len-multiple", "4"]),
    ("rnnsearch_star", ["--cuda-graphs", "--fp16", "--update-freq", "2"]),
    ("dl4mt", ["--cuda-graphs", "--amp", "--decoder-layers", "2"]),
    ("conddec_rnnatt", ["--cuda-graphs", "--compute-dtype", "bfloat16"]),
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
