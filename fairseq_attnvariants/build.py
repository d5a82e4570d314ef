"""From a configuration to composed parts.  Options that cannot work together are refused here, with the reason.

The configuration stops here: the parts receive widths and parts.
"""

import importlib.util
import os
import shutil
from functools import partial
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Set, Tuple, Union

import torch
from torch import nn

from .nn.attention import SCORES, AttentionViaAttention, Normaliser
from .nn.bridging import DirectBridge
from .nn.cells import CELLS, ContextGatedCell, StackedCell, deepened
from .nn.convolutional import ConvolutionalEncoder
from .nn.decoder import Decoder, InitialState, InitialStates, UpperLayers
from .nn.encoder import BidirectionalEncoder, HierarchicalEncoder
from .nn.histories import (
    ContextHistory,
    ConvolutionHistory,
    CoverageGRUHistory,
    CoverageHistory,
    DistanceHistory,
    FertilityHistory,
    History,
)
from .nn.readout import READOUTS, AdaptiveWeighting, Readout
from .nn.transition import AnyAttention, AnyCell, Condition, Transition
from .nn.windows import WINDOWS
from .variants import DROPOUT_PLACES, HISTORIES, least_depth

Encoder = Union[BidirectionalEncoder, HierarchicalEncoder, ConvolutionalEncoder]


class ConfigurationError(ValueError):
    """Options that are unknown or do not fit together; the message names them."""


def check(cfg) -> None:
    """Refuse what cannot work, by the name of the option."""
    for option in (
        "encoder_embed_dim",
        "encoder_hidden_size",
        "encoder_layers",
        "decoder_embed_dim",
        "decoder_hidden_size",
        "decoder_layers",
        "decoder_out_embed_dim",
        "attention_dim",
        "encoder_char_hidden_size",
        "encoder_pooling",
        "attention_via_dim",
        "attention_filters",
        "attention_filter_width",
        "attention_coverage_dim",
        "encoder_transition_depth",
        "attention_heads",
        "attention_window_width",
    ):
        if getattr(cfg, option) < 1:
            raise ConfigurationError(f"{_flag(option)} must be at least 1, not {getattr(cfg, option)}")
    if cfg.attention_filter_width % 2 == 0:
        raise ConfigurationError(
            f"--attention-filter-width must be odd, so that a filter has a centre, not {cfg.attention_filter_width}"
        )
    if cfg.decoder_transition_depth < least_depth(cfg):
        raise ConfigurationError(
            f"--decoder-transition-depth must be at least {least_depth(cfg)} with --decoder-transition "
            f"{cfg.decoder_transition}, which has as many cells, not {cfg.decoder_transition_depth}"
        )
    for option in ("init_std", "attention_temperature"):
        if getattr(cfg, option) <= 0:
            raise ConfigurationError(f"{_flag(option)} must be above 0, not {getattr(cfg, option)}")
    if cfg.encoder_highway_layers < 0:
        raise ConfigurationError(
            f"--encoder-highway-layers must be 0 (none) or above, not {cfg.encoder_highway_layers}"
        )
    if cfg.recompute_steps < 0:
        raise ConfigurationError(f"--recompute-steps must be 0 (off) or above, not {cfg.recompute_steps}")
    for option in (*DROPOUT_PLACES, "encoder_dropout_hidden", "decoder_dropout_hidden"):
        if not 0 <= getattr(cfg, option) < 1:
            raise ConfigurationError(f"{_flag(option)} must lie in [0, 1), not {getattr(cfg, option)}")
    tied = cfg.share_decoder_input_output_embed or cfg.share_all_embeddings
    if tied and cfg.decoder_out_embed_dim != cfg.decoder_embed_dim:
        raise ConfigurationError(
            f"tied embeddings need --decoder-out-embed-dim ({cfg.decoder_out_embed_dim}) equal to "
            f"--decoder-embed-dim ({cfg.decoder_embed_dim}); leave it out and it follows"
        )
    if cfg.share_all_embeddings and cfg.encoder_embed_dim != cfg.decoder_embed_dim:
        raise ConfigurationError(
            f"--share-all-embeddings needs --encoder-embed-dim ({cfg.encoder_embed_dim}) equal to "
            f"--decoder-embed-dim ({cfg.decoder_embed_dim})"
        )
    if cfg.share_all_embeddings and (
        (cfg.encoder_embed_path or None) != (cfg.decoder_embed_path or None)
        or cfg.encoder_freeze_embed != cfg.decoder_freeze_embed
    ):
        raise ConfigurationError(
            "--share-all-embeddings has one matrix: give both sides the same --encoder-embed-path and "
            "--decoder-embed-path, and freeze both or neither"
        )
    _check_score(cfg)
    filters(cfg)
    if cfg.decoder_condition and str(cfg.decoder_cell) == "lstm":
        raise ConfigurationError(
            "--decoder-condition adds to a GRU's state (001 section 5) and is not defined for --decoder-cell lstm; "
            "use --decoder-cell gru or adaptive_gru"
        )
    scaling = next((option for option in ("layer_norm", "context_gate") if str(getattr(cfg, option)) != "none"), None)
    for option in ("encoder_char_cell", "encoder_cell", "decoder_cell"):
        if scaling and str(getattr(cfg, option)).startswith("doubled"):
            raise ConfigurationError(
                f"{_flag(option)} {getattr(cfg, option)} is a control for how large adaptive_gru's sums are at the "
                f"start, which {_flag(scaling)} changes as well: leave one of them out"
            )
    late, hierarchical = str(cfg.decoder_transition) == "late", str(cfg.encoder_type) == "hierarchical"
    if hierarchical and not cfg.attention_via:
        raise ConfigurationError(
            "--encoder-type hierarchical has annotations of words and of characters, and only --attention-via attends "
            "to both: add it"
        )
    if cfg.attention_via and not hierarchical and cfg.encoder_layers < 2:
        raise ConfigurationError(
            "--attention-via needs two levels of annotations: --encoder-layers 2 (or more), or --encoder-type "
            "hierarchical"
        )
    if cfg.attention_via_words_alone and not (cfg.attention_via and hierarchical):
        raise ConfigurationError(
            "--attention-via-words-alone leaves characters out of --attention-via with --encoder-type hierarchical: "
            "add both (--arch ava has them), or leave it out"
        )
    if cfg.attention_via_words_alone and cfg.attention_via_unguided:
        raise ConfigurationError(
            "--attention-via-unguided changes attention to characters, of which --attention-via-words-alone has none: "
            "leave one of them out"
        )
    if cfg.attention_via_unguided and not cfg.attention_via:
        raise ConfigurationError("--attention-via-unguided changes --attention-via, which is not given: add it")
    if cfg.residuals < 0 or cfg.residuals == 1:
        raise ConfigurationError(
            "--residuals must be 0 (none), or the layer from which on there are some, 2 or above (the lowest reads "
            f"words, and its input is no state), not {cfg.residuals}"
        )
    if cfg.encoder_bidirectional_layers < 0:
        raise ConfigurationError(
            f"--encoder-bidirectional-layers must be 0 (all) or above, not {cfg.encoder_bidirectional_layers}"
        )
    if _bidirectional(cfg) < cfg.encoder_layers and 0 < cfg.residuals <= _bidirectional(cfg) + 1:
        raise ConfigurationError(
            f"--residuals {cfg.residuals} adds inputs to outputs from that layer on, and with "
            f"--encoder-bidirectional-layers {cfg.encoder_bidirectional_layers} the input of encoder layer "
            f"{_bidirectional(cfg) + 1} is twice as wide as its output; use {_bidirectional(cfg) + 2} or above"
        )
    if cfg.context_to_layers and late:
        raise ConfigurationError(
            "--context-to-layers gives the layers above the first the context that it attended to, and with "
            "--decoder-transition late attention comes after all layers; use simple, conditional or stacked"
        )
    gated = str(cfg.context_gate) != "none"
    if gated and str(cfg.decoder_cell) == "lstm":
        raise ConfigurationError(
            "--context-gate scales what a GRU reads and keeps (Tu et al. 2017) and is not defined for --decoder-cell "
            "lstm, which has a memory beside its state; use --decoder-cell gru or adaptive_gru"
        )
    if late and (cfg.decoder_condition or cfg.bridge_target or gated):
        option = "--decoder-condition" if cfg.decoder_condition else "--bridge-target"
        option = "--context-gate" if gated else option
        raise ConfigurationError(
            f"{option} changes the cell that reads the context, and with --decoder-transition late there is none after "
            "attention; use simple or conditional"
        )
    if str(cfg.decoder_transition) == "stacked" and cfg.decoder_condition:
        raise ConfigurationError(
            "--decoder-condition adds to the state of one cell, and with --decoder-transition stacked every layer has "
            "one; use simple or conditional"
        )
    if cfg.readout_all_layers and _layers_inside(cfg) < cfg.decoder_layers:
        raise ConfigurationError(
            "--readout-all-layers reads layers that step with attention, and with --decoder-transition "
            f"{cfg.decoder_transition} only the lowest one does; use late or stacked"
        )
    if str(cfg.encoder_type) != "bidirectional" and (
        cfg.bridge_source or cfg.bridge_target or str(cfg.bridge_direct) != "none"
    ):
        raise ConfigurationError(
            "--bridge-source, --bridge-target and --bridge-direct bridge the embeddings of words, and --encoder-type "
            f"{cfg.encoder_type} has embeddings of characters only; use --encoder-type bidirectional"
        )
    if str(cfg.bridge_direct) != "none" and not (cfg.bridge_source or cfg.bridge_direct_alone):
        raise ConfigurationError(
            "--bridge-direct without --bridge-source consistently worsened translation (003 section 2.3: a plain "
            "model's embeddings are too heterogeneous to be constrained); add --bridge-source, or "
            "--bridge-direct-alone to do it nevertheless"
        )
    if cfg.bridge_direct_alone and str(cfg.bridge_direct) == "none":
        raise ConfigurationError("--bridge-direct-alone allows --bridge-direct, which is not given: add it")
    if cfg.adaptive_output_swapped and not cfg.adaptive_output:
        raise ConfigurationError("--adaptive-output-swapped changes --adaptive-output, which is not given: add it")


def _check_score(cfg) -> None:
    """What a score and a normaliser need."""
    kind, hidden, source = str(cfg.attention_score), cfg.decoder_hidden_size, _widths(cfg)
    projecting = histories(cfg) - {"distance", "state"}
    if kind == "dot" and {source.lower, source.top} != {hidden}:
        raise ConfigurationError(
            f"--attention-score dot multiplies the decoder's state by annotations, so they must be equally wide, not "
            f"{hidden} and {source.lower if source.lower != hidden else source.top}: set --decoder-hidden-size (an "
            "annotation is twice as wide as --encoder-hidden-size, and --bridge-source adds an embedding), or use "
            "--attention-score bilinear"
        )
    if kind == "dot" and projecting:
        raise ConfigurationError(
            f"--attention-history {min(projecting)} adds to a projected query or key, and --attention-score dot has "
            "neither; use bilinear or scaled"
        )
    if kind == "dot" and cfg.attention_via and not cfg.attention_via_unguided:
        raise ConfigurationError(
            "--attention-via guides the lower level by what it adds to a projected query, and --attention-score dot "
            "has none; use scaled, or add --attention-via-unguided"
        )
    for option in ("attention_dim", "attention_via_dim")[: 1 + bool(cfg.attention_via)]:
        if kind == "multihead" and getattr(cfg, option) % cfg.attention_heads:
            raise ConfigurationError(
                f"--attention-heads {cfg.attention_heads} must divide {_flag(option)}, which is {getattr(cfg, option)}"
            )
    if str(cfg.attention_normalizer) != "softmax" and importlib.util.find_spec("entmax") is None:
        raise ConfigurationError(
            f"--attention-normalizer {cfg.attention_normalizer} needs the package entmax: pip install entmax"
        )


def histories(cfg) -> Set[str]:
    """The names in ``--attention-history``."""
    names = {name.strip() for name in cfg.attention_history.split("+")}
    for name in sorted(names - {"none", *HISTORIES}):
        raise ConfigurationError(
            f"--attention-history: unknown '{name}'; choose from none, {', '.join(HISTORIES)}, joined by '+'"
        )
    if "none" in names and len(names) > 1:
        raise ConfigurationError("--attention-history: 'none' cannot be joined with others")
    return names - {"none"}


def filters(cfg) -> List[int]:
    """The numbers in ``--encoder-filters``."""
    numbers = cfg.encoder_filters.split("-")
    if not all(number.isdecimal() for number in numbers) or not any(map(int, numbers)):
        raise ConfigurationError(
            "--encoder-filters: the numbers of filters of width 1, 2, 3, ..., joined by '-', such as 200-200-250, not "
            f"'{cfg.encoder_filters}'"
        )
    return [int(number) for number in numbers]


def build_encoder(cfg, dropout: nn.Module) -> Encoder:
    """The encoder that the configuration describes; ``dropout`` is applied to its annotations."""
    words: Dict[str, Any] = dict(
        kind=str(cfg.encoder_cell),
        input_dim=cfg.encoder_embed_dim,
        hidden=cfg.encoder_hidden_size,
        layers=cfg.encoder_layers,
        bidirectional=_bidirectional(cfg),
        residuals=cfg.residuals,
        dropout=dropout,
        between=cfg.encoder_dropout_out,
        hidden_dropout=cfg.encoder_dropout_hidden,
        norm=str(cfg.layer_norm) != "none",
        depth=cfg.encoder_transition_depth,
    )
    if str(cfg.encoder_type) == "hierarchical":
        words.update(words_alone=cfg.attention_via_words_alone)
        return HierarchicalEncoder(str(cfg.encoder_char_cell), cfg.encoder_char_hidden_size, **words)
    words.update(bridge=cfg.bridge_source, levels=2 if cfg.attention_via else 1)
    if str(cfg.encoder_type) == "bidirectional":
        return BidirectionalEncoder(**words)
    sizes, words["input_dim"] = filters(cfg), sum(filters(cfg))
    above = BidirectionalEncoder(**words)
    return ConvolutionalEncoder(cfg.encoder_embed_dim, sizes, cfg.encoder_pooling, cfg.encoder_highway_layers, above)


class Widths(NamedTuple):
    """Of what the encoder hands to the decoder."""

    final: int
    """``[→s_S; ←s_1]``"""
    lower: int
    """annotations"""
    upper: int
    """annotations of the higher level, 0 without one"""

    @property
    def context(self) -> int:
        """``c_i``."""
        return self.upper + self.lower

    @property
    def top(self) -> int:
        """Annotations of the highest level."""
        return self.upper or self.lower


def _widths(cfg) -> Widths:
    both = 2 * cfg.encoder_hidden_size
    top = both if _bidirectional(cfg) == cfg.encoder_layers else cfg.encoder_hidden_size
    lower = cfg.encoder_char_hidden_size if str(cfg.encoder_type) == "hierarchical" else top
    lower = both if cfg.attention_via and str(cfg.encoder_type) != "hierarchical" else lower
    if cfg.attention_via_words_alone:
        return Widths(top, top, 0)
    return Widths(top, lower + cfg.encoder_embed_dim * cfg.bridge_source, top * cfg.attention_via)


def _bidirectional(cfg) -> int:
    """How many encoder layers have both directions."""
    return min(cfg.encoder_bidirectional_layers or cfg.encoder_layers, cfg.encoder_layers)


def build_decoder(cfg) -> Decoder:
    """The decoder that the configuration describes."""
    target, hidden, source = cfg.decoder_embed_dim, cfg.decoder_hidden_size, _widths(cfg)
    initial_source = str(cfg.initial_state)
    initial_dim = source.top if initial_source == "mean" else cfg.encoder_hidden_size
    own_state, norm, reads_target = "state" in histories(cfg), _decoder_norm(cfg), cfg.attention_reads_target
    before, after = _cells(cfg, source)
    layers, inside = cfg.decoder_layers, _layers_inside(cfg)
    upper = layers - inside
    transition = Transition(
        before,
        _attention(cfg, source),
        after,
        query_cell=CELLS["gru"]({"hidden": hidden, "context": source.context}, hidden, norm) if own_state else None,
        condition=Condition(target, hidden, source.context, source.final) if cfg.decoder_condition else None,
        query_word=nn.Linear(target, _score_width(cfg, cfg.attention_dim), bias=False) if reads_target else None,
    )
    initial = partial(InitialState, initial_source, initial_dim, norm=norm)
    width = transition.last.state_dim // inside
    own = cfg.initial_state_per_layer
    return Decoder(
        transition,
        InitialStates(initial(width) for _ in range(layers)) if own else initial(width, copies=layers),
        _readout(cfg, source.context),
        initial_query=initial(hidden) if own_state else None,
        upper=_upper_layers(cfg, upper, source.context) if upper else None,
        recompute_steps=cfg.recompute_steps,
        hidden_dropout=cfg.decoder_dropout_hidden,
        reads_all_layers=cfg.readout_all_layers and inside > 1,
    )


def _upper_layers(cfg, layers: int, context: int) -> UpperLayers:
    return UpperLayers(
        str(cfg.decoder_cell),
        cfg.decoder_hidden_size,
        layers,
        cfg.decoder_dropout_out,
        context * cfg.context_to_layers,
        residuals=max(0, cfg.residuals - 1),  # counted above the transition's layer
        norm=_decoder_norm(cfg),
        masked=cfg.decoder_dropout_hidden > 0,
    )


def _layers_inside(cfg) -> int:
    """How many decoder layers step within the transition."""
    return cfg.decoder_layers if str(cfg.decoder_transition) in ("late", "stacked") else 1


def _decoder_norm(cfg) -> bool:
    return str(cfg.layer_norm) == "all"


def _cells(cfg, source: Widths) -> Tuple[Optional[AnyCell], Optional[AnyCell]]:
    """The cells before and after attention."""
    kind, hidden, gate = CELLS[str(cfg.decoder_cell)], cfg.decoder_hidden_size, str(cfg.context_gate)
    norm, further = _decoder_norm(cfg), cfg.decoder_transition_depth - least_depth(cfg)
    cell: Any = partial(kind, norm=norm)
    reader = cell if gate == "none" else partial(ContextGatedCell, kind, gate, norm=norm)
    deep = partial(deepened, kind=kind, further=further, norm=norm)
    first = {"target": cfg.decoder_embed_dim}
    if cfg.input_feed:
        first["previous_context"] = source.context
    last = {"context": source.context}
    if cfg.bridge_target:
        last["attended"] = cfg.encoder_embed_dim
    if str(cfg.decoder_transition) == "conditional":
        return cell(first, hidden), deep(reader(last, hidden))
    late, inputs = str(cfg.decoder_transition) == "late", {"below": hidden}
    lowest = deep(cell(first, hidden) if late else reader({**first, **last}, hidden))
    if cfg.context_to_layers:
        inputs["context"], cell = source.context, reader
    # where attention reads the highest layer's state, all layers step with it
    above = [cell(inputs, hidden) for _ in range(_layers_inside(cfg) - 1)]
    stack = StackedCell([lowest, *above], cfg.decoder_dropout_out, cfg.residuals) if above else lowest
    return (stack, None) if late else (None, stack)


def _score_width(cfg, width: int) -> int:
    """Of the query that is scored: one that is not projected is as wide as the state."""
    return width if SCORES[str(cfg.attention_score)].projects_query else cfg.decoder_hidden_size


def _attention(cfg, source: Widths) -> AnyAttention:
    hidden, kind = cfg.decoder_hidden_size, str(cfg.attention_score)
    heads = {"heads": cfg.attention_heads} if kind == "multihead" else {}
    normaliser = Normaliser(str(cfg.attention_normalizer), cfg.attention_temperature)
    score: Any = partial(SCORES[kind], hidden, norm=_decoder_norm(cfg), normaliser=normaliser, **heads)
    window = WINDOWS[str(cfg.attention_window)](hidden, cfg.attention_window_width)
    width, via_width = (_score_width(cfg, width) for width in (cfg.attention_dim, cfg.attention_via_dim))
    if not cfg.attention_via or cfg.attention_via_words_alone:
        return score(source.lower, width, _score_terms(cfg, source, width), window=window)
    guide = 0 if cfg.attention_via_unguided else source.upper
    lower = score(source.lower, via_width, _score_terms(cfg, source, via_width), guide, window=window)
    return AttentionViaAttention(score(source.upper, width), lower)


def build_bridge(cfg) -> Optional[DirectBridge]:
    """The direct bridge between the embeddings, or None."""
    kind = str(cfg.bridge_direct)
    return None if kind == "none" else DirectBridge(cfg.encoder_embed_dim, cfg.decoder_embed_dim, kind == "soft")


def check_compiler(device: torch.device) -> None:
    """Refuse --compile where torch.compile cannot work.

    Raises:
        ConfigurationError: there is no compiler for the device.
    """
    if not hasattr(nn.Module, "compile"):
        raise ConfigurationError(f"--compile needs torch 2.2 or later, not {torch.__version__}")
    if device.type == "cuda" and importlib.util.find_spec("triton") is None:
        raise ConfigurationError("--compile needs triton for CUDA: pip install triton, or leave --compile out")
    if device.type == "cpu" and not any(map(shutil.which, filter(None, [os.environ.get("CXX"), "g++", "clang++"]))):
        raise ConfigurationError(
            "--compile needs a C++ compiler on a CPU, and neither $CXX nor g++ nor clang++ is here: install one, or "
            "leave --compile out"
        )


def _readout(cfg, context: int) -> Readout:
    kind = READOUTS[str(cfg.readout)]
    hidden = cfg.decoder_hidden_size * (_layers_inside(cfg) if cfg.readout_all_layers else 1)
    widths = hidden, cfg.decoder_embed_dim, context, kind.pieces * cfg.decoder_out_embed_dim
    weighting = AdaptiveWeighting(*widths, swapped=cfg.adaptive_output_swapped) if cfg.adaptive_output else None
    return kind(*widths, weighting, _decoder_norm(cfg))


def _score_terms(cfg, source: Widths, width: int) -> Dict[str, History]:
    paths = histories(cfg)
    makers: Dict[str, Callable[[], History]] = {
        "context": lambda: ContextHistory(source.context, width),
        "distance": DistanceHistory,
        "convolution": lambda: ConvolutionHistory(cfg.attention_filters, cfg.attention_filter_width, width),
        "coverage": lambda: CoverageHistory(width),
        "fertility": lambda: FertilityHistory(source.lower, width),
        "coverage_gru": lambda: CoverageGRUHistory(
            source.lower, cfg.decoder_hidden_size, cfg.attention_coverage_dim, width
        ),
    }
    return {name: make() for name, make in makers.items() if name in paths}


def _flag(option: str) -> str:
    return "--" + option.replace("_", "-")
