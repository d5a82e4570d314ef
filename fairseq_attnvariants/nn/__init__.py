"""The parts: small modules that receive widths and other parts, and know nothing of fairseq."""
