"""Parameters of older versions by their present names."""

import re
from typing import Any, Dict

LAYERS = r"(encoder\.network\.(?:above\.)?(?:rnn|upper|words|characters)|decoder\.network\.above\.rnn)"
RENAMED = [
    # until 0.3.0
    (r"(encoder|decoder)\.layers\.", r"\1.network."),
    (r"decoder\.network\.upper\.", "decoder.network.above."),
    (LAYERS + r"\.layers\.(\d+)\.cells\.0\.(\d+)\.", r"\1.layers.\2.cells.\3."),
    (LAYERS + r"\.cells\.(\d+)\.(\d+)\.", r"\1.layers.\2.cells.\3."),
    (LAYERS + r"\.((?:weight|bias)_[ih]h)_l(\d+)", r"\1.layers.\3.\2_l0"),
    (r"decoder\.network\.above\.rnn\.", "decoder.network.above."),
]
"""How names begin in an older version, and what stands there now; one after the other."""


def renamed(name: str) -> str:
    """What a parameter is called now."""
    for old, new in RENAMED:
        name = re.sub("^" + old, new, name)
    return name


def rename(state_dict: Dict[str, Any], prefix: str = "") -> None:
    """Give the parameters of a checkpoint their present names, in place.

    Args:
        state_dict: parameters by name.
        prefix: of all names, without its dot.
    """
    start = f"{prefix}." if prefix else ""
    for name in [name for name in state_dict if name.startswith(start)]:
        state_dict[start + renamed(name[len(start) :])] = state_dict.pop(name)
