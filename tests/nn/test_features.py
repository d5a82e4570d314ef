"""Features of a source: a set that the decoder attends to, or symbols before the others."""

import pytest
import torch
from conftest import Task, batch, build, stepwise
from reference import logits

from fairseq_attnvariants.registry import ConfigurationError

FIRST = 17  # the first of seven numbers of features
ARCHS = ["rnnsearch", "dl4mt", "ava", "char2char", "pointer_generator", "conddec_rnnatt", "context_gate", "gnmt"]
ARCHS += ["hard_attention", "hard_monotone", "nematus"]
SMALLER = {"gnmt": dict(encoder_layers=2, encoder_bidirectional_layers=1, decoder_layers=2, residuals=0)}


def made(name, scale=0.7, **options):
    task = Task()
    task.source_dictionary.first_feature = FIRST
    return build(name, task, scale=scale, **{**SMALLER.get(name, {}), **options}).double().eval()


def described(*sets, left=True):
    """Return a batch whose sources have features."""
    source, lengths, previous = batch()
    rows = [torch.tensor([*tags, *row[row.ne(1)].tolist()]) for tags, row in zip(sets, source)]
    lengths = torch.tensor([*map(len, rows)])
    padded = torch.full((len(rows), int(lengths.max()) + 1), 1)
    for row, tokens in enumerate(rows):
        padded[row, padded.size(1) - len(tokens) if left else 0 :][: len(tokens)] = tokens
    return padded, lengths, previous


@pytest.mark.parametrize("left", [True, False], ids=["left", "right"])
@pytest.mark.parametrize("name", ARCHS)
def test_equals_the_reference(name, left):
    model = made(name)
    source, lengths, previous = described([17, 20, 23], [], [18], left=left)
    with torch.no_grad():
        output, extra = model(source, lengths, previous)
    for row in range(3):
        steps, tags, letters = int(previous[row].ne(1).sum()), source[row].ge(FIRST), source[row].ne(1)
        expected, weights, _, terms = logits(model, model.cfg, source[row][letters], previous[row][:steps])
        torch.testing.assert_close(output[row, :steps], expected)
        letters = letters & ~tags
        torch.testing.assert_close(extra["attn"][0][row, :steps][:, letters], weights)
        assert extra["attn"][0][row][:, ~letters].eq(0).all()
        if tags.any():
            torch.testing.assert_close(extra["feature_attn"][0][row, :steps][:, tags].double(), terms["feature_attn"])
            assert extra["feature_attn"][0][row][:, ~tags].eq(0).all()


@pytest.mark.parametrize("name", ARCHS)
def test_a_set_has_no_order(name):
    model = made(name)
    with torch.no_grad():
        one, other, another = (
            model(*described(tags, [19], [20]))[0] for tags in ([17, 20, 23], [23, 17, 20], [17, 20])
        )
    torch.testing.assert_close(one, other)
    assert not torch.allclose(one[0], another[0]) and torch.allclose(one[2], another[2])


@pytest.mark.parametrize("name", ARCHS)
def test_search_is_as_training(name):
    model = made(name)
    source, lengths, previous = described([17, 20, 23], [], [18])
    rows = torch.tensor([0, 0, 1, 1, 2, 2])
    with torch.no_grad():
        found, _ = stepwise(model, source, lengths, previous, rows)
        torch.testing.assert_close(found, model(source, lengths, previous)[0][rows])


def test_every_parameter_learns():
    model = made("dl4mt").train()
    output, _ = model(*described([17, 20], [18], [19]))
    output.log_softmax(2)[..., 5].sum().backward()
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in model.parameters())
    names = [name for name, _ in model.named_parameters() if "features" in name]
    attention = [f"features.{part}" for part in ("vector", "query.weight", "key.weight", "key.bias")]
    assert names == [f"decoder.network.transition.{part}" for part in ("before.inputs.features.weight", *attention)]


def test_prepended():
    """Prepended features are symbols like the others, for a model without a part for features."""
    model = made("dl4mt", features="prepended")
    assert model.encoder.first_feature is None and model.decoder.network.transition.features is None
    with torch.no_grad():
        one, other = (model(*described(tags, [19], [20])) for tags in ([17, 20], [20, 17]))
    assert not torch.allclose(one[0][0], other[0][0]) and "feature_attn" not in one[1]
    torch.testing.assert_close(one[1]["attn"][0].sum(2), torch.ones(3, 7).double(), check_dtype=False)


def test_prepending_without_features_is_told(caplog):
    for model in (made("rnnsearch", features="prepended"), build("rnnsearch", features="attended")):
        model.before_training(torch.device("cpu"), True)
    assert "changes nothing" not in caplog.text
    build("rnnsearch", features="prepended").before_training(torch.device("cpu"), True)
    assert "--features prepended changes nothing without features of the sources" in caplog.text


def test_what_goes_from_left_to_right_cannot_begin_with_features():
    with pytest.raises(ConfigurationError, match="prepended it would begin with the features: use --features attended"):
        made("hard_monotone", features="prepended")
    assert made("hard_attention", features="prepended").encoder.first_feature is None
