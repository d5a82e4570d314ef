"""``fairseq-attnvariants tune``: the length penalty and the coverage penalty that suit a validation set.

A coverage penalty is part of the search, so each needs one search.  A length penalty is not: fairseq's beam search
finishes the same hypotheses with any length penalty, and ranks them at the end.  This module ranks them again for each.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from sacrebleu.metrics import BLEU

from ..options import (
    BeamOptions,
    OneModel,
    SubwordOptions,
    TextOptions,
    check_distinct,
    length_penalty,
    numeric,
    option,
    penalty,
)
from ..scores.measures import TOKENIZERS, bleu_metric, check_tokenised
from ..shown.tables import TableOptions, tables
from ..text.files import UserError, say
from ..text.subwords import join_tokens

if TYPE_CHECKING:
    from ..systems.model import Sentence, System, Text

LENGTH_PENALTIES = [0.6, 0.8, 1.0, 1.2, 1.4]
COVERAGE_PENALTIES = [0.0, 0.1, 0.2, 0.4]


@dataclass
class Options(TableOptions, SubwordOptions, BeamOptions, TextOptions, OneModel):
    """Print the BLEU of a validation set with each pair of a length penalty and a coverage penalty (Wu et al. 2016).
    The command translates the text once per coverage penalty, and ranks the results by each length penalty. Choose on a
    validation set, and report a test set.

    example: fairseq-attnvariants tune data-bin --path dl4mt/checkpoint_best.pt --gen-subset valid --remove-bpe

    Args:
        lenpen: length penalties (default: 0.6 0.8 1 1.2 1.4)
        coverage_penalty: coverage penalties (default: 0 0.1 0.2 0.4)
        tokenize: sacrebleu's tokeniser (default: %(default)s, for tokenised text)
    """

    gen_subset: str = option("NAME", group="text", default="valid")
    lenpen: list[float] = numeric(LENGTH_PENALTIES, "X", length_penalty, nargs="+")
    coverage_penalty: list[float] = numeric(COVERAGE_PENALTIES, "X", penalty, nargs="+")
    tokenize: str = option(None, choices=TOKENIZERS, default="none")


class Hypothesis(NamedTuple):
    """A finished hypothesis of a beam."""

    text: str
    tokens: int  # EOS included
    total: float  # sum of the logarithms of its tokens' probabilities, with the coverage penalty


class Setting(NamedTuple):
    """A pair of penalties and its scores on a validation set."""

    coverage_penalty: float
    lenpen: float
    bleu: float
    ratio: float  # of the translations' length to the references' length, in words


def best(hypotheses: Sequence[Hypothesis], lenpen: float) -> Hypothesis:
    """Return the hypothesis that fairseq's search ranks first, and the first in a tie."""
    return max(hypotheses, key=lambda hypothesis: hypothesis.total / hypothesis.tokens**lenpen)


def preference(setting: Setting) -> tuple[float, float, float]:
    """Return a key that is largest for the best setting: a higher BLEU, then penalties closer to fairseq's 0 and 1."""
    return setting.bleu, -setting.coverage_penalty, -abs(setting.lenpen - 1)


def check(system: "System", penalties: Sequence[float]) -> None:
    """Refuse coverage penalties for models without one.

    Raises:
        UserError: a coverage penalty is not 0, and a model has none.
    """
    for model in system.models:
        if any(penalties) and not hasattr(model.decoder, "coverage_penalty"):
            raise UserError(f"{system.path}: a {type(model).__name__} has no coverage penalty: --coverage-penalty 0")


def hypotheses(system: "System", text: "Text", options: Options) -> Iterator[list[Hypothesis]]:
    """Yield all finished hypotheses of each sentence."""
    from ..systems.model import search

    string = system.task.target_dictionary.string
    for beam in search(system, text, options, lenpen=0):
        yield [
            Hypothesis(string(each["tokens"], options.remove_bpe), len(each["tokens"]), each["score"].item())
            for each in beam
        ]


def reference(system: "System", sentence: "Sentence", options: Options) -> str:
    """Return a sentence's reference: its text with subwords joined, or fairseq's text for binarised data."""
    if not sentence.target_line:
        return system.task.target_dictionary.string(sentence.item["target"], options.remove_bpe, escape_unk=True)
    if hasattr(system.task.target_dictionary, "space"):  # of characters
        return sentence.target_line
    return " ".join(join_tokens(sentence.target_line.split(), options.remove_bpe))


def settings(system: "System", text: "Text", metric: BLEU, options: Options) -> Iterator[Setting]:
    """Search, score and yield every pair of penalties."""
    references = [reference(system, sentence, options) for sentence in text.sentences]
    check_tokenised(options.tokenize, references)
    for strength in options.coverage_penalty:
        for model in system.models:
            model.decoder.coverage_penalty = strength
        beams = [*hypotheses(system, text, options)]
        for lenpen in options.lenpen:
            score = metric.corpus_score([best(beam, lenpen).text for beam in beams], [references])
            yield Setting(strength, lenpen, score.score, score.sys_len / max(score.ref_len, 1))


def run(options: Options) -> None:
    """Load the model, search, print the table, and print the best pair on standard error."""
    check_distinct("--lenpen", options.lenpen)
    check_distinct("--coverage-penalty", options.coverage_penalty)
    from ..systems.model import load, read_text

    options.settle()
    metric = bleu_metric(options.tokenize)
    with tables(options.json, settings=options.table) as write:
        system = load(options.path, options.data, options.cpu)
        check(system, options.coverage_penalty)
        penalised = any(hasattr(model.decoder, "coverage_penalty") for model in system.models)
        text = read_text(options, system)
        rows = list(settings(system, text, metric, options))
        write("settings", ("coverage penalty", "lenpen", "BLEU", "length ratio"), rows, {"length ratio": 3})
    first = max(rows, key=preference)
    more = f" --model-overrides \"{{'coverage_penalty': {first.coverage_penalty:g}}}\"" * penalised
    say(f"BLEU {first.bleu:.2f}: --lenpen {first.lenpen:g}{more}")
