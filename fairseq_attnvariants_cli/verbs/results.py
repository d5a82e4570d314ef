"""``fairseq-attnvariants results``: one table of many runs, such as a sweep's, and their learning curves."""

import argparse
import contextlib
import glob
import hashlib
import json
import os
import re
from collections import defaultdict
from pathlib import Path
from statistics import mean, stdev
from typing import TYPE_CHECKING, Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from ..files import UserError, read_lines, write_whole
from ..measures import TOKENIZERS, metrics, scores, within_limits
from ..options import add_batch_options, add_pieces_option, add_search_options, add_user_dir_option, positive
from ..pictures import finish, font_families, picture
from ..tables import Cell, add_table_options, tables

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MEASURES = ("BLEU", "chrF2", "TER")
GROUPS = ("task", "criterion", "optimizer", "lr_scheduler", "dataset", "optimization", "model")
# options that do not tell systems apart; for stock models fairseq keeps all options together
PLACES = re.compile(r"_name|seed|user_dir|save_dir|restore_file|log_.*|.*_logdir|num_workers|no_progress_bar|arch")
VALIDATION = re.compile(r"valid on '[^']+' subset \| (.*)")  # of fairseq's log
NUMBER = re.compile(r"(\w+) (-?\d+(?:\.\d+)?(?:e[-+]?\d+)?|nan|inf)(?= \||$)")


class Run(NamedTuple):
    """A training."""

    folder: Path
    checkpoint: Path
    data: str  # folder
    seed: int
    arch: str
    options: Dict[str, str]
    parameters: int
    updates: int  # of the checkpoint, as are the hours
    hours: float


class Result(NamedTuple):
    """What one run's translations of one test set score."""

    system: str
    subset: str
    measure: str
    score: float
    p: Optional[float]  # of the paired bootstrap against the baseline with the same seed


def find_runs(folders: Sequence[str], checkpoint: str) -> List[Run]:
    """The runs in or under the folders: whatever has a ``checkpoint`` of that name.

    Raises:
        UserError: a folder has none.
    """
    from ..model import read_checkpoint

    runs = []
    for folder in folders:
        found = glob.glob(f"**/{checkpoint}", root_dir=folder, recursive=True)  # in folders that are links, too
        paths = sorted(Path(folder, path) for path in found)
        if not paths:
            raise UserError(f"{folder}: there is no {checkpoint} in it or under it")
        runs += [read_run(path, read_checkpoint(str(path))) for path in paths]
    return runs


def read_run(checkpoint: Path, state: Dict[str, Any]) -> Run:
    """What a checkpoint's content tells of its training."""
    cfg = state["cfg"]
    groups = {name: group if isinstance(group, dict) else vars(group) for name, group in cfg.items() if group}
    options = {key: str(value) for name in GROUPS for key, value in groups.get(name, {}).items()}
    tensors = {tensor.data_ptr(): tensor.numel() for tensor in state["model"].values() if tensor.is_floating_point()}
    return Run(
        checkpoint.parent.parent if checkpoint.parent.name == "checkpoints" else checkpoint.parent,
        checkpoint,
        groups["task"]["data"],
        groups["common"]["seed"],
        groups["model"]["_name"],
        {key: value for key, value in options.items() if not PLACES.fullmatch(key)},
        sum(tensors.values()),
        state["optimizer_history"][-1]["num_updates"],
        state["extra_state"]["previous_training_time"] / 3600,
    )


def systems(runs: Sequence[Run]) -> Dict[str, List[Run]]:
    """Runs that differ in nothing but the seed, by architecture, and by the options in which those of one differ."""
    found: Dict[str, List[Run]] = defaultdict(list)
    for run in runs:
        same = [other.options for other in runs if other.arch == run.arch]
        keys = sorted({key for options in same for key in options})
        differ = [key for key in keys if len({options.get(key) for options in same}) > 1]
        name = " ".join([run.arch, *(f"{key}={run.options.get(key)}" for key in differ)])
        if run.seed in [other.seed for other in found[name]]:
            raise UserError(f"{run.folder} and another run are both {name} with seed {run.seed}: leave one out")
        found[name].append(run)
    return dict(found)


def translations(run: Run, subset: str, options: argparse.Namespace) -> Tuple[List[str], List[str]]:
    """The run's translations of a split, and its references; translated only if that was not done before.

    They are in the run's folder, under a name that tells of the checkpoint and of the search.
    """
    from ..model import generate, load, read_text

    data = options.data or run.data
    found = run.checkpoint.stat()
    made = [data, subset, found.st_mtime_ns, found.st_size, options.remove_bpe]
    made += [options.beam, options.lenpen, options.max_len_a, options.max_len_b]
    stem = run.folder / "translations" / f"{subset}-{hashlib.sha256(json.dumps(made).encode()).hexdigest()[:12]}"
    paths = [f"{stem}.hypothesis.txt", f"{stem}.reference.txt"]
    if not all(map(os.path.exists, paths)):
        system = load(str(run.checkpoint), data, options.cpu)
        text = read_text(argparse.Namespace(source=None, reference=None, gen_subset=subset), system)
        stem.parent.mkdir(exist_ok=True)
        for path, side, escape in zip(paths, (generate(system, text, options), text), (False, True)):
            with write_whole(path) as stream:
                for sentence in side.sentences:
                    line = system.task.target_dictionary.string(sentence.item["target"], options.remove_bpe, escape)
                    stream.write(f"{line}\n")
    hypotheses, references = (list(read_lines(path)) for path in paths)
    return hypotheses, references


def evaluate(found: Dict[str, List[Run]], options: argparse.Namespace) -> List[Result]:
    """Every measure of every run on every test set.

    Raises:
        UserError: the runs do not have one test set.
    """
    measures = [pair for pair in metrics(options.tokenize) if pair[0] in MEASURES]
    results = []
    for position, subset in enumerate(options.gen_subset):
        by_seed: Dict[int, List[Tuple[str, List[str]]]] = defaultdict(list)
        expected = list(read_lines(options.reference[position])) if options.reference else None
        for name in sorted(found, key=lambda name: name != options.baseline):  # the baseline first
            for run in found[name]:
                hypotheses, references = translations(run, subset, options)
                expected = references if expected is None else expected
                if len(hypotheses) != len(expected):
                    counts = f"{len(hypotheses)} sentences in the data of {run.folder}, but {len(expected)}"
                    raise UserError(f"{subset!r} has {counts} in the reference")
                if options.reference is None and references != expected:
                    raise UserError(f"{run.folder}: {subset!r} has another text than for other runs: give --reference")
                by_seed[run.seed].append((name, hypotheses))
        written = [hypotheses for texts in by_seed.values() for _, hypotheses in texts]
        possible = within_limits(measures, expected or [], *written)
        for texts in by_seed.values():
            samples = options.bootstrap if texts[0][0] == options.baseline else 0
            for score in scores(texts, [expected or []], possible, samples):
                results.append(Result(score.system, subset, score.measure, score.score, score.p))
    return results


def summary(
    found: Dict[str, List[Run]], results: Sequence[Result], subsets: Sequence[str], paired: bool
) -> Tuple[List[str], List[List[Cell]]]:
    """Headers and rows: systems by measures, as means and deviations over the seeds.

    Of the seeds' p the largest stands there, which is the most cautious.
    """
    headers = ["system", "seeds", "parameters", "updates", "hours"]
    rows: List[List[Cell]] = []
    for name, runs in found.items():
        rows.append([name, len(runs), runs[0].parameters])
        rows[-1] += [round(mean(run.updates for run in runs)), mean(run.hours for run in runs)]
    for subset in subsets:
        for measure in MEASURES:
            title = measure if len(subsets) == 1 else f"{subset} {measure}"
            headers += [title, f"{title} ±", *([f"{title} p"] if paired else [])]
            for name, row in zip(found, rows):
                own = [r for r in results if (r.system, r.subset, r.measure) == (name, subset, measure)]
                values, ps = [r.score for r in own], [r.p for r in own if r.p is not None]
                row += [mean(values) if values else None, stdev(values) if len(values) > 1 else None]
                row += [max(ps, default=None)] if paired else []
    return headers, rows


def curve(run: Run, measure: str) -> List[Tuple[int, float]]:
    """Updates and a measure of the validations that fairseq's logs in the run's folder tell of."""
    points = {}
    for path in [*run.folder.glob("*.log"), *run.checkpoint.parent.glob("*.log")]:
        for line in read_lines(str(path)):
            if match := VALIDATION.search(line):
                numbers = dict(NUMBER.findall(match[1]))
                if {measure, "num_updates"} <= numbers.keys():
                    points[int(numbers["num_updates"])] = float(numbers[measure])
    return sorted(points.items())


def draw_curves(found: Dict[str, List[Run]], measure: str) -> "Figure":
    """A line for every run, one colour for every system.

    Raises:
        UserError: there are no logs, or they do not have the measure.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 3.6))
    axes = figure.subplots()
    drawn = False
    for k, (name, runs) in enumerate(found.items()):
        for run in runs:
            points = curve(run, measure)
            drawn |= bool(points)
            axes.plot(*zip(*points) if points else ([], []), color=f"C{k}", label=name if run is runs[0] else None)
    if not drawn:
        raise UserError(f"no *.log of the runs has {measure!r} of a validation: train with --log-format simple")
    axes.set_xlabel("updates")
    axes.set_ylabel(f"validation {measure}")
    finish(axes, "".join(found))
    return figure


def draw_scores(found: Dict[str, List[Run]], results: Sequence[Result], subset: str) -> "Figure":
    """For every measure the scores of all seeds as dots, and their mean as a line."""
    from matplotlib.figure import Figure

    measures = list(dict.fromkeys(result.measure for result in results if result.subset == subset))
    figure = Figure(figsize=(2.4 * len(measures), 0.8 + 0.4 * len(found)))
    for axes, measure in zip(figure.subplots(1, len(measures), sharey=True), measures):
        for k, name in enumerate(found):
            values = [r.score for r in results if (r.system, r.subset, r.measure) == (name, subset, measure)]
            axes.plot(values, [k] * len(values), "o", color=f"C{k}", alpha=0.6)
            axes.plot([mean(values)], [k], "|", color=f"C{k}", markersize=16)
        axes.set_xlabel(measure)
        axes.set_yticks(range(len(found)), list(found), parse_math=False, fontfamily=font_families("".join(found)))
        axes.set_ylim(len(found) - 0.5, -0.5)
        finish(axes)
    return figure


def run(options: argparse.Namespace) -> None:
    """Find the runs, translate and score, print the table, draw."""
    if options.reference and len(options.reference) != len(options.gen_subset):
        raise UserError(f"{len(options.reference)} --reference for {len(options.gen_subset)} --gen-subset")
    if options.plot and not options.gen_subset:
        raise UserError("--plot draws scores: name a --gen-subset")
    with contextlib.ExitStack() as outputs:
        write = outputs.enter_context(tables(options.json, results=options.table))
        pictures = [path and outputs.enter_context(picture(path)) for path in (options.curves, options.plot)]
        found = systems(find_runs(options.folders, options.checkpoint))
        if options.baseline and options.baseline not in found:
            raise UserError(f"--baseline {options.baseline}: there are {', '.join(found)}")
        results = evaluate(found, options)
        headers, rows = summary(found, results, options.gen_subset, bool(options.baseline))
        write("results", headers, rows, {header: 4 for header in headers if header.endswith(" p")})
        for save, draw in zip(pictures, (
            lambda: draw_curves(found, options.curve_measure),
            lambda: draw_scores(found, results, options.gen_subset[0]),
        )):  # fmt: skip
            if save:
                save(draw())


def add(parser: argparse.ArgumentParser) -> None:
    """Describe the verb and its options."""
    parser.description = (
        "Find the runs in and under the folders, translate and score their test sets, and print one table: systems by "
        "measures, as means and deviations over the seeds. Runs that differ only in the seed are one system; systems "
        "are named after their architecture and the options in which those of one architecture differ. Translations "
        "are kept in the runs' folders, and made again only for a new checkpoint or another search. With --baseline "
        "also p of the paired bootstrap against it, seed by seed; the largest one stands in the table."
    )
    parser.epilog = (
        "example: fairseq-attnvariants results sweep --remove-bpe --reference test.de --baseline rnnsearch "
        "--table results.tex --curves curves.pdf"
    )
    parser.add_argument("folders", metavar="FOLDER", nargs="+", help="of a sweep, or of single runs")
    parser.add_argument("--checkpoint", metavar="NAME", default="checkpoint_best.pt", help="default: %(default)s")
    parser.add_argument("--data", metavar="DATA", help="folder of fairseq-preprocess (default: that of each training)")
    parser.add_argument(
        "--gen-subset", metavar="NAME", nargs="*", default=["test"], help="splits (default: test); bare: no scores"
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
    parser.add_argument("--baseline", metavar="SYSTEM", help="the system to compare with, by its name in the table")
    parser.add_argument(
        "--bootstrap", metavar="N", type=positive, default=1000, help="resamples (default: %(default)s)"
    )
    add_table_options(parser)
    parser.add_argument("--curves", metavar="FILE", help="draw learning curves from fairseq's logs")
    parser.add_argument("--curve-measure", metavar="NAME", default="ppl", help="as the log names it (default: ppl)")
    parser.add_argument("--plot", metavar="FILE", help="draw the scores of every seed, and their means")
