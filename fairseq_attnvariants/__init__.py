"""Attention variants for recurrent neural machine translation, as a plugin of stock fairseq 0.12.2.

``fairseq-train --user-dir fairseq_attnvariants --arch NAME``; the names are in :mod:`.variants`.
"""

__version__ = "0.3.0"

from .compat import check_environment

check_environment()

# fairseq scans models/ and tasks/ only when it imports the package itself, and criterions/ never
from . import criterions, models, tasks  # noqa: E402
from .compat.clipping import clip_where_gradients_are  # noqa: E402
from .compat.transformer import allow_padding_masks  # noqa: E402
from .guards import guard  # noqa: E402

allow_padding_masks()
clip_where_gradients_are()
guard()

from .nn.attention import register_normalizer, register_score  # noqa: E402
from .nn.cells import register_cell  # noqa: E402
from .nn.histories import register_history  # noqa: E402
from .nn.readout import register_readout  # noqa: E402
from .nn.windows import register_window  # noqa: E402
from .variants import register_architecture  # noqa: E402

__all__ = [
    "criterions",
    "models",
    "register_architecture",
    "register_cell",
    "register_history",
    "register_normalizer",
    "register_readout",
    "register_score",
    "register_window",
    "tasks",
]
