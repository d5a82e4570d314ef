"""Limits on the length of a translation that suit characters."""

import copy
from typing import Any

from fairseq.dataclass.configs import GenerationConfig


def with_limits(args: Any, max_len_a: int, max_len_b: int) -> Any:
    """A generator's options, with these limits if ``--max-len-a`` and ``--max-len-b`` both have fairseq's defaults."""
    default = GenerationConfig()
    given = [getattr(args, name, getattr(default, name)) for name in ("max_len_a", "max_len_b")]
    if given != [default.max_len_a, default.max_len_b]:
        return args
    args = copy.copy(args)
    args.max_len_a, args.max_len_b = max_len_a, max_len_b
    return args
