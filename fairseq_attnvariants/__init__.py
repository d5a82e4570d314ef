"""Attention variants for recurrent neural machine translation, as a plugin of stock fairseq 0.12.2.

``fairseq-train --user-dir fairseq_attnvariants --arch NAME``; the names are in :mod:`.variants`.
"""

__version__ = "0.3.0"

from .compat import allow_stock_checkpoints, check_environment

check_environment()
allow_stock_checkpoints()

# fairseq scans models/ and tasks/ only when it imports the package itself, and criterions/ never
from . import criterions, models, tasks  # noqa: E402
from .guards.evaluation import guard_evaluation  # noqa: E402
from .guards.names import guard_names  # noqa: E402
from .guards.overrides import guard_overrides  # noqa: E402
from .guards.training import guard_training  # noqa: E402

guard_evaluation()
guard_names()
guard_overrides()
guard_training()

__all__ = ["criterions", "models", "tasks"]
