"""``--part-args``: values of the components' options that differ from the defaults."""

import json
from typing import Any

from omegaconf import OmegaConf

from ..registry import ConfigurationError, nearest
from .derived import chosen_parts, history_names
from .options import custom_options, described


def part_arguments(cfg) -> dict[str, dict[str, Any]]:
    """The options of the chosen components: their defaults, changed by ``--part-args``.

    Raises:
        ConfigurationError: ``--part-args`` is not JSON of this form, names an unknown component or option, or has a
            value that the option refuses.
    """
    having = {name: parts for name, parts in chosen_parts(cfg).items() if any(map(custom_options, parts))}
    given = parsed(cfg.part_args)
    found: dict[str, dict[str, Any]] = {}
    for name in given:
        if name not in having:
            there = f"{nearest(name, having)}; those that have are {', '.join(having)}" if having else "; none has any"
            raise ConfigurationError(f"--part-args: the model has no component {name!r} with options{there}")
    for name, parts in having.items():
        if len(parts) > 1:
            raise ConfigurationError(f"--part-args: the model has several components {name!r}: give one another name")
        options, values = custom_options(*parts), given.get(name, {})
        for own in values:
            if own not in options:
                raise ConfigurationError(
                    f"--part-args: {name} has no option {own!r}{nearest(own, options)}; it has {', '.join(options)}"
                )
        found[name] = {
            own: option.read(values.get(own, option.default), f"--part-args: {name}'s {own}")
            for own, option in options.items()
        }
    return found


def part_args_over(cfg, below: Any, given: Any) -> str | None:
    """Merge ``given`` into ``below``, the ``--part-args`` of an architecture or a checkpoint, option by option.

    Leaves out the options in ``below`` of components that the configuration no longer names.

    Raises:
        ConfigurationError: ``below`` or ``given`` is not JSON of this form.
    """
    named = history_names(cfg).union(str(getattr(cfg, option)) for option in described("names"))
    kept = {name: options for name, options in parsed(below).items() if name in named}
    merged = merged_part_args(kept, given)
    return json.dumps(merged) if merged else None


def merged_part_args(below: Any, given: Any) -> dict[str, dict[str, Any]]:
    """Merge two values of ``--part-args``; the second has priority if both have an option."""
    first, second = parsed(below), parsed(given)
    return {name: {**first.get(name, {}), **second.get(name, {})} for name in {**first, **second}}


def parsed(text: Any) -> dict[str, dict[str, Any]]:
    """``--part-args`` as a dictionary of dictionaries.

    Raises:
        ConfigurationError: the value is not JSON of this form.
    """
    value: Any = OmegaConf.to_container(text) if OmegaConf.is_config(text) else text
    try:
        value = json.loads(value) if isinstance(value, str) else value
    except (json.JSONDecodeError, RecursionError):
        value = text
    value = {} if value is None else value
    tables = [value, *value.values()] if isinstance(value, dict) else [value]
    if not all(isinstance(table, dict) and all(isinstance(name, str) for name in table) for table in tables):
        raise ConfigurationError(
            f"""--part-args: JSON such as '{{"decay": {{"rate": 0.9}}}}' is needed, not {str(text)[:200]}"""
        )
    return value
