"""sacrebleu's measures, and accuracy."""

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

from sacrebleu.metrics import BLEU, CHRF, TER
from sacrebleu.metrics.base import Metric, Signature
from sacrebleu.metrics.base import Score as MetricScore
from sacrebleu.significance import PairedTest

from ..text.files import UserError, reason, say

TOKENIZERS = sorted(BLEU.TOKENIZERS)
TOKENISED = 100  # a text with this many lines that end in " ." looks tokenised
UNKNOWN = "<<unk>>"  # an unknown word in a reference, which no translation can match
LONGEST_TER = 300  # most words of a line for TER, whose time grows faster than their square

Systems = Sequence[tuple[str, Sequence[str]]]  # names and hypotheses
References = Sequence[Sequence[str]]  # one or several texts
Metrics = Sequence[tuple[str, Metric]]  # names of measures, and their metrics


class Score(NamedTuple):
    """A row of the table."""

    measure: str
    system: str
    score: float
    interval: float | None  # half of the width of the 95% interval of the bootstrap
    p: float | None  # of the paired bootstrap against the first system
    signature: str


class Accuracy(Metric):
    """The percentage of lines that equal one of their references, apart from spaces around them."""

    _SIGNATURE_TYPE = Signature

    def __init__(self, lowercase: bool = False):
        super().__init__()
        self.lowercase = lowercase

    def get_signature(self) -> Signature:
        """Return sacrebleu's signature, and whether case counts."""
        signature = super().get_signature()
        signature.update("case", "lc" if self.lowercase else "mixed")
        return signature

    def _preprocess_segment(self, sent: str) -> str:
        return sent.strip().lower() if self.lowercase else sent.strip()

    def _extract_reference_info(self, refs: Sequence[str]) -> dict[str, Any]:
        return {"references": refs}

    def _compute_segment_statistics(self, hypothesis: str, ref_kwargs: dict) -> list[int]:
        return [int(hypothesis in ref_kwargs["references"]), 1]

    def _aggregate_and_compute(self, stats: list[list[int]]) -> MetricScore:
        return self._compute_score_from_stats([sum(column) for column in zip(*stats)])

    def _compute_score_from_stats(self, stats: Sequence[Any]) -> MetricScore:
        return MetricScore("accuracy", 100 * float(stats[0]) / float(stats[1]))


def seed() -> int | None:
    """Return the seed of sacrebleu's resamples, ``SACREBLEU_SEED``, or None, a random seed, for ``none``.

    Raises:
        UserError: the seed is not a number, or is 0.
    """
    given = os.environ.get("SACREBLEU_SEED", "12345")
    if given.lower() == "none":
        return None
    if not (given.isdecimal() and len(given) < 100 and int(given)):  # sacrebleu takes 0 for none
        raise UserError(f"SACREBLEU_SEED={given[:100]} in the environment is neither a number from 1 on nor none")
    return int(given)


def bleu_metric(tokenize: str | None, **options: Any) -> BLEU:
    """Return sacrebleu's BLEU with one of its tokenisers, its default for None, and other options.

    Raises:
        UserError: the tokeniser is not available.
    """
    try:
        return BLEU(tokenize=tokenize, force=True, **options)
    except (ImportError, RuntimeError, OSError) as error:  # some tokenisers are extras of sacrebleu or download a model
        hint = " ".join(str(error).split())
        raise UserError(f"--tokenize {tokenize}: {hint or reason(error)}") from error


def metrics(tokenize: str | None, lowercase: bool = False, beta: int = 2) -> Metrics:
    """Return the measures and their names; ``tokenize`` is sacrebleu's tokeniser, or None for its default.

    Raises:
        UserError: the tokeniser is not available.
    """
    options: dict[str, Any] = dict(lowercase=lowercase, tokenize=tokenize)
    return [
        ("BLEU", bleu_metric(**options)),
        (f"chrF{beta}", CHRF(beta=beta, lowercase=lowercase)),
        ("TER", TER()),
        ("1-gram BLEU", bleu_metric(max_ngram_order=1, **options)),
        ("accuracy", Accuracy(lowercase)),
    ]


def check_tokenised(tokenize: str | None, references: Sequence[str]) -> None:
    """Refuse a tokeniser, None for sacrebleu's default, that would split fairseq's unknown words.

    Raises:
        UserError: a reference has such words.
    """
    if tokenize != "none" and any(UNKNOWN in line for line in references):
        raise UserError(
            f"--tokenize {tokenize or '13a'} would cut the reference's {UNKNOWN}: give the raw text as "
            "--reference, or --tokenize none"
        )


def warn_of_tokenised(systems: Systems, tokenize: str | None) -> None:
    """Report texts that look tokenised, and will be tokenised again, once instead of for every measure."""
    found = [name for name, lines in systems if sum(line.endswith(" .") for line in lines) >= TOKENISED]
    if found and tokenize != "none":
        say(f"{', '.join(found)}: tokenised text, it seems; then give --tokenize none")


def within_limits(measures: Metrics, *texts: Sequence[str]) -> Metrics:
    """Return the measures. If a line of the texts is too long for TER, leave TER out and report it."""
    if "TER" not in dict(measures):
        return measures
    longest = max((len(line.split()) for lines in texts for line in lines), default=0)
    if longest <= LONGEST_TER:
        return measures
    say(f"TER is left out: a line has {longest} words, over the limit of {LONGEST_TER}")
    return [(name, metric) for name, metric in measures if name != "TER"]


def scores(systems: Systems, references: References, measures: Metrics, samples: int = 0) -> list[Score]:
    """Compute every measure of every system; with ``samples`` resamples also intervals, and p against the first system.

    A text of one line has neither intervals nor p, because all its resamples are the same.

    1-gram precision is the share of hypothesis words that are in the reference. 1-gram BLEU is its product with the
    brevity penalty (Kuang et al. 2018, table 6). It is not resampled.
    """
    rows = []
    if samples:
        seed()  # refused here, before sacrebleu reads it
    for name, metric in measures:
        results = [metric.corpus_score(hypotheses, references) for _, hypotheses in systems]
        intervals: list[float | None] = [None] * len(systems)
        ps: list[float | None] = [None] * len(systems)
        signature = plain = str(metric.get_signature())
        if samples and len(references[0]) > 1:
            signatures, columns = PairedTest(
                list(systems), {name: metric}, references, test_type="bs", n_samples=samples
            )()
            [(key, resampling)] = signatures.items()
            signature = str(resampling)
            resampled: Any = columns[key]
            intervals = [float(result.ci) for result in resampled]
            # sacrebleu gives equal systems the lowest p of all: no resample differs more than the text does
            ps = [None] + [1.0 if result.score == resampled[0].score else result.p_value for result in resampled[1:]]
        if name == "1-gram BLEU":
            plain, signature = f"{plain}|n:1", f"{signature}|n:1"  # sacrebleu leaves this out
            for (system, _), result in zip(systems, results, strict=True):
                rows.append(Score("1-gram precision", system, result.precisions[0], None, None, plain))
        for (system, _), result, interval, p in zip(systems, results, intervals, ps, strict=True):
            rows.append(Score(name, system, result.score, interval, p, signature))
    return rows
