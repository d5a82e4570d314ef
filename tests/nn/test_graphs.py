"""Graphs change no results; a substitute replays them on a CPU. ``test_gpu.py`` tests them on a GPU."""

import copy
import pickle

import pytest
import torch
from conftest import COMPOSED, TORCH, batch, build, outside
from replaying import Graph, Recorder
from torch import distributed, nn
from torch._subclasses.fake_tensor import FakeCopyMode, FakeTensorMode
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from fairseq_attnvariants.architectures.variants import VARIANTS
from fairseq_attnvariants.nn.fast import capture, graphs

pytestmark = pytest.mark.skipif(TORCH < (2, 4), reason="--cuda-graphs needs torch 2.4")

DROPPED = dict(dropout=0.3, decoder_dropout_hidden=0.2, decoder_dropout_words=0.1)
OPTIONS = {
    "layers": dict(decoder_layers=2, dropout=0.3),
    "late": dict(decoder_layers=2, decoder_transition="late", dropout=0.3),
    "stacked": dict(decoder_layers=3, decoder_transition="stacked", residuals=2, dropout=0.3),
    "deep": dict(decoder_transition_depth=4, context_gate="both"),
    "histories": dict(attention_history="context+state+distance+convolution+coverage+fertility+coverage_gru"),
    "heads": dict(attention_score="multihead", attention_heads=2, attention_dim=6),
    "sparsemax": dict(attention_normalizer="sparsemax"),
    "entmax": dict(attention_normalizer="entmax", attention_temperature=0.7),
    "monotone": dict(attention_window="monotone", attention_window_width=2),
    "predictive": dict(attention_window="predictive", attention_window_width=2, attention_score="bilinear"),
    "copying": dict(copying=True),
    "norm": dict(layer_norm="all", decoder_cell="adaptive_gru"),
    "lstm": dict(decoder_cell="lstm", input_feed=True),
    "condition": dict(decoder_condition=True, adaptive_output=True, bridge_source=True, bridge_target=True),
    "recompute": dict(recompute_steps=2, decoder_layers=2, dropout=0.0),
    "bfloat16": dict(compute_dtype="bfloat16", dropout=0.3),
    "tied": dict(share_decoder_input_output_embed=True, decoder_embed_dim=7, decoder_out_embed_dim=7),
}
FIRST, SECOND = batch(), batch((2, 6), (3, 1), seed=2)


@pytest.fixture(autouse=True)
def replaying(monkeypatch):
    monkeypatch.setitem(capture.RECORDERS, "cpu", Recorder)
    monkeypatch.setattr(Graph, "replayed", 0)


def models(name, **options):
    """Return the same model with graphs and without."""
    return [build(name, scale=0.3, cuda_graphs=on, **options).train() for on in (True, False)]


def forward(model, sample, seed=0):
    torch.manual_seed(seed)
    output, extra = model(*sample, with_cost_terms=True)
    return [output, *(values[0] for values in extra.values())]


def loss_of(made):
    return sum(value.square().mean() for value in made)


def gradients(model):
    return {name: one.grad.clone() for name, one in model.named_parameters() if one.grad is not None}


def update(model, *samples, seed=0):
    """Return outputs of batches, and the sum of their gradients; then make a step of the optimizer."""
    made = []
    for number, sample in enumerate(samples):
        made.append(forward(model, sample, seed + number))
        loss_of(made[-1]).backward()
        made[-1] = [one.detach() for one in made[-1]]
    found = gradients(model)
    with torch.no_grad():
        for one in model.parameters():
            one -= 0.1 * one.grad if one.grad is not None else 0.0
    model.zero_grad()
    return made, found


EXACTLY = dict(rtol=0, atol=0)
ROUNDED = {"gnmt", "layers", "recompute"}  # autograd adds up in another order there


def equal(one, other):
    torch.testing.assert_close(one, other, **EXACTLY)


def but_for(name):
    return dict(rtol=1e-4, atol=1e-8) if name in ROUNDED else {}


def pairs(model):
    return model.decoder.graphs.pairs


UPDATES = [(FIRST,), (SECOND,), (FIRST,), (SECOND, FIRST), (FIRST, FIRST), (SECOND,), (FIRST, SECOND, FIRST)]


def assert_the_same(replayed, plain, updates=UPDATES, **but_for):
    """Assert equal updates, with shapes in turn, accumulated gradients, optimizer steps, and new random numbers."""
    for number, samples in enumerate(updates):
        found, expected = (update(model, *samples, seed=10 * number) for model in (replayed, plain))
        torch.testing.assert_close(found, expected, **(but_for or EXACTLY))
    torch.testing.assert_close(replayed.state_dict(), plain.state_dict(), **(but_for or EXACTLY))


@pytest.mark.slow
@pytest.mark.parametrize("name", [*VARIANTS, *COMPOSED])
def test_updates_are_the_same(name):
    """Updates are equal bit for bit, except for :data:`ROUNDED`, with the same masks of dropout."""
    replayed, plain = models(name, **DROPPED)
    assert_the_same(replayed, plain, **but_for(name))
    assert len(pairs(replayed)) == 2 and Graph.replayed == 2 * 9


@pytest.mark.slow
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("name", ["rnnsearch", "dl4mt"])
def test_updates_are_the_same_with_options(name, options):
    replayed, plain = models(name, **OPTIONS[options])
    assert_the_same(replayed, plain, **but_for(options))
    assert len(pairs(replayed)) == 2


@pytest.mark.slow
def test_a_second_pass_forward_is_launched():
    """R-Drop runs a second forward pass before the first backward pass; backward passes may be in any order."""
    for order in (0, 1), (1, 0):
        replayed, plain = models("conddec_rnnatt", **DROPPED)
        for model in (replayed, plain):
            update(model, FIRST, SECOND)
        found = []
        for model in (replayed, plain):
            losses = [loss_of(forward(model, sample, seed=4)) for sample in (FIRST, SECOND)]
            for which in order:
                losses[which].backward()
            found.append(gradients(model))
        equal(*found)
        assert len(pairs(replayed)) == 1 and Graph.replayed == 2
        Graph.replayed = 0


def test_a_pass_that_is_given_up_holds_nobody_up():
    replayed, _ = models("rnnsearch")
    update(replayed, FIRST, FIRST)
    made, counts = forward(replayed, FIRST), [Graph.replayed]
    for _ in range(2):
        forward(replayed, FIRST)
        counts.append(Graph.replayed)
        made = None
    assert made is None and counts == [3, 3, 4]


def test_one_backward_pass_for_each_pass_forward():
    replayed, _ = models("rnnsearch")
    update(replayed, FIRST, FIRST)
    loss = loss_of(forward(replayed, FIRST))
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="has one backward pass: leave it out"):
        loss.backward()
    loss = loss_of(forward(replayed, FIRST))
    first = torch.autograd.grad(loss, [*replayed.parameters()], create_graph=True, materialize_grads=True)
    with pytest.raises(RuntimeError, match="has one backward pass: leave it out"):
        torch.autograd.grad(sum(one.sum() for one in first), [*replayed.parameters()])


def test_what_is_replayed_is_copied_out():
    """Outputs and gradients are not in the memory where the next pass writes, which needs no values of this pass."""
    replayed, plain = models("conddec_recatt")
    equal(update(replayed, FIRST, FIRST), update(plain, FIRST, FIRST))
    for _ in range(3):
        found = update(replayed, FIRST)
        kept = copy.deepcopy(found)
        replayed.decoder.graphs.block.fill_(255)  # NaN, as floating-point numbers
        equal(found, kept)
        equal(found, update(plain, FIRST))


@pytest.mark.slow
def test_pairs_share_memory():
    replayed, _ = models("rnnsearch")
    large, small = batch((9,) * 4, (8,) * 4), batch((3,) * 4, (2,) * 4)
    update(replayed, large, large)
    block = replayed.decoder.graphs.block
    update(replayed, small, small)
    assert len(pairs(replayed)) == 2 and replayed.decoder.graphs.block is block
    update(replayed, *[batch((12,) * 4, (9,) * 4)] * 2)
    assert len(replayed.decoder.graphs.block) > len(block)
    assert_the_same(*models("rnnsearch"), updates=[(large,), (small,), (large,), (small, large), (large, small)])


@pytest.mark.slow
@pytest.mark.parametrize("moved", ["memory", "parameters", "frozen"])
def test_a_model_that_has_moved_is_captured_anew(moved):
    replayed, plain = models("dl4mt")
    for number in range(6):
        equal(update(replayed, FIRST), update(plain, FIRST))
        if number == 2:
            for cell in (model.decoder.network.transition.after for model in (replayed, plain)):
                weight = next(cell.parameters())
                if moved == "memory":
                    weight.data = weight.data.clone()
                elif moved == "frozen":
                    weight.requires_grad_(False)
                else:
                    cell.load_state_dict({name: one.clone() for name, one in cell.state_dict().items()}, assign=True)
    # of three updates two are replayed, and as many again; a captured one is replayed, too
    assert Graph.replayed == 2 * (2 + 2)


def test_so_many_are_kept(monkeypatch):
    monkeypatch.setattr(graphs, "MOST", 2)
    replayed, plain = models("rnnsearch")
    samples = [batch((length,) * 2, (length,) * 2) for length in (2, 3, 4)]
    assert_the_same(replayed, plain, updates=[samples, samples, samples])
    assert len(pairs(replayed)) == 2 and Graph.replayed == 2 * 2 * 2


WAITS = """
import torch
from fairseq_attnvariants import register_architecture, register_history
from fairseq_attnvariants.nn.histories import CoverageHistory

@register_history("waiting")
class Waiting(CoverageHistory):
    def coverage(self, past):
        return super().coverage(past) / max(1, past.state.step.max().item())

register_architecture("waits", base="rnnsearch", attention_history="waiting")
"""


@pytest.mark.slow
def test_what_waits_for_the_gpu_is_launched(tmp_path, caplog):
    """There is one warning, which names the part and its line."""
    (tmp_path / "waits").mkdir()
    (tmp_path / "waits" / "__init__.py").write_text(WAITS)
    with outside(tmp_path / "waits"):
        replayed, plain = models("waits", **DROPPED)
        assert_the_same(replayed, plain)
    [warning] = [record.getMessage() for record in caplog.records if "--cuda-graphs" in record.getMessage()]
    assert "training continues without: Waiting (" in warning and "__init__.py, line 9): called a synch" in warning
    assert not Graph.replayed


@pytest.mark.slow
@pytest.mark.parametrize("broken", [1, 2, 3])
def test_a_capture_that_breaks(broken, monkeypatch, caplog):
    """The first capture breaks, that of the gradients, or a later one, after which earlier graphs still replay."""
    counts, own = [], Recorder.capture

    def capture_or_break(recorder, launch):
        counts.append(launch)
        if len(counts) == broken:
            raise RuntimeError("operation not permitted when stream is capturing")
        return own(recorder, launch)

    monkeypatch.setattr(Recorder, "capture", capture_or_break)
    replayed, plain = models("dl4mt", **DROPPED)
    assert_the_same(replayed, plain)
    warnings = [record for record in caplog.records if "operation not permitted" in record.getMessage()]
    assert len(warnings) == 1 and len(counts) == broken
    assert len(pairs(replayed)) == (broken == 3) == (Graph.replayed > 0)


def test_what_the_decoder_does_not_own_keeps_its_gradient(caplog):
    """A part may read a tensor that it has not registered."""
    replayed, plain = models("rnnsearch")
    found = []
    for model in (replayed, plain):
        attention, factor = model.decoder.network.transition.attention, torch.ones(1, requires_grad=True)
        attention.normalizer.normalize = lambda energies, factor=factor: torch.softmax(energies * factor, dim=-1)
        update(model, FIRST, FIRST, FIRST)
        found.append(factor.grad)
    equal(*found)
    assert "no parameter of the decoder's" in caplog.text and not Graph.replayed


@pytest.mark.slow
def test_dropout_is_not_drawn_again_in_recomputed_steps(caplog):
    """In two graphs, offsets of random numbers would differ, so such a training uses no graphs."""
    replayed, plain = models("dl4mt", recompute_steps=2, decoder_layers=2, dropout=0.3)
    assert_the_same(replayed, plain)
    assert "--recompute-steps would" in caplog.text and not Graph.replayed


def test_only_training_is_replayed():
    """Validation between updates, a search, and computations without gradients are not replayed."""
    replayed, plain = models("recatt", **DROPPED)
    for _ in range(3):
        equal(update(replayed, FIRST), update(plain, FIRST))
        count = Graph.replayed
        equal(forward(replayed.eval(), FIRST), forward(plain.eval(), FIRST))
        encoded, state = replayed.encoder(*FIRST[:2]), {}
        replayed.decoder(FIRST[2][:, :1], encoded, incremental_state=state)
        replayed.train()
        plain.train()
        with torch.no_grad():
            equal(forward(replayed, FIRST), forward(plain, FIRST))
        assert Graph.replayed == count
    assert count == 4


def test_a_single_step():
    """Training also reads what a single step carries on."""
    one = batch((3, 2), (0, 0))
    assert_the_same(*models("conddec_rnnatt", attention_history="state+coverage_gru"), updates=[(one,)] * 3)


def test_autocast_has_graphs_of_its_own():
    replayed, plain = models("dl4mt", dropout=0.0)
    for reduced in (False, True, False, True, False, True):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=reduced):
            made = [forward(model, FIRST) for model in (replayed, plain)]
        for one in made:
            loss_of(one).backward()
        equal(made[0], made[1])
        equal(gradients(replayed), gradients(plain))
    assert len(pairs(replayed)) == 2 and Graph.replayed == 8


@pytest.mark.slow
def test_half_precision():
    replayed, plain = (model.bfloat16() for model in models("dl4mt", dropout=0.3))
    assert_the_same(replayed, plain)
    assert len(pairs(replayed)) == 2


def test_copies_of_a_model_have_no_graphs():
    replayed, _ = models("rnnsearch")
    update(replayed, FIRST, FIRST)
    for copied in (copy.deepcopy(replayed), pickle.loads(pickle.dumps(replayed.decoder))):
        assert getattr(copied, "decoder", copied).graphs is None
    assert replayed.state_dict().keys() == build("rnnsearch").state_dict().keys()


def test_aliases_of_fused_layers_stay_where_they_are(monkeypatch):
    """On a GPU, a layer of PyTorch moves weights that have changed into new memory."""
    flattened, own = [], nn.RNNBase.flatten_parameters
    layer = nn.Sequential(nn.GRU(3, 4))
    monkeypatch.setattr(nn.RNNBase, "flatten_parameters", lambda layer: flattened.append(layer) or own(layer))
    aliases = {one: nn.Parameter(one.detach()) for one in layer.parameters()}
    output, _ = graphs.aliased(layer, aliases)(torch.randn(5, 2, 3))
    output.sum().backward()
    assert all(alias.grad is not None and one.grad is None for one, alias in aliases.items())
    assert not flattened and all(one.data_ptr() == alias.data_ptr() for one, alias in aliases.items())
    layer(torch.randn(5, 2, 3))
    assert not flattened


def test_hooks_of_several_processes(tmp_path):
    """PyTorch's data parallelism has hooks that wait for each parameter's gradient."""
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        replayed, plain = models("bridge_direct", dropout=0.3)
        parallel = DistributedDataParallel(replayed)
        for number in range(4):
            found = []
            for model in (parallel, plain):
                model.zero_grad()
                torch.manual_seed(number)
                model(*FIRST)[0].square().mean().backward()
                found.append(gradients(model.module if model is parallel else model))
            equal(*found)
        assert Graph.replayed == 6
    finally:
        distributed.destroy_process_group()


@pytest.mark.slow
@pytest.mark.parametrize("name", [*VARIANTS, *COMPOSED, *OPTIONS])
def test_no_step_waits_for_its_values(name):
    """Tensors without values have no ``item()`` and no shapes that depend on values, as in captures."""
    model = build("dl4mt" if name in OPTIONS else name, **OPTIONS.get(name, DROPPED))
    encoded = model.train().encoder(*FIRST[:2])
    mode = FakeTensorMode()
    with FakeCopyMode(mode):
        decoder, encoded, previous = copy.deepcopy((model.decoder, detached(encoded), FIRST[2]))
    with mode:
        for one in encoded["annotations"] + encoded["final"]:
            one.requires_grad_()
        output, _ = decoder(previous, encoded)
        output.float().square().sum().backward()
        assert all(one.grad is not None for one in encoded["annotations"])
        state = {}
        for step in (1, 2):
            decoder.eval()(previous[:, :step], encoded, incremental_state=state)


def detached(entries):
    return {name: [one.detach() for one in values] for name, values in entries.items()}


@pytest.mark.slow
@pytest.mark.parametrize("name", [*VARIANTS, *COMPOSED])
def test_padded_batches_are_the_same(name):
    """``--required-seq-len-multiple 4`` adds padding on the left of the source and on the right of the target."""
    model = build(name, scale=0.3, dropout=0.0).double().train()
    source, lengths, previous = batch((5, 3, 1), (4, 6, 2))
    more = [-sample.size(1) % 4 for sample in (source, previous)]
    padded = F.pad(source, (more[0], 0), value=1), lengths, F.pad(previous, (0, more[1]), value=1)
    assert min(more) > 0
    real, found = previous.ne(1).unsqueeze(2), []
    for sample in ((source, lengths, previous), padded):
        model.zero_grad()
        logits = model(*sample)[0][:, : previous.size(1)] * real
        logits.square().sum().backward()
        found.append((logits, gradients(model)))
    torch.testing.assert_close(*found)
