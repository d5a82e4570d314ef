"""``fairseq-attnvariants results``: one table of many runs, such as those of a sweep, and their learning curves."""

import argparse
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import mean

from ..options import (
    SEARCH,
    BatchOptions,
    DeviceOptions,
    SearchOptions,
    SubwordOptions,
    amount,
    check_distinct,
    flag,
    numeric,
    option,
)
from ..scores.evaluation import Measures, Place, Scores, evaluate, parse_measures, read_translations
from ..scores.measures import TOKENIZERS
from ..scores.runs import Run, by_system, find_runs
from ..scores.seeds import Comparison, Verdict, estimate, larger, verdicts
from ..shown.charts import Dial, draw_curves, draw_dial, draw_scores
from ..shown.pictures import check_drawn, picture
from ..shown.tables import Cell, Interval, Row, TableOptions, table_file, tables
from ..text.files import UserError, optional, say

LESS_IS_BETTER = ("TER",)
DIFFERENCES = ("difference", "p", "verdict")  # columns of each metric with a baseline


def dial(text: str) -> Dial:
    """Parse ``NAME=VALUE,VALUE,...``: an option's type."""
    name, _, values = text.partition("=")
    if not name or "," not in values:
        raise argparse.ArgumentTypeError(f"{text!r} is not a name and its values, such as distance=0,4,8")
    return Dial(name, values.split(","))


@dataclass
class Options(TableOptions, SubwordOptions, SearchOptions, BatchOptions, DeviceOptions):
    """Find the runs in and under the folders, translate and score their test sets, and print one table. Its rows are
    systems, its columns metrics: means over seeds, with half the width of their 95 % interval by Student's t (±). Runs
    that differ only in the seed are one system. A system is named after its architecture and the options in which
    systems of this architecture differ. Translations stay in the runs' folders; a new checkpoint, other data or another
    search makes them again. --baseline adds differences, paired by seed, with intervals, p of the paired t-test
    adjusted by Holm over the table, and a verdict. The verdict is the first that fits: not tested (no scores), open
    (fewer than three seeds), no relevant difference (the interval lies within --margin on both sides of 0), shown
    (better, p below 0.05), refuted (worse, p below 0.05), open.

    example: fairseq-attnvariants results sweep --remove-bpe --reference test.de --baseline rnnsearch --table
    results.tex --curves curves.pdf

    Args:
        folders: folder of a sweep or of a run; or a pattern such as 'sweep/re*'
        name: name of the systems in each FOLDER (default: their architectures)
        checkpoint: checkpoint in each run's folder
        data: folder made by fairseq-preprocess (default: that of each training)
        gen_subset: splits (default: test); without a value: no scores
        dial: property in which the splits differ, from the easiest to the hardest value: --plot draws curves over it,
            and the verdict is that of the hardest value; it is shown only if the gain is larger there than at the
            easiest value for which the baseline has a score
        reference: reference of each split, in words (default: that of the split, with <<unk>>)
        tokenize: sacrebleu's tokeniser (default: none)
        measure: a metric: BLEU, chrF2, TER, 1-gram BLEU or accuracy (default: BLEU, chrF2, TER); or NAME=FILE, the mean
            of one number per sentence, 'nan' where a sentence has none; in FILE {folder} is the run's folder, {subset}
            the split, and {translations} the path of the translations without .hypothesis.txt; give it several times
            for several metrics
        less_is_better: metrics whose smaller values are better, besides TER
        baseline: the system to compare with, by its name in the table
        margin: differences within ±X are not relevant
        digits: decimal places of metrics in printed, .md and .tex tables (default: 2)
        seed_table: also write the scores of every seed, in one of the same formats
        curves: draw learning curves from fairseq's logs
        curve_measure: metric of the curves, as the log names it (default: ppl)
        plot: draw every seed's scores and their means on one test set, or curves over --dial
    """

    folders: list[str] = option("FOLDER", positional=True, nargs="+")
    name: list[str] | None = option("TEXT", action="append")
    checkpoint: str = option("NAME", default="checkpoint_best.pt")
    data: str | None = option("DATA")
    gen_subset: list[str] = option("NAME", nargs="*", default=["test"])
    dial: Dial | None = option("NAME=V1,V2,...", type=dial)
    reference: list[str] | None = option(nargs="+")
    tokenize: str | None = option("NAME", choices=TOKENIZERS)
    measure: list[str] | None = option("NAME[=FILE]", action="append")
    less_is_better: list[str] = option("NAME", nargs="+", default=[])
    baseline: str | None = option("SYSTEM")
    margin: float | None = numeric(metavar="X", type=amount)
    digits: int = numeric(2, choices=range(16))  # a float has no more
    seed_table: str | None = option()
    curves: str | None = option()
    curve_measure: str | None = option("NAME")
    plot: str | None = option()
    measures: Measures = field(init=False)

    def __post_init__(self) -> None:
        """Read ``--measure`` once."""
        self.measures = parse_measures(self.measure)


def differences(results: Scores, baseline: str) -> dict[Place, dict[int, float]]:
    """Return the differences to the baseline by seed, for all systems that share a seed with it."""
    found = {}
    for place, values in results.items():
        base = results.get(place._replace(system=baseline), {})
        paired = {seed: values[seed] - base[seed] for seed in sorted(values) if seed in base}
        if paired and place.system != baseline:
            found[place] = paired
    return found


def decide(
    found: Mapping[Place, Mapping[int, float]], names: Iterable[str], results: Scores, options: Options
) -> dict[Place, Verdict]:
    """Return the verdicts on all differences, as one family of tests; with a dial, only at its hardest value."""
    subsets = options.gen_subset
    less = (*LESS_IS_BETTER, *options.less_is_better)
    gains = {
        place: {seed: -difference if place.measure in less else difference for seed, difference in paired.items()}
        for place, paired in found.items()
    }
    decisive = subsets[-1:] if options.dial else subsets
    others = [name for name in names if name != options.baseline]
    family = {}
    for place in itertools.starmap(Place, itertools.product(others, decisive, options.measures)):
        gain, grows = gains.get(place), True
        if gain and options.dial and options.baseline:
            base = place._replace(system=options.baseline)
            easiest = next(subset for subset in subsets if base._replace(subset=subset) in results)
            grows = larger(gain, gains.get(place._replace(subset=easiest), {}))
        family[place] = Comparison(estimate([*gain.values()]) if gain else None, options.margin, grows)
    return dict(zip(family, verdicts([*family.values()])))


def summary(
    systems: Mapping[str, Sequence[Run]], results: Scores, options: Options
) -> tuple[list[str], list[list[Cell]]]:
    """Return headers and rows: one row per system and test set, with measures, differences and verdicts."""
    test_set, labels = _test_sets(options)
    measures = [*options.measures] if options.gen_subset else []
    compared = differences(results, options.baseline) if options.baseline else {}
    decided = decide(compared, systems, results, options) if options.baseline and measures else {}
    seeds = ["seeds", "pairs"] if options.baseline else ["seeds"]
    headers = ["system", *test_set, *seeds, "parameters", "updates", "hours"]
    for measure in measures:
        headers += [measure, *([f"{measure} {what}" for what in DIFFERENCES] if options.baseline else [])]
    rows: list[list[Cell]] = []
    for name, runs in systems.items():
        for subset, label in zip(options.gen_subset or [""], labels):
            row: list[Cell] = [name, *label, len(runs)]
            if options.baseline:
                shared = {run.seed for run in runs} & {run.seed for run in systems[options.baseline]}
                row.append(None if name == options.baseline else len(shared))
            row += [runs[0].parameters, round(mean(run.updates for run in runs)), mean(run.hours for run in runs)]
            for place in (Place(name, subset, measure) for measure in measures):
                row.append(_interval(results.get(place)))
                if options.baseline:
                    word, p = decided.get(place, (None, None))
                    row += [_interval(compared.get(place), signed=True), p, word]
            rows.append(row)
    return headers, rows


def every_seed(systems: Mapping[str, Sequence[Run]], results: Scores, options: Options) -> tuple[list[str], list[Row]]:
    """Return headers and rows: one row per system, test set and seed, with measures."""
    test_set, labels = _test_sets(options)
    rows: list[Row] = [
        [name, *label, seed, *(results.get(Place(name, subset, measure), {}).get(seed) for measure in options.measures)]
        for name, runs in systems.items()
        for subset, label in zip(options.gen_subset, labels)
        for seed in sorted(run.seed for run in runs)
    ]
    return ["system", *test_set, "seed", *options.measures], rows


def _test_sets(options: Options) -> tuple[list[str], list[list[str]]]:
    """Return the header of the column that names test sets, and its cells; nothing for a single test set."""
    subsets = options.gen_subset or [""]
    if len(subsets) == 1:
        return [], [[]]
    if options.dial:
        return [options.dial.name], [[value] for value in options.dial.values]
    return ["test set"], [[subset] for subset in subsets]


def _interval(values: Mapping[int, float] | None, signed: bool = False) -> Interval | None:
    """Return the mean of the values of all seeds, with its interval, or None without values."""
    if values is None:
        return None
    known = estimate([*values.values()])
    return Interval(known.mean, known.margin, signed)


def check(options: Options) -> None:
    """Refuse options that do not fit together.

    Raises:
        UserError: there are such options; the message has the reason.
    """
    subsets = options.gen_subset
    check_distinct("--gen-subset", subsets)
    if options.measure and not subsets:
        raise UserError("--measure needs a test set: name a --gen-subset")
    if options.reference and len(options.reference) != len(subsets):
        raise UserError(f"{len(options.reference)} --reference for {len(subsets)} --gen-subset")
    if options.plot and not subsets:
        raise UserError("--plot draws scores: name a --gen-subset")
    if options.plot and len(subsets) > 1 and not options.dial:
        raise UserError(f"--plot draws one test set, and there are {len(subsets)}: name one, or their --dial")
    check_drawn(options, "curve_measure", plot="curves")
    if options.seed_table and not subsets:
        raise UserError("--seed-table has scores: name a --gen-subset")
    if options.dial and len(options.dial.values) != len(subsets):
        raise UserError(f"--dial has {len(options.dial.values)} values for {len(subsets)} --gen-subset")
    if options.margin is not None and not options.baseline:
        raise UserError("--margin says which differences do not matter: name a --baseline")
    for measure in options.less_is_better:
        if measure not in options.measures:
            raise UserError(f"--less-is-better {measure}: the measures are {', '.join(options.measures)}")
    if options.less_is_better and not options.baseline:
        raise UserError("--less-is-better is for verdicts: name a --baseline")
    if not (subsets and read_translations(options.measures)):
        for name in ("data", "reference", "remove_bpe", "tokenize", *SEARCH):
            if getattr(options, name) is not None:
                raise UserError(f"{flag(name)} needs a measure of translations, and none is given")


def warn_of_missing(systems: Mapping[str, Sequence[Run]], results: Scores) -> None:
    """Report means of fewer seeds than their rows have, because there was nothing to measure."""
    for place, values in results.items():
        missing = sorted({run.seed for run in systems[place.system]} - values.keys())
        if missing:
            seeds = ", ".join(map(str, missing))
            where = f"{place.measure} of {place.system} on {place.subset!r}"
            say(f"{where} is of {len(values)} seeds: nothing to measure with seed {seeds}")


def warn_of_differences(systems: Mapping[str, Sequence[Run]], baseline: str) -> None:
    """Report options, outside model and criterion, that differ from the baseline's and are not in a system's name."""
    base = systems[baseline][0].options
    for name, (run, *_) in systems.items():
        other = [key.split(".", 1) for key in sorted({*base, *run.options}) if run.options.get(key) != base.get(key)]
        kinds = {group for group, option in other if option == "_name"}  # whose other options differ, too
        both = base.keys() & run.options.keys()
        named = [
            group if option == "_name" or (group in kinds and f"{group}.{option}" not in both) else option
            for group, option in other
            if group not in ("model", "criterion")
        ]
        shown = {word.partition("=")[0] for word in name.split() if "=" in word}
        if more := [label for label in dict.fromkeys(named) if label not in shown]:
            say(f"{name} and {baseline} differ in more than the model: {', '.join(more)}")


def run(options: Options) -> None:
    """Find the runs, translate and score, print the table, and draw."""
    check(options)
    options.settle()
    options.tokenize = options.tokenize or "none"
    with (
        tables(options.json, results=options.table) as write,
        optional(table_file, options.seed_table) as seeds,
        optional(picture, options.curves) as curves,
        optional(picture, options.plot) as plot,
    ):
        systems = by_system(find_runs(options.folders, options.checkpoint, options.name))
        if options.baseline:
            if options.baseline not in systems:
                raise UserError(f"--baseline {options.baseline}: there are {', '.join(systems)}")
            systems = {options.baseline: systems[options.baseline], **systems}
            warn_of_differences(systems, options.baseline)
        results = evaluate(systems, options)
        warn_of_missing(systems, results)
        headers, rows = summary(systems, results, options)
        digits: dict[str, int] = {}
        for measure in options.measures:
            digits.update({measure: options.digits, f"{measure} difference": options.digits, f"{measure} p": 4})
        write("results", headers, rows, digits)
        if seeds:
            seeds(*every_seed(systems, results, options))
        if curves:
            curves(draw_curves(systems, options.curve_measure or "ppl"))
        if plot and options.dial:
            plot(draw_dial([*systems], results, options.gen_subset, options.dial))
        elif plot:
            plot(draw_scores([*systems], results, options.gen_subset[0]))
