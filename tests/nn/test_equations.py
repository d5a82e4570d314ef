"""Every architecture equals the loop-level reference, in float64."""

import pytest
import torch
from conftest import batch, build
from reference import logits

from fairseq_attnvariants.architectures.variants import VARIANTS

NARROW = dict(attention_window_width=1)
CASES = [(name, {}) for name in VARIANTS] + [
    ("dl4mt", dict(attention_history="context+distance+convolution")),
    ("dl4mt", dict(attention_history="state", decoder_condition=True, input_feed=True)),
    ("rnnsearch", dict(attention_history="state+context+convolution", attention_filter_width=3)),
    ("rnnsearch_star", dict(decoder_condition=True, attention_history="distance")),
    ("rnnsearch", dict(decoder_cell="lstm", input_feed=True)),
    ("dl4mt", dict(decoder_cell="lstm", attention_history="state")),
    ("rnnsearch", dict(adaptive_output=True, encoder_cell="adaptive_gru")),
    ("conddec_rnnatt", dict(decoder_cell="adaptive_gru")),
    ("rnnsearch", dict(bridge_source=True, bridge_target=True, decoder_condition=True)),
    ("recatt", dict(bridge_direct="soft", bridge_direct_alone=True)),
    ("ava", dict(attention_via_words_alone=True, attention_history="context+convolution")),
    ("ava", dict(attention_via_unguided=True, encoder_char_cell="gru", decoder_layers=2)),
    ("ava", dict(attention_history="context+distance+state", adaptive_output=True, decoder_cell="adaptive_gru")),
    ("dl4mt", dict(attention_via=True, encoder_layers=3)),
    ("conddec", dict(attention_via=True, encoder_layers=2, bridge_source=True)),
    ("rnnsearch", dict(decoder_transition="late", encoder_layers=2)),
    ("dl4mt", dict(adaptive_output=True, adaptive_output_swapped=True)),
    ("dl4mt", dict(layer_norm="all", attention_history="state")),
    ("rnnsearch", dict(layer_norm="all", input_feed=True, encoder_layers=2, decoder_cell="lstm", encoder_cell="lstm")),
    ("adaptive_both", dict(layer_norm="all")),
    ("ava", dict(layer_norm="all", decoder_layers=2, encoder_char_cell="gru")),
    ("conddec", dict(layer_norm="encoder")),
    ("rnnsearch", dict(encoder_transition_depth=3, decoder_transition_depth=2, encoder_layers=2)),
    ("dl4mt", dict(encoder_transition_depth=2, decoder_transition_depth=4, layer_norm="all", context_gate="both")),
    ("adaptive_both", dict(encoder_transition_depth=2, decoder_transition_depth=3)),
    ("adaptive_gru", dict(adaptive_gru_released=True)),
    ("adaptive_both", dict(adaptive_gru_released=True, decoder_transition_depth=3, bridge_target=True)),
    ("dl4mt", dict(encoder_transition_depth=2, decoder_transition_depth=3, encoder_cell="lstm", decoder_cell="lstm")),
    ("ava_deep", dict(encoder_transition_depth=2, decoder_transition_depth=2)),
    ("ava", dict(decoder_transition_depth=2)),
    ("rnnsearch", dict(residuals=2, encoder_layers=3, decoder_layers=3)),
    ("dl4mt", dict(decoder_layers=3, context_to_layers=True, decoder_cell="lstm", encoder_transition_depth=2)),
    ("conddec", dict(encoder_layers=3, encoder_bidirectional_layers=1, residuals=3, decoder_layers=3)),
    ("adaptive_both", dict(encoder_layers=3, encoder_bidirectional_layers=2, decoder_layers=2, layer_norm="all")),
    ("dl4mt", dict(attention_via=True, encoder_layers=3, encoder_bidirectional_layers=1, residuals=3)),
    ("dl4mt", dict(attention_via=True, encoder_layers=3, residuals=2, bridge_source=True)),
    ("ava_deep", dict(residuals=2, encoder_bidirectional_layers=0, attention_history="state")),
    ("ava", dict(encoder_layers=2, encoder_bidirectional_layers=1, initial_state="first")),
    ("rnnsearch", dict(context_gate="source", layer_norm="all")),
    ("rnnsearch", dict(context_gate="target", decoder_cell="adaptive_gru", bridge_target=True)),
    ("rnnsearch", dict(context_gate="both", layer_norm="all", input_feed=True)),
    ("dl4mt", dict(context_gate="source", decoder_cell="adaptive_gru")),
    ("dl4mt", dict(context_gate="target", layer_norm="all", bridge_target=True)),
    ("conddec", dict(context_gate="both", attention_history="state", decoder_layers=1)),
    ("dl4mt", dict(context_gate="both", decoder_cell="adaptive_gru", layer_norm="all")),
    ("dl4mt", dict(attention_history="coverage+fertility+coverage_gru+convolution", decoder_cell="lstm")),
    ("ava", dict(attention_history="coverage+coverage_gru+distance", decoder_layers=2, attention_coverage_dim=3)),
    ("bridge_source", dict(attention_history="fertility+coverage_gru+state", decoder_layers=2)),
    ("rnnsearch", dict(encoder_type="convolutional", attention_history="context+distance+convolution")),
    ("dl4mt", dict(encoder_type="convolutional", encoder_layers=2, encoder_pooling=2, encoder_filters="0-3")),
    ("dl4mt", dict(attention_score="scaled", attention_history="context+distance+convolution+state")),
    ("rnnsearch", dict(attention_score="bilinear", attention_history="context+coverage+fertility", layer_norm="all")),
    ("rnnsearch", dict(attention_score="dot", decoder_hidden_size=16, attention_history="distance+state")),
    ("recatt", dict(attention_score="dot", decoder_hidden_size=16)),
    ("dl4mt", dict(attention_score="dot", decoder_hidden_size=16, attention_history="coverage+convolution+fertility")),
    ("ava", dict(attention_score="scaled", attention_normalizer="sparsemax", attention_window="monotone", **NARROW)),
    ("ava", dict(attention_score="multihead", attention_heads=3, attention_temperature=0.5, layer_norm="all")),
    ("dl4mt", dict(attention_score="multihead", attention_heads=4, attention_history="context+distance+coverage_gru")),
    ("dl4mt", dict(attention_score="multihead", attention_heads=2, attention_window="predictive", **NARROW)),
    ("rnnsearch", dict(attention_normalizer="entmax", attention_temperature=0.3, attention_history="distance")),
    ("rnnsearch", dict(attention_normalizer="sparsemax", attention_window="predictive", **NARROW)),
    ("rnnsearch", dict(attention_window="monotone", **NARROW)),
    ("dl4mt", dict(encoder_type="convolutional", encoder_layers=2, attention_via=True, attention_reads_target=True)),
    ("char2char", dict(encoder_type="bidirectional", decoder_layers=3, decoder_cell="lstm", input_feed=True)),
    ("char2char", dict(layer_norm="all", attention_history="state+distance+coverage", adaptive_output=True)),
    ("char2char", dict(encoder_type="bidirectional", context_gate="both", decoder_layers=2, bridge_target=True)),
    (
        "char2char",
        dict(
            decoder_layers=1,
            initial_state="first",
            initial_state_per_layer=False,
            context_to_layers=False,
            readout_all_layers=False,
        ),
    ),
    ("char2char", dict(attention_score="multihead", attention_heads=4, attention_window="predictive")),
    ("char2char", dict(attention_score="dot", encoder_hidden_size=6, decoder_hidden_size=12)),
    ("char2char", dict(decoder_layers=3, residuals=2, context_to_layers=False, attention_history="coverage_gru")),
    ("rnnsearch", dict(decoder_layers=3, initial_state_per_layer=True, decoder_cell="lstm")),
    ("ava_deep", dict(initial_state_per_layer=True, readout_all_layers=True, attention_reads_target=True)),
    ("pointer_generator", dict(attention_score="multihead", attention_heads=2, attention_dim=6, decoder_layers=2)),
    ("dl4mt", dict(copying=True, attention_normalizer="sparsemax", adaptive_output=True, layer_norm="all")),
    ("bridge_direct", dict(copying=True, decoder_condition=True, attention_window="predictive", **NARROW)),
    ("ava_deep", dict(copying=True, readout_all_layers=True)),
    ("dl4mt", dict(recurrent_bias=True, zero_start=True, encoder_transition_depth=2, decoder_transition_depth=3)),
    ("rnnsearch", dict(recurrent_bias=True, encoder_layers=2, decoder_layers=2, context_gate="source")),
    ("nematus", dict(recurrent_bias=True, readout_biases=True, zero_start=True)),
    ("nematus", dict(layer_norm_joint=True, recurrent_bias=True, decoder_layers=2, context_gate="both")),
    ("dl4mt", dict(encoder_layers=3, encoder_reads="other", residuals=2)),
    ("nematus", dict(encoder_layers=3, encoder_reads="own", encoder_bidirectional_layers=2)),
    ("ava_deep", dict(encoder_layers=3, encoder_reads="other", residuals=2)),
    ("dl4mt", dict(attention_via=True, encoder_layers=3, encoder_reads="other", residuals=3)),
    ("adaptive_output", dict(readout_biases=True, share_decoder_input_output_embed=True, zero_start=True)),
    ("gnmt_v2", dict(decoder_cell="gru", attention_history="coverage+context", attention_score="scaled")),
    ("gnmt_v2", dict(decoder_layers=2, input_feed=True, initial_state="first", residuals=0, copying=True)),
    ("gnmt_v2", dict(attention_window="monotone", attention_reads_target=True, decoder_transition_depth=2, **NARROW)),
    (
        "gnmt_v2",
        dict(context_to_layers=False, readout="tanh", attention_window="predictive", layer_norm="all", **NARROW),
    ),
    ("gnmt_v2", dict(context_to_layers=False, readout="tanh", readout_all_layers=True, decoder_layers=3)),
    ("gnmt_v2", dict(attention_via=True, attention_score="additive", readout="tanh", adaptive_output=True)),
    (
        "gnmt_v2",
        dict(decoder_layers=1, context_to_layers=False, readout="tanh", attention_score="multihead", attention_heads=7),
    ),
    ("hard_attention", dict(layer_norm="all")),
    ("hard_monotone", dict(layer_norm="all", decoder_layers=2)),
]


def marks(options, left):
    """Return marks: architectures are quick, compositions with padding on the right are exhaustive."""
    if not options:
        return () if left else pytest.mark.slow
    return pytest.mark.slow if left else [pytest.mark.slow, pytest.mark.exhaustive]


PADDED = [
    pytest.param(*case, left, id=f"{case[0]}-{'+'.join(case[1])}-{side}-padded", marks=marks(case[1], left))
    for left, side in ((True, "left"), (False, "right"))
    for case in CASES
]


@pytest.mark.parametrize("name,options,left", PADDED)
def test_equals_the_reference(name, options, left):
    model = build(name, scale=0.7, **options).double().eval()
    source, lengths, previous = batch(left=left)
    output, extra = model(source, lengths, previous, with_cost_terms=True)
    for row in range(len(source)):
        real, steps = source[row].ne(1), int(previous[row].ne(1).sum())
        expected, weights, word_weights, terms = logits(model, model.cfg, source[row][real], previous[row][:steps])
        torch.testing.assert_close(output[row, :steps], expected)
        torch.testing.assert_close(extra["attn"][0][row, :steps][:, real], weights)
        assert extra["attn"][0][row][:, ~real].eq(0).all()
        assert ("word_attn" in extra) == (model.cfg.attention_via and not model.cfg.attention_via_words_alone)
        if "word_attn" in extra:
            found = extra["word_attn"][0][row, :steps]
            words = torch.arange(found.size(1)) < word_weights.size(1)  # above tokens, the tokens' columns
            words = words if str(model.cfg.encoder_type) == "hierarchical" else real
            torch.testing.assert_close(found[:, words], word_weights)
            assert found[:, ~words].eq(0).all()
        assert list(terms) == model.cost_terms
        for name, term in terms.items():
            torch.testing.assert_close(extra[name][0][row, : len(term)], term)
