"""Student forcing equals a greedy search of each sentence alone, which reads the full prefix at every step."""

import pytest
import torch
from conftest import build
from fairseq import utils
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from test_losses import SYSTEMS, Model, Task, aligned, criterion, measured

from fairseq_attnvariants.criterions.student_forcing import own_previous

ARCHS = "rnnsearch", "conddec_rnnatt", "recatt", "ava", "pointer_generator", "hard_attention", "hard_monotone"
SYSTEMS = {**SYSTEMS, **{name: lambda dropout, name=name: larger(name, dropout) for name in ARCHS}}
PAD, EOS = 1, 2


def larger(name, dropout):
    """A model whose predictions depend on the symbols before."""
    return build(name, scale=1.0, dropout=dropout).double()


def predicted(model, sample, row, prefix):
    """Return the best next symbol after a prefix, except EOS and padding."""
    source = sample["net_input"]["src_tokens"][row]
    source = source[source.ne(PAD)].unsqueeze(0)
    with torch.no_grad():
        logits = model(source, torch.tensor([source.size(1)]), prefix.unsqueeze(0))[0][0, -1]
    logits[[PAD, EOS]] = -torch.inf
    return logits.argmax()


@pytest.mark.parametrize("name", SYSTEMS)
def test_own_inputs_are_a_greedy_search_of_each_sentence(name):
    """With a share of 1, inputs are predictions after the inputs before; with 0.5, each is this or the true symbol."""
    model, sample = SYSTEMS[name](0.4).train(), aligned()
    true = sample["net_input"]["prev_output_tokens"]
    found = {share: own_previous(model, sample["net_input"], share) for share in (1.0, 0.5)}
    assert model.training and model.decoder.training
    model.eval()
    counts = {"own": 0, "true": 0}
    for share, previous in found.items():
        real = true.ne(PAD)
        assert previous[~real].eq(PAD).all() and previous[:, 0].eq(EOS).all() and not previous[:, 1:].eq(EOS).any()
        for row, step in real.nonzero().tolist():
            if not step:
                continue
            best = predicted(model, sample, row, previous[row, :step])
            if share == 1:
                assert previous[row, step] == best
            elif best != true[row, step]:
                assert previous[row, step] in (best, true[row, step])
                counts["own" if previous[row, step] == best else "true"] += 1
    assert min(counts.values()) > 0 and not found[1.0].equal(true)


def test_neither_padding_nor_eos_is_predicted():
    """Training would read them as words, even if the model gives them nearly all of the probability."""
    model, inputs = larger("rnnsearch", 0.0).train(), aligned()["net_input"]
    with torch.no_grad():
        model.decoder.output_projection.bias[[PAD, EOS]] = 1e3
    previous, real = own_previous(model, inputs, 1.0), inputs["prev_output_tokens"].ne(PAD)
    assert not previous[real].eq(PAD).any() and not previous[:, 1:].eq(EOS).any()


@pytest.fixture
def exact(monkeypatch):
    """Compute logarithms in float64; fairseq's are in float32."""
    monkeypatch.setattr(utils, "log_softmax", lambda logits, dim, **_: logits.log_softmax(dim))


@pytest.mark.parametrize("name", SYSTEMS)
def test_loss_and_gradients_are_those_of_the_symbols_that_were_read(name, exact):
    """Loss and gradients are those of the stock criterion on these symbols; the search gives no gradient."""
    model, sample = SYSTEMS[name](0.0).train(), aligned()
    weights = dict(step_decay_weight=0.0, left_over_weight=0.0)
    found = measured(criterion("costs", student_forcing=1.0, **weights), model, sample)
    previous = own_previous(model, sample["net_input"], 1.0)
    given = {**sample, "net_input": {**sample["net_input"], "prev_output_tokens": previous}}
    expected = measured(LabelSmoothedCrossEntropyCriterion(Task(), False, 0.1), model, given)
    torch.testing.assert_close(found[:2], expected[:2])
    assert not found[0].isclose(measured(criterion("costs", **weights), model, sample)[0])


def test_the_loss_has_its_gradient_by_finite_differences(exact):
    """A parameter moves by so little that the search predicts the same."""
    model, sample = larger("hard_monotone", 0.0).train(), aligned()
    own, weight = criterion("costs", student_forcing=1.0), model.decoder.output_projection.weight
    [gradient] = torch.autograd.grad(own(model, sample)[0], weight)
    direction, step = torch.randn_like(weight), 1e-5
    values = []
    for sign in (1, -1):
        with torch.no_grad():
            weight.add_(direction, alpha=sign * step)
            values.append(own(model, sample)[0])
            weight.sub_(direction, alpha=sign * step)
    torch.testing.assert_close((values[0] - values[1]) / (2 * step), (gradient * direction).sum(), rtol=1e-5, atol=1e-5)


def test_validation_reads_the_true_symbols():
    model, sample = SYSTEMS["conddec"](0.4).eval(), aligned()
    found, expected = (measured(criterion("costs", student_forcing=share), model, sample) for share in (1.0, 0.0))
    torch.testing.assert_close(found[:2], expected[:2], rtol=0, atol=0)


def test_a_prefix_that_search_is_given_stays():
    model, sample = larger("rnnsearch", 0.4).train(), aligned()
    true, read = sample["net_input"]["prev_output_tokens"], []
    model.register_forward_pre_hook(lambda _, __, named: read.append(named["prev_output_tokens"]), with_kwargs=True)
    criterion("costs", student_forcing=1.0, ignore_prefix_size=2, rdrop_weight=1.0)(model, sample)
    [twice] = read
    assert twice[::2].equal(twice[1::2])  # R-Drop's two predictions
    assert twice[::2, :3].equal(true[:, :3]) and not twice[::2, 3:].equal(true[:, 3:])


def test_eos_stays_where_targets_are_padded_on_the_left():
    model, inputs = SYSTEMS["transformer"](0.0).train(), aligned()["net_input"]
    true = utils.convert_padding_direction(inputs["prev_output_tokens"], PAD, right_to_left=True)
    previous = own_previous(model, {**inputs, "prev_output_tokens": true}, 1.0)
    assert true[:, 0].eq(PAD).any() and previous.eq(EOS).equal(true.eq(EOS))


@pytest.mark.parametrize("share", [-0.1, 1.5, float("nan")])
def test_a_share_is_from_0_to_1(share):
    with pytest.raises(ValueError, match=f"--student-forcing must be from 0 to 1, not {share}"):
        criterion("costs", student_forcing=share)


def test_a_model_that_cannot_search_is_refused(monkeypatch):
    own, sample = criterion("costs", student_forcing=0.5), aligned()
    with pytest.raises(ValueError, match="--student-forcing 0.5 needs a model with an encoder, and a decoder that"):
        own(Model(21).train(), sample)
    model = SYSTEMS["lstm"](0.0).train()
    monkeypatch.setattr(model, "summon_full_params", None, raising=False)  # as fairscale's FullyShardedDataParallel
    with pytest.raises(ValueError, match="--student-forcing 0.5 .* use another --ddp-backend, or leave it out"):
        own(model, sample)


def test_all_parameters_are_trained_under_autocast():
    """``--amp`` searches and trains in one block of autocast, which keeps cast weights until its end."""
    model, sample = SYSTEMS["rnnsearch"](0.0).float().train(), aligned()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss, *_ = criterion("costs", student_forcing=0.5)(model, sample)
    loss.backward()
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in model.parameters())
