"""Values that follow from the options of a complete configuration."""

from typing import NamedTuple

from ..nn.histories import HISTORIES, History
from ..registry import ConfigurationError, Part
from .options import described, flag


def history_names(cfg) -> set[str]:
    """The names in ``--attention-history``, registered or not."""
    return {name.strip() for name in str(cfg.attention_history).split("+")}


def histories(cfg) -> dict[str, type[History]]:
    """The histories that ``--attention-history`` names, in the order of the table."""
    names = history_names(cfg)
    if "none" in names and len(names) > 1:
        raise ConfigurationError("--attention-history: 'none' cannot be joined with others: leave it out")
    found = {name: HISTORIES.pick(name, "--attention-history") for name in sorted(names - {"none"})}
    return {name: found[name] for name in HISTORIES if name in found}


def chosen_parts(cfg) -> dict[str, set[type[Part]]]:
    """The components that the options name, by name.

    Raises:
        ConfigurationError: a name is not in its table.
    """
    found: dict[str, set[type[Part]]] = {name: {part} for name, part in histories(cfg).items()}
    for option, table in described("names").items():
        if table is not HISTORIES:
            name = str(getattr(cfg, option))
            found.setdefault(name, set()).add(table.pick(name, flag(option)))
    return found


def filters(cfg) -> list[int]:
    """The numbers in ``--encoder-filters``."""
    numbers = cfg.encoder_filters.split("-")
    if not all(number.isdecimal() for number in numbers) or not any(map(int, numbers)):
        raise ConfigurationError(
            "--encoder-filters: the numbers of filters of width 1, 2, 3, ..., joined by '-', such as 200-200-250, not "
            f"'{cfg.encoder_filters}'"
        )
    return [int(number) for number in numbers]


class SourceWidths(NamedTuple):
    """Widths of the encoder's results."""

    final: int
    """``[→s_S; ←s_1]``"""
    lower: int
    """annotations"""
    upper: int
    """annotations of the upper level, 0 without one"""

    @property
    def context(self) -> int:
        """``c_i``."""
        return self.upper + self.lower

    @property
    def top(self) -> int:
        """Annotations of the highest level."""
        return self.upper or self.lower


def source_widths(cfg) -> SourceWidths:
    """Widths of the annotations that the configuration's encoder makes."""
    both = 2 * cfg.encoder_hidden_size
    top = both if bidirectional_layers(cfg) == cfg.encoder_layers else cfg.encoder_hidden_size
    if cfg.attention_via_words_alone:
        return SourceWidths(top, top, 0)
    hierarchical = cfg.encoder_type == "hierarchical"
    lower = cfg.encoder_char_hidden_size if hierarchical else both if cfg.attention_via else top
    return SourceWidths(top, lower + cfg.encoder_embed_dim * cfg.bridge_source, top * cfg.attention_via)


def two_levels(cfg) -> bool:
    """Whether the decoder attends to words and to characters, or to two levels of layers."""
    return cfg.attention_via and not cfg.attention_via_words_alone


def cell_options(cfg) -> list[str]:
    """The options that name the model's cells."""
    return ["encoder_cell", "decoder_cell", *["encoder_char_cell"] * (cfg.encoder_type == "hierarchical")]


def bidirectional_layers(cfg) -> int:
    """The number of encoder layers with both directions."""
    return min(cfg.encoder_bidirectional_layers or cfg.encoder_layers, cfg.encoder_layers)


def layers_inside(cfg) -> int:
    """The number of decoder layers that step within the transition."""
    late = cfg.decoder_transition == "late" and not cfg.context_to_layers
    return cfg.decoder_layers if late or cfg.decoder_transition == "stacked" else 1
