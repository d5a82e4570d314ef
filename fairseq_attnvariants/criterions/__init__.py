"""Criterions: weighted loss terms and what they log."""

from .costs import LabelSmoothedCrossEntropyWithCosts

__all__ = ["LabelSmoothedCrossEntropyWithCosts"]
