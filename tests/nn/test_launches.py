"""Launches determine the time on a GPU: how many there are, and that ways to save some compute the same.

There is no GPU here: :mod:`kernels` simulates one on a CPU.
"""

import contextlib
from argparse import Namespace

import kernels
import pytest
import torch
from conftest import TORCH, Task, batch, build, gradients
from fairseq.models.lstm import LSTMModel
from torch import nn

from fairseq_attnvariants.nn import additive, cells, windows
from fairseq_attnvariants.nn.device import as_captured, capturing
from fairseq_attnvariants.nn.fast import cells as fused
from fairseq_attnvariants.nn.fast import deferred, energies
from fairseq_attnvariants.nn.state import Memory, serve
from fairseq_attnvariants.registry import Widths

counted = pytest.mark.skipif(TORCH < (2, 9), reason="older torch launches more")


FUSED = {
    "rnnsearch": {"gru"},
    "dl4mt": {"gru"},
    "conddec_rnnatt": {"gru"},
    "context_gate": {"gru"},
    "coverage_gru": {"gru"},
    "nematus": {"gru"},
    "pointer_generator": {"lstm"},
    "ava_encs": {"lstm"},
    "character": {"lstm"},
    "ava_deep": {"lstm"},
    "adaptive_both": set(),
}


@pytest.mark.parametrize("name", FUSED)
def test_fused_cells_are_the_cells(name, monkeypatch):
    """Outputs and gradients are equal, and fused are only cells with exactly the equations of PyTorch's cells."""
    model, used = build(name, scale=0.5).double().train(), set()
    expected = gradients(model)
    for kind, kernel in fused.KERNELS.items():
        monkeypatch.setitem(fused.KERNELS, kind, lambda *a, kind=kind, kernel=kernel: used.add(kind) or kernel(*a))
    gradients(model)
    assert not used
    kernels.on_gpu(monkeypatch)
    torch.testing.assert_close(gradients(model), expected)
    assert used == FUSED[name]


def test_a_cell_that_derives_from_a_plain_one_computes_as_it_says(monkeypatch):
    """Derived cells are never fused, neither a user's nor the package's."""

    class Doubled(cells.GRUCell):
        def step(self, inputs, recurrent, previous):
            return 2 * super().step(inputs, recurrent, previous)

    class Same(cells.LSTMCell):
        pass

    kernels.on_gpu(monkeypatch)
    monkeypatch.setattr(fused, "KERNELS", {})  # KeyError
    for kind in (Doubled, Same, cells.AdaptiveGRUCell, cells.ReleasedAdaptiveGRUCell):
        cell = kind({"input": 3}, 4)
        state = torch.randn(2, cell.state_dim)
        assert cell(state, input=torch.randn(2, 3)).shape == state.shape
    for kind in (cells.GRUCell, cells.LSTMCell):
        cell = kind({"input": 3}, 4)
        with pytest.raises(KeyError):
            cell(torch.randn(2, cell.state_dim), input=torch.randn(2, 3))


@pytest.mark.parametrize("kind", [cells.GRUCell, cells.LSTMCell])
def test_second_derivatives_of_fused_cells(kind, monkeypatch):
    cell = kind({"input": 3}, 4).double()
    for parameter in cell.parameters():
        nn.init.normal_(parameter)
    state, inputs = torch.randn(2, cell.state_dim).double(), torch.randn(2, 3).double()

    def curved():
        found = torch.autograd.grad(cell(state, input=inputs).square().sum(), [*cell.parameters()], create_graph=True)
        return torch.autograd.grad(sum(part.square().sum() for part in found), [*cell.parameters()])

    expected = curved()
    kernels.on_gpu(monkeypatch)
    torch.testing.assert_close(curved(), expected)


@pytest.mark.skipif(TORCH < (2, 4), reason="gradients are deferred with torch 2.4 and later")
@pytest.mark.parametrize("name", ["rnnsearch", "dl4mt", "ava", "adaptive_both"])
def test_gradients_are_deferred_in_graphs(name, monkeypatch):
    """On a GPU, gradients are deferred only in graphs."""
    model, noted, add = build(name, scale=0.5).double().train(), [], deferred.Notes.add
    kernels.on_gpu(monkeypatch)
    monkeypatch.setattr(deferred.Notes, "add", lambda notes, *factors: noted.append(notes) or add(notes, *factors))
    expected = gradients(model)
    assert not noted and not capturing()
    with as_captured():
        torch.testing.assert_close(gradients(model), expected)
    assert noted and not capturing()


def launches(decode, lengths=(4, 12)):
    """Return the launches of a step, forward and backward, from the difference between two numbers of steps."""
    found = []
    for steps in lengths:
        with kernels.Launches() as counted:
            outputs, parameters = decode(steps)
            torch.autograd.grad(outputs.sum(), parameters, allow_unused=True)
        found.append(counted.total)
    return (found[1] - found[0]) / (lengths[1] - lengths[0])


def per_step(name, captured=True, **options):
    model = build(name, dropout=0.0, **options).train()
    parameters = [*model.decoder.network.parameters()]

    def decode(steps):
        source, lengths, previous = batch((5, 5, 5), (steps,) * 3)
        encoder_out = model.encoder(source, src_lengths=lengths)
        with as_captured() if captured else contextlib.nullcontext():
            features, _ = model.decoder(previous, encoder_out=encoder_out, features_only=True)
        return features, parameters

    return launches(decode)


MOST = {"rnnsearch": 31, "dl4mt": 38, "recatt": 35, "ava": 58, "adaptive_both": 138}


@counted
@pytest.mark.parametrize("name", MOST)
def test_launches_of_a_decoder_step(name, monkeypatch):
    """A step, forward and backward, has at most this number of launches in a graph."""
    kernels.on_gpu(monkeypatch)
    found = per_step(name)
    assert found <= MOST[name]
    assert found < per_step(name, captured=False)


@counted
def test_launches_of_stock_lstm(monkeypatch):
    """The stock lstm's number of launches, without its two dropouts, is the reference for the other models."""

    def cell(self, inputs, state):  # PyTorch's cell on a GPU
        products = inputs @ self.weight_ih.T, state[0] @ self.weight_hh.T
        return kernels.aten._thnn_fused_lstm_cell(*products, state[1], self.bias_ih, self.bias_hh)[:2]

    monkeypatch.setattr(nn.LSTMCell, "forward", cell)
    widths = dict(encoder_embed_dim=6, decoder_embed_dim=6, decoder_out_embed_dim=6)
    model = LSTMModel.build_model(Namespace(dropout=0.0, criterion="cross_entropy", **widths), Task())

    def decode(steps):
        source, lengths, previous = batch((5, 5, 5), (steps,) * 3)
        encoder_out = model.encoder(source, src_lengths=lengths)
        return model.decoder.extract_features(previous, encoder_out)[0], [*model.decoder.parameters()]

    assert launches(decode) == 42 > MOST["dl4mt"]


def waits(function, *arguments):
    with kernels.Waits() as counted:
        function(*arguments)
    return counted.count


@counted
def test_encoders_wait_at_most_once(monkeypatch):
    """cuDNN waits for lengths; a hierarchical encoder waits for those of characters and words, and for W."""
    kernels.on_gpu(monkeypatch)
    models = {name: build(name) for name in ("rnnsearch", "adaptive_both", "ava")}
    found = {name: waits(model.encoder, batch()[0], None) for name, model in models.items()}
    assert found == {"rnnsearch": 1, "adaptive_both": 1, "ava": 3}


def memory(sentences):
    rows = torch.arange(sentences).float().view(-1, 1, 1)
    return Memory(rows, rows, rows[:, :, 0].bool(), rows[:, :, 0], rows)


@pytest.mark.parametrize("order, hypotheses, same", [
    ([0, 0, 2, 3], 2, True),  # a step of a search
    ([0, 0, 0, 1, 1, 1], 1, True),  # its start
    ([2, 3, 3], 2, False),  # of unequal numbers
    ([2, 3], 2, False),  # a sentence has left
    ([2, 3, 0, 1], 2, False),  # an order that no search has
    ([0, 2, 1, 3], 2, False),
    ([1, 1, 0, 0], 1, False),
])  # fmt: skip
def test_the_memory_serves_the_rows_that_are_left(order, hypotheses, same):
    """The memory waits for a GPU once per step, and is the same object as long as no sentence has left."""
    kept, order = memory(2), torch.tensor(order)
    served = serve(kept, hypotheses, order)
    assert (served is kept) == same
    times = len(order) // len(served.keys)
    torch.testing.assert_close(served.keys.flatten().repeat_interleave(times).long(), order // hypotheses)
    if same or len(order) == 2:
        assert waits(serve, kept, hypotheses, order) == 1


ALL_AT_ONCE = {
    "LSTM": ("gnmt_v2", {}),
    "GRU": ("gnmt_v2", dict(decoder_cell="gru", encoder_cell="gru")),
    "layers inside": ("gnmt_v2", dict(context_to_layers=False, readout="tanh", readout_all_layers=True)),
    "two levels": ("ava_deep", dict(input_feed=False)),
    "window": ("gnmt_v2", dict(attention_window="monotone", attention_window_width=1)),
    "heads": (
        "rnnsearch",
        dict(decoder_transition="late", attention_score="multihead", attention_heads=2, attention_dim=6),
    ),
    "norm": ("rnnsearch", dict(decoder_transition="late", layer_norm="all", attention_reads_target=True)),
    "deep": ("rnnsearch", dict(decoder_transition="late", decoder_transition_depth=2, decoder_cell="adaptive_gru")),
    "dropout": ("gnmt_v2", dict(decoder_dropout_hidden=0.5)),
    "second bias": ("rnnsearch", dict(decoder_transition="late", recurrent_bias=True)),
}


@pytest.mark.slow
@pytest.mark.parametrize("gpu", [False, True], ids=["cpu", "gpu"])
@pytest.mark.parametrize("kind", ALL_AT_ONCE)
def test_steps_that_read_no_context_are_made_at_once(kind, gpu, monkeypatch):
    """Outputs, terms, gradients and the last state are those of steps one after the other."""
    name, options = ALL_AT_ONCE[kind]
    model = build(name, scale=0.5, **options).double().train()
    kernels.on_gpu(monkeypatch, gpu)
    found, counted = [], []
    for size in (32, 2, 1):  # the last one steps
        monkeypatch.setattr("fairseq_attnvariants.nn.decoder.CHUNK", size)
        calls = []
        model.decoder.network.transition.attention.register_forward_hook(lambda *_, calls=calls: calls.append(1))
        torch.manual_seed(3)
        with as_captured():
            found.append(gradients(model))
        counted.append(len(calls))
    assert counted == [1, 4, 7]
    torch.testing.assert_close(found[0], found[2])
    torch.testing.assert_close(found[1], found[2])


READS = {
    "input feeding": ("gnmt_v2", dict(input_feed=True)),
    "history": ("gnmt_v2", dict(attention_history="coverage")),
    "history of the lower level": ("gnmt_v2", dict(attention_via=True, attention_history="coverage")),
    "own query": ("gnmt_v2", dict(attention_history="state")),
    "stacked": ("char2char", {}),
    "simple": ("gnmt", {}),
}


@pytest.mark.parametrize("kind", READS)
def test_steps_that_read_earlier_ones_are_not(kind):
    name, options = READS[kind]
    assert not build(name, **options).decoder.network.transition.independent


def test_a_users_attention_and_window_are_asked_at_every_step():
    """A user's part may read anything of earlier steps."""
    own = build("gnmt_v2").decoder.network.transition
    assert own.independent

    class Window(windows.MonotoneWindow):
        pass

    class Attention(type(own.attention)):
        def forward(self, query, memory, state, added=None):
            return super().forward(query + state.weights.sum(), memory, state, added)

    own.attention.window = Window(Widths(hidden=7))
    assert not own.independent
    own.attention.window, own.attention.__class__ = None, Attention
    assert not own.independent


@pytest.mark.parametrize("name", ["gnmt_v2", "ava_deep"])
def test_no_energies_of_all_steps_are_kept(name):
    """The largest tensor of attention, ``B x T x S x A``, exists for a block of sentences only, and is not kept."""
    kept = []
    keep = (lambda tensor: kept.append(tensor.dim()) or tensor), (lambda same: same)
    with torch.autograd.graph.saved_tensors_hooks(*keep):
        build(name, input_feed=False)(*batch())
    assert kept and 4 not in kept


def test_a_layer_is_one_call_for_all_steps(monkeypatch):
    """On a GPU, each layer above the transition, and the cell in it, is one call of cuDNN."""
    model, calls, own = build("gnmt_v2"), [], torch._VF.lstm
    source, lengths, previous = batch()
    encoder_out = model.encoder(source, src_lengths=lengths)
    kernels.on_gpu(monkeypatch)
    monkeypatch.setattr(torch._VF, "lstm", lambda *arguments: calls.append(1) or own(*arguments))
    model.decoder(previous, encoder_out=encoder_out)
    assert len(calls) == 4


def test_attention_at_once_is_in_blocks_of_sentences_on_a_gpu_as_well(monkeypatch):
    """Otherwise the energies of all steps of all sentences would be in memory at once."""
    kernels.on_gpu(monkeypatch)
    model, largest = build("gnmt_v2", scale=0.5), []
    tanh = additive.tanh_product
    monkeypatch.setattr(additive, "tanh_product", lambda values, v: largest.append(values.numel()) or tanh(values, v))
    whole = model(*batch())[0]
    monkeypatch.setattr(energies, "LARGE", 1)
    torch.testing.assert_close(model(*batch())[0], whole)
    assert largest == [3 * 7 * 6 * 7] + 3 * [7 * 6 * 7]  # sentences, steps, source and width
