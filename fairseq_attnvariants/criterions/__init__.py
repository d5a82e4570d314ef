"""Criterions: weighted loss terms and what they log."""

from .fertility import LabelSmoothedCrossEntropyWithFertility

__all__ = ["LabelSmoothedCrossEntropyWithFertility"]
