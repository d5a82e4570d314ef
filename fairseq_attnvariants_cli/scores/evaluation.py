"""Scores of trainings on their test sets, each translated once."""

import hashlib
import json
import math
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

from ..options import SEARCH
from ..text.files import UserError, read_lines, say, write_whole
from .measures import check_tokenised, metrics, scores, within_limits
from .runs import Run

MEASURES = ("BLEU", "chrF2", "TER")  # by default
KNOWN = (*MEASURES, "1-gram BLEU", "accuracy")

Measures = dict[str, str | None]  # by name: the file that has it, or None if sacrebleu computes it


class Place(NamedTuple):
    """The system, the test set and the measure of a score."""

    system: str
    subset: str
    measure: str


Scores = dict[Place, dict[int, float]]  # of each seed


class Translations(NamedTuple):
    """A run's translations of a test set."""

    path: str  # of the files in the run's folder, without .hypothesis.txt and .reference.txt
    hypotheses: list[str]
    references: list[str]


def translate(run: Run, subset: str, options: Any) -> Translations:
    """Translate a split with a run, unless the files in the run's folder have its translations already.

    The names of these files have hashes of the checkpoint, the search and the content of the data folder, but not of
    its path. If the data are gone, earlier translations are used, if there is exactly one set.
    """
    from fairseq_attnvariants.tasks.tsv import split_names

    from ..systems.model import generate, load, read_subset

    data = options.data or run.data
    folder = Path(data.split(os.pathsep)[0])  # of several, the one that fairseq takes test sets from
    names = f"{subset}.*", "dict.*", *split_names(subset)
    texts = sorted({path for name in names for path in folder.glob(name) if path.is_file()})
    search = [getattr(options, name) for name in ("remove_bpe", *SEARCH)]
    model = [run.checkpoint.name, run.checkpoint.stat().st_size, run.checkpoint.stat().st_mtime_ns]
    made = f"{subset}-{_digest(json.dumps([model, search]).encode())}"
    held = json.dumps([(path.name, _digest(path.read_bytes())) for path in texts])
    stem = run.folder / "translations" / f"{made}-{_digest(held.encode())}"
    kept = list(stem.parent.glob(f"{made}-*.reference.txt"))
    if not texts and len(kept) == 1:
        stem = kept[0].with_name(kept[0].name.removesuffix(".reference.txt"))
        say(f"there are no data of {subset!r} in {data}: earlier translations in {stem.parent} are scored")
    paths = [f"{stem}.hypothesis.txt", f"{stem}.reference.txt"]
    if not all(map(os.path.exists, paths)):
        system = load([str(run.checkpoint)], data, options.cpu)
        text = read_subset(subset, system.task)
        stem.parent.mkdir(exist_ok=True)
        for path, side, escape in zip(paths, (generate(system, text, options), text), (False, True)):
            with write_whole(path, links=False) as stream:
                for sentence in side.sentences:
                    line = system.task.target_dictionary.string(sentence.item["target"], options.remove_bpe, escape)
                    stream.write(f"{line}\n")
    return Translations(str(stem), *(list(read_lines(path)) for path in paths))


def _digest(content: bytes) -> str:
    """Return twelve characters of the content's SHA-256."""
    return hashlib.sha256(content).hexdigest()[:12]


def parse_measures(asked: Sequence[str] | None) -> Measures:
    """Return the measures that ``--measure`` names, or :data:`MEASURES`.

    Raises:
        UserError: a measure is neither in :data:`KNOWN` nor has a file, or two have the same name.
    """
    measures: Measures = {}
    for given in asked or MEASURES:
        name, _, path = given.partition("=")
        if not path and name not in KNOWN:
            raise UserError(f"--measure {given}: there are {', '.join(KNOWN)}; of another one give NAME=FILE")
        if name in measures:
            raise UserError(f"--measure {name} is given twice: name another one")
        measures[name] = path or None
    return measures


def read_translations(measures: Measures) -> bool:
    """Return whether any of the measures reads translations."""
    return any(path is None or "{translations}" in path for path in measures.values())


def mean_of_file(path: str, count: int | None) -> float | None:
    """Return the mean of one number per line, without ``nan``, or None if all are ``nan``.

    Raises:
        UserError: the file cannot be read, a line is not a number, or there are more or fewer lines than ``count``.
    """
    numbers = []
    for number, line in enumerate(read_lines(path), start=1):
        try:
            numbers.append(float(line if "_" not in line else ""))  # Python would read 1_5 as 15
        except ValueError:
            numbers.append(math.inf)
        if math.isinf(numbers[-1]):
            raise UserError(f"{path}, line {number}: {line!r} is not a number")
    if not numbers or count not in (None, len(numbers)):
        raise UserError(f"{path} has {len(numbers)} lines, and not one for each of {count or 'the'} sentences")
    told = [number for number in numbers if not math.isnan(number)]
    return mean(told) if told else None


def measures_in_files(
    measures: Measures, run: Run, subset: str, translations: Translations | None
) -> Iterator[tuple[str, float]]:
    """Yield the measures of a run that are in files, except for files that have only ``nan``.

    Raises:
        UserError: :func:`mean_of_file` refuses a file.
    """
    for measure, path in measures.items():
        if path is None:
            continue
        path = path.replace("{folder}", str(run.folder)).replace("{subset}", subset)
        if translations is not None:
            path = path.replace("{translations}", translations.path)
        value = mean_of_file(path, None if translations is None else len(translations.hypotheses))
        if value is not None:
            yield measure, value


def evaluate(systems: Mapping[str, Sequence[Run]], options: Any) -> Scores:
    """Compute every measure of every run on every test set.

    Raises:
        UserError: the runs have different test sets, or a measure's file is missing.
    """
    measures = options.measures
    computed = [
        (name, metric) for name, metric in metrics(options.tokenize) if name in measures and measures[name] is None
    ]
    results: Scores = defaultdict(dict)
    for position, subset in enumerate(options.gen_subset):
        reference = list(read_lines(options.reference[position])) if options.reference else []
        hypotheses: dict[tuple[str, int], list[str]] = {}  # by system and seed
        for name, runs in systems.items():
            for run in runs:
                translations = translate(run, subset, options) if read_translations(measures) else None
                if translations is not None:
                    if not (options.reference or hypotheses):
                        reference = translations.references
                    check_test_set(run, subset, translations, reference, bool(options.reference))
                    hypotheses[name, run.seed] = translations.hypotheses
                for measure, value in measures_in_files(measures, run, subset, translations):
                    results[Place(name, subset, measure)][run.seed] = value
        if not computed:
            continue
        check_tokenised(options.tokenize, reference)
        possible = within_limits(computed, reference, *hypotheses.values())
        for (name, seed), lines in hypotheses.items():
            for score in scores([(name, lines)], [reference], possible):
                if score.measure in dict(computed):  # 1-gram precision comes with 1-gram BLEU
                    results[Place(name, subset, score.measure)][seed] = score.score
    return dict(results)


def check_test_set(run: Run, subset: str, translations: Translations, reference: Sequence[str], given: bool) -> None:
    """Refuse translations of another text than the reference, which is ``given`` or that of the first run.

    Raises:
        UserError: the translations are of another text.
    """
    if len(translations.hypotheses) != len(reference):
        counts = f"{len(translations.hypotheses)} sentences in the data of {run.folder}, but {len(reference)}"
        raise UserError(f"{subset!r} has {counts} in the reference")
    if not given and translations.references != reference:
        raise UserError(f"{run.folder}: {subset!r} has another text than for other runs: give --reference")
