"""The model that fairseq registers, with the architectures of :mod:`..architectures.variants`."""

from .attention_rnn import AttentionRNNModel

__all__ = ["AttentionRNNModel"]
