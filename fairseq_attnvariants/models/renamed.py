"""Parameters of older versions by their present names."""

from typing import Any, Dict

RENAMED = {
    "encoder.layers.": "encoder.network.",
    "decoder.layers.upper.": "decoder.network.above.",
    "decoder.layers.": "decoder.network.",
}
"""How names began until 0.3.0, the first that fits."""


def rename(state_dict: Dict[str, Any], prefix: str = "") -> None:
    """Give the parameters of a checkpoint their present names, in place.

    Args:
        state_dict: parameters by name.
        prefix: of all names, without its dot.
    """
    prefix = f"{prefix}." if prefix else ""
    for old, new in RENAMED.items():
        for name in [name for name in state_dict if name.startswith(prefix + old)]:
            state_dict[prefix + new + name[len(prefix + old) :]] = state_dict.pop(name)
