"""Configurations for fairseq-hydra-train."""
