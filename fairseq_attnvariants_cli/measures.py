"""sacrebleu's measures."""

import sys
from typing import Any, Dict, List, Optional, Sequence, Tuple

from sacrebleu.metrics import BLEU, CHRF, TER
from sacrebleu.metrics.base import Metric

from .files import UserError, reason

TOKENIZERS = sorted(BLEU.TOKENIZERS)
TOKENISED = 100  # lines that end in " ." look like a text that was tokenised
LONGEST_TER = 300  # words; its time grows faster than their square


def metrics(tokenize: Optional[str], lowercase: bool = False, beta: int = 2) -> List[Tuple[str, Metric]]:
    """The measures and their names; ``tokenize`` is sacrebleu's, None its default.

    Raises:
        UserError: the tokeniser is not there.
    """
    options: Dict[str, Any] = dict(lowercase=lowercase, tokenize=tokenize, force=True)
    try:
        bleu = BLEU(**options)
    except (ImportError, RuntimeError, OSError) as error:  # some are extras of sacrebleu or want to fetch a model
        raise UserError(f"--tokenize {tokenize}: {reason(error)}") from error
    return [
        ("BLEU", bleu),
        (f"chrF{beta}", CHRF(beta=beta, lowercase=lowercase)),
        ("TER", TER()),
        ("1-gram BLEU", BLEU(max_ngram_order=1, **options)),
    ]


def warn_of_tokenised(systems: Sequence[Tuple[str, Sequence[str]]], tokenize: Optional[str]) -> None:
    """Say once what sacrebleu says for every measure: these texts look tokenised, and will be tokenised again."""
    found = [name for name, lines in systems if sum(line.endswith(" .") for line in lines) >= TOKENISED]
    if found and tokenize != "none":
        print(f"{', '.join(found)}: tokenised text, it seems; then give --tokenize none", file=sys.stderr)
