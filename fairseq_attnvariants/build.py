"""From a configuration to composed parts.  Options that cannot work together are refused here, with the reason.

The configuration stops here: the parts receive widths and parts.
"""

from typing import Callable, Dict, List, Optional, Set

from .nn.attention import AdditiveAttention
from .nn.bridging import DirectBridge
from .nn.cells import CELLS
from .nn.decoder import Decoder, UpperLayers
from .nn.encoder import BidirectionalEncoder
from .nn.history import ContextHistory, ConvolutionHistory, DistanceHistory, History
from .nn.readout import READOUTS, AdaptiveWeighting, Readout
from .nn.transition import Condition, InitialState, Transition
from .variants import DROPOUT_PLACES, HISTORIES


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
        "attention_filters",
        "attention_filter_width",
    ):
        if getattr(cfg, option) < 1:
            raise ConfigurationError(f"{_flag(option)} must be at least 1, not {getattr(cfg, option)}")
    if cfg.attention_filter_width % 2 == 0:
        raise ConfigurationError(
            f"--attention-filter-width must be odd, so that a filter has a centre, not {cfg.attention_filter_width}"
        )
    if cfg.init_std <= 0:
        raise ConfigurationError(f"--init-std must be above 0, not {cfg.init_std}")
    for option in DROPOUT_PLACES:
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
    histories(cfg)
    if cfg.decoder_condition and str(cfg.decoder_cell) == "lstm":
        raise ConfigurationError(
            "--decoder-condition adds to a GRU's state (001 section 5) and is not defined for --decoder-cell lstm; "
            "use --decoder-cell gru or adaptive_gru"
        )
    if str(cfg.bridge_direct) != "none" and not (cfg.bridge_source or cfg.bridge_direct_alone):
        raise ConfigurationError(
            "--bridge-direct without --bridge-source consistently worsened translation (003 section 2.3: a plain "
            "model's embeddings are too heterogeneous to be constrained); add --bridge-source, or "
            "--bridge-direct-alone to do it nevertheless"
        )
    if cfg.adaptive_output_swapped and not cfg.adaptive_output:
        raise ConfigurationError("--adaptive-output-swapped changes --adaptive-output, which is not given: add it")


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


def build_encoder(cfg) -> BidirectionalEncoder:
    """The encoder that the configuration describes."""
    return BidirectionalEncoder(
        str(cfg.encoder_cell),
        cfg.encoder_embed_dim,
        cfg.encoder_hidden_size,
        cfg.encoder_layers,
        cfg.encoder_dropout_out,
        bridge=cfg.bridge_source,
    )


def build_decoder(cfg) -> Decoder:
    """The decoder that the configuration describes."""
    target, hidden = cfg.decoder_embed_dim, cfg.decoder_hidden_size
    final = 2 * cfg.encoder_hidden_size
    annotation = final + cfg.encoder_embed_dim * cfg.bridge_source
    cell = CELLS[str(cfg.decoder_cell)]
    paths = histories(cfg)
    initial_source = str(cfg.initial_state)
    initial_dim = annotation if initial_source == "mean" else cfg.encoder_hidden_size

    first_inputs = {"target": target}
    if cfg.input_feed:
        first_inputs["previous_context"] = annotation
    last_inputs = {"context": annotation}
    if cfg.bridge_target:
        last_inputs["attended"] = cfg.encoder_embed_dim
    if str(cfg.decoder_transition) == "conditional":
        before, after = cell(first_inputs, hidden), cell(last_inputs, hidden)
    else:
        before, after = None, cell({**first_inputs, **last_inputs}, hidden)

    own_state = "state" in paths
    transition = Transition(
        before,
        AdditiveAttention(hidden, annotation, cfg.attention_dim, _score_terms(cfg, paths, annotation)),
        after,
        query_cell=CELLS["gru"]({"hidden": hidden, "context": annotation}, hidden) if own_state else None,
        condition=Condition(target, hidden, annotation, final) if cfg.decoder_condition else None,
    )
    upper = cfg.decoder_layers - 1
    return Decoder(
        transition,
        InitialState(initial_source, initial_dim, after.state_dim),
        _readout(cfg, annotation),
        initial_query=InitialState(initial_source, initial_dim, hidden) if own_state else None,
        upper=UpperLayers(str(cfg.decoder_cell), hidden, upper, cfg.decoder_dropout_out) if upper else None,
    )


def build_bridge(cfg) -> Optional[DirectBridge]:
    """The direct bridge between the embeddings, or None."""
    kind = str(cfg.bridge_direct)
    return None if kind == "none" else DirectBridge(cfg.encoder_embed_dim, cfg.decoder_embed_dim, kind == "soft")


def _readout(cfg, annotation: int) -> Readout:
    kind = READOUTS[str(cfg.readout)]
    widths = cfg.decoder_hidden_size, cfg.decoder_embed_dim, annotation, kind.pieces * cfg.decoder_out_embed_dim
    weighting = AdaptiveWeighting(*widths, swapped=cfg.adaptive_output_swapped) if cfg.adaptive_output else None
    return kind(*widths, weighting)


def _score_terms(cfg, paths: Set[str], annotation: int) -> List[History]:
    makers: Dict[str, Callable[[], History]] = {
        "context": lambda: ContextHistory(annotation, cfg.attention_dim),
        "distance": DistanceHistory,
        "convolution": lambda: ConvolutionHistory(cfg.attention_filters, cfg.attention_filter_width, cfg.attention_dim),
    }
    return [make() for name, make in makers.items() if name in paths]


def _flag(option: str) -> str:
    return "--" + option.replace("_", "-")
