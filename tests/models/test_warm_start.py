"""Warm starts: which parameters are taken from another checkpoint, and which belong to parts of another kind."""

from argparse import Namespace

import pytest
import torch
from conftest import batch, build
from fairseq.checkpoint_utils import load_checkpoint_to_cpu
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from omegaconf import OmegaConf

from fairseq_attnvariants.models import AttentionRNNModel, attention_rnn
from fairseq_attnvariants.models.warm_start import MEANINGS
from fairseq_attnvariants.nn.cells import CELLS, AdaptiveGRUCell
from fairseq_attnvariants.registry import ConfigurationError
from fairseq_attnvariants_cli.systems.model import load

CHOICE = "hidden.weight", "hidden.bias", "target.weight", "context.weight"
HIERARCHY = dict(encoder_type="hierarchical", attention_via=True)


def saved(model, runs, path):
    """Write a checkpoint of a model, with all else from a training; return its path."""
    state = load_checkpoint_to_cpu(str(runs.rnnsearch / "checkpoint_last.pt"))
    config = {**OmegaConf.to_container(state["cfg"]), "model": vars(model.cfg)}
    torch.save({**state, "model": model.state_dict(), "cfg": config}, path)
    return str(path)


@pytest.mark.parametrize("option,there,here,more", [
    ("encoder_cell", "adaptive_gru", "other_gru", {}),
    ("encoder_char_cell", "adaptive_gru", "other_gru", HIERARCHY),
    ("encoder_reads", "own", "other", dict(encoder_layers=2)),
    ("decoder_cell", "adaptive_gru", "other_gru", dict(decoder_transition="conditional", decoder_layers=2)),
    ("context_gate", "source", "target", dict(decoder_transition="conditional")),
    ("initial_state", "first", "linear", {}),
    ("readout", "linear", "tanh", {}),
    ("adaptive_output_swapped", True, False, dict(adaptive_output=True)),
    ("adaptive_output_swapped", True, False, dict(adaptive_output=True, copying=True)),
    ("attention_heads", 2, 4, dict(attention_score="multihead", attention_dim=8)),
])  # fmt: skip
def test_parts_of_another_kind_are_not_taken(runs, tmp_path, option, there, here, more, monkeypatch):
    """Warm start leaves them out, even if their parameters have the same names and sizes."""
    monkeypatch.setitem(CELLS.entries, "other_gru", type("Other", (AdaptiveGRUCell,), {}))
    donor, other = build("rnnsearch", **more, **{option: there}), build("rnnsearch", seed=1, **more, **{option: here})
    assert {n: p.shape for n, p in donor.named_parameters()} == {n: p.shape for n, p in other.named_parameters()}
    path = saved(donor, runs, tmp_path / "donor.pt")
    started = build("rnnsearch", seed=1, **more, **{option: here}, warm_start=path)
    [prefixes] = [one.prefixes for one in MEANINGS if one.option == option]
    strange = {name for name, _ in started.named_parameters() if name.startswith(prefixes)}
    assert started.warm_started.other == dict.fromkeys(strange, f"of another {option} there") and strange
    for name, parameter in started.named_parameters():
        expected = other if name in strange else donor
        assert parameter.equal(expected.get_parameter(name)), name


@pytest.mark.parametrize("option,there,here,more,strange", [
    ("layer_norm", "none", "encoder", HIERARCHY, ["encoder.network."]),
    ("layer_norm", "all", "encoder", {}, ["transition.after.", "transition.attention.", ".initial.", "readout."]),
    (*("layer_norm", "all", "encoder", dict(decoder_layers=2, attention_history="state")),
        ["transition.after.", "transition.attention.", "network.above.", "transition.query_cell."]),
    ("layer_norm_joint", False, True, dict(layer_norm="all"), ["encoder.network.", "transition.after."]),
    (*("layer_norm_joint", False, True, dict(layer_norm="all", decoder_layers=2)),
        ["encoder.network.", "transition.after.", "network.above."]),
    ("encoder_bidirectional_layers", 0, 1, dict(encoder_layers=2), [".initial."]),
    ("attention_history", "none", "state", {}, ["transition.attention."]),
    ("decoder_transition", "simple", "stacked", dict(decoder_layers=2), ["transition.attention."]),
])  # fmt: skip
def test_parameters_that_read_something_else_are_not_taken(runs, tmp_path, option, there, here, more, strange):
    """Warm start leaves them out, even if they have the same sizes."""
    path = saved(build("rnnsearch", **more, **{option: there}), runs, tmp_path / "donor.pt")
    started = build("rnnsearch", seed=1, **more, **{option: here}, warm_start=path)
    found = {name for name, why in started.warm_started.other.items() if why == f"of another {option} there"}
    names = {name for name, _ in started.named_parameters()}
    expected = {name for name in names if any(part in name for part in strange)}
    assert expected <= found and not any("embed_tokens" in name for name in found)
    other = build("rnnsearch", seed=1, **more, **{option: here})
    assert all(started.get_parameter(name).equal(other.get_parameter(name)) for name in found)


def test_a_buffer_that_nothing_writes_may_be_anything(runs, tmp_path):
    path = saved(build("rnnsearch"), runs, tmp_path / "donor.pt")
    state = torch.load(path, weights_only=False)
    state["model"]["encoder.embed_positions._float_tensor"] = torch.tensor([float("nan")])
    torch.save(state, path)
    assert build("rnnsearch", warm_start=path).warm_started.taken
    state["model"]["decoder.output_projection.bias"][0] = float("nan")
    torch.save(state, path)
    assert "output_projection.bias holds NaN or infinity" in build("rnnsearch", warm_start=path).refusal


def test_a_matrix_grows_by_the_embedding_of_a_bridge_alone(runs, tmp_path):
    """The matrix does not grow if both models have the bridge, and the annotations are wider by the same number."""
    path = saved(build("rnnsearch", bridge_source=True), runs, tmp_path / "donor.pt")
    started = build("rnnsearch", bridge_source=True, encoder_hidden_size=11, warm_start=path).warm_started
    assert started.taken and not started.grown
    path = saved(build("rnnsearch"), runs, tmp_path / "donor.pt")
    assert build("rnnsearch", bridge_source=True, warm_start=path).warm_started.grown


@pytest.mark.parametrize("option,there,here,more,names", [
    ("attention_score", "additive", "scaled", {}, {"query.weight", "key.weight"}),
    ("adaptive_gru_released", True, False, dict(decoder_cell="adaptive_gru", decoder_transition="conditional"),
     {"context.weight", "recurrent.weight"}),
])  # fmt: skip
def test_matrices_of_another_equation_are_not_taken(runs, tmp_path, option, there, here, more, names):
    """The matrices are factors in a dot product, and terms in the additive score; the released cell scales no bias."""
    path = saved(build("rnnsearch", **more, **{option: there}), runs, tmp_path / "donor.pt")
    started = build("rnnsearch", seed=1, **more, **{option: here}, warm_start=path).warm_started
    assert set(started.other.values()) == {f"of another {option} there"} and started.left
    assert all(any(name.endswith(f".{end}") for name in started.other) for end in names)


@pytest.mark.parametrize("side,language", [("encoder", "source"), ("decoder", "target")])
def test_a_donor_of_other_dictionaries_is_refused(runs, tmp_path, side, language):
    donor = build("rnnsearch")
    getattr(donor, side).dictionary_version.add_(1)
    path = saved(donor, runs, tmp_path / "donor.pt")
    model = build("rnnsearch", warm_start=path).train()
    with pytest.raises(ConfigurationError, match=f"--warm-start .* was trained with another {language} dictionary"):
        model(*batch())


def test_a_warm_start_of_tied_embeddings_from_a_model_without(runs, tmp_path):
    """The embeddings are taken, and not the vocabulary layer instead of them."""
    task = TranslationTask.setup_task(TranslationConfig(data=str(runs.data)))
    state = load_checkpoint_to_cpu(str(runs.rnnsearch / "checkpoint_last.pt"))
    more = {"decoder_out_embed_dim": state["cfg"]["model"]["decoder_embed_dim"]}
    untied = AttentionRNNModel.build_model(Namespace(**{**state["cfg"]["model"], **more}), task)
    more.update(share_decoder_input_output_embed=True, warm_start=saved(untied, runs, tmp_path / "untied.pt"))
    tied = AttentionRNNModel.build_model(Namespace(**{**state["cfg"]["model"], **more}), task)
    assert torch.equal(tied.decoder.embed_tokens.weight, untied.decoder.embed_tokens.weight)
    assert tied.warm_started.other == {"decoder.output_projection.weight": "tied to decoder.embed_tokens.weight here"}


def test_subcommands_do_not_read_the_donor(runs, tmp_path, monkeypatch):
    task = TranslationTask.setup_task(TranslationConfig(data=str(runs.data)))
    donor = str(runs.rnnsearch / "checkpoint_last.pt")
    cfg = Namespace(**{**load_checkpoint_to_cpu(donor)["cfg"]["model"], "warm_start": donor})
    path, read = saved(AttentionRNNModel.build_model(cfg, task), runs, tmp_path / "started.pt"), []
    monkeypatch.setattr(attention_rnn, "warm_start", lambda model, path: read.append(path))
    load(path, str(runs.data), cpu=True)
    assert not read


def test_a_donor_that_chose_its_number_type_has_nothing_more(runs, tmp_path):
    donor = build("rnnsearch", compute_dtype="auto")
    started = build("rnnsearch", seed=1, warm_start=saved(donor, runs, tmp_path / "donor.pt"))
    assert not started.warm_started.left and not started.warm_started.other


def test_a_warm_start_goes_both_ways(runs, tmp_path):
    """A warm start goes from a model that does not copy to one that does, as in See et al., and back."""
    task, path, built = TranslationTask.setup_task(TranslationConfig(data=str(runs.data))), runs.rnnsearch, []
    for copy in (True, False):
        state = load_checkpoint_to_cpu(str(path / "checkpoint_last.pt"))
        cfg = Namespace(**{**state["cfg"]["model"], "warm_start": str(path / "checkpoint_last.pt"), "copying": copy})
        built.append(AttentionRNNModel.build_model(cfg, task))
        path = tmp_path
        saved(built[-1], runs, path / "checkpoint_last.pt")
    first, last = built
    assert [*first.warm_started.other] == [f"decoder.network.readout.{name}" for name in CHOICE] and first.cfg.copying
    assert not last.warm_started.other and not last.cfg.copying
    expected = load_checkpoint_to_cpu(str(runs.rnnsearch / "checkpoint_last.pt"))["model"]
    for name, value in last.state_dict().items():
        torch.testing.assert_close(value, expected[name], rtol=0, atol=0)


STACKED = dict(decoder_transition="conditional", decoder_layers=2)


@pytest.mark.parametrize("option,there,here,more,parts", [
    ("decoder_cell", "adaptive_gru", "other_gru", STACKED,
     ["transition.before.", "transition.after.", "network.above."]),
    ("context_gate", "source", "target", STACKED, ["transition.before.", "transition.after."]),
    ("readout", "linear", "tanh", {}, ["network.readout.", "decoder.output_projection."]),
])  # fmt: skip
def test_all_of_a_part_is_of_another_kind(runs, tmp_path, option, there, here, more, parts, monkeypatch):
    monkeypatch.setitem(CELLS.entries, "other_gru", type("Other", (AdaptiveGRUCell,), {}))
    path = saved(build("rnnsearch", **more, **{option: there}), runs, tmp_path / "donor.pt")
    started = build("rnnsearch", seed=1, **more, **{option: here}, warm_start=path)
    expected = {name for name, _ in started.named_parameters() if any(part in name for part in parts)}
    assert {*started.warm_started.other} == expected
    assert all(any(part in name for name in expected) for part in parts)


def test_a_matrix_that_grows_begins_with_what_was_taken(runs, tmp_path):
    """Annotations end with the embedding, whose columns are new."""
    donor, new = build("rnnsearch"), build("rnnsearch", seed=1, bridge_source=True)
    path = saved(donor, runs, tmp_path / "donor.pt")
    started = build("rnnsearch", seed=1, bridge_source=True, warm_start=path)
    assert started.warm_started.grown
    for name in started.warm_started.grown:
        former, value = donor.get_parameter(name), started.get_parameter(name)
        width = former.size(1)
        assert value[:, :width].equal(former) and value[:, width:].equal(new.get_parameter(name)[:, width:])


def test_a_donor_of_an_older_version_is_taken_whole(runs, tmp_path):
    """An old model's parameters have other names, and its configuration lacks later options, which get defaults."""
    donor = build("rnnsearch")
    path = saved(donor, runs, tmp_path / "donor.pt")
    state = torch.load(path, weights_only=False)
    state["model"] = {name.replace(".network.", ".layers.", 1): value for name, value in state["model"].items()}
    for option in ("encoder_reads", "context_gate", "layer_norm", "initial_state"):
        del state["cfg"]["model"][option]
    torch.save(state, path)
    started = build("rnnsearch", seed=1, warm_start=path)
    assert started.warm_started.taken and not (started.warm_started.other or started.warm_started.left)
    assert all(value.equal(donor.get_parameter(name)) for name, value in started.named_parameters())


def test_tied_embeddings_are_taken_from_tied_ones(runs, tmp_path):
    tied = dict(share_decoder_input_output_embed=True)
    path = saved(build("dl4mt", **tied), runs, tmp_path / "donor.pt")
    assert not build("dl4mt", seed=1, **tied, warm_start=path).warm_started.other
