"""sacrebleu's measures."""

import sys
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from sacrebleu.metrics import BLEU, CHRF, TER
from sacrebleu.metrics.base import Metric
from sacrebleu.significance import PairedTest

from .files import UserError, reason

TOKENIZERS = sorted(BLEU.TOKENIZERS)
TOKENISED = 100  # lines that end in " ." look like a text that was tokenised
LONGEST_TER = 300  # words; its time grows faster than their square

Systems = Sequence[Tuple[str, Sequence[str]]]  # names and hypotheses
References = Sequence[Sequence[str]]  # one or several texts


class Score(NamedTuple):
    """A row of the table."""

    measure: str
    system: str
    score: float
    interval: Optional[float]  # half of the width of the 95% interval of the bootstrap
    p: Optional[float]  # of the paired bootstrap against the first system
    signature: str


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


def warn_of_tokenised(systems: Systems, tokenize: Optional[str]) -> None:
    """Say once what sacrebleu says for every measure: these texts look tokenised, and will be tokenised again."""
    found = [name for name, lines in systems if sum(line.endswith(" .") for line in lines) >= TOKENISED]
    if found and tokenize != "none":
        print(f"{', '.join(found)}: tokenised text, it seems; then give --tokenize none", file=sys.stderr)


def scores(
    systems: Systems, references: References, measures: Sequence[Tuple[str, Metric]], samples: int = 0
) -> List[Score]:
    """Every measure of every system; with ``samples`` resamples also intervals, and p against the first system.

    1-gram precision, the share of hypothesis words that are in the reference, is the factor of 1-gram BLEU beside the
    brevity penalty (Kuang et al., table 6); it is not resampled.
    """
    rows = []
    for name, metric in measures:
        results = [metric.corpus_score(hypotheses, references) for _, hypotheses in systems]
        intervals: List[Optional[float]] = [None] * len(systems)
        ps: List[Optional[float]] = [None] * len(systems)
        signature = plain = metric.get_signature()
        if samples:
            signatures, columns = PairedTest(
                list(systems), {name: metric}, references, test_type="bs", n_samples=samples
            )()
            [(key, signature)] = signatures.items()
            resampled: Any = columns[key]
            intervals = [float(result.ci) for result in resampled]
            # equal systems get the lowest p of all from sacrebleu: no resample differs more than the text does
            ps = [None] + [1.0 if result.score == resampled[0].score else result.p_value for result in resampled[1:]]
        if name == "1-gram BLEU":
            for (system, _), result in zip(systems, results, strict=True):
                rows.append(Score("1-gram precision", system, result.precisions[0], None, None, str(plain)))
        for (system, _), result, interval, p in zip(systems, results, intervals, ps, strict=True):
            rows.append(Score(name, system, result.score, interval, p, str(signature)))
    return rows
