"""Warm starts: what is taken from another checkpoint, and what is of another kind there."""

from argparse import Namespace

import pytest
import torch
from conftest import build
from fairseq.checkpoint_utils import load_checkpoint_to_cpu
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from omegaconf import OmegaConf

from fairseq_attnvariants.models import AttentionRNNModel
from fairseq_attnvariants.models.warm_start import PARTS

CHOICE = "hidden.weight", "hidden.bias", "target.weight", "context.weight"
HIERARCHY = dict(encoder_type="hierarchical", attention_via=True)


@pytest.mark.parametrize(
    "option,there,here,more",
    [
        ("encoder_cell", "adaptive_gru", "doubled_gru", {}),
        ("encoder_char_cell", "adaptive_gru", "doubled_gru", HIERARCHY),
        ("decoder_cell", "adaptive_gru", "doubled_gru", dict(decoder_transition="conditional", decoder_layers=2)),
        ("initial_state", "first", "linear", {}),
        ("readout", "linear", "tanh", {}),
    ],
)
def test_parts_of_another_kind_are_not_taken(runs, tmp_path, option, there, here, more):
    """Though their parameters have the same names and sizes."""
    donor, other = build("rnnsearch", **more, **{option: there}), build("rnnsearch", seed=1, **more, **{option: here})
    assert {n: p.shape for n, p in donor.named_parameters()} == {n: p.shape for n, p in other.named_parameters()}
    state = {**load_checkpoint_to_cpu(str(runs.rnnsearch / "checkpoint_last.pt")), "model": donor.state_dict()}
    path = tmp_path / "donor.pt"
    torch.save({**state, "cfg": {**OmegaConf.to_container(state["cfg"]), "model": vars(donor.cfg)}}, path)
    started = build("rnnsearch", seed=1, **more, **{option: here}, warm_start=str(path))
    strange = {name for name, _ in started.named_parameters() if name.startswith(PARTS[option])}
    assert started.warm_started.other == dict.fromkeys(strange, f"of another {option} there") and strange
    for name, parameter in started.named_parameters():
        expected = other if name in strange else donor
        assert parameter.equal(expected.get_parameter(name)), name


def test_a_warm_start_of_tied_embeddings_from_a_model_without(runs, tmp_path):
    """The embeddings are taken, and not the vocabulary layer in their place."""
    task = TranslationTask.setup_task(TranslationConfig(data=str(runs.data)))
    state = load_checkpoint_to_cpu(str(runs.rnnsearch / "checkpoint_last.pt"))
    more = {"decoder_out_embed_dim": state["cfg"]["model"]["decoder_embed_dim"]}
    untied = AttentionRNNModel.build_model(Namespace(**{**state["cfg"]["model"], **more}), task)
    path = str(tmp_path / "untied.pt")
    content = {**state, "model": untied.state_dict(), "cfg": {**OmegaConf.to_container(state["cfg"])}}
    content["cfg"]["model"] = {**state["cfg"]["model"], **more}
    torch.save(content, path)
    more.update(share_decoder_input_output_embed=True, warm_start=path)
    tied = AttentionRNNModel.build_model(Namespace(**{**state["cfg"]["model"], **more}), task)
    assert torch.equal(tied.decoder.embed_tokens.weight, untied.decoder.embed_tokens.weight)
    assert tied.warm_started.other == {"decoder.output_projection.weight": "tied to decoder.embed_tokens.weight here"}


def test_a_donor_that_chose_its_number_type_has_nothing_more(runs, tmp_path):
    state = load_checkpoint_to_cpu(str(runs.rnnsearch / "checkpoint_last.pt"))
    donor = build("rnnsearch", compute_dtype="auto")
    config = {**OmegaConf.to_container(state["cfg"]), "model": vars(donor.cfg)}
    torch.save({**state, "model": donor.state_dict(), "cfg": config}, tmp_path / "donor.pt")
    started = build("rnnsearch", seed=1, warm_start=str(tmp_path / "donor.pt"))
    assert not started.warm_started.left and not started.warm_started.other


def test_a_warm_start_goes_both_ways(runs, tmp_path):
    """From a model that does not copy, as See et al. compare, and back."""
    task, path, built = TranslationTask.setup_task(TranslationConfig(data=str(runs.data))), runs.rnnsearch, []
    for copy in (True, False):
        state = load_checkpoint_to_cpu(str(path / "checkpoint_last.pt"))
        cfg = Namespace(**{**state["cfg"]["model"], "warm_start": str(path / "checkpoint_last.pt"), "copying": copy})
        built.append(AttentionRNNModel.build_model(cfg, task))
        path = tmp_path
        state = {**state, "model": built[-1].state_dict(), "cfg": {**OmegaConf.to_container(state["cfg"])}}
        state["cfg"]["model"] = vars(cfg)
        torch.save(state, path / "checkpoint_last.pt")
    first, last = built
    assert [*first.warm_started.other] == [f"decoder.network.readout.{name}" for name in CHOICE] and first.cfg.copying
    assert not last.warm_started.other and not last.cfg.copying
    expected = load_checkpoint_to_cpu(str(runs.rnnsearch / "checkpoint_last.pt"))["model"]
    for name, value in last.state_dict().items():
        torch.testing.assert_close(value, expected[name], rtol=0, atol=0)
