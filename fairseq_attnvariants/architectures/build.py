"""Builds a model's components from a configuration.

Only this module reads the configuration: components receive widths and other components.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from torch import Tensor, nn

from ..nn.attention import NORMALIZERS, SCORES, AdditiveAttention, AttentionViaAttention
from ..nn.bridging import DirectBridge
from ..nn.cells import CELLS, ContextGatedCell, GRUCell, MakeCell, ReleasedAdaptiveGRUCell, StackedCell, deepened
from ..nn.convolutional import ConvolutionalEncoder
from ..nn.copying import Copying
from ..nn.decoder import AnyReadout, Decoder, InitialState, InitialStates, ZeroState
from ..nn.encoder import BidirectionalEncoder, HierarchicalEncoder
from ..nn.histories import HISTORIES
from ..nn.layers import Layers
from ..nn.readout import READOUTS, AdaptiveWeighting
from ..nn.transition import AnyAttention, AnyCell, Condition, Transition
from ..nn.windows import WINDOWS
from ..registry import Registry, Widths
from .derived import SourceWidths, bidirectional_layers, filters, histories, layers_inside, source_widths, two_levels
from .options import flags_of, least_depth, state_width
from .part_args import part_arguments


def _part(cfg, table: Registry, name: str) -> Callable[..., Any]:
    """A component's class with the configuration's values of its options; it takes widths and other components."""
    kind = table[name]
    declared = kind.own_options()
    given = {own: getattr(cfg, option) for own, option in flags_of(kind).items()}
    if table is CELLS:  # with defaults a cell is the class itself, for which PyTorch may have a layer
        given = {own: value for own, value in given.items() if own not in declared or value != declared[own].default}
    given.update(part_arguments(cfg).get(name, {}))
    return partial(kind, **given) if given else kind


def _cell(cfg, name: str, norm: bool) -> MakeCell:
    """A cell's class with its options, and with or without layer normalisation."""
    kind = _part(cfg, CELLS, name)
    return partial(kind, norm=True) if norm else kind


def build_encoder(cfg, dropout: nn.Module) -> nn.Module:
    """The encoder that the configuration describes; ``dropout`` is applied to its annotations."""
    embed, hidden, layers = cfg.encoder_embed_dim, cfg.encoder_hidden_size, cfg.encoder_layers
    hidden_dropout = cfg.encoder_dropout_hidden
    if cfg.encoder_type == "hierarchical":
        cell, width = _cell(cfg, cfg.encoder_char_cell, _encoder_norm(cfg)), cfg.encoder_char_hidden_size
        characters = Layers(cell, embed, width, 1, depth=cfg.encoder_transition_depth)
        words = _encoder_layers(cfg, width, layers)
        return HierarchicalEncoder(characters, words, dropout, cfg.attention_via_words_alone, hidden_dropout)
    sizes = filters(cfg) if cfg.encoder_type == "convolutional" else []
    lowest = 1 if cfg.attention_via else layers  # the upper level is separate
    rnn = _encoder_layers(cfg, sum(sizes) or embed, lowest)
    upper = _encoder_layers(cfg, 2 * hidden, layers - 1, below=1) if cfg.attention_via else None
    encoder = BidirectionalEncoder(rnn, dropout, upper, cfg.bridge_source, hidden_dropout)
    if not sizes:
        return encoder
    return ConvolutionalEncoder(embed, sizes, cfg.encoder_pooling, cfg.encoder_highway_layers, encoder)


def _encoder_layers(cfg, input_dim: int, layers: int, below: int = 0) -> Layers:
    """``layers`` layers above ``below`` other layers, which count in the numbers of directions and residuals."""
    return Layers(
        _cell(cfg, cfg.encoder_cell, _encoder_norm(cfg)),
        input_dim,
        cfg.encoder_hidden_size,
        layers,
        dropout=cfg.encoder_dropout_out,
        bidirectional=bidirectional_layers(cfg) - below,
        residuals=max(0, cfg.residuals - below),
        depth=cfg.encoder_transition_depth,
        on_layers=below > 0,
        reads=str(cfg.encoder_reads),
    )


def build_decoder(cfg, symbols: Tensor | None = None, features: bool = False) -> Decoder:
    """The decoder that the configuration describes.

    Args:
        symbols: indices of the target symbols as which source symbols are copied; None without copying.
        features: whether the decoder attends to features of the source.
    """
    target, hidden, source = cfg.decoder_embed_dim, cfg.decoder_hidden_size, source_widths(cfg)
    own_state = any(history.replaces_query for history in histories(cfg).values())
    norm, reads_target = _decoder_norm(cfg), cfg.attention_reads_target
    before, after = _cells(cfg, source, cfg.encoder_embed_dim * features)
    layers, inside = cfg.decoder_layers, layers_inside(cfg)
    described = Widths(hidden, cfg.encoder_embed_dim, attention=cfg.attention_dim)
    transition = Transition(
        before,
        _attention(cfg, source),
        after,
        query_cell=GRUCell({"hidden": hidden, "context": source.context}, hidden, norm) if own_state else None,
        condition=Condition(target, hidden, source.context, source.final) if cfg.decoder_condition else None,
        query_word=nn.Linear(target, _score_width(cfg, cfg.attention_dim), bias=False) if reads_target else None,
        features=AdditiveAttention(described, norm=norm) if features else None,
    )
    summary = str(cfg.initial_state)
    summary_dim = source.top if summary == "mean" else cfg.encoder_hidden_size
    initial: Any = ZeroState if summary == "zero" else partial(InitialState, summary, summary_dim, norm=norm)
    width, separate = transition.last.state_dim // inside, cfg.initial_state_per_layer
    return Decoder(
        transition,
        InitialStates(initial(width) for _ in range(layers)) if separate else initial(width, copies=layers),
        _readout(cfg, source, symbols),
        initial_query=initial(hidden) if own_state else None,
        above=_layers_above(cfg, layers - inside, source.context) if layers > inside else None,
        recompute_steps=cfg.recompute_steps,
        hidden_dropout=cfg.decoder_dropout_hidden,
        reads_all_layers=cfg.readout_all_layers and inside > 1,
    )


def _layers_above(cfg, layers: int, context: int) -> Layers:
    return Layers(
        _cell(cfg, cfg.decoder_cell, _decoder_norm(cfg)),
        cfg.decoder_hidden_size,
        cfg.decoder_hidden_size,
        layers,
        cfg.decoder_dropout_out,
        residuals=max(0, cfg.residuals - 1),  # counted above the transition's layer
        context_dim=context * cfg.context_to_layers,
        on_layers=True,
    )


def _encoder_norm(cfg) -> bool:
    return cfg.layer_norm != "none"


def _decoder_norm(cfg) -> bool:
    return cfg.layer_norm == "all"


def _cells(cfg, source: SourceWidths, features: int) -> tuple[AnyCell | None, AnyCell | None]:
    """The cells before and after attention; ``features`` is the width of attended features, or 0."""
    kind, hidden, gate = _part(cfg, CELLS, cfg.decoder_cell), cfg.decoder_hidden_size, str(cfg.context_gate)
    norm, further = _decoder_norm(cfg), cfg.decoder_transition_depth - least_depth(cfg)
    cell: Any = _cell(cfg, cfg.decoder_cell, norm)
    reader = cell if gate == "none" else partial(ContextGatedCell, kind, gate, norm=norm)
    deep = partial(deepened, kind=cell, hidden_dim=hidden, further=further)
    first = {"target": cfg.decoder_embed_dim}
    if cfg.input_feed:
        first["previous_context"] = source.context
    if features:
        first["features"] = features
    last = {"context": source.context}
    if cfg.bridge_target:
        last["attended"] = cfg.encoder_embed_dim
    if cfg.decoder_transition == "conditional":
        reader = ReleasedAdaptiveGRUCell if cfg.adaptive_gru_released else reader
        return cell(first, hidden), deep(reader(last, hidden))
    late, inputs = cfg.decoder_transition == "late", {"below": hidden}
    lowest = deep(cell(first, hidden) if late else reader({**first, **last}, hidden))
    if cfg.context_to_layers:
        inputs["context"] = source.context
    kind_above = reader if cfg.context_to_layers else cell
    # if attention reads the highest layer's state, all layers step with it
    above = [kind_above(inputs, hidden) for _ in range(layers_inside(cfg) - 1)]
    stack = StackedCell([lowest, *above], cfg.decoder_dropout_out, cfg.residuals) if above else lowest
    return (stack, None) if late else (None, stack)


def _score_width(cfg, width: int) -> int:
    """The width of the scored query: an unprojected query is as wide as the state."""
    return width if SCORES[cfg.attention_score].projects_query else cfg.decoder_hidden_size


def _attention(cfg, source: SourceWidths) -> AnyAttention:
    normalizer = _part(cfg, NORMALIZERS, cfg.attention_normalizer)
    make: Any = partial(_part(cfg, SCORES, cfg.attention_score), norm=_decoder_norm(cfg))
    width, via_width = (_score_width(cfg, width) for width in (cfg.attention_dim, cfg.attention_via_dim))
    two = two_levels(cfg)
    guide = source.upper if two and not cfg.attention_via_unguided else 0
    lower = Widths(
        cfg.decoder_hidden_size, source.lower, source.context, via_width if two else width, cfg.decoder_embed_dim, guide
    )
    window = None if cfg.attention_window == "none" else _part(cfg, WINDOWS, cfg.attention_window)(lower)
    found = {name: _part(cfg, HISTORIES, name)(lower) for name in histories(cfg)}
    score = make(lower, found, window=window, normalizer=normalizer())
    if not two:
        return score
    upper = lower._replace(annotation=source.upper, attention=width, guide=0)
    return AttentionViaAttention(make(upper, normalizer=normalizer()), score)


def build_bridge(cfg) -> DirectBridge | None:
    """The direct bridge between the embeddings, or None."""
    kind = str(cfg.bridge_direct)
    return None if kind == "none" else DirectBridge(cfg.encoder_embed_dim, cfg.decoder_embed_dim, kind == "soft")


def _readout(cfg, source: SourceWidths, symbols: Tensor | None) -> AnyReadout:
    kind, features = READOUTS[cfg.readout], cfg.decoder_out_embed_dim
    widths = Widths(state_width(cfg), source.lower, source.context, target=cfg.decoder_embed_dim, features=features)
    swapped, width = cfg.adaptive_output_swapped, kind.pieces * features
    weighting = AdaptiveWeighting(widths, width, swapped) if cfg.adaptive_output else None
    readout = _part(cfg, READOUTS, cfg.readout)(widths, weighting, _decoder_norm(cfg))
    return readout if symbols is None else Copying(readout, widths, symbols)
