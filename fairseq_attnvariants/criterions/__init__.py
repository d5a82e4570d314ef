"""Criterions: weighted loss terms and what they log."""

from .costs import (
    LabelSmoothedCrossEntropyWithBridging,
    LabelSmoothedCrossEntropyWithCosts,
    LabelSmoothedCrossEntropyWithFertility,
)

__all__ = [
    "LabelSmoothedCrossEntropyWithBridging",
    "LabelSmoothedCrossEntropyWithCosts",
    "LabelSmoothedCrossEntropyWithFertility",
]
