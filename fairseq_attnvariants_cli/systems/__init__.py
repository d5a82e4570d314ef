"""Systems: trained models that the subcommands load, and what they compute."""

import fairseq_attnvariants  # noqa: F401 - before fairseq, since it says what of fairseq and torch is missing
