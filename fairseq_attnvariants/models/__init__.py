"""fairseq's side of the models: one registered model, and the architectures of :mod:`..architectures.variants`."""

from .attention_rnn import AttentionRNNModel

__all__ = ["AttentionRNNModel"]
