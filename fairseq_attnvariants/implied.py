"""What follows from the options of a complete configuration, beside its parts."""

from typing import List, NamedTuple, Set

from .variants import HISTORIES


class ConfigurationError(ValueError):
    """Options that are unknown or do not fit together; the message names them."""


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


def widths(cfg) -> Widths:
    """Of the annotations that the configuration's encoder makes."""
    both = 2 * cfg.encoder_hidden_size
    top = both if bidirectional_layers(cfg) == cfg.encoder_layers else cfg.encoder_hidden_size
    lower = cfg.encoder_char_hidden_size if str(cfg.encoder_type) == "hierarchical" else top
    lower = both if cfg.attention_via and str(cfg.encoder_type) != "hierarchical" else lower
    if cfg.attention_via_words_alone:
        return Widths(top, top, 0)
    return Widths(top, lower + cfg.encoder_embed_dim * cfg.bridge_source, top * cfg.attention_via)


def bidirectional_layers(cfg) -> int:
    """How many encoder layers have both directions."""
    return min(cfg.encoder_bidirectional_layers or cfg.encoder_layers, cfg.encoder_layers)


def layers_inside(cfg) -> int:
    """How many decoder layers step within the transition."""
    return cfg.decoder_layers if str(cfg.decoder_transition) in ("late", "stacked") else 1
