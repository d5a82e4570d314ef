"""What fairseq demands of an architecture, each demand as a small function over a model and a task made in memory.

``subject`` makes these; ``demand`` says what a demand is; the others hold the demands by what they look at.
"""

from . import batches, growth, search, training  # noqa: F401 - each adds its demands
from .demand import DEMANDS, Broken, Demand, Finding, NotApplicable
from .returns import watched
from .subject import Subject

__all__ = ["DEMANDS", "Broken", "Demand", "Finding", "NotApplicable", "Subject", "watched"]
