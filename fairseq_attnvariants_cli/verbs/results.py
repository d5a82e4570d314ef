"""``fairseq-attnvariants results``: one table of many runs, such as a sweep's, and their learning curves."""

import argparse
import contextlib
import glob
import hashlib
import json
import math
import os
import re
import sys
from collections import defaultdict
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from ..files import UserError, read_lines, write_whole
from ..measures import TOKENIZERS, metrics, scores, within_limits
from ..options import add_batch_options, add_pieces_option, add_search_options, add_user_dir_option, amount
from ..pictures import finish, font_families, legend_label, picture
from ..seeds import Estimate, estimate, holm, verdict
from ..tables import Cell, Interval, Row, add_table_options, table_file, tables

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MEASURES = ("BLEU", "chrF2", "TER")  # unless others are asked for
KNOWN = (*MEASURES, "1-gram BLEU", "accuracy")
LESS_IS_BETTER = ("TER",)
DIFFERENCES = ("difference", "p", "verdict")  # columns of each measure beside a baseline
GROUPS = ("task", "criterion", "optimizer", "lr_scheduler", "dataset", "optimization", "model")
# of other groups, what changes a training
MORE = {
    "common": ("fp16", "bf16", "amp", "memory_efficient_fp16", "memory_efficient_bf16"),
    "checkpoint": ("finetune_from_model", "best_checkpoint_metric", "maximize_best_checkpoint_metric"),
    "distributed_training": ("distributed_world_size",),
}
# options that do not tell systems apart; for stock models fairseq keeps all options together
PLACES = re.compile(r"seed|user_dir|save_dir|restore_file|log_.*|.*_logdir|num_workers|no_progress_bar|arch")
VALIDATION = re.compile(r"valid on '([^']+)' subset \| (.*)")  # of fairseq's log
NUMBER = re.compile(r"(\w+) (-?\d+(?:\.\d+)?(?:e[-+]?\d+)?|nan|inf)(?= \||$)")


class Run(NamedTuple):
    """A training."""

    folder: Path
    checkpoint: Path
    data: str  # folder
    seed: int
    name: str  # given to its system, or else the architecture
    options: Dict[str, str]  # as "criterion.label_smoothing", and "criterion._name" for which one it is
    parameters: int
    updates: int  # of the checkpoint, as are the hours
    hours: float


class Dial(NamedTuple):
    """What the test sets differ in."""

    name: str
    values: List[str]  # from the easiest to the hardest


class Place(NamedTuple):
    """Where something was measured."""

    system: str
    subset: str
    measure: str


Scores = Dict[Place, Dict[int, float]]  # of each seed


def find_runs(folders: Sequence[str], checkpoint: str, names: Optional[Sequence[str]] = None) -> List[Run]:
    """The runs in or under the folders: whatever has a ``checkpoint`` of that name.

    Args:
        folders: paths, or patterns of them such as ``sweep/recatt-*``.
        checkpoint: the name of a file.
        names: what the systems of each folder are called (default: after their architectures).

    Raises:
        UserError: a folder has no run, or there are more or fewer names than folders.
    """
    from ..model import read_checkpoint

    if names and len(names) != len(folders):
        raise UserError(f"{len(names)} --name for {len(folders)} folders: give one for each, patterns in quotes")
    runs = []
    given: Sequence[Optional[str]] = names or [None] * len(folders)
    for folder, name in zip(folders, given):
        places = [folder] if os.path.isdir(folder) else sorted(glob.glob(folder))
        if not places:
            raise UserError(f"{folder}: there is no such folder")
        found = find_files(places, checkpoint)
        if not found:
            raise UserError(f"{folder}: there is no {checkpoint} in it or under it")
        for path in sorted(found):
            run = read_run(path, read_checkpoint(str(path)))
            runs.append(run if name is None else run._replace(name=name))
    return runs


def find_files(folders: Sequence[str], name: str) -> List[Path]:
    """The files of a name, or a pattern, in and under the folders, each folder once whatever links lead to it."""
    seen, found = set(), []
    for folder in folders:
        for place, inner, _ in os.walk(folder, followlinks=True):
            inner[:] = [] if os.path.realpath(place) in seen else sorted(one for one in inner if one[0] != ".")
            if os.path.realpath(place) not in seen:
                found += [Path(place, path) for path in glob.glob(name, root_dir=place)]
            seen.add(os.path.realpath(place))
    return found


def read_run(checkpoint: Path, state: Dict[str, Any]) -> Run:
    """What a checkpoint's content tells of its training.

    Raises:
        UserError: the content lacks something of that, or has something else in its place.
    """
    cfg = {**state["cfg"], "extra_state": state["extra_state"]}
    groups = {name: vars(group) if isinstance(group, argparse.Namespace) else group for name, group in cfg.items()}

    def told(group: str, option: str, *kinds: Any) -> Any:
        value = (groups.get(group) or {}).get(option)
        if not isinstance(value, kinds) or (float in kinds and not 0 <= value <= sys.float_info.max):
            raise UserError(f"{checkpoint} cannot be listed: its {group}.{option} is {str(value)[:80]!r}")
        return value

    for name in (*GROUPS, *MORE):
        if not isinstance(groups.get(name), (dict, type(None))):
            raise UserError(f"{checkpoint} cannot be listed: its {name} is no mapping of options")
    options = {
        f"{name}.{key}": str(group.get(key))
        for name, group in ((name, groups.get(name) or {}) for name in (*GROUPS, *MORE))
        for key in MORE.get(name, group)
        if not PLACES.fullmatch(str(key))
    }
    tensors = {tensor.data_ptr(): tensor.numel() for tensor in state["model"].values() if tensor.is_floating_point()}
    return Run(
        checkpoint.parent.parent if checkpoint.parent.name == "checkpoints" else checkpoint.parent,
        checkpoint,
        told("task", "data", str),
        told("common", "seed", int),
        told("model", "_name", str),
        options,
        sum(tensors.values()),
        state["optimizer_history"][-1]["num_updates"],
        told("extra_state", "previous_training_time", int, float) / 3600,
    )


def systems(runs: Sequence[Run]) -> Dict[str, List[Run]]:
    """Runs that differ in nothing but the seed, by name, and by the options in which those of one name differ.

    An option that only one criterion (or task, optimizer, ...) has tells apart the runs with that one.
    """
    found: Dict[str, List[Run]] = defaultdict(list)
    for run in runs:
        same = [other.options for other in runs if other.name == run.name]
        words = [run.name]
        for key in sorted({key for options in same for key in options}, key=lambda key: ("._name" not in key, key)):
            group, _, option = key.partition(".")
            kind = f"{group}._name"
            alike = [options for options in same if key == kind or options.get(kind) == run.options.get(kind)]
            own = run.options.get(key, "None")
            if own != "None" and any(options.get(key, "None") != own for options in alike):
                words.append(f"{group if key == kind else option}={own}")
        name = " ".join(dict.fromkeys(words))
        if run.seed in [other.seed for other in found[name]]:
            raise UserError(f"{run.folder} and another run are both {name} with seed {run.seed}: leave one out")
        found[name].append(run)
    return dict(found)


def translations(run: Run, subset: str, options: argparse.Namespace) -> Tuple[str, List[str], List[str]]:
    """The run's translations of a split, and its references; translated only if that was not done before.

    They are in the run's folder, under a name that tells of the checkpoint, of the search and of what the data folder
    holds, wherever that is; it comes first, without ``.hypothesis.txt`` and ``.reference.txt``.  Where the data are
    gone, what was translated of them before is taken.
    """
    from ..model import generate, load, read_text

    data = options.data or run.data
    folder = Path(data.split(os.pathsep)[0])  # of several, the one that fairseq takes test sets from
    texts = sorted(path for name in (f"{subset}.*", "dict.*") for path in folder.glob(name))
    search = [getattr(options, name) for name in ("remove_bpe", "beam", "lenpen", "max_len_a", "max_len_b")]
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
        text = read_text(argparse.Namespace(source=None, reference=None, gen_subset=subset), system)
        stem.parent.mkdir(exist_ok=True)
        for path, side, escape in zip(paths, (generate(system, text, options), text), (False, True)):
            with write_whole(path) as stream:
                for sentence in side.sentences:
                    line = system.task.target_dictionary.string(sentence.item["target"], options.remove_bpe, escape)
                    stream.write(f"{line}\n")
    hypotheses, references = (list(read_lines(path)) for path in paths)
    return str(stem), hypotheses, references


def _digest(content: bytes) -> str:
    """Twelve characters that tell of it."""
    return hashlib.sha256(content).hexdigest()[:12]


def wanted(options: argparse.Namespace) -> Dict[str, Optional[str]]:
    """The measures that are asked for, and of those that are read from files their path.

    Raises:
        UserError: a measure is neither sacrebleu's nor has a file.
    """
    measures = {}
    for given in options.measure or MEASURES:
        name, _, path = given.partition("=")
        if not path and name not in KNOWN:
            raise UserError(f"--measure {given}: there are {', '.join(KNOWN)}; of another one give NAME=FILE")
        measures[name] = path or None
    return measures


def mean_of_file(path: str, count: Optional[int]) -> float:
    """The mean of one number a line, ``count`` of them.

    Raises:
        UserError: the file cannot be read, a line is no number, or there are more or fewer.
    """
    numbers = []
    for number, line in enumerate(read_lines(path), start=1):
        try:
            numbers.append(float(line))
        except ValueError:
            numbers.append(math.nan)
        if not math.isfinite(numbers[-1]):
            raise UserError(f"{path}, line {number}: {line!r} is not a number")
    if not numbers or count not in (None, len(numbers)):
        raise UserError(f"{path} has {len(numbers)} lines, and not one for each of {count or 'the'} sentences")
    return mean(numbers)


def evaluate(found: Dict[str, List[Run]], options: argparse.Namespace) -> Scores:
    """Every measure of every run on every test set.

    Raises:
        UserError: the runs do not have one test set, or a measure's file is missing.
    """
    measures = wanted(options)
    own = [pair for pair in metrics(options.tokenize) if pair[0] in measures and measures[pair[0]] is None]
    files = {name: path for name, path in measures.items() if path}
    results: Scores = defaultdict(dict)
    for position, subset in enumerate(options.gen_subset):
        expected = list(read_lines(options.reference[position])) if options.reference else None
        texts: Dict[Tuple[str, int], List[str]] = {}
        for name, runs in found.items():
            for run in runs:
                stem, hypotheses, references = "", None, None
                if own or any("{translations}" in path for path in files.values()):
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
                    for field, value in (("folder", run.folder), ("subset", subset), ("translations", stem)):
                        path = path.replace(f"{{{field}}}", str(value))
                    value = mean_of_file(path, None if hypotheses is None else len(hypotheses))
                    results[Place(name, subset, measure)][run.seed] = value
        possible = within_limits(own, expected or [], *texts.values())
        for (name, seed), hypotheses in texts.items():
            for score in scores([(name, hypotheses)], [expected or []], possible):
                if score.measure in measures:
                    results[Place(name, subset, score.measure)][seed] = score.score
    return dict(results)


def differences(results: Scores, baseline: str) -> Dict[Place, Estimate]:
    """The differences to the baseline, paired by seed, of all that have a seed of it."""
    found = {}
    for place, values in results.items():
        beside = results.get(place._replace(system=baseline), {})
        pairs = [values[seed] - beside[seed] for seed in sorted(values) if seed in beside]
        if pairs and place.system != baseline:
            found[place] = estimate(pairs)
    return found


def verdicts(found: Mapping[Place, Estimate], options: argparse.Namespace) -> Dict[Place, Optional[str]]:
    """What the differences tell; over a dial, at its hardest value alone."""
    told = {}
    subsets = options.gen_subset
    for place, difference in found.items():
        if options.dial and place.subset != subsets[-1]:
            continue
        easier = [found.get(place._replace(subset=subset)) for subset in subsets[:-1]] if options.dial else []
        gains = [*filter(None, easier), difference]
        if place.measure in (*LESS_IS_BETTER, *options.less_is_better):
            gains = [gain._replace(mean=-gain.mean) for gain in gains]
        told[place] = verdict(gains, options.margin)
    return told


def summary(
    found: Dict[str, List[Run]], results: Scores, options: argparse.Namespace
) -> Tuple[List[str], List[List[Cell]]]:
    """Headers and rows: systems, on every test set, by measures, each with what its differences tell."""
    subsets = options.gen_subset or [""]
    headers, labels = _test_sets(options)
    seeds = ["seeds", "pairs"] if options.baseline else ["seeds"]
    headers = ["system", *headers, *seeds, "parameters", "updates", "hours"]
    rows: List[List[Cell]] = []
    for name, runs in found.items():
        for label in labels:
            rows.append([name, *label, len(runs)])
            if options.baseline:
                beside = {run.seed for run in runs} & {run.seed for run in found[options.baseline]}
                rows[-1].append(None if name == options.baseline else len(beside))
            rows[-1] += [runs[0].parameters, round(mean(run.updates for run in runs))]
            rows[-1] += [mean(run.hours for run in runs)]
    compared = differences(results, options.baseline) if options.baseline else {}
    ps = dict(zip(compared, holm([difference.p for difference in compared.values()])))
    told = verdicts(compared, options)
    for measure in wanted(options) if options.gen_subset else []:
        headers += [measure, *([f"{measure} {what}" for what in DIFFERENCES] if options.baseline else [])]
        places = [Place(name, subset, measure) for name in found for subset in subsets]
        for place, row in zip(places, rows):
            row.append(_interval(estimate([*results[place].values()]) if place in results else None))
            if options.baseline:
                difference = compared.get(place)
                row += [_interval(difference, signed=True), ps.get(place), told.get(place)]
    return headers, rows


def every_seed(
    found: Dict[str, List[Run]], results: Scores, options: argparse.Namespace
) -> Tuple[List[str], List[Row]]:
    """Headers and rows: systems, on every test set, with every seed, by measures."""
    headers, labels = _test_sets(options)
    measures = wanted(options)
    rows: List[Row] = [
        [name, *label, seed, *(results.get(Place(name, subset, measure), {}).get(seed) for measure in measures)]
        for name, runs in found.items()
        for subset, label in zip(options.gen_subset, labels)
        for seed in sorted(run.seed for run in runs)
    ]
    return ["system", *headers, "seed", *measures], rows


def _test_sets(options: argparse.Namespace) -> Tuple[List[str], List[List[str]]]:
    """The header of the column that names test sets, and what stands there for each; of a single one nothing."""
    subsets = options.gen_subset or [""]
    if len(subsets) == 1:
        return [], [[]]
    if options.dial:
        return [options.dial.name], [[value] for value in options.dial.values]
    return ["test set"], [[subset] for subset in subsets]


def _interval(known: Optional[Estimate], signed: bool = False) -> Optional[Interval]:
    return known and Interval(known.mean, known.margin, signed)


def curve(run: Run, measure: str) -> List[Tuple[int, float]]:
    """Updates and a measure of the validations that fairseq's logs in the run's folder tell of.

    Of several validation sets it is the one that was logged first, which is fairseq's first.
    """
    points: Dict[str, Dict[int, float]] = defaultdict(dict)
    for path in [*run.folder.glob("*.log"), *run.checkpoint.parent.glob("*.log")]:
        for line in read_lines(str(path)):
            if match := VALIDATION.search(line):
                numbers = dict(NUMBER.findall(match[2]))
                if {measure, "num_updates"} <= numbers.keys():
                    points[match[1]][int(numbers["num_updates"])] = float(numbers[measure])
    return sorted(next(iter(points.values()), {}).items())


def draw_curves(found: Dict[str, List[Run]], measure: str) -> "Figure":
    """A line for every run, one colour for every system, marked with the number of the seed.

    Raises:
        UserError: there are no logs, or they do not have the measure.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 3.6))
    axes = figure.subplots()
    drawn = []
    for k, (name, runs) in enumerate(found.items()):
        lines = [(run.seed, points) for run in runs if (points := curve(run, measure))]
        for seed, points in lines:
            axes.plot(*zip(*points), color=f"C{k}", marker=f"${seed}$", markevery=0.2, alpha=0.8)
        if lines:
            drawn.append(name)
            axes.plot([], [], color=f"C{k}", label=legend_label(name))
    if not drawn:
        raise UserError(f"no *.log of the runs has {measure!r} of a validation: train with --log-format simple")
    axes.set_xlabel("updates")
    axes.set_ylabel(f"validation {measure}")
    finish(axes, "".join(drawn))
    return figure


def drawable(found: Dict[str, List[Run]], results: Scores, subsets: Sequence[str]) -> List[str]:
    """The measures that all systems have on these test sets.

    Raises:
        UserError: there are none.
    """
    measures = dict.fromkeys(place.measure for place in results)
    everywhere = [
        measure for measure in measures
        if all(Place(name, subset, measure) in results for name in found for subset in subsets)
    ]  # fmt: skip
    if not everywhere:
        raise UserError("--plot: no measure is there for every system and every test set: name one with --measure")
    return everywhere


def draw_scores(found: Dict[str, List[Run]], results: Scores, options: argparse.Namespace) -> "Figure":
    """For every measure the scores of all seeds on the first test set, and their mean as a line.

    Raises:
        UserError: as :func:`drawable`.
    """
    from matplotlib.figure import Figure

    measures = drawable(found, results, options.gen_subset[:1])
    figure = Figure(figsize=(2.4 * len(measures), 0.8 + 0.4 * len(found)))
    panels = figure.subplots(1, len(measures), sharey=True, squeeze=False)[0]
    for axes, measure in zip(panels, measures):
        for k, name in enumerate(found):
            values = results[Place(name, options.gen_subset[0], measure)]
            for seed, value in values.items():
                axes.plot([value], [k], color=f"C{k}", marker=f"${seed}$")
            axes.plot([mean(values.values())], [k], "|", color=f"C{k}", markersize=16)
        axes.set_xlabel(measure)
        axes.set_yticks(range(len(found)), list(found), parse_math=False, fontfamily=font_families("".join(found)))
        axes.set_ylim(len(found) - 0.5, -0.5)
        finish(axes)
    return figure


def draw_dial(found: Dict[str, List[Run]], results: Scores, options: argparse.Namespace) -> "Figure":
    """For every measure the means over the dial, a line for every system, with the intervals as bands.

    Raises:
        UserError: as :func:`drawable`.
    """
    from matplotlib.figure import Figure

    measures = drawable(found, results, options.gen_subset)
    figure = Figure(figsize=(1.5 + 3.5 * len(measures), 3.6))
    ticks = range(len(options.dial.values))
    for axes, measure in zip(figure.subplots(1, len(measures), squeeze=False)[0], measures):
        for k, name in enumerate(found):
            values = [results[Place(name, subset, measure)] for subset in options.gen_subset]
            known = [estimate([*seeds.values()]) for seeds in values]
            axes.plot(ticks, [one.mean for one in known], "o-", markersize=4, color=f"C{k}", label=legend_label(name))
            if all(one.margin is not None for one in known):
                axes.fill_between(
                    ticks, [one.low for one in known], [one.high for one in known], color=f"C{k}", alpha=0.15
                )
        axes.set_xticks(ticks, options.dial.values, parse_math=False)
        axes.set_xlabel(options.dial.name, parse_math=False)
        axes.set_ylabel(measure, parse_math=False)
        finish(axes, "".join(found) if measure == measures[0] else "")
    return figure


def check(options: argparse.Namespace) -> None:
    """Refuse what does not go together.

    Raises:
        UserError: with the reason.
    """
    subsets = options.gen_subset
    if options.reference and len(options.reference) != len(subsets):
        raise UserError(f"{len(options.reference)} --reference for {len(subsets)} --gen-subset")
    if options.plot and not subsets:
        raise UserError("--plot draws scores: name a --gen-subset")
    if options.seed_table and not subsets:
        raise UserError("--seed-table has scores: name a --gen-subset")
    if options.dial and len(options.dial.values) != len(subsets):
        raise UserError(f"--dial has {len(options.dial.values)} values for {len(subsets)} --gen-subset")
    if options.margin is not None and not options.baseline:
        raise UserError("--margin says which differences do not matter: name a --baseline")
    for measure in options.less_is_better:
        if measure not in wanted(options):
            raise UserError(f"--less-is-better {measure}: the measures are {', '.join(wanted(options))}")


def run(options: argparse.Namespace) -> None:
    """Find the runs, translate and score, print the table, draw."""
    check(options)
    with contextlib.ExitStack() as outputs:
        write = outputs.enter_context(tables(options.json, results=options.table))
        seeds = options.seed_table and outputs.enter_context(table_file(options.seed_table))
        pictures = [path and outputs.enter_context(picture(path)) for path in (options.curves, options.plot)]
        found = systems(find_runs(options.folders, options.checkpoint, options.name))
        if options.baseline:
            if options.baseline not in found:
                raise UserError(f"--baseline {options.baseline}: there are {', '.join(found)}")
            found = {options.baseline: found[options.baseline], **found}
        results = evaluate(found, options)
        headers, rows = summary(found, results, options)
        write("results", headers, rows, {header: 4 for header in headers if header.endswith(" p")})
        if seeds:
            seeds(*every_seed(found, results, options))
        for save, draw in zip(pictures, (
            lambda: draw_curves(found, options.curve_measure),
            lambda: (draw_dial if options.dial else draw_scores)(found, results, options),
        )):  # fmt: skip
            if save:
                save(draw())


def dial(text: str) -> Dial:
    """``NAME=VALUE,VALUE,...``."""
    name, _, values = text.partition("=")
    if not name or "," not in values:
        raise argparse.ArgumentTypeError(f"{text!r} is not a name and its values, such as distance=0,4,8")
    return Dial(name, values.split(","))


def add(parser: argparse.ArgumentParser) -> None:
    """Describe the verb and its options."""
    parser.description = (
        "Find the runs in and under the folders, translate and score their test sets, and print one table: systems by "
        "measures, as means over the seeds with half of the width of their 95 % interval by Student's t (±). Runs that "
        "differ only in the seed are one system; systems are named after their architecture and the options in which "
        "those of one architecture differ. Translations are kept in the runs' folders, and made again only for a new "
        "checkpoint, other data or another search. With --baseline also the differences to it, paired by seed, with "
        "their intervals, p of the paired t-test adjusted by Holm for all tests in the table, and a verdict: shown "
        "(better: the interval, which is not adjusted, lies on that side of 0), refuted (on the other), level (within "
        "--margin to both sides), or open. A single seed has neither interval nor verdict."
    )
    parser.epilog = (
        "example: fairseq-attnvariants results sweep --remove-bpe --reference test.de --baseline rnnsearch "
        "--table results.tex --curves curves.pdf"
    )
    parser.add_argument(
        "folders", metavar="FOLDER", nargs="+", help="of a sweep, or of single runs; or a pattern such as 'sweep/re*'"
    )
    parser.add_argument(
        "--name", metavar="TEXT", action="append", help="of the systems in each FOLDER (default: their architectures)"
    )
    parser.add_argument("--checkpoint", metavar="NAME", default="checkpoint_best.pt", help="default: %(default)s")
    parser.add_argument("--data", metavar="DATA", help="folder of fairseq-preprocess (default: that of each training)")
    parser.add_argument(
        "--gen-subset", metavar="NAME", nargs="*", default=["test"], help="splits (default: test); bare: no scores"
    )
    parser.add_argument(
        "--dial",
        metavar="NAME=V1,V2,...",
        type=dial,
        help="what the splits differ in, from the easiest to the hardest: --plot draws curves over it, and there is a "
        "verdict at the hardest one, which is shown only if the gain is larger there than at the easiest",
    )
    parser.add_argument(
        "--reference", metavar="FILE", nargs="+", help="of each split, in words (default: the split's, with <<unk>>)"
    )
    parser.add_argument("--cpu", action="store_true", help="do not use CUDA")
    add_user_dir_option(parser)
    add_batch_options(parser)
    add_search_options(parser)
    add_pieces_option(parser)
    parser.add_argument(
        "--tokenize", metavar="NAME", choices=TOKENIZERS, default="none", help="sacrebleu's tokeniser (default: none)"
    )
    parser.add_argument(
        "--measure",
        metavar="NAME[=FILE]",
        action="append",
        help=f"one of {', '.join(KNOWN)} (default: {', '.join(MEASURES)}); or the mean of one number a sentence, read "
        "from FILE, in which {folder} is the run's folder, {subset} the split, and {translations} the path of the "
        "translations without .hypothesis.txt; several times for several",
    )
    parser.add_argument(
        "--less-is-better", metavar="NAME", nargs="+", default=[], help="of which measures, for the verdict; TER is one"
    )
    parser.add_argument("--baseline", metavar="SYSTEM", help="the system to compare with, by its name in the table")
    parser.add_argument("--margin", metavar="X", type=amount, help="differences within ±X do not matter, and are level")
    add_table_options(parser)
    parser.add_argument(
        "--seed-table", metavar="FILE", help="write the scores of every seed, too, in one of the same formats"
    )
    parser.add_argument("--curves", metavar="FILE", help="draw learning curves from fairseq's logs")
    parser.add_argument("--curve-measure", metavar="NAME", default="ppl", help="as the log names it (default: ppl)")
    parser.add_argument(
        "--plot", metavar="FILE", help="draw the scores of every seed and their means, or curves over the --dial"
    )
