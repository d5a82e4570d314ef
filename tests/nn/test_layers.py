"""Layers with PyTorch's tools that store parameters elsewhere, or compute a layer's weights from them."""

import copy
import pickle

import pytest
import torch
from conftest import batch, build
from torch.nn.utils import parametrizations, prune

LAYERS = {
    "encoder": ("rnnsearch", {}, "encoder.network.rnn.layers.0"),
    "above": ("gnmt", {}, "decoder.network.above.layers.0"),
    "dropout": ("gnmt", dict(encoder_dropout_hidden=1e-9, decoder_dropout_hidden=1e-9), "encoder.network.rnn.layers.0"),
    "stepped": ("adaptive_gru", {}, "encoder.network.rnn.layers.0.cells.0.recurrent"),
    "cell": ("rnnsearch", {}, "decoder.network.transition.after.recurrent"),
}
TOOLS = {
    "weight_norm": torch.nn.utils.weight_norm,
    "parametrize": parametrizations.weight_norm,
    "prune": lambda layer, name: prune.l1_unstructured(layer, name, amount=0.3),
}


def named(model, path):
    layer = model.get_submodule(path)
    return layer, "weight_hh_l0" if hasattr(layer, "weight_hh_l0") else "weight"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`torch.nn.utils.weight_norm` is deprecated")
@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("layer", LAYERS)
def test_tools_that_make_a_weight_of_others(layer, tool):
    """Outputs are those of a plain model with the weights that the tool makes, before an update and after it."""
    name, options, path = LAYERS[layer]
    model, plain = (build(name, scale=0.5, dropout=0.0, **options).train() for _ in range(2))
    (own, weight), before = named(model, path), {*dict(plain.named_parameters())}
    TOOLS[tool](own, weight)
    made = [parameter for part, parameter in model.named_parameters() if part not in before]
    assert made
    for _ in range(2):
        output, _ = model(*batch())
        grads = torch.autograd.grad(output.square().sum(), made)
        assert all(grad.abs().sum() > 0 for grad in grads)
        for hook in own._forward_pre_hooks.values():  # with dropout, a copy has called its hooks
            hook(own, ())
        held = getattr(own, weight).detach()
        with torch.no_grad():
            getattr(*named(plain, path)).copy_(held)
        torch.testing.assert_close(output, plain(*batch())[0])
        with torch.no_grad():
            for parameter, grad in zip(made, grads):
                parameter -= 0.1 * grad.sign()


@pytest.mark.parametrize("name", ["rnnsearch", "gnmt", "adaptive_both", "ava"])
def test_functional_call(name):
    """With other parameters, outputs and gradients are those of a model that has them."""
    model, other = build(name, scale=0.5, seed=1), build(name, scale=0.5, seed=2)
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    given = dict(other.named_parameters())
    found = torch.func.functional_call(model, given, batch())[0]
    expected = other(*batch())[0]
    torch.testing.assert_close(found, expected)
    grads = (
        torch.autograd.grad(output.square().sum(), [*given.values()], allow_unused=True) for output in (found, expected)
    )
    torch.testing.assert_close(*grads)
    for name, parameter in model.named_parameters():
        assert parameter.equal(before[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["rnnsearch", "gnmt", "coverage"])
def test_functional_gradients(name):
    """``torch.func.grad`` gives what autograd gives, in training and in evaluation."""
    model = build(name, scale=0.5, dropout=0.0)
    for training in (True, False):
        parameters = dict(model.train(training).named_parameters())
        loss = lambda given: torch.func.functional_call(model, given, batch())[0].square().sum()  # noqa: E731
        found = torch.func.grad(loss)({name: parameter.detach() for name, parameter in parameters.items()})
        expected = torch.autograd.grad(loss(parameters), [*parameters.values()])
        torch.testing.assert_close([*found.values()], [*expected])


@pytest.mark.parametrize("name", ["rnnsearch", "gnmt"])
def test_reading_a_layers_cells_changes_nothing(name):
    model = build(name, scale=0.5)
    held = {name: id(parameter) for name, parameter in model.named_parameters()}
    model(*batch())
    for copied in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert [*copied.state_dict()] == [*build(name).state_dict()]
        torch.testing.assert_close(copied(*batch())[0], model(*batch())[0])
        assert not {*map(id, copied.parameters())} & {*held.values()}
    for layer in (part for part in model.modules() if hasattr(part, "all_weights")):
        first, own = layer.cells[0].recurrent, layer.weight_hh_l0
        assert first.weight is own
        del layer.weight_hh_l0  # as tools do that store it elsewhere
        layer.weight_hh_l0 = torch.zeros_like(own).detach()
        assert first.weight is own and not layer.cells[0].recurrent.weight.any()
        del layer.weight_hh_l0
        layer.weight_hh_l0 = own
    assert held == {name: id(parameter) for name, parameter in model.named_parameters()}
