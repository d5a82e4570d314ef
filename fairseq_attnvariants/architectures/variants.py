"""The architectures as data: each is a difference from another one, at its paper's sizes.

A value may be a function of the configuration, so that widths which a paper derives from other widths follow them.
:class:`~.options.AttentionRNNConfig` explains the options, and :mod:`.nn` has the equations.
"""

import dataclasses
import sys
from typing import Any, NamedTuple

from fairseq.criterions import CRITERION_REGISTRY

from ..registry import ConfigurationError, Registry, nearest
from .options import (
    AttentionRNNConfig,
    annotation_width,
    custom_options,
    described,
    embedding_width,
    flag,
    hidden_width,
    linear_width,
    mistaken,
    state_and_annotation_width,
)
from .part_args import merged_part_args, parsed, part_args_over

BASE = "rnnsearch"  # the architecture if none is given

DROPOUT_PLACES = ("encoder_dropout_in", "encoder_dropout_out", "decoder_dropout_in", "decoder_dropout_out")


class Variant(NamedTuple):
    """A named architecture."""

    paper: str
    base: str | None
    delta: dict[str, Any]
    origin: str = __name__
    """the module that registered the architecture, and that may register it again"""
    criterion: str = ""
    """the default criterion; if empty, the base's"""


VARIANTS: Registry[Variant] = Registry("architecture")
VARIANTS.taken = frozenset(["none"])


def register_architecture(name: str, base: str, paper: str = "", criterion: str = "", **delta: Any) -> None:
    """Register an architecture, for ``--arch NAME`` and hydra's ``model._name=NAME``.

    Args:
        base: the architecture from which this one differs.
        paper: the paper that describes the architecture.
        criterion: the default of ``--criterion``; if empty, the base's.
        delta: options that differ from the base, each a value or a function of the configuration; ``part_args`` is a
            dictionary of the components' options that differ.  Options of a training or a search, such as ``compile``
            or ``search_dtype``, are not allowed: they belong on the command line.

    Raises:
        ConfigurationError: the name is taken; the base, option or component does not exist; the option does not
            belong to an architecture; or its value has another type.
    """
    known, ancestor = [*settings(base), "part_args"], base
    while ancestor and ancestor != name:
        ancestor = VARIANTS[ancestor].base or ""
    if ancestor:
        raise ConfigurationError(f"architecture {name!r} cannot differ from itself: give another base")
    elsewhere = {one.name for one in dataclasses.fields(AttentionRNNConfig)}.difference(known, ["_name"])
    for option in delta:
        if option == "dropout":
            raise ConfigurationError(
                f"architecture {name!r}: 'dropout' is the command's: an architecture sets {', '.join(DROPOUT_PLACES)}"
            )
        if option in elsewhere:
            raise ConfigurationError(
                f"architecture {name!r}: {option!r} belongs to training or search, not to an architecture: give "
                f"{flag(option)} to the command, or set it in the configuration"
            )
        if option not in known:
            raise ConfigurationError(f"architecture {name!r}: no option {option!r}{nearest(option, known)} to set")
        if not callable(delta[option]) and mistaken(option, delta[option]):
            raise ConfigurationError(f"architecture {name!r}: {option!r} cannot be {delta[option]!r}, of another type")
    parts = {part for table in described("names").values() for part, kind in table.items() if custom_options(kind)}
    for part in parsed(delta.get("part_args")):
        if part not in parts:
            raise ConfigurationError(
                f"architecture {name!r}: part_args names {part!r}{nearest(part, parts)}, and no component "
                "with options is registered under this name"
            )
    if not isinstance(criterion, str):
        raise ConfigurationError(f"architecture {name!r}: criterion must be the name of a criterion, not {criterion!r}")
    VARIANTS.register(name)(Variant(paper, base, delta, sys._getframe(1).f_globals["__name__"], criterion))


def settings(name: str) -> dict[str, Any]:
    """All options of an architecture, with those of its bases.

    Raises:
        UnknownName: there is no such architecture.
    """
    variant = VARIANTS.pick(name)
    inherited = {} if variant.base is None else settings(variant.base)
    parts = merged_part_args(inherited.get("part_args"), variant.delta.get("part_args"))
    return {**inherited, **variant.delta, **({"part_args": parts} if parts else {})}


def default_criterion(name: str | None) -> str:
    """The name of an architecture's default criterion; empty if neither it nor its bases have one.

    Raises:
        ConfigurationError: no criterion of this name is registered.
    """
    variant = VARIANTS.get(str(name))
    if variant is None:
        return ""
    criterion = variant.criterion
    if criterion and criterion not in CRITERION_REGISTRY:
        raise ConfigurationError(
            f"architecture {name!r} is trained by the criterion {criterion!r}{nearest(criterion, CRITERION_REGISTRY)}, "
            "and no criterion of this name is registered: correct it in register_architecture, or give --criterion"
        )
    return criterion or default_criterion(variant.base)


def fill(cfg, name: str) -> None:
    """Give every option of ``cfg`` that is still None the architecture's value.

    Filling a complete configuration changes nothing.

    Args:
        cfg: an ``argparse.Namespace`` or a ``DictConfig``; changed in place.
        name: a key of :data:`VARIANTS`.
    """
    everywhere = getattr(cfg, "dropout", None)
    values = settings(name)
    of_parts = values.pop("part_args", None)
    # derived options come after the others
    for option, value in sorted(values.items(), key=lambda setting: callable(setting[1])):
        if getattr(cfg, option, None) is None:
            if option in DROPOUT_PLACES and everywhere is not None:
                value = everywhere
            setattr(cfg, option, value(cfg) if callable(value) else value)
    if of_parts:
        cfg.part_args = part_args_over(cfg, of_parts, getattr(cfg, "part_args", None))


VARIANTS.register("rnnsearch")(
    Variant("Feng et al. 2016, section 3; Bahdanau et al. 2015", None, described("rnnsearch"))
)
register_architecture("inputfeed", base="rnnsearch", paper="Feng et al. 2016, section 6.1", input_feed=True)
register_architecture(
    "hybridatt1", base="rnnsearch", paper="Feng et al. 2016, section 6.2", attention_history="distance"
)
register_architecture(
    "hybridatt2", base="rnnsearch", paper="Feng et al. 2016, section 6.3", attention_history="convolution"
)
register_architecture("recatt", base="rnnsearch", paper="Feng et al. 2016, section 4.1", attention_history="context")
register_architecture("rnnatt", base="rnnsearch", paper="Feng et al. 2016, section 4.2", attention_history="state")
register_architecture("coverage", base="rnnsearch", paper="See et al. 2017, section 2.3", attention_history="coverage")
register_architecture(
    "fertility", base="rnnsearch", paper="Tu et al. 2016, linguistic coverage", attention_history="fertility"
)
register_architecture(
    "coverage_gru", base="rnnsearch", paper="Tu et al. 2016, neural coverage", attention_history="coverage_gru"
)
# the paper does not give the decoder's initial state; for its code and the differences see docs/papers/comparisons.md
register_architecture(
    "pointer_generator",
    base="coverage",
    paper="See et al. 2017, section 2",
    copying=True,
    encoder_embed_dim=128,
    encoder_hidden_size=256,
    encoder_cell="lstm",
    decoder_embed_dim=128,
    decoder_hidden_size=256,
    decoder_cell="lstm",
    decoder_transition="late",
    decoder_out_embed_dim=linear_width,
    attention_dim=annotation_width,
    input_feed=True,
    readout="linear",
    init="uniform",
    decoder_dropout_out=0.0,
)
register_architecture("conddec", base="rnnsearch", paper="Feng et al. 2016, section 5", decoder_condition=True)
register_architecture(
    "conddec_recatt", base="conddec", paper="Feng et al. 2016, section 8.1", attention_history="context"
)
register_architecture(
    "conddec_rnnatt", base="conddec", paper="Feng et al. 2016, section 8.1", attention_history="state"
)
register_architecture(
    "dl4mt",
    base="rnnsearch",
    paper="Li et al. 2018, section 2 (baseNMT)",
    decoder_transition="conditional",
    initial_state="mean",
    readout="tanh",
    decoder_out_embed_dim=embedding_width,
    attention_dim=annotation_width,
)
register_architecture(
    "adaptive_gru",
    base="dl4mt",
    paper="Li et al. 2018, section 3.2",
    encoder_cell="adaptive_gru",
    decoder_cell="adaptive_gru",
)
register_architecture("adaptive_output", base="dl4mt", paper="Li et al. 2018, section 3.3", adaptive_output=True)
register_architecture("adaptive_both", base="adaptive_gru", paper="Li et al. 2018, section 3", adaptive_output=True)
register_architecture(
    "rnnsearch_star",
    base="rnnsearch",
    paper="Kuang et al. 2018, section 3 (RNNSearch*)",
    decoder_transition="conditional",
    initial_state="mean",
)
register_architecture(
    "bridge_source", base="rnnsearch_star", paper="Kuang et al. 2018, section 2.1", bridge_source=True
)
register_architecture(
    "bridge_target", base="rnnsearch_star", paper="Kuang et al. 2018, section 2.2", bridge_target=True
)
register_architecture(
    "bridge_direct", base="bridge_source", paper="Kuang et al. 2018, section 2.3", bridge_direct="hard"
)
register_architecture(
    "context_gate", base="dl4mt", paper="Tu et al. 2017", context_gate="both", attention_dim=hidden_width
)
register_architecture(
    "nematus",
    base="dl4mt",
    paper="Miceli Barone et al. 2017 (deep transitions), Sennrich et al. 2017 (Edinburgh's systems)",
    share_decoder_input_output_embed=True,
    encoder_embed_dim=512,
    encoder_hidden_size=1024,
    encoder_transition_depth=4,
    decoder_embed_dim=512,
    decoder_hidden_size=1024,
    decoder_transition_depth=8,
    layer_norm="all",
    decoder_dropout_out=0.0,
)
# the paper does not give the decoder's initial state, and its top layer is the readout
register_architecture(
    "gnmt",
    base="rnnsearch",
    paper="Wu et al. 2016, section 3",
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
)
# from its code, not from a paper; for the differences see docs/papers/comparisons.md
register_architecture(
    "gnmt_v2",
    base="gnmt",
    paper="NVIDIA's GNMT v2 (DeepLearningExamples)",
    encoder_layers=4,
    decoder_layers=4,
    decoder_transition="late",
    attention_score="additive_normed",
    initial_state="zero",
    readout="state",
    encoder_dropout_in=0.2,
    decoder_dropout_in=0.2,
)
register_architecture(
    "ava",
    base="rnnsearch",
    paper="Zhao and Zhang 2018, section 3 (shallow, compared with RNNsearch)",
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
    init="uniform",
    gate_bias=1.0,
    decoder_dropout_out=0.0,
)
register_architecture(
    "ava_encs",
    base="ava",
    paper="Zhao and Zhang 2018, section 4 (shallow, English-Czech)",
    encoder_cell="lstm",
    decoder_cell="lstm",
    encoder_layers=2,
    attention_dim=1024,
    attention_via_dim=256,
)
register_architecture(
    "ava_deep",
    base="ava",
    paper="Zhao and Zhang 2018, section 4 (deep)",
    encoder_cell="lstm",
    decoder_cell="lstm",
    encoder_layers=4,
    decoder_layers=2,
)
# on characters; for the differences from the authors' code see docs/strings.md
register_architecture(
    "hard_attention",
    base="rnnsearch",
    paper="Wu, Shapiro and Cotterell 2018",
    encoder_cell="lstm",
    encoder_layers=2,
    encoder_embed_dim=200,
    encoder_hidden_size=400,
    decoder_cell="lstm",
    decoder_transition="late",  # the state has read y_{i-1}, and no context
    decoder_embed_dim=200,
    decoder_hidden_size=400,
    decoder_out_embed_dim=state_and_annotation_width,
    attention_score="bilinear",
    readout="hard_attention",
    init="uniform",
    encoder_dropout_in=0.4,
    encoder_dropout_out=0.4,
    decoder_dropout_in=0.4,
    decoder_dropout_out=0.0,
)
register_architecture(
    "hard_monotone",
    base="hard_attention",
    paper="Wu and Cotterell 2019, first order",
    attention_score="level",
    readout="hard_monotone",
)
# the baselines on characters of Zhao and Zhang 2018 (table 3)
register_architecture(
    "character",
    base="rnnsearch",
    paper="Luong and Manning 2016 (purely character-based)",
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
)
register_architecture(
    "char2char",
    base="dl4mt",
    paper="Lee et al. 2017 (characters to characters)",
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
)
register_architecture(
    "bpe2char",
    base="char2char",
    paper="Chung et al. 2016 (subwords to characters, the base decoder)",
    encoder_type="bidirectional",
    encoder_embed_dim=512,
)
