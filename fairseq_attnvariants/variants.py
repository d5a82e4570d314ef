"""The architectures as data: each is a delta over another, at its paper's sizes.

A value may be a function of the configuration: widths that a paper derives from others follow them.
To read what a part means, see :class:`~.options.AttentionRNNConfig`; for the equations, :mod:`.nn`.
"""

from typing import Any, Dict, NamedTuple, Optional

HISTORIES = ("context", "state", "distance", "convolution", "coverage", "fertility", "coverage_gru")


class Variant(NamedTuple):
    """A named architecture."""

    paper: str
    base: Optional[str]
    delta: Dict[str, Any]


def hidden_width(cfg) -> int:
    """The decoder's hidden width."""
    return cfg.decoder_hidden_size


def annotation_width(cfg) -> int:
    """The width of ``[→s; ←s]``."""
    return 2 * cfg.encoder_hidden_size


def least_depth(cfg) -> int:
    """The cells of a decoder step that is not deep."""
    return 2 if str(cfg.decoder_transition) == "conditional" else 1


def maxout_width(cfg) -> int:
    """Half the decoder's hidden width, or the embedding's where they are tied."""
    return cfg.decoder_embed_dim if _tied(cfg) else max(1, cfg.decoder_hidden_size // 2)


def relu_width(cfg) -> int:
    """512 (Zhao and Zhang), or the embedding's where they are tied."""
    return cfg.decoder_embed_dim if _tied(cfg) else 512


def embedding_width(cfg) -> int:
    """The target embedding's width."""
    return cfg.decoder_embed_dim


def _tied(cfg) -> bool:
    # on the command line, an option that was not given is not there at all
    return any(getattr(cfg, name, False) for name in ("share_decoder_input_output_embed", "share_all_embeddings"))


VARIANTS: Dict[str, Variant] = {
    "rnnsearch": Variant(
        "Feng et al. 2016, section 3; Bahdanau et al. 2015",
        None,
        dict(
            share_decoder_input_output_embed=False,
            encoder_embed_dim=620,
            encoder_hidden_size=1000,
            encoder_type="bidirectional",
            encoder_layers=1,
            encoder_char_cell="lstm",
            encoder_char_hidden_size=512,
            encoder_filters="200-200-250-250-300-300-300-300",
            encoder_pooling=5,
            encoder_highway_layers=4,
            encoder_cell="gru",
            decoder_embed_dim=620,
            decoder_hidden_size=1000,
            decoder_layers=1,
            decoder_cell="gru",
            decoder_transition="simple",
            residuals=0,
            encoder_bidirectional_layers=0,
            context_to_layers=False,
            encoder_transition_depth=1,
            decoder_transition_depth=least_depth,
            context_gate="none",
            initial_state="first",
            readout="maxout",
            decoder_out_embed_dim=maxout_width,
            adaptive_output=False,
            bridge_source=False,
            bridge_target=False,
            bridge_direct="none",
            attention_dim=hidden_width,
            attention_via=False,
            attention_via_dim=128,
            attention_score="additive",
            attention_heads=8,
            attention_normalizer="softmax",
            attention_temperature=1.0,
            attention_window="none",
            attention_window_width=10,
            attention_history="none",
            attention_filters=10,
            attention_filter_width=11,
            attention_coverage_dim=10,
            attention_reads_target=False,
            readout_all_layers=False,
            initial_state_per_layer=False,
            input_feed=False,
            decoder_condition=False,
            layer_norm="none",
            init="normal",
            gate_bias=0.0,
            encoder_dropout_in=0.0,
            encoder_dropout_out=0.0,
            encoder_dropout_hidden=0.0,
            decoder_dropout_in=0.0,
            decoder_dropout_out=0.5,
            decoder_dropout_hidden=0.0,
        ),
    ),
    "inputfeed": Variant("Feng et al. 2016, section 6.1", "rnnsearch", dict(input_feed=True)),
    "hybridatt1": Variant("Feng et al. 2016, section 6.2", "rnnsearch", dict(attention_history="distance")),
    "hybridatt2": Variant("Feng et al. 2016, section 6.3", "rnnsearch", dict(attention_history="convolution")),
    "recatt": Variant("Feng et al. 2016, section 4.1", "rnnsearch", dict(attention_history="context")),
    "rnnatt": Variant("Feng et al. 2016, section 4.2", "rnnsearch", dict(attention_history="state")),
    "coverage": Variant("See et al. 2017, section 2.3", "rnnsearch", dict(attention_history="coverage")),
    "fertility": Variant("Tu et al. 2016, linguistic coverage", "rnnsearch", dict(attention_history="fertility")),
    "coverage_gru": Variant("Tu et al. 2016, neural coverage", "rnnsearch", dict(attention_history="coverage_gru")),
    "conddec": Variant("Feng et al. 2016, section 5", "rnnsearch", dict(decoder_condition=True)),
    "conddec_recatt": Variant("Feng et al. 2016, section 8.1", "conddec", dict(attention_history="context")),
    "conddec_rnnatt": Variant("Feng et al. 2016, section 8.1", "conddec", dict(attention_history="state")),
    "dl4mt": Variant(
        "Li et al. 2018, section 2 (baseNMT)",
        "rnnsearch",
        dict(
            decoder_transition="conditional",
            initial_state="mean",
            readout="tanh",
            decoder_out_embed_dim=embedding_width,
            attention_dim=annotation_width,
        ),
    ),
    "adaptive_gru": Variant(
        "Li et al. 2018, section 3.2", "dl4mt", dict(encoder_cell="adaptive_gru", decoder_cell="adaptive_gru")
    ),
    "adaptive_output": Variant("Li et al. 2018, section 3.3", "dl4mt", dict(adaptive_output=True)),
    "adaptive_both": Variant("Li et al. 2018, section 3", "adaptive_gru", dict(adaptive_output=True)),
    "rnnsearch_star": Variant(
        "Kuang et al. 2018, section 3 (RNNSearch*)",
        "rnnsearch",
        dict(decoder_transition="conditional", initial_state="mean"),
    ),
    "bridge_source": Variant("Kuang et al. 2018, section 2.1", "rnnsearch_star", dict(bridge_source=True)),
    "bridge_target": Variant("Kuang et al. 2018, section 2.2", "rnnsearch_star", dict(bridge_target=True)),
    "bridge_direct": Variant("Kuang et al. 2018, section 2.3", "bridge_source", dict(bridge_direct="hard")),
    "context_gate": Variant("Tu et al. 2017", "dl4mt", dict(context_gate="both", attention_dim=hidden_width)),
    "nematus": Variant(
        "Miceli Barone et al. 2017 (deep transitions), Sennrich et al. 2017 (Edinburgh's systems)",
        "dl4mt",
        dict(
            share_decoder_input_output_embed=True,
            encoder_embed_dim=512,
            encoder_hidden_size=1024,
            encoder_transition_depth=4,
            decoder_embed_dim=512,
            decoder_hidden_size=1024,
            decoder_transition_depth=8,
            layer_norm="all",
            decoder_dropout_out=0.0,
        ),
    ),
    # the paper does not say how the decoder starts, and its top layer is the readout
    "gnmt": Variant(
        "Wu et al. 2016, section 3",
        "rnnsearch",
        dict(
            encoder_embed_dim=1024,
            encoder_hidden_size=1024,
            encoder_layers=8,
            encoder_bidirectional_layers=1,
            encoder_cell="lstm",
            decoder_embed_dim=1024,
            decoder_hidden_size=1024,
            decoder_layers=8,
            decoder_cell="lstm",
            readout="tanh",
            decoder_out_embed_dim=embedding_width,
            residuals=3,
            context_to_layers=True,
            init="uniform",
            encoder_dropout_out=0.2,
            decoder_dropout_out=0.2,
        ),
    ),
    "ava": Variant(
        "Zhao and Zhang 2018, section 3 (shallow, compared with RNNsearch)",
        "rnnsearch",
        dict(
            encoder_type="hierarchical",
            encoder_embed_dim=256,
            encoder_hidden_size=1024,
            decoder_embed_dim=256,
            decoder_hidden_size=1024,
            decoder_transition="late",
            input_feed=True,
            attention_via=True,
            attention_dim=512,
            initial_state="linear",
            readout="relu",
            decoder_out_embed_dim=relu_width,
            init="uniform",
            gate_bias=1.0,
            decoder_dropout_out=0.0,
        ),
    ),
    "ava_encs": Variant(
        "Zhao and Zhang 2018, section 4 (shallow, English-Czech)",
        "ava",
        dict(encoder_cell="lstm", decoder_cell="lstm", encoder_layers=2, attention_dim=1024, attention_via_dim=256),
    ),
    "ava_deep": Variant(
        "Zhao and Zhang 2018, section 4 (deep)",
        "ava",
        dict(encoder_cell="lstm", decoder_cell="lstm", encoder_layers=4, decoder_layers=2),
    ),
    # what Zhao and Zhang compare with on characters (table 3)
    "character": Variant(
        "Luong and Manning 2016 (purely character-based)",
        "rnnsearch",
        dict(
            encoder_embed_dim=1024,
            encoder_hidden_size=512,
            encoder_layers=4,
            encoder_cell="lstm",
            decoder_embed_dim=1024,
            decoder_hidden_size=1024,
            decoder_layers=4,
            decoder_cell="lstm",
            decoder_transition="late",
            attention_score="bilinear",
            input_feed=True,
            initial_state="linear",
            readout="tanh",
            decoder_out_embed_dim=embedding_width,
            init="uniform",
            encoder_dropout_out=0.2,
            decoder_dropout_out=0.2,
        ),
    ),
    "char2char": Variant(
        "Lee et al. 2017 (characters to characters)",
        "dl4mt",
        dict(
            encoder_type="convolutional",
            encoder_embed_dim=128,
            encoder_hidden_size=512,
            decoder_embed_dim=512,
            decoder_hidden_size=1024,
            decoder_layers=2,
            decoder_transition="stacked",
            context_to_layers=True,
            attention_reads_target=True,
            readout_all_layers=True,
            initial_state_per_layer=True,
            decoder_dropout_out=0.0,
        ),
    ),
    "bpe2char": Variant(
        "Chung et al. 2016 (subwords to characters, the base decoder)",
        "char2char",
        dict(encoder_type="bidirectional", encoder_embed_dim=512),
    ),
}

DROPOUT_PLACES = ("encoder_dropout_in", "encoder_dropout_out", "decoder_dropout_in", "decoder_dropout_out")


def settings(name: str) -> Dict[str, Any]:
    """All options of an architecture, its bases' included, in the order in which they are filled."""
    variant = VARIANTS[name]
    inherited = {} if variant.base is None else settings(variant.base)
    return {**inherited, **variant.delta}


def fill(cfg, name: str) -> None:
    """Give every option of ``cfg`` that is still None the architecture's value.

    Filling twice, or a configuration that is complete, changes nothing.

    Args:
        cfg: an ``argparse.Namespace`` or a ``DictConfig``; changed in place.
        name: a key of :data:`VARIANTS`.
    """
    everywhere = getattr(cfg, "dropout", None)
    for option, value in settings(name).items():
        if getattr(cfg, option, None) is None:
            if option in DROPOUT_PLACES and everywhere is not None:
                value = everywhere
            setattr(cfg, option, value(cfg) if callable(value) else value)
