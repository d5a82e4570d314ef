import argparse
import csv
import json

import numpy as np
import pytest
import torch
from conftest import Task, batch, build
from fairseq.models.lstm import LSTMModel
from fairseq.models.lstm import base_architecture as lstm
from fairseq.models.transformer import TransformerModel
from fairseq.models.transformer import base_architecture as transformer

from fairseq_attnvariants_cli.main import main
from fairseq_attnvariants_cli.options import BatchOptions
from fairseq_attnvariants_cli.shown.pages import template
from fairseq_attnvariants_cli.subcommands.attribute import agreement, in_words, panels, record, shares
from fairseq_attnvariants_cli.systems.attribution import (
    INPUT_X_GRADIENT,
    Attribution,
    attribute,
    integrated,
    log_probabilities,
    source_embeddings,
)
from fairseq_attnvariants_cli.text.files import UserError

PAD = 1
LIMITS = BatchOptions(64, 4000)
OURS = ["rnnsearch", "recatt", "bridge_source", "gnmt", "heads", "ava"]
STOCK = ["lstm", "transformer"]
ROUNDED = {"lstm": (1e-3, 1e-3), "transformer": (1e-2, 2e-2)}  # fairseq's attention is in float32: step, tolerance


def model(name):
    """Return a model in float64, with parameters large enough for differences to show."""
    if name not in STOCK:
        return build(name, scale=0.7, encoder_embed_dim=6).double().eval()
    torch.manual_seed(0)
    sizes = {
        f"{side}_{size}": 8 for side in ("encoder", "decoder") for size in ("embed_dim", "ffn_embed_dim", "hidden_size")
    }
    more = dict(encoder_layers=1, decoder_layers=1, encoder_attention_heads=2, decoder_attention_heads=2)
    limits = dict(max_source_positions=50, max_target_positions=50)
    args = argparse.Namespace(criterion="", decoder_out_embed_dim=8, **sizes, **more, **limits)
    (lstm if name == "lstm" else transformer)(args)
    network = (LSTMModel if name == "lstm" else TransformerModel).build_model(args, Task()).double().eval()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.uniform_(-0.7, 0.7)
        network.encoder.embed_tokens.weight[PAD] = 0
    return network


def sample(lengths=(5, 3, 1), target_lengths=(4, 6, 2), **more):
    source, sizes, previous = batch(lengths, target_lengths, **more)
    target = torch.cat([previous[:, 1:], torch.full((len(lengths), 1), PAD)], 1)
    target[torch.arange(len(lengths)), torch.tensor(target_lengths)] = 2
    return dict(net_input=dict(src_tokens=source, src_lengths=sizes, prev_output_tokens=previous), target=target)


def found(network, data, nodes=INPUT_X_GRADIENT, limits=LIMITS):
    with source_embeddings(network, "a.pt") as embeddings:
        return attribute(network, embeddings, data, nodes, PAD, limits)


def scaled_output(network, data, scale):
    """Return log-probabilities with source embeddings times ``scale``, ``S``."""
    inside = []
    hooks = [
        network.encoder.register_forward_pre_hook(lambda *_: inside.append(True)),
        network.encoder.embed_tokens.register_forward_hook(lambda *call: call[-1] * scale[:, None] if inside else None),
        network.encoder.register_forward_hook(lambda *_: inside.clear()),
    ]
    with torch.no_grad():
        result = log_probabilities(network(**data["net_input"])[0], data["target"])
    for hook in hooks:
        hook.remove()
    return result


def data_for(name):
    """Return a sample, for the stock lstm without padding, which it moves."""
    return sample((4, 4, 4)) if name == "lstm" else sample(left=name != "transformer")


@pytest.mark.slow
@pytest.mark.parametrize("name", OURS + STOCK)
def test_input_times_gradient_is_what_a_longer_embedding_changes(name):
    """Finite differences: d log p / d s of an embedding times s, at s = 1."""
    network, data = model(name), data_for(name)
    h, tolerance = ROUNDED.get(name, (1e-5, 1e-4))
    values = found(network, data)
    real, width = data["target"].ne(PAD), data["net_input"]["src_tokens"].size(1)
    assert values[real].abs().max() > 1e-3
    for j in range(width):
        step = torch.zeros(width, dtype=torch.float64)
        step[j] = h
        slope = (scaled_output(network, data, 1 + step) - scaled_output(network, data, 1 - step)) / (2 * h)
        torch.testing.assert_close(values[..., j][real], slope[real], rtol=tolerance, atol=tolerance / 1000)


@pytest.mark.parametrize(
    "name, steps, share",
    [("dl4mt", 50, 1e-6), ("lstm", 20, 1e-6), ("rnnsearch", 100, 0.01), ("transformer", 100, 0.01)],
)
def test_integrated_gradients_are_complete(name, steps, share):
    """Over the source, they add up to its effect on the output; kinks of maxout and layer normalisation add errors."""
    network, data = model(name), data_for(name)
    width, real = data["net_input"]["src_tokens"].size(1), data["target"].ne(PAD)
    ones = torch.ones(width, dtype=torch.float64)
    difference = scaled_output(network, data, ones) - scaled_output(network, data, 0 * ones)
    gap = (found(network, data, integrated(steps)).sum(-1) - difference)[real]
    assert gap.abs().mean() < share * difference[real].abs().mean() and difference[real].abs().max() > 1e-3


def test_a_transformer_that_was_loaded_has_gradients():
    """In evaluation the layers use a fast path without gradients, which has to be restored afterwards."""
    network, data = model("transformer"), data_for("transformer")
    expected = found(network, data)
    network.load_state_dict(network.state_dict())
    assert all(layer.load_to_BT and layer.can_use_fastpath for layer in network.encoder.layers)
    torch.testing.assert_close(found(network, data), expected)
    assert all(layer.can_use_fastpath for layer in network.encoder.layers)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["rnnsearch", "recatt", "ava", "transformer"])
def test_padding_gets_nothing_and_a_batch_changes_nothing(name):
    network, lengths, targets = model(name), (5, 3, 1), (4, 6, 2)
    data = sample(left=name != "transformer")
    values = found(network, data, integrated(3))
    source = data["net_input"]["src_tokens"]
    assert not values.masked_select(source.eq(PAD)[:, None]).any()
    assert not values.masked_select(data["target"].eq(PAD)[..., None]).any()
    for k, (length, target) in enumerate(zip(lengths, targets)):
        real = source[k].ne(PAD)
        net_input = dict(
            src_tokens=source[k : k + 1, real],
            src_lengths=torch.tensor([length + 1]),
            prev_output_tokens=data["net_input"]["prev_output_tokens"][k : k + 1, : target + 1],
        )
        alone = dict(net_input=net_input, target=data["target"][k : k + 1, : target + 1])
        torch.testing.assert_close(values[k, : target + 1, real], found(network, alone, integrated(3))[0])
    torch.testing.assert_close(values, found(network, data, integrated(3), BatchOptions(2, 4000)))
    torch.testing.assert_close(values, found(network, data, integrated(3), BatchOptions(64, 1)))


def test_the_model_is_as_before():
    network = model("rnnsearch")
    network.output_frozen = next(network.parameters())
    network.output_frozen.requires_grad_(False)
    original = network.encoder.embed_tokens
    with pytest.raises(KeyError), source_embeddings(network, "a.pt"):
        raise KeyError
    assert network.encoder.embed_tokens is original
    assert [parameter.requires_grad for parameter in network.parameters()].count(False) == 1


def test_a_model_without_source_embeddings_is_refused():
    refused = pytest.raises(UserError, match="a.pt: the model has no source embeddings")
    with refused, source_embeddings(torch.nn.Linear(1, 1), "a.pt"):
        pass


def test_quadrature_weights_sum_to_one():
    nodes = integrated(7)
    assert sum(weight for _, weight in nodes) == pytest.approx(1)
    assert sum(weight * place**3 for place, weight in nodes) == pytest.approx(1 / 4)


# ---- words


def test_agreement_by_hand():
    rising, falling = [0.1, 0.2, 0.7], [3.0, -2.0, 1.0]
    assert agreement(np.array([rising]), np.array([rising])) == 1
    assert agreement(np.array([falling]), np.array([rising])) == -1, "sizes, and not signs"
    assert agreement(np.array([falling, rising, rising]), np.array([rising, rising, [0.3, 0.3, 0.3]])) == 0
    assert agreement(np.array([[1.0, 3.0, 2.0]]), np.array([rising])) == pytest.approx(1 / 3)  # 2 pairs against 1
    assert agreement(np.array([[1.0]]), np.array([[1.0]])) is None


def test_attributions_of_pieces_are_summed():
    values = np.array([[1.0, -2.0, 0.5], [0.5, 1.0, 0.25], [0.0, 0.0, 1.0]])
    attention = np.array([[0.1, 0.2, 0.7], [0.3, 0.1, 0.6], [0.0, 0.1, 0.9]])
    pair = Attribution(4, ["a@@", "b", "</s>"], ["x@@", "y", "</s>"], values, attention, values.sum(1) + [0.3, 0, 0])
    words = in_words(pair, "@@ ")
    assert (words.line, words.source, words.target) == (5, ["ab", "</s>"], ["xy", "</s>"])
    np.testing.assert_allclose(words.values, [[0.5, 0.75], [0.0, 1.0]])
    np.testing.assert_allclose(words.attention, [[0.35, 0.65], [0.1, 0.9]])
    assert words.gap == pytest.approx(0.1) and words.tau is None  # a single word is left


def test_ends_of_sentences_have_no_part_in_the_agreement():
    values, attention = np.array([[1.0, 2.0, 0.0], [2.0, 1.0, 0.0]]), np.array([[0.1, 0.2, 0.7]] * 2)
    pair = Attribution(0, ["a", "b", "</s>"], ["x", "</s>"], values, attention, values.sum(1))
    assert in_words(pair, None).tau == 1


def test_the_gap_is_a_mean_of_sizes():
    values = np.array([[1.0, 2.0, 0.0], [2.0, 1.0, 0.0]])
    pair = Attribution(0, ["a", "b", "</s>"], ["x", "</s>"], values, values, values.sum(1) + [0.5, -0.5])
    assert in_words(pair, None).gap == 0.5


def test_signs_are_written_and_shares_drawn():
    values, attention = np.array([[1.0, -3.0], [0.0, 2.0]]), np.array([[0.5, 0.5], [0.1, 0.9]])
    one = in_words(Attribution(0, ["a", "</s>"], ["x", "</s>"], values, attention, values.sum(1)), None)
    found = record("ours", one)
    assert (found["attribution"], found["attention"]) == (values.tolist(), attention.tolist())
    drawn = panels("ours", one, "integrated-gradients")
    assert [panel.title for panel in drawn] == ["ours, attention", "ours, integrated gradients"]
    assert [panel.weights.tolist() for panel in drawn] == [attention.tolist(), [[0.25, 0.75], [0.0, 1.0]]]
    assert [*one.rows()][0] == ("x", [("a", 1.0, 1 / 3), ("</s>", -3.0, 1.0)])


def test_shares_of_sizes():
    np.testing.assert_allclose(shares(np.array([[1.0, -3.0], [0.0, 0.0]])), [[0.25, 0.75], [0.0, 0.0]])


def test_words_are_shaded_and_escaped():
    pair = Attribution(0, ["<b>", "c", "</s>"], ["x", "</s>"], np.array([[2.0, -1.0, 0.0]] * 2), None, np.ones(2))
    table = template("parts.html").module.shaded(in_words(pair, None).rows())
    assert '<span class="more" style="--w: 1.00" title="2.000">&lt;b&gt;</span>' in table
    assert '<span class="less" style="--w: 0.50" title="-1.000">c</span>' in table and table.count("<tr>") == 2


# ---- the subcommand


@pytest.fixture
def command(runs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    paths = [f"--path={folder / 'checkpoint_last.pt'}" for folder in (runs.rnnsearch, runs.lstm)]
    text = ["--source", str(runs.text / "test.xx"), "--reference", str(runs.text / "test.yy")]
    return ["attribute", str(runs.data), *paths, "--name", "ours", "--name", "<lstm>", "--cpu", *text]


def test_models_side_by_side(command, tmp_path):
    more = ["--line", "2", "--plot", "a.png", "--html", "a.html", "--values", "a.json", "--table", "a.csv"]
    pytest.importorskip("matplotlib")
    assert main([*command, *more, "--steps", "20"]) == 0
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    page = (tmp_path / "a.html").read_text()
    assert "Integrated gradients" in page and page.count("<table>") == 2 and "&lt;lstm&gt;" in page
    found = [json.loads(line) for line in (tmp_path / "a.json").read_text().splitlines()]
    assert [(one["system"], one["line"]) for one in found] == [("ours", 2), ("<lstm>", 2)]
    for one in found:
        shape = len(one["target"]), len(one["source"])
        assert np.shape(one["attribution"]) == np.shape(one["attention"]) == shape
    with open(tmp_path / "a.csv") as stream:
        rows = list(csv.DictReader(stream))
    assert all(float(row["gap"]) < 0.01 and -1 <= float(row["Kendall's tau"]) <= 1 for row in rows)


def test_agreement_over_a_text_has_an_interval(command, tmp_path, capsys):
    """Sentences are written in their order, too."""
    more = ["--method", "input-x-gradient", "--json", "--values", "values"]
    assert main([*command[:3], *command[-5:], *more]) == 0
    [row] = json.loads(capsys.readouterr().out)
    lines = [json.loads(line)["line"] for line in (tmp_path / "values").read_text().splitlines()]
    assert lines == [*range(1, row["sentences"] + 1)]
    assert row["sentences"] > 5 and 0 < row["95% ±"] < 1 and row["gap"] is None


def test_own_translations_are_attributed(command, capsys):
    assert main([*command[:3], "--cpu", "--max-len-b", "5", "--line", "1", "--steps", "2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["sentences"] == 1


@pytest.mark.parametrize("more, message", [
    (["--plot", "a.png"], "--plot draws one sentence: give its --line"),
    (["--method", "input-x-gradient", "--steps", "3"], "--steps needs --method integrated-gradients"),
    (["--steps", "0"], "argument --steps: 0 is not at least 1"),
    (["--line", "1000"], "and no line 1000"),
])  # fmt: skip
def test_what_does_not_go_together_is_refused(command, tmp_path, refusal, more, message):
    pytest.importorskip("matplotlib")
    error = refusal([*command, *more])
    assert message in error and list(tmp_path.iterdir()) == []


def test_a_model_without_logits_of_all_words_is_refused():
    network = model("rnnsearch")
    network.decoder.adaptive_softmax = torch.nn.Module()
    with pytest.raises(UserError, match="a.pt: the model has an adaptive softmax"), source_embeddings(network, "a.pt"):
        pass


def test_recurrent_layers_of_cudnn_are_not_asked_for_gradients():
    """cuDNN computes their gradients in training only."""
    with source_embeddings(model("rnnsearch"), "a.pt"):
        assert not torch.backends.cudnn.enabled
