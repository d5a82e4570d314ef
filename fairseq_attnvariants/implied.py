"""What follows from the options of a complete configuration, beside its parts."""

import json
from typing import Any, Dict, List, NamedTuple, Optional, Set, Type

from omegaconf import OmegaConf

from .nn.histories import HISTORIES, History
from .options import described, flag
from .registry import ConfigurationError, Part, nearest


def history_names(cfg) -> Set[str]:
    """What ``--attention-history`` joins, known or not."""
    return {name.strip() for name in str(cfg.attention_history).split("+")}


def histories(cfg) -> Dict[str, Type[History]]:
    """The parts that ``--attention-history`` names, in the order of the table."""
    names = history_names(cfg)
    if "none" in names and len(names) > 1:
        raise ConfigurationError("--attention-history: 'none' cannot be joined with others")
    found = {name: HISTORIES.pick(name, "--attention-history") for name in sorted(names - {"none"})}
    return {name: found[name] for name in HISTORIES if name in found}


def chosen_parts(cfg) -> Dict[str, List[Type[Part]]]:
    """The parts that the options name, by their names.

    Raises:
        ConfigurationError: a name is not in its table.
    """
    found: Dict[str, List[Type[Part]]] = {name: [part] for name, part in histories(cfg).items()}
    for option, table in described("names").items():
        if table is not HISTORIES:
            name = str(getattr(cfg, option))
            part = table.pick(name, flag(option))
            found[name] = [*(other for other in found.get(name, []) if other is not part), part]
    return found


def part_arguments(cfg) -> Dict[str, Dict[str, Any]]:
    """The options of the chosen parts that have any: their defaults, and what ``--part-args`` says otherwise.

    Raises:
        ConfigurationError: it is no JSON of this form, or names a part or an option that is not there.
    """
    having = {name: parts for name, parts in chosen_parts(cfg).items() if any(part.options for part in parts)}
    given = _given(cfg.part_args)
    found: Dict[str, Dict[str, Any]] = {name: {} for name in having}
    for name in given:
        if name not in having:
            there = f"{nearest(name, having)}; those that have are {', '.join(having)}" if having else "; none has any"
            raise ConfigurationError(f"--part-args: the model has no part {name!r} with options{there}")
    for name, parts in having.items():
        if len(parts) > 1:
            raise ConfigurationError(f"--part-args: the model has several parts {name!r}: give one another name")
        options = parts[0].options
        for own in given.get(name, {}):
            if own not in options:
                raise ConfigurationError(
                    f"--part-args: {name} has no option {own!r}{nearest(own, options)}; it has {', '.join(options)}"
                )
        for own, option in options.items():
            value = given.get(name, {}).get(own, option.default)
            found[name][own] = option.read(value, f"--part-args: {name}'s {own}")
    return found


def part_args_over(cfg, below: Any, given: Any) -> Optional[str]:
    """What is ``given`` as ``--part-args``, over what an architecture or a checkpoint has ``below``, option by option.

    Of the latter, what is of parts that the configuration does not name any more is left out.

    Raises:
        ConfigurationError: one of them is no JSON of this form.
    """
    named = history_names(cfg).union(str(getattr(cfg, option)) for option in described("names"))
    kept = {name: options for name, options in _given(below).items() if name in named}
    merged = merged_part_args(kept, given)
    return json.dumps(merged) if merged else None


def merged_part_args(below: Any, given: Any) -> Dict[str, Dict[str, Any]]:
    """Two of ``--part-args`` in one, of which the second decides where both have an option."""
    first, second = _given(below), _given(given)
    return {name: {**first.get(name, {}), **second.get(name, {})} for name in {**first, **second}}


def _given(text: Any) -> Dict[str, Dict[str, Any]]:
    """``--part-args`` as a dictionary of dictionaries."""
    value: Any = OmegaConf.to_container(text) if OmegaConf.is_config(text) else text
    try:
        value = json.loads(value) if isinstance(value, str) else value
    except json.JSONDecodeError:
        value = text
    value = {} if value is None else value
    if not (isinstance(value, dict) and all(isinstance(options, dict) for options in value.values())):
        raise ConfigurationError(f"""--part-args: JSON such as '{{"decay": {{"rate": 0.9}}}}' is wanted, not {text}""")
    return value


def filters(cfg) -> List[int]:
    """The numbers in ``--encoder-filters``."""
    numbers = cfg.encoder_filters.split("-")
    if not all(number.isdecimal() for number in numbers) or not any(map(int, numbers)):
        raise ConfigurationError(
            "--encoder-filters: the numbers of filters of width 1, 2, 3, ..., joined by '-', such as 200-200-250, not "
            f"'{cfg.encoder_filters}'"
        )
    return [int(number) for number in numbers]


class Source(NamedTuple):
    """Widths of what the encoder hands to the decoder."""

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


def source_widths(cfg) -> Source:
    """Widths of the annotations that the configuration's encoder makes."""
    both = 2 * cfg.encoder_hidden_size
    top = both if bidirectional_layers(cfg) == cfg.encoder_layers else cfg.encoder_hidden_size
    lower = cfg.encoder_char_hidden_size if str(cfg.encoder_type) == "hierarchical" else top
    lower = both if cfg.attention_via and str(cfg.encoder_type) != "hierarchical" else lower
    if cfg.attention_via_words_alone:
        return Source(top, top, 0)
    return Source(top, lower + cfg.encoder_embed_dim * cfg.bridge_source, top * cfg.attention_via)


def bidirectional_layers(cfg) -> int:
    """How many encoder layers have both directions."""
    return min(cfg.encoder_bidirectional_layers or cfg.encoder_layers, cfg.encoder_layers)


def layers_inside(cfg) -> int:
    """How many decoder layers step within the transition."""
    return cfg.decoder_layers if str(cfg.decoder_transition) in ("late", "stacked") else 1
