"""Tests of fairseq's demands on an architecture. Each is a small function of a model and a task made in memory.

``subject`` makes these. ``demand`` defines a demand. The other modules have the demands, by topic.
"""

from . import batches, compiling, exporting, growth, parts, search, training  # noqa: F401 - each adds its demands
from .demand import ADDED, Demand, Finding
from .outcome import Broken, NotApplicable
from .subject import Subject

FIRST = ("in-place", "widths", "same", "future")  # other failures often follow from theirs
DEMANDS = {name: ADDED[name] for name in (*FIRST, *ADDED)}

__all__ = ["DEMANDS", "Broken", "Demand", "Finding", "NotApplicable", "Subject"]
