"""Gradients, degenerate cases and hand-computable numbers of the parts."""

import math
import re
from functools import partial

import pytest
import torch
from conftest import batch, build
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pack_padded_sequence

from fairseq_attnvariants.architectures.variants import VARIANTS
from fairseq_attnvariants.nn import cells as kinds
from fairseq_attnvariants.nn.additive import additive_energies
from fairseq_attnvariants.nn.attention import (
    NORMALIZERS,
    AdditiveAttention,
    AttentionViaAttention,
    MultiHeadAttention,
    real_positions,
)
from fairseq_attnvariants.nn.bridging import DirectBridge, most_attended
from fairseq_attnvariants.nn.cells import AdaptiveGRUCell, ContextGatedCell, GRUCell, LSTMCell, ReleasedAdaptiveGRUCell
from fairseq_attnvariants.nn.convolutional import ConvolutionalEncoder
from fairseq_attnvariants.nn.encoder import BidirectionalEncoder
from fairseq_attnvariants.nn.fast import energies as fast_energies
from fairseq_attnvariants.nn.fast.energies import kept_small
from fairseq_attnvariants.nn.histories import HISTORIES, DistanceHistory, Past, uniform_weights
from fairseq_attnvariants.nn.init import Scheme, initialise
from fairseq_attnvariants.nn.layers import Layers, SteppedLayer
from fairseq_attnvariants.nn.readout import AdaptiveWeighting, TanhReadout
from fairseq_attnvariants.nn.state import Encoded, Memory, State
from fairseq_attnvariants.nn.windows import MonotoneWindow, PredictiveWindow
from fairseq_attnvariants.registry import ConfigurationError, Widths


def double(*shape):
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


@pytest.mark.slow
@pytest.mark.parametrize("hypotheses", [1, 2])
def test_gradient_of_the_energies(hypotheses, monkeypatch):
    """The backward pass recomputes intermediate values, and equals that of the plain equation."""
    monkeypatch.setattr(fast_energies, "BLOCK", 24)  # two sentences
    inputs = double(3, hypotheses, 3), double(3, 4, 3), double(3)
    features = double(3, hypotheses, 4, 2), double(3, 2), double(3, hypotheses, 4, 1), double(3, 1)

    def energies(of, query, keys, vector, *features):
        return of(query, keys, vector, *zip(features[::2], features[1::2]))

    for more in ((), features):
        assert torch.autograd.gradcheck(partial(energies, kept_small), (*inputs, *more))
        assert torch.autograd.gradgradcheck(partial(energies, kept_small), (*inputs, *more))
        found, plain = (energies(of, *inputs, *more) for of in (kept_small, additive_energies))
        torch.testing.assert_close(found, plain)
        weights = torch.randn_like(plain)
        expected = torch.autograd.grad(plain, [*inputs, *more], weights)
        torch.testing.assert_close(torch.autograd.grad(found, [*inputs, *more], weights), expected)


def test_a_step_keeps_the_arguments_of_its_energies_alone():
    kept = []
    query, keys, vector = double(2, 1, 3), double(2, 5, 3), double(3)
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: kept.append(tensor) or tensor, lambda kept: kept):
        kept_small(query, keys, vector)
    assert [id(tensor) for tensor in kept] == [id(tensor) for tensor in (query, keys, vector)]


CELLS = pytest.mark.parametrize("cell", [GRUCell, AdaptiveGRUCell, LSTMCell])


@CELLS
def test_gradient_of_a_step(cell):
    own = cell({"x": 1}, 3)
    inputs = double(2, 3 * cell.gates), double(2, 3 * cell.gates), double(2, own.state_dim)
    assert torch.autograd.gradcheck(own.step, inputs)


@pytest.mark.slow
@CELLS
@pytest.mark.parametrize("directions", [1, 2])
def test_gradient_of_a_layer(cell, directions):
    layer = SteppedLayer(cell({"input": 3}, 2) for _ in range(directions)).double()
    names, values = zip(*layer.named_parameters())

    def swept(data, initial, *parameters):
        return torch.func.functional_call(layer, dict(zip(names, parameters)), (data, [3, 2, 1], initial))

    assert torch.autograd.gradcheck(swept, (double(6, 3), double(directions, 3, cell.vectors * 2), *values))


@pytest.mark.slow
@pytest.mark.parametrize("name", list(VARIANTS))
def test_gradient_of_the_whole_model(name):
    """A directional derivative of the loss, by autograd and by a central difference."""
    model = build(name, scale=0.5).double().eval()
    source, lengths, previous = batch(target_lengths=(4, 4, 4))  # padding's embedding has no gradient
    parameters = [p for p in model.parameters() if p.requires_grad]
    direction = [torch.randn_like(p) for p in parameters]

    def loss():
        output, extra = model(source, lengths, previous, with_cost_terms=True)
        costs = sum(extra[term][0].square().mean() for term in model.cost_terms)
        return cross_entropy(output[:, :-1].flatten(0, 1), previous[:, 1:].flatten(), ignore_index=1) + costs

    @torch.no_grad()
    def loss_after(step):
        torch._foreach_add_(parameters, direction, alpha=step)
        return loss()

    gradients = torch.autograd.grad(loss(), parameters)
    slope = sum((g * d).sum() for g, d in zip(gradients, direction))
    epsilon = 1e-7  # small, because rectified and maxout units have kinks
    difference = loss_after(epsilon) - loss_after(-2 * epsilon)
    torch.testing.assert_close(slope, difference / (2 * epsilon), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("cell,torch_cell", [(GRUCell, torch.nn.GRUCell), (LSTMCell, torch.nn.LSTMCell)])
def test_cells_equal_pytorchs(cell, torch_cell):
    ours, theirs = cell({"x": 3}, 4), torch_cell(3, 4)
    with torch.no_grad():
        theirs.weight_ih.copy_(ours.inputs["x"].weight)
        theirs.weight_hh.copy_(ours.recurrent.weight)
        theirs.bias_ih.copy_(ours.inputs["x"].bias)
        theirs.bias_hh.zero_()
    x, state = torch.randn(2, 3), torch.randn(2, ours.state_dim)
    expected = theirs(x, state if cell is GRUCell else tuple(state.chunk(2, 1)))
    expected = expected if cell is GRUCell else torch.cat(expected, dim=1)
    torch.testing.assert_close(ours(state, x=x), expected)


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("kind,theirs", [(GRUCell, torch.nn.GRU), (LSTMCell, torch.nn.LSTM)])
def test_swept_layers_equal_pytorchs(kind, theirs, bidirectional):
    ours = Layers(kind, 3, 4, 2, bidirectional=2 * bidirectional)
    theirs = theirs(3, 4, 2, batch_first=True, bidirectional=bidirectional)
    names = {name: re.sub(r"layers\.(\d)\.(.*_l)0", r"\2\1", name) for name in ours.state_dict()}
    theirs.load_state_dict({names[name]: value for name, value in ours.state_dict().items()})
    packed = pack_padded_sequence(torch.randn(3, 5, 3), torch.tensor([5, 3, 2]), batch_first=True)
    zero = ours.start(packed.data, 3)
    for initial in (zero, torch.randn_like(zero)):
        found, last = ours(packed.data, packed.batch_sizes.tolist(), initial)
        parts = tuple(part.contiguous() for part in initial.chunk(kind.vectors, dim=-1))
        expected, final = theirs(packed, parts if kind is LSTMCell else parts[0])
        torch.testing.assert_close(found, expected.data)
        torch.testing.assert_close(last, torch.cat(final, dim=-1) if kind is LSTMCell else final)
        layer, start = ours.layers[0], initial[: 1 + bidirectional]
        swept, fused = (way(packed.data, packed.batch_sizes.tolist(), start) for way in (layer, layer.fused))
        torch.testing.assert_close(fused, swept)  # by PyTorch's kernels, as on CUDA


def test_adaptive_gru_equals_the_plain_one_where_it_must():
    """With g = 1/2 and everything else doubled, a step is the plain GRU's minus half of z ∘ h (Li et al., eq. 17)."""
    plain, adaptive = GRUCell({"x": 3}, 4), AdaptiveGRUCell({"x": 3}, 4)
    with torch.no_grad():
        for name, parameter in adaptive.named_parameters():
            base = dict(plain.named_parameters())[name].uniform_(-1, 1)
            parameter.zero_()[: len(base)] = 2 * base
    x, h = torch.randn(2, 3), torch.randn(2, 4)
    update = torch.sigmoid((plain.inputs["x"](x) + plain.recurrent(h))[:, 4:8])
    torch.testing.assert_close(adaptive(h, x=x), plain(h, x=x) - update * h / 2)


def test_released_adaptive_gru_by_number():
    """One number each for the state, the context and the biases gives the second step of weighted-nmt."""
    cell = ReleasedAdaptiveGRUCell({"context": 1}, 1).double()
    sigmoid = lambda x: 1 / (1 + math.exp(-x))  # noqa: E731
    C, U, b = [0.5, -0.3, 0.8, 0.2], [-0.4, 0.6, 0.7, -0.9], [0.1, -0.2, 0.3, 0.4]  # of r, z, h~ and g
    h, c = 0.6, -1.1
    with torch.no_grad():
        for parameter, values in ((cell.inputs["context"].weight, C), (cell.recurrent.weight, U), (cell.bias, b)):
            parameter.copy_(torch.tensor(values).view_as(parameter))
        found = cell(torch.tensor([[h]]).double(), context=torch.tensor([[c]]).double())
    g = sigmoid(U[3] * h + C[3] * c + b[3])
    r, z = (sigmoid(U[k] * h * g + C[k] * c * (1 - g) + b[k]) for k in (0, 1))
    candidate = math.tanh((U[2] * h + b[2]) * r * g + C[2] * c) * (1 - g)
    assert float(found) == pytest.approx(z * h * g + (1 - z) * candidate, abs=1e-7)


def test_further_cells_that_keep_the_state_are_none():
    """With z = 1, the cells that read only the state do not change it."""
    plain, deep = (Layers(GRUCell, 3, 4, 2, bidirectional=2, depth=depth) for depth in (1, 3))
    with torch.no_grad():
        for layer, deeper in zip(plain.layers, deep.layers):
            for cell, [first, *others] in zip(layer.cells, (direction.cells for direction in deeper.cells)):
                own = dict(cell.named_parameters())
                own["recurrent.bias"].zero_()  # PyTorch's second one
                for name, parameter in first.named_parameters():
                    parameter.copy_(own[name].uniform_(-1, 1))
                for other in others:
                    other.bias.zero_()[4:8] = 100
    inputs, sizes = torch.randn(10, 3), [2] * 5
    torch.testing.assert_close(*(layers(inputs, sizes, layers.start(inputs, 2)) for layers in (deep, plain)))


@pytest.mark.parametrize("read", [("target", "context"), ("context",)])
@pytest.mark.parametrize("kind", ["source", "target"])
@pytest.mark.parametrize("cell", [GRUCell, AdaptiveGRUCell])
def test_an_open_context_gate_is_none(cell, kind, read):
    """With z = 1, the gate changes nothing."""
    widths = dict.fromkeys(read, 3)
    plain, gated = cell(widths, 4), ContextGatedCell(cell, kind, widths, 4)
    with torch.no_grad():
        for parameter in gated.parameters():
            parameter.uniform_(-1, 1)
        gated.gate.bias.fill_(100)
        for name in read:
            plain.inputs[name].weight.copy_(gated.inputs[name].weight[:-4])
        plain.inputs[read[0]].bias.copy_(gated.cell.bias)
        plain.recurrent.weight.copy_(gated.cell.recurrent.weight)
    values, h = {name: torch.randn(2, 3) for name in read}, torch.randn(2, 4)
    torch.testing.assert_close(gated(h, **values), plain(h, **values))


def test_a_cell_refuses_an_input_that_it_does_not_have():
    with pytest.raises(KeyError, match="contxt"):
        GRUCell({"context": 3}, 4)(torch.zeros(2, 4), contxt=torch.zeros(2, 3))


def test_adaptive_output_equals_the_plain_one_where_it_must():
    """With W_p = 0 each part has a third of the weight, so three times the parts is the plain sum."""
    widths = Widths(hidden=4, target=3, context=6, features=5)
    plain, weighted = TanhReadout(widths), TanhReadout(widths, AdaptiveWeighting(widths, 5))
    with torch.no_grad():
        weighted.weighting.score.weight.zero_()
        for name, parameter in plain.named_parameters():
            weighted.get_parameter(name).copy_(3 * parameter.uniform_(-1, 1))
    read = torch.randn(2, 7, 4), torch.randn(2, 7, 3), torch.randn(2, 7, 6)
    torch.testing.assert_close(weighted(*read), plain(*read))


def test_attention_by_hand():
    """Equal energies average the real annotations; padding has no weight although its key is larger."""
    attention = AdditiveAttention(Widths(hidden=1, annotation=1, attention=1))
    with torch.no_grad():
        attention.query.weight.zero_()
        attention.vector.fill_(1.0)
    memory = Memory(
        keys=torch.tensor([[[0.3], [0.3], [9.0]]]),
        values=torch.tensor([[[2.0], [4.0], [100.0]]]),
        padding_mask=torch.tensor([[False, False, True]]),
        positions=torch.tensor([[1.0, 2.0, 2.0]]),
        embeddings=torch.zeros(1, 3, 1),
    )
    context, weights, *_ = attention(torch.zeros(1, 1), memory, None)
    torch.testing.assert_close(context, torch.tensor([[3.0]]))
    torch.testing.assert_close(weights, torch.tensor([[0.5, 0.5, 0.0]]))


ONE_HEAD = {"value.weight": torch.eye(6), "output.weight": torch.eye(6)}


def test_one_head_without_projected_values_equals_scaled():
    """With W_v = W_o = 1, one head equals the scaled score."""
    source, lengths, previous = batch()
    options = dict(encoder_hidden_size=3, attention_dim=6, attention_history="context+convolution+distance", scale=0.5)
    scaled = build("dl4mt", attention_score="scaled", **options).eval()
    heads = build("dl4mt", attention_score="multihead", attention_heads=1, **options).eval()
    attention = "decoder.network.transition.attention."
    own = {attention + name: matrix for name, matrix in ONE_HEAD.items()}
    heads.load_state_dict({**scaled.state_dict(), **own})
    (output, extra), (expected, weights) = (model(source, lengths, previous) for model in (heads, scaled))
    torch.testing.assert_close(output, expected)
    torch.testing.assert_close(extra["attn"], weights["attn"])
    torch.testing.assert_close(extra["head_attn"][0].squeeze(2), weights["attn"][0])


def test_heads_are_offered_beside_their_mean():
    """The weights of heads are returned with their mean; the first head, with a query of zero, is uniform."""
    model = build("rnnsearch", scale=0.5, attention_score="multihead", attention_heads=2, attention_dim=6).eval()
    with torch.no_grad():
        model.decoder.network.transition.attention.query.weight[:3] = 0
    source, lengths, previous = batch()
    _, extra = model(source, lengths, previous)
    heads, real = extra["head_attn"][0], source.ne(1).unsqueeze(1)
    torch.testing.assert_close(heads.mean(2), extra["attn"][0])
    torch.testing.assert_close(heads[:, :, 0], (real / real.sum(2, keepdim=True)).expand_as(heads[:, :, 0]))
    assert not heads[:, :, 1].allclose(heads[:, :, 0])


def test_heads_of_two_levels_are_those_of_the_lower():
    """Their mean is the lower level's weights."""
    heads = dict(attention_score="multihead", attention_heads=2, attention_dim=6, attention_via_dim=6)
    model = build("dl4mt", scale=0.5, attention_via=True, encoder_layers=2, **heads).eval()
    _, extra = model(*batch())
    torch.testing.assert_close(extra["head_attn"][0].mean(2), extra["attn"][0])
    assert not extra["word_attn"][0].allclose(extra["attn"][0])


class Doubled(AdditiveAttention):
    """A score with another context."""

    def forward(self, *given):
        attended = super().forward(*given)
        return attended._replace(context=2 * attended.context)


@pytest.mark.parametrize("kind", [AdditiveAttention, Doubled, MultiHeadAttention])
def test_a_guide_reads_the_context_of_the_upper_level(kind):
    """The guide also reads a context that is no average of annotations."""
    upper, lower = kind(WIDTHS._replace(attention=8)), AdditiveAttention(WIDTHS._replace(guide=6))
    initialise(both := AttentionViaAttention(upper, lower), Scheme(deviation=1.0))
    values, padding = torch.randn(2, 3, 6), torch.tensor([[True, False, False], [False] * 3])
    memory = both.memory(Encoded(values, padding, values[:, 0], values, values.flip(2), padding))
    state = State(torch.zeros(2, 4), torch.randn(2, 6), torch.zeros(2, 3), torch.zeros(2))
    query = torch.randn(2, 4)
    context = upper(query, memory.upper, state).context
    expected = lower(query, memory, state, lower.guide(context))
    found = both(query, memory, state)
    torch.testing.assert_close(found.weights, expected.weights)
    torch.testing.assert_close(found.context, torch.cat([context, expected.context], dim=1))


@pytest.mark.parametrize("kind", ["softmax", "sparsemax", "entmax"])
def test_weights_of_extreme_energies(kind):
    """Weights add up to 1, and padding has none, even if the other energies are low."""
    energies = torch.tensor([[[1e30, -1e30, 5.0]], [[-1e30, -2e30, 9.0]], [[0.5, 0.5, 0.5]]])
    unseen = torch.tensor([[[False, False, True]]])
    expected = torch.tensor([[[1.0, 0.0, 0.0]], [[1.0, 0.0, 0.0]], [[0.5, 0.5, 0.0]]])
    torch.testing.assert_close(NORMALIZERS[kind]()(energies, unseen), expected)


def test_temperature():
    """A temperature of 1 gives the plain softmax, 1/2 that of twice the energies."""
    energies, unseen = torch.randn(2, 3, 5), torch.zeros(2, 1, 5, dtype=torch.bool)
    assert NORMALIZERS["softmax"](1.0)(energies, unseen).equal(energies.softmax(-1))
    torch.testing.assert_close(NORMALIZERS["softmax"](0.5)(energies, unseen), (2 * energies).softmax(-1))


@pytest.mark.parametrize("padding", ["left", "right"])
def test_windows_by_hand(padding):
    """Two of five columns are padding; the steps are the first, the third, and one far beyond the source."""
    mask = torch.tensor([[True, True, False, False, False]])
    mask = mask if padding == "left" else mask.flip(1)
    memory = Memory(torch.zeros(1), torch.zeros(1), mask, real_positions(mask), torch.zeros(1))
    state = State(torch.zeros(3), torch.zeros(3), torch.zeros(3), torch.tensor([0.0, 2.0, 7.0]))
    unseen, factor = MonotoneWindow(Widths(hidden=2), 1)(torch.zeros(3, 2), memory, state)
    looks = [[1, 1, 0], [0, 1, 1], [0, 1, 1]]
    assert (~unseen[0])[:, ~mask[0]].int().tolist() == looks and unseen[0][:, mask[0]].all() and factor is None
    window = PredictiveWindow(Widths(hidden=2), 1)
    with torch.no_grad():
        window.vector.zero_()
    unseen, factor = window(torch.zeros(3, 2), memory, state)  # p = 3/2
    assert (~unseen[0, 0, ~mask[0]]).tolist() == [True, True, False]
    torch.testing.assert_close(factor[0, 0, ~mask[0]][:2], torch.full((2,), 0.5).neg().exp())


def test_distance_history_by_hand():
    """Feng et al. 2016 section 6.2 on weights (1/2, 1/2): the centre is 1.5, so position 2 gains over position 1."""
    padding = torch.tensor([[True, False, False]])
    memory = Memory(torch.zeros(1), torch.zeros(1), padding, real_positions(padding), torch.zeros(1))
    state = State(torch.zeros(1), torch.zeros(1), torch.tensor([[0.0, 0.5, 0.5]]), torch.ones(1))
    term = DistanceHistory(Widths()).energy_term(Past(memory, state, None, None))[0, 0, 1:].exp()
    torch.testing.assert_close(term, torch.sigmoid(torch.tensor([-0.5, 0.5])))


def test_positions_and_first_weights_ignore_padding():
    padding = torch.tensor([[True, False, False], [False, False, True]])
    assert real_positions(padding)[0, 1:].tolist() == [1, 2] and real_positions(padding)[1, :2].tolist() == [1, 2]
    assert uniform_weights(padding).tolist() == [[0, 0.5, 0.5], [0.5, 0.5, 0]]


def test_a_soft_bridge_moves_attention():
    bridge, padding = DirectBridge(3, 4, soft=True).double(), torch.zeros(2, 5, dtype=torch.bool)
    words, weights = (torch.rand(2, size, width).double().requires_grad_() for size, width in ((5, 3), (2, 5)))
    assert torch.autograd.gradcheck(lambda *given: bridge(*given, padding), (words, weights))


def test_a_soft_bridge_is_of_the_type_of_the_embeddings():
    """The bridge's attention is float32, but its output has the type of the embeddings."""
    bridge, padding = DirectBridge(3, 4, soft=True).bfloat16(), torch.zeros(2, 5, dtype=torch.bool)
    assert bridge(torch.rand(2, 5, 3).bfloat16(), torch.rand(2, 2, 5), padding).dtype == torch.bfloat16


def test_the_most_attended_word_is_never_padding():
    """The first of equally attended words is taken, also if all weights are 0, as with the window of Graves 2013."""
    padding, words = torch.tensor([[True, False, False]]), torch.tensor([[[7.0], [8.0], [9.0]]])
    weights = torch.tensor([[[0, 0.2, 0.8], [0, 0.5, 0.5], [0, 0, 0]]])
    assert most_attended(words, weights, padding).flatten().tolist() == [9, 8, 8]


@pytest.mark.parametrize("kind", ["gru", "lstm"])
@pytest.mark.parametrize("layers", [1, 2])
def test_encoder_is_the_same_whichever_side_the_padding_is_on(kind, layers):
    encoder = BidirectionalEncoder(Layers(kinds.CELLS[kind], 3, 4, layers, bidirectional=1), torch.nn.Identity())
    embedded = torch.randn(2, 5, 3)
    padding = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    right = encoder(embedded, padding)
    moved = torch.stack([embedded[0], embedded[1].roll(2, 0)])
    left = encoder(moved, torch.stack([padding[0], padding[1].roll(2)]))
    torch.testing.assert_close(left.annotations[1, 2:], right.annotations[1, :3])
    torch.testing.assert_close(left.final, right.final)
    torch.testing.assert_close(right.final[1, :4], right.annotations[1, 2, :4])
    torch.testing.assert_close(right.final[1, 4:], right.annotations[1, 0, 4:])
    assert right.annotations[1, 3:].eq(0).all()


def test_segments_start_at_the_first_real_character():
    """A segment's weight is shared by its real characters; padding changes nothing."""
    encoder = BidirectionalEncoder(Layers(GRUCell, 6, 5, 1, bidirectional=1), torch.nn.Identity())
    encoder = ConvolutionalEncoder(3, [2, 0, 4], 2, 1, encoder)
    embedded = torch.randn(2, 5, 3)
    padding = torch.tensor([[False] * 5, [True, True, False, False, False]])
    left = encoder(embedded, padding)
    assert left.padding_mask.tolist() == [[False, False, False], [False, False, True]]
    assert left.shares[0].tolist() == [[0.5, 0.5, 0, 0, 0], [0, 0, 0.5, 0.5, 0], [0, 0, 0, 0, 1]]
    assert left.shares[1].tolist() == [[0, 0, 0.5, 0.5, 0], [0, 0, 0, 0, 1], [0, 0, 0, 0, 0]]
    alone = encoder(embedded[1:, 2:], padding[1:, 2:])
    torch.testing.assert_close(left.annotations[1:, :2], alone.annotations)
    torch.testing.assert_close(left.final[1:], alone.final)
    assert left.annotations[1, 2].eq(0).all()


def test_initial_values_of_the_convolutional_encoder():
    """As in the authors' code, convolutions have bounds by the number of inputs, and highways carry at first."""
    encoder = build("rnnsearch", encoder_type="convolutional", encoder_filters="0-0-0-900").encoder.network
    (convolution,), highway = encoder.convolutions, encoder.highways[0]
    bound = (6 * 4) ** -0.5
    assert 0.98 * bound < convolution.weight.abs().max() <= bound and 0.49 < convolution.bias.abs().max() <= 0.5
    assert highway.transform.bias.eq(-2).all() and highway.candidate.bias.eq(0).all()


@pytest.mark.parametrize("name", ["coverage", "fertility", "coverage_gru"])
def test_coverage_that_nothing_reads_changes_nothing(name):
    """With V = 0, attention is plain attention."""
    plain, covered = build("rnnsearch", scale=0.5), build(name, scale=0.5)
    covered.load_state_dict(plain.state_dict(), strict=False)
    expected, found = (model.eval()(*batch())[0] for model in (plain, covered))
    assert not torch.allclose(found, expected)
    torch.nn.init.zeros_(
        covered.get_parameter(f"decoder.network.transition.attention.histories.{name}.projection.weight")
    )
    torch.testing.assert_close(covered(*batch())[0], expected)


def test_what_was_covered_is_the_sum_of_the_weights_and_zero_at_padding():
    model = build("coverage_gru", scale=0.5, attention_history="fertility+coverage_gru").eval()
    source, lengths, previous = batch()
    decoder, padding = model.decoder.network, source.eq(1)
    memory, state = decoder.start(Encoded(**{k: v[0] for k, v in model.encoder(source, lengths).items() if v}))
    decoded = decoder(model.decoder.embed_tokens(previous), memory, state)
    covered, states = (decoded.state.histories[name] for name in ("fertility", "coverage_gru"))
    torch.testing.assert_close(covered, decoded.weights.sum(1))
    assert states[~padding].all() and not states[padding].any()
    assert not covered[padding].any() and memory.histories["fertility"].lt(2).all()


def test_the_coverage_of_a_word_without_fertility_is_finite():
    history = HISTORIES["fertility"](Widths(annotation=1, attention=1))
    torch.nn.init.ones_(history.fertility.weight)
    annotations = torch.tensor([[[5.0], [-50.0], [-200.0]]], requires_grad=True)
    memory = Memory(*[torch.zeros(1)] * 5)
    for carried in (torch.zeros(1, 3), torch.ones(1, 3)):
        coverage = history.coverage(Past(memory, None, history.remember(annotations), carried))
        (gradient,) = torch.autograd.grad(coverage.tanh().sum(), annotations)
        assert coverage.isfinite().all() and gradient.isfinite().all()


def test_steps_are_counted_beyond_what_bfloat16_can_count():
    """Windows read the number of steps; in bfloat16, 256 + 1 is 256."""
    model = build("rnnsearch").bfloat16().eval()
    source, lengths, previous = batch(target_lengths=(299,) * 3)
    encoded = Encoded(**{key: value[0] for key, value in model.encoder(source, lengths).items() if value})
    decoder = model.decoder.network
    with torch.no_grad():
        state = decoder(model.decoder.embed_tokens(previous), *decoder.start(encoded)).state
    assert state.step.tolist() == [300] * 3


@pytest.mark.parametrize("name", ["recatt", "hybridatt1", "hybridatt2", "coverage", "fertility"])
def test_no_large_tensor_is_kept(name):
    """No step saves a tensor of batch x source x width for the backward pass, except those that all steps share."""
    model = build(name, attention_dim=32, encoder_hidden_size=16)
    source, lengths, previous = batch(lengths=(30, 29, 28), target_lengths=(25, 20, 10))
    large = 3 * 31 * 32
    kept = {}

    def pack(tensor):
        if tensor.numel() >= large:
            kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        model(source, lengths, previous)
    assert len(kept) < 12  # keys, annotations and the like: a handful, not one for each of 26 steps


WIDTHS = Widths(hidden=4, annotation=6, context=6, attention=5)


class Sharp(AdditiveAttention):
    """A score without key features, with two learned numbers."""

    def __init__(self, *parts, **more):
        super().__init__(*parts, **more)
        self.sharpness, self.offset = nn.Parameter(torch.tensor(8.0)), nn.Parameter(torch.tensor([-2.0]))

    def energies(self, query, keys):
        return self.sharpness * super().energies(query, keys) + self.offset


@pytest.mark.parametrize("uniform", [False, True])
def test_single_numbers_keep_their_value(uniform):
    attention = Sharp(WIDTHS)
    initialise(attention, Scheme(uniform=uniform))
    assert (attention.sharpness.item(), attention.offset.item()) == (8.0, -2.0)
    assert 0 < attention.key.weight.abs().max() < 1


def test_a_history_of_keys_needs_a_score_that_reads_them():
    with pytest.raises(ConfigurationError, match=r"coverage adds features .* energies\(query, keys, \*features\)"):
        Sharp(WIDTHS, {"coverage": HISTORIES["coverage"](WIDTHS)})
    assert Sharp(WIDTHS, {"context": HISTORIES["context"](WIDTHS)}).histories
