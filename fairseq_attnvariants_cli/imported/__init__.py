"""Conversion of models that other toolkits trained to checkpoints."""

import fairseq_attnvariants  # noqa: F401 - before fairseq, since it says what of fairseq and torch is missing
