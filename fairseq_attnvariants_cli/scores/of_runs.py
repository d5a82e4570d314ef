"""Scores of trainings on their test sets, each translated once."""

import hashlib
import json
import math
import os
from collections import defaultdict
from pathlib import Path
from statistics import mean
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from ..options import SEARCH
from ..text.files import UserError, read_lines, write_whole
from .measures import check_tokenised, metrics, scores, within_limits
from .runs import Run

MEASURES = ("BLEU", "chrF2", "TER")  # unless others are asked for
KNOWN = (*MEASURES, "1-gram BLEU", "accuracy")


class Place(NamedTuple):
    """The place of a measurement."""

    system: str
    subset: str
    measure: str


Scores = Dict[Place, Dict[int, float]]  # of each seed


def translations(run: Run, subset: str, options: Any) -> Tuple[str, List[str], List[str]]:
    """The run's translations of a split, and its references; translated only if that was not done before.

    They are files in the run's folder, whose name is made of the checkpoint, the search and the content of the data
    folder, wherever that is.  The path without ``.hypothesis.txt`` and ``.reference.txt`` is returned first.  Where the
    data are gone, earlier translations of them are taken.
    """
    from ..systems.model import generate, load, read_subset

    data = options.data or run.data
    folder = Path(data.split(os.pathsep)[0])  # of several, the one that fairseq takes test sets from
    texts = sorted(path for name in (f"{subset}.*", "dict.*") for path in folder.glob(name) if path.is_file())
    search = [getattr(options, name) for name in ("remove_bpe", *SEARCH)]
    model = [run.checkpoint.name, run.checkpoint.stat().st_size, run.checkpoint.stat().st_mtime_ns]
    made = f"{subset}-{_digest(json.dumps([model, search]).encode())}"
    held = json.dumps([(path.name, _digest(path.read_bytes())) for path in texts])
    stem = run.folder / "translations" / f"{made}-{_digest(held.encode())}"
    kept = list(stem.parent.glob(f"{made}-*.reference.txt"))
    if not texts and len(kept) == 1:
        stem = kept[0].with_name(kept[0].name.removesuffix(".reference.txt"))
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
    hypotheses, references = (list(read_lines(path)) for path in paths)
    return str(stem), hypotheses, references


def _digest(content: bytes) -> str:
    """Twelve characters that tell of it."""
    return hashlib.sha256(content).hexdigest()[:12]


def wanted(asked: Optional[Sequence[str]]) -> Dict[str, Optional[str]]:
    """The measures that are asked for, and of those that are read from files their path.

    Raises:
        UserError: a measure is neither sacrebleu's nor has a file, or two have one name.
    """
    measures = {}
    for given in asked or MEASURES:
        name, _, path = given.partition("=")
        if not path and name not in KNOWN:
            raise UserError(f"--measure {given}: there are {', '.join(KNOWN)}; of another one give NAME=FILE")
        if name in measures:
            raise UserError(f"--measure {name} is given twice: name another one")
        measures[name] = path or None
    return measures


def translated(asked: Optional[Sequence[str]]) -> bool:
    """Whether a measure that is asked for reads translations."""
    return any(path is None or "{translations}" in path for path in wanted(asked).values())


def mean_of_file(path: str, count: Optional[int]) -> Optional[float]:
    """The mean of one number a line, ``count`` of them, of which ``nan`` do not count; None if all are.

    Raises:
        UserError: the file cannot be read, a line is no number, or there are more or fewer.
    """
    numbers = []
    for number, line in enumerate(read_lines(path), start=1):
        try:
            numbers.append(float(line))
        except ValueError:
            numbers.append(math.inf)
        if math.isinf(numbers[-1]):
            raise UserError(f"{path}, line {number}: {line!r} is not a number")
    if not numbers or count not in (None, len(numbers)):
        raise UserError(f"{path} has {len(numbers)} lines, and not one for each of {count or 'the'} sentences")
    told = [number for number in numbers if not math.isnan(number)]
    return mean(told) if told else None


def evaluate(found: Dict[str, List[Run]], options: Any) -> Scores:
    """Every measure of every run on every test set.

    Raises:
        UserError: the runs do not have one test set, or a measure's file is missing.
    """
    measures = wanted(options.measure)
    own = [pair for pair in metrics(options.tokenize) if pair[0] in measures and measures[pair[0]] is None]
    files = {name: path for name, path in measures.items() if path}
    read = translated(options.measure)
    results: Scores = defaultdict(dict)
    for position, subset in enumerate(options.gen_subset):
        expected = list(read_lines(options.reference[position])) if options.reference else None
        texts: Dict[Tuple[str, int], List[str]] = {}
        for name, runs in found.items():
            for run in runs:
                stem, hypotheses, references = "", None, None
                if read:
                    stem, hypotheses, references = translations(run, subset, options)
                    expected = references if expected is None else expected
                    if len(hypotheses) != len(expected):
                        counts = f"{len(hypotheses)} sentences in the data of {run.folder}, but {len(expected)}"
                        raise UserError(f"{subset!r} has {counts} in the reference")
                    if options.reference is None and references != expected:
                        raise UserError(
                            f"{run.folder}: {subset!r} has another text than for other runs: give --reference"
                        )
                    texts[name, run.seed] = hypotheses
                for measure, path in files.items():
                    filled = path.replace("{folder}", str(run.folder)).replace("{subset}", subset)
                    filled = filled.replace("{translations}", stem)
                    value = mean_of_file(filled, None if hypotheses is None else len(hypotheses))
                    if value is not None:
                        results[Place(name, subset, measure)][run.seed] = value
        if own:
            check_tokenised(options.tokenize, expected or [])
        possible = within_limits(own, expected or [], *texts.values())
        for (name, seed), hypotheses in texts.items():
            for score in scores([(name, hypotheses)], [expected or []], possible):
                if score.measure in measures and score.measure not in files:
                    results[Place(name, subset, score.measure)][seed] = score.score
    return dict(results)
