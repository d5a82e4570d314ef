"""The command ``fairseq-attnvariants``."""
