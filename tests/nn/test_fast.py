"""Fast ways give the results of the plain way."""

import gc
from functools import partialmethod

import pytest
import torch
from conftest import COMPOSED, TORCH, batch, build, gradients

from fairseq_attnvariants.architectures.variants import VARIANTS
from fairseq_attnvariants.arithmetic.reduced import reduced_products
from fairseq_attnvariants.nn import attention
from fairseq_attnvariants.nn.additive import additive_energies
from fairseq_attnvariants.nn.fast import deferred, energies, projected
from fairseq_attnvariants.nn.readout import MaxoutReadout
from fairseq_attnvariants.nn.twins import shallow

pytestmark = pytest.mark.skipif(TORCH < (2, 4), reason="gradients are deferred with torch 2.4 and later")

ALL = [*VARIANTS, *COMPOSED]


def test_gradients_are_deferred():
    assert deferred.AVAILABLE


def test_a_copy_of_a_compiled_module_computes_by_itself():
    module = torch.nn.Linear(2, 2)
    module.compile(backend="eager")
    copied = shallow(module)
    copied.forward = lambda input: "own"
    assert copied(torch.ones(2)) == "own"


def plainly(monkeypatch, model):
    """Compute nothing of a model in a fast way from here on."""
    monkeypatch.setattr(deferred, "AVAILABLE", False)
    for part in model.modules():
        if isinstance(part, attention.AdditiveAttention):
            monkeypatch.setattr(part, "equation", additive_energies)


@pytest.mark.slow
@pytest.mark.parametrize("name, many, block", [
    *((name, 2, 1) for name in ALL),
    *(pytest.param(name, 32, 2**18, marks=() if name in COMPOSED else pytest.mark.exhaustive) for name in ALL),
])  # fmt: skip
def test_deferred_gradients_are_gradients(name, many, block, monkeypatch):
    model = build(name, scale=0.5, decoder_layers=2).double().eval()
    monkeypatch.setattr(deferred, "MANY", many)
    monkeypatch.setattr(energies, "BLOCK", block)
    found = gradients(model)
    noted = []
    monkeypatch.setattr(deferred.Notes, "add", lambda *note: noted.append(note))
    plainly(monkeypatch, model)
    torch.testing.assert_close(found, gradients(model))
    assert not noted


def curvature(model, recompute=0):
    """Return the gradient, and the product of the second derivatives with a vector of ones."""
    model.decoder.network.recompute_steps = recompute
    source, lengths, previous = batch(target_lengths=(5, 3, 5))
    parameters = [*model.parameters()]
    first = torch.autograd.grad(
        model(source, lengths, previous)[0].square().sum(), parameters, create_graph=True, materialize_grads=True
    )
    return first, torch.autograd.grad(sum(grad.sum() for grad in first), parameters, materialize_grads=True)


@pytest.mark.slow
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", ["rnnsearch", "dl4mt", "coverage", "gnmt", "ava", "adaptive_both"])
def test_second_derivatives(name, training, monkeypatch):
    model = build(name, scale=0.5, dropout=0.0).double().train(training)
    monkeypatch.setattr(deferred, "MANY", 2)
    found = curvature(model), curvature(model, recompute=2)
    plainly(monkeypatch, model)
    expected = curvature(model)
    assert any(second.abs().sum() > 0 for second in expected[1])
    torch.testing.assert_close(found, (expected, expected))


def test_second_derivatives_of_reduced_products():
    """The noted factors are those that were read, also if they were rounded."""
    matrix, start = torch.randn(4, 4, requires_grad=True), torch.randn(2, 4, requires_grad=True)

    def curved(product):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = product(torch.tanh(product(start))).float().square().sum()
        first = torch.autograd.grad(out, [matrix, start], create_graph=True)
        return torch.autograd.grad(sum(grad.sum() for grad in first), [matrix, start])

    plain = curved(lambda value: torch.nn.functional.linear(value, matrix))
    torch.testing.assert_close(curved(deferred.Deferred(matrix)), plain, rtol=0.1, atol=0.1)


QUERIES = {"ava": "lower.query.weight"}


@pytest.mark.parametrize("name", ["rnnsearch", "dl4mt", "gnmt", "ava"])
def test_frozen_matrices_take_no_notes(name, monkeypatch):
    """This holds for a model without training, as in ``attribute``, and for one with a single trained matrix."""
    model, noted, add = build(name, scale=0.5), [], deferred.Notes.add
    monkeypatch.setattr(deferred.Notes, "add", lambda notes, *factors: noted.append(notes) or add(notes, *factors))
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    embeddings = model.decoder.embed_tokens.weight.requires_grad_()
    torch.autograd.grad(model(*batch())[0].sum(), embeddings)
    assert not noted
    trained = model.decoder.network.transition.attention.get_parameter(QUERIES.get(name, "query.weight"))
    trained.requires_grad_()
    torch.autograd.grad(model(*batch())[0].sum(), trained)
    assert len({*map(id, noted)}) == 1


@pytest.mark.parametrize("name", ["rnnsearch", "recatt", "ava", "dl4mt"])
def test_no_step_keeps_what_its_energies_are_made_of(name):
    """No tensor of the shape ``B x k x S x A`` is kept for the backward pass."""
    kept = []
    keep = (lambda tensor: kept.append(tensor.dim()) or tensor), (lambda same: same)
    with torch.autograd.graph.saved_tensors_hooks(*keep):
        build(name)(*batch())
    assert kept and 4 not in kept


def chain(matrix, start, steps=7):
    """Return the result of a small loop with deferred gradients."""
    product, state = deferred.Deferred(matrix), start
    for _ in range(steps):
        state = torch.tanh(product(state))
    return state.square().sum()


def test_a_backward_pass_that_stops_early_leaves_nothing_to_the_next(monkeypatch):
    monkeypatch.setattr(deferred, "MANY", 3)
    matrix = torch.randn(4, 4, dtype=torch.double, requires_grad=True)
    start = torch.randn(2, 4, dtype=torch.double, requires_grad=True)
    plain = start
    for _ in range(7):
        plain = torch.tanh(plain @ matrix.t())
    expected = torch.autograd.grad(plain.square().sum(), [matrix, start])
    out = chain(matrix, start)
    torch.autograd.grad(out, start, retain_graph=True)
    torch.testing.assert_close(torch.autograd.grad(out, [matrix, start], retain_graph=True), expected)
    torch.testing.assert_close(torch.autograd.grad(out, [matrix, start]), expected)
    assert torch.autograd.gradcheck(chain, (matrix, start))


def test_a_backward_pass_that_ends_at_a_late_step_leaves_nothing_to_one_that_begins_at_an_early_one():
    matrix = torch.randn(4, 4, dtype=torch.double, requires_grad=True)
    product, states = deferred.Deferred(matrix), [torch.randn(2, 4, dtype=torch.double, requires_grad=True)]
    for _ in range(7):
        states.append(torch.tanh(product(states[-1])))
    torch.autograd.grad(states[7].sum(), states[5], retain_graph=True)
    (found,) = torch.autograd.grad(states[3].sum(), matrix, retain_graph=True)
    plain = states[0]
    for _ in range(3):
        plain = torch.tanh(plain @ matrix.t())
    torch.testing.assert_close(found, *torch.autograd.grad(plain.sum(), matrix))


def test_gradients_in_bfloat16_lose_nothing_over_many_steps():
    """Sums of many products in bfloat16 lose terms that are small compared with the sum; one product does not."""
    matrix, steps = torch.zeros(8, 8, requires_grad=True), 300
    with torch.autocast("cpu", dtype=torch.bfloat16):
        product = deferred.Deferred(matrix)
        out = sum(product(torch.ones(2, 8)).float().sum() for _ in range(steps))
    (grad,) = torch.autograd.grad(out, matrix)
    torch.testing.assert_close(grad, torch.full((8, 8), 2.0 * steps), rtol=0.01, atol=0)


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL)
def test_recomputed_steps_are_the_same(name):
    """Outputs and gradients do not depend on the number of steps in each chunk."""
    found = []
    for recompute in (0, 2, 100):
        model = build(name, scale=0.5, decoder_layers=2, dropout=0.0, recompute_steps=recompute).double().train()
        found.append(gradients(model))
    torch.testing.assert_close(found[1], found[0])
    torch.testing.assert_close(found[2], found[0])


def test_recomputed_steps_drop_out_the_same():
    """A chunk of all steps draws random numbers in the same order as without chunks."""
    found = []
    for recompute in (0, 100):
        model = build("ava_deep", scale=0.5, dropout=0.5, recompute_steps=recompute).double().train()
        torch.manual_seed(3)
        found.append(gradients(model))
    torch.testing.assert_close(*found)


@pytest.mark.slow
@pytest.mark.parametrize("compiled", [False, True])
def test_recomputed_steps_have_the_masks_of_their_sentence(compiled, monkeypatch):
    """Chunks of a few steps, stored, recomputed or compiled, drop out the same units of states as one chunk."""
    found, own = [], torch.nn.Module.compile
    monkeypatch.setattr(torch.nn.Module, "compile", partialmethod(own, backend="eager"))  # kernels: test_compile
    for recompute, size in ((0, 100), (0, 2), (2, 100)):
        monkeypatch.setattr("fairseq_attnvariants.nn.decoder.CHUNK", size)
        options = dict(decoder_dropout_hidden=0.5, encoder_dropout_hidden=0.5, recompute_steps=recompute)
        on = compiled and not recompute and size == 100
        model = build("rnnatt", scale=0.5, decoder_layers=2, compile=on, **options).double().train()
        torch.manual_seed(3)
        found.append(gradients(model))
    torch.testing.assert_close(found[1], found[0])
    torch.testing.assert_close(found[2], found[0])


def test_reduced_products_are_float32_and_end_with_an_error():
    matrix = torch.randn(64, 64)
    with pytest.raises(KeyError), reduced_products():
        product = matrix @ matrix
        assert product.dtype == torch.float32
        torch.testing.assert_close(product, (matrix.double() @ matrix.double()).float(), rtol=0.1, atol=0.2)
        raise KeyError
    assert torch.get_float32_matmul_precision() == "highest"


def test_searches_that_overlap_put_the_precision_back():
    """In threads, the search that began last may end last."""
    before, first, second = torch.get_float32_matmul_precision(), reduced_products(), reduced_products()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert torch.get_float32_matmul_precision() == "medium"
    second.__exit__(None, None, None)
    assert torch.get_float32_matmul_precision() == before != "medium"


def test_what_stands_for_a_linear_map_in_a_loop_is_used_as_one():
    own = torch.nn.Linear(3, 2).double()
    for shape in ((3,), (4, 3), (2, 4, 3)):
        standing = deferred.Deferred(own.weight, own.bias)
        assert (standing.in_features, standing.out_features) == (3, 2)
        value = torch.randn(shape, dtype=torch.float64)
        found = torch.autograd.grad(standing(value).sum(), own.weight, retain_graph=True)
        torch.testing.assert_close(standing(value), own(value))
        torch.testing.assert_close(found, torch.autograd.grad(own(value).sum(), own.weight))


@pytest.mark.slow
def test_a_graph_is_freed_with_its_outputs():
    """Notes in the graph do not refer to the graph."""

    def notes():
        gc.collect()
        return sum(type(o) is deferred.Notes for o in gc.get_objects())

    before, output = notes(), build("rnnsearch", scale=0.5)(*batch())[0].sum()
    assert notes() > before
    del output
    assert notes() == before


def readers(model):
    """Return the names of the linear maps that a search finds as readers of contexts."""
    network = model.eval().decoder.network
    source, lengths, _ = batch((2, 2, 1))
    with torch.no_grad():
        _, memory, state, _ = model.decoder.start(model.encoder(source, lengths), search=False)
        found = projected.context_readers(network, memory, state, model.decoder.embed_tokens.embedding_dim)
    names = {part: name for name, part in network.named_modules()}
    return {names[part] for part in found}


# contexts are no averages, with two levels or several heads; layers above the transition read them; nothing does
UNPROJECTED = {"ava", "ava_encs", "ava_deep", "heads", "monotone", "gnmt", "hard_attention", "hard_monotone"}


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL)
def test_search_finds_what_reads_contexts(name):
    """Search finds all maps of contexts, by their names, or none if projecting them is not enough."""
    model = build(name, scale=0.5)
    named = {
        name
        for name, part in model.decoder.network.named_modules()
        if isinstance(part, torch.nn.Linear)
        and name.endswith((".context", ".previous_context", "histories.context.projection"))
    }
    assert readers(model) == (set() if name in UNPROJECTED else named)


def test_what_reads_a_context_otherwise_is_not_projected():
    class Squares(MaxoutReadout):
        """Reads the context without the map, too."""

        def forward(self, state, target, context):
            return super().forward(state, target, context) + context.square().mean(-1, keepdim=True)

    class Weighs(MaxoutReadout):
        """Reads the weight of the map."""

        def forward(self, state, target, context):
            return super().forward(state, target, context) + self.context.weight.mean()

    class Follows(MaxoutReadout):
        """Has another equation, but reads contexts by the map alone."""

        def forward(self, state, target, context):
            return 2 * super().forward(state, target, context)

    class Checks(MaxoutReadout):
        """Refuses contexts of another width."""

        def forward(self, state, target, context):
            assert context.size(-1) == self.context.in_features
            return super().forward(state, target, context)

    for kind, found in ((Follows, {"readout.context"}), *((kind, set()) for kind in (Squares, Weighs, Checks))):
        model = build("rnnsearch", scale=0.5)
        readout = model.decoder.network.readout
        assert type(readout) is MaxoutReadout
        readout.__class__ = kind
        assert readers(model) & {"readout.context"} == found, kind
        if not found:
            assert not readers(model)


@pytest.mark.parametrize("hook", ["forward_pre", "forward", "full_backward_pre", "full_backward"])
def test_hooks_of_a_map_run_in_training(hook):
    """A copy that computes in another way would not run them: a step has the plain map instead."""
    model, ran = build("rnnsearch", scale=0.5).train(), []
    part = model.decoder.network.transition.attention.query
    getattr(part, f"register_{hook}_hook")(lambda *given: ran.append(given))
    source, lengths, previous = batch(target_lengths=(4, 4, 4))
    model(source, lengths, previous)[0].sum().backward()
    assert len(ran) == previous.size(1)


def test_a_map_with_a_hook_or_another_map_is_not_projected():
    """Search then runs without projections, even if the first search had them."""
    for change in (
        lambda readout: readout.context.register_forward_hook(lambda part, given, made: made * 2),
        lambda readout: setattr(readout, "context", torch.nn.Linear(16, readout.context.out_features)),
    ):
        model = build("rnnsearch", scale=0.5).eval()
        network = model.decoder.network
        source, lengths, _ = batch((2, 2, 1))
        with torch.no_grad():
            _, memory, state, _ = model.decoder.start(model.encoder(source, lengths), search=False)
            assert projected.for_hypotheses(network, memory, state, 5)[0] is not network
            change(network.readout)
            assert projected.for_hypotheses(network, memory, state, 5)[0] is network
