"""Trained models outside of fairseq."""
