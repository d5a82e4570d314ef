"""Results on a GPU equal those on a CPU; these tests need a GPU, and ``TEST_GPU`` in the environment.

Commands are new processes: a process that is forked from one that has used the GPU could not use it.
"""

import contextlib
import os

import corpus
import pytest
import torch
from conftest import COMPOSED, Task, batch, build
from corpus import SCRIPTS, USER_DIR, train_arguments
from fairseq.sequence_generator import SequenceGenerator
from fairseq.utils import apply_to_sample

from fairseq_attnvariants.architectures.variants import VARIANTS
from fairseq_attnvariants.models import static_search
from fairseq_attnvariants.models.static_search import Beams, StaticSearch
from fairseq_attnvariants.nn import cells
from fairseq_attnvariants.nn.device import as_captured, capturing
from fairseq_attnvariants.nn.fast import cells as fused
from fairseq_attnvariants.patches.loading.checkpoints import load

pytestmark = pytest.mark.skipif("TEST_GPU" not in os.environ, reason="needs a GPU, and TEST_GPU in the environment")
SMOOTHED = "label_smoothed_cross_entropy"


@contextlib.contextmanager
def no_waiting():
    """Make every wait for the GPU an error."""
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(before)


def run(command, *arguments):
    done = corpus.run(SCRIPTS / command, *arguments)
    return done.stdout + done.stderr


@pytest.mark.parametrize("name", [*VARIANTS, *COMPOSED])
def test_outputs_and_gradients_are_those_of_a_cpu(name, monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)  # otherwise cuDNN's layers round their inputs to it
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
    """Also under autocast, which does not change the state's type."""
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
    """A replayed graph of a decoder's passes, with deferred gradients, gives the results of the passes."""
    model = build(name, scale=0.5).train().cuda()
    source, lengths, previous = (tensor.cuda() for tensor in batch())
    encoded = {n: [v[0].detach()] if v else v for n, v in model.encoder(source, src_lengths=lengths).items()}
    parameters = [*model.decoder.parameters()]

    def passes():
        features, _ = model.decoder(previous, encoder_out=encoded, features_only=True)
        found = torch.autograd.grad(features.square().sum(), parameters, allow_unused=True)
        return [features.detach(), *found]  # autograd's nodes of the parameters belong to its stream

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


@pytest.mark.filterwarnings("error:RNN module weights")
def test_all_steps_at_once_read_weights_from_one_piece_of_memory():
    """Otherwise cuDNN copies them at every call, and warns."""
    model = build("gnmt_v2").train().cuda()
    model(*(tensor.cuda() for tensor in batch()))[0].sum().backward()


def test_no_tensor_of_all_steps_sources_and_widths_is_kept():
    """Ten more steps add less than a quarter of the memory of all their energies, source positions by widths."""
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
def test_a_decoder_and_its_gradients_wait_for_nothing(name):
    model = build(name, scale=0.5).train().cuda()
    source, lengths, previous = (tensor.cuda() for tensor in batch())
    for _ in range(2):  # in the first round, libraries initialise themselves
        encoder_out = model.encoder(source, lengths)
        torch.cuda.synchronize()
        with no_waiting():
            decoded, _ = model.decoder(previous, encoder_out=encoder_out, features_only=True)
            torch.autograd.grad(decoded.sum(), [*model.decoder.parameters()], allow_unused=True)


def same_hypotheses(found, expected, least=1.0):
    """Assert that a share ``least`` of sentences has the same hypotheses, with the same scores."""
    found, expected = apply_to_sample(lambda tensor: tensor.cpu(), [found, expected])
    same = [
        [one["tokens"].tolist() for one in own] == [one["tokens"].tolist() for one in others]
        for own, others in zip(found, expected, strict=True)
    ]
    assert sum(same) >= least * len(same)
    for own, others in zip(found, expected):
        for one, other in zip(own, others):
            if one["tokens"].equal(other["tokens"]):
                for key in ("score", "positional_scores", "attention"):
                    torch.testing.assert_close(one[key], other[key], rtol=1e-2, atol=1e-2 if least < 1 else 1e-4)


def searched(models, beam, half=False, **options):
    """Assert that graphs find the hypotheses of fairseq's search, for batches of two shapes in turn."""
    target, batches = Task().target_dictionary, [(5, 3, 1, 9), (2, 8), (9, 2, 4, 4), (8, 1), (3, 3, 3, 9)]
    own, stock = (
        kind(models, target, beam_size=beam, max_len_b=12, **options) for kind in (StaticSearch, SequenceGenerator)
    )
    for seed, sizes in enumerate(batches):
        source, lengths, _ = (tensor.cuda() for tensor in batch(sizes, (2,) * len(sizes), seed=seed))
        sample = {"net_input": {"src_tokens": source, "src_lengths": lengths}}
        same_hypotheses(own.generate(models, sample), stock.generate(models, sample), least=0.7 if half else 1.0)
    kept = static_search._beams[models[0].decoder]
    assert kept and all(beams.graph is not None for beams in kept.values())


@pytest.mark.parametrize("name", [*VARIANTS, *COMPOSED])
def test_search_by_graphs_finds_what_fairseqs_finds(name, monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    advance = Beams.advance

    def without_waiting(beams, search):
        with no_waiting() if beams.graph is not None else contextlib.nullcontext():
            advance(beams, search)

    monkeypatch.setattr(Beams, "advance", without_waiting)
    for beam in (1, 5):
        searched([build(name, scale=0.5, coverage_penalty=0.2 * (beam > 1)).eval().cuda()], beam)


@pytest.mark.parametrize("options", [
    dict(len_penalty=0.3), dict(unk_penalty=5.0), dict(min_len=7), dict(max_len_a=0.5), dict(temperature=1.7),
    dict(normalize_scores=False), dict(half=True),
])  # fmt: skip
def test_options_of_search_by_graphs(options, monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    models = [build(name, seed=seed, scale=0.5).eval().cuda() for seed, name in enumerate(("dl4mt", "recatt"))]
    searched([model.half() if "half" in options else model for model in models], 5, **options)


def test_a_capture_that_fails_leaves_search_to_fairseq(monkeypatch, caplog):
    """Afterwards graphs search another model in the same process."""
    plain = Beams.make_step

    def waiting(beams, search):
        plain(beams, search)
        beams.done.all().item()

    monkeypatch.setattr(Beams, "make_step", waiting)
    models = [build("dl4mt", scale=0.5).eval().cuda()]
    source, lengths, _ = (tensor.cuda() for tensor in batch())
    sample = {"net_input": {"src_tokens": source, "src_lengths": lengths}}
    generators = [
        kind(models, Task().target_dictionary, beam_size=3, max_len_b=9) for kind in (StaticSearch, SequenceGenerator)
    ]
    same_hypotheses(*(generator.generate(models, sample) for generator in generators))
    assert "search continues without CUDA graphs" in caplog.text
    monkeypatch.setattr(Beams, "make_step", plain)
    searched([build("rnnsearch", scale=0.5).eval().cuda()], 3)


@pytest.mark.parametrize("name", [*VARIANTS, *COMPOSED])
def test_replayed_updates_are_those_of_launched_kernels(name):
    """Masks are the same; shapes alternate, gradients are summed, and an optimizer's steps come between."""
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
    """A wait for the GPU is found before a capture; a capture that still fails leaves everything in order."""
    sample = [tensor.cuda() for tensor in batch()]
    for waits in (True, False):
        model = build("dl4mt", scale=0.3, cuda_graphs=True, dropout=0.3).train().cuda()
        normalizer = model.decoder.network.transition.attention.normalizer

        def normalize(energies, normalizer=normalizer):
            return torch.softmax(energies / max(1, energies.argmax().item() * 0), dim=-1)

        monkeypatch.setattr(type(normalizer), "normalize", lambda _, energies: normalize(energies))
        if not waits:
            monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", lambda mode: None)
        for _ in range(4):  # dropout draws, and memory is allocated and freed
            model(*sample)[0].square().mean().backward()
        torch.cuda.empty_cache()
        assert model.decoder.graphs.failed and not model.decoder.graphs.pairs
        assert torch.cuda.current_stream() == torch.cuda.default_stream()
    assert len([one for one in caplog.records if "--cuda-graphs: no further graphs" in one.getMessage()]) == 2


def test_graphs_share_memory():
    """Graphs of eight shapes reserve less than three times the memory that is reserved without graphs."""
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
    assert reserved[1] < 3 * reserved[0]  # one part is the first run, before a capture


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
    ("dl4mt", ["--optimizer", "fused_adam", "--cuda-graphs", "--fp16"]),
    ("rnnsearch_star", ["--optimizer", "fused_adam", "--amp"]),
    ("rnnsearch_star", ["--cuda-graphs", "--amp", "--criterion", f"{SMOOTHED}_with_costs", "--student-forcing", "0.5"]),
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


@pytest.mark.parametrize("optimizer", ["adam", "fused_adam"])
def test_a_training_goes_on_as_if_it_had_not_stopped(optimizer, data, tmp_path):
    train(data, tmp_path / "once", "rnnsearch_star", "--optimizer", optimizer, "--max-epoch", "2")
    for epochs in "12":
        train(data, tmp_path / "twice", "rnnsearch_star", "--optimizer", optimizer, "--max-epoch", epochs)
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


def test_translations_by_graphs_are_those_without(data, tmp_path):
    """In stock commands the option overrides that of the checkpoint."""
    train(data, tmp_path, "rnnsearch_star", "--max-epoch", "10")
    common = [data, "--user-dir", USER_DIR, "--path", tmp_path / "checkpoint_last.pt"]
    common += ["--max-len-b", "10", "--nbest", "3"]
    fairseqs = ["--model-overrides", "{'cuda_graphs': False}"]
    found = []
    for more in ([], fairseqs, ["--print-alignment", "hard"], [*fairseqs, "--print-alignment", "hard"]):
        lines = run("fairseq-generate", *common, *more).splitlines()
        found.append(sorted(line.split("\t")[::2] for line in lines if line[:2] in ("H-", "A-")))
    assert found[0] == found[1] and found[2] == found[3] and len(found[0]) == 36
