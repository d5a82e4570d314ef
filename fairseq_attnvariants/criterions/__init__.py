"""Criterions: weighted loss terms and what they log."""

from .bridging import LabelSmoothedCrossEntropyWithBridging
from .fertility import LabelSmoothedCrossEntropyWithFertility

__all__ = ["LabelSmoothedCrossEntropyWithBridging", "LabelSmoothedCrossEntropyWithFertility"]
