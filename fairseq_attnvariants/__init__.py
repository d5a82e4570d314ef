"""Attention variants for recurrent neural machine translation, as a plugin for stock fairseq 0.12.2.

Use: ``fairseq-train --user-dir fairseq_attnvariants --arch NAME``; :mod:`.architectures.variants` has the names.
"""

__version__ = "1.9.0"

from .patches.environment import check_environment

check_environment()

# fairseq imports models/ and tasks/ only if it imports this package itself, and never imports criterions/
from . import criterions, models, optim, tasks  # noqa: E402
from .architectures.variants import register_architecture  # noqa: E402
from .patches import patch_fairseq  # noqa: E402

patch_fairseq()

from .nn.attention import register_normalizer, register_score  # noqa: E402
from .nn.cells import register_cell  # noqa: E402
from .nn.histories import register_history  # noqa: E402
from .nn.readout import register_readout  # noqa: E402
from .nn.windows import register_window  # noqa: E402

__all__ = [
    "criterions",
    "models",
    "optim",
    "register_architecture",
    "register_cell",
    "register_history",
    "register_normalizer",
    "register_readout",
    "register_score",
    "register_window",
    "tasks",
]
