"""Functions that train models of strings on tables of words, and predict other tables.

Stock fairseq-train and fairseq-generate do the work, in separate processes, with ``--task string_transduction``.
"""

import os
import re
import shlex
import subprocess
import sys
import unicodedata
from argparse import ArgumentParser
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any, NamedTuple

from fairseq.models import ARCH_MODEL_REGISTRY
from tqdm import tqdm

from fairseq_attnvariants.tasks import StringTransductionTask, exact_match
from fairseq_attnvariants.tasks.tsv import (
    Columns,
    Row,
    described,
    described_symbols,
    never_separated,
    read_cells,
    read_table,
    separator_name,
    symbols,
)

from ..text.files import UserError, note_input, say, write_whole, writing
from ..text.generated import Sentence, read_generated
from .string_tables import (
    check_columns,
    check_lengths,
    check_strings,
    find_columns,
    find_separator,
    length_limits,
    tests_by_name,
)

if TYPE_CHECKING:
    from ..subcommands.strings import Options

CHOSEN = "--best-checkpoint-metric", "accuracy", "--maximize-best-checkpoint-metric"
BATCH = 16
PASSES, LEAST_UPDATES = 20, 2000  # epochs, and fewest updates, which are more epochs of a small table
VALIDATIONS = 40  # in a training
RATE, LONG_RATE = "4e-3", "3e-3"  # learning rates; the second one with more than the least updates
ACCURACY = re.compile(r"\| accuracy ([\d.]+)")  # in the log of a validation
FALL = 20  # points of accuracy; a training has diverged if its accuracy falls by more
# examples/strings/RESULTS.md says how they were chosen
TRAINING = shlex.split(
    "--criterion label_smoothed_cross_entropy --label-smoothing 0.1 --optimizer adam --clip-norm 1 "
    "--lr-scheduler polynomial_decay --warmup-updates 100 --no-epoch-checkpoints --num-workers 0 "
    "--batch-size-valid 256 --log-format simple --log-interval 20 "
    "--ignore-unused-valid-subsets"
)
MODEL = {  # options that an architecture of fairseq may lack
    "--init": "uniform",
    "--encoder-embed-dim": "64",
    "--encoder-hidden-size": "128",
    "--decoder-embed-dim": "64",
    "--decoder-hidden-size": "256",
    "--dropout": "0.3",
}
UNK = "<unk>"
LAST, OPTIONS, ENDED = "checkpoint_last.pt", "options.txt", "finished"  # in a seed's folder
OWN = {"--max-update": "--updates", "--total-num-update": "--updates", "--save-dir": "--output", "--seed": "--seeds"}
WITHOUT_BEST = "--no-save", "--disable-validation", "--no-best-checkpoints"

PREDICTED = ".tsv", ".nbest.tsv"  # suffixes of the tables of predictions, after the name of the predicted table


class Job(NamedTuple):
    """The tables to read, how to read them, and the settings of the trainings."""

    folder: Path
    data: Path
    columns: Columns
    separators: tuple[str, str]  # of sources and of targets
    words: int  # number of words to train on
    tests: dict[str, str]  # the files to be predicted, by their names
    user_dir: str
    updates: int
    given: str  # the options that a continued training must not change
    limits: dict[str, int]  # of the lengths of both sides


def prepare(options: "Options") -> Job:
    """Read all tables, and copy them into the folder that fairseq-train reads; write nothing if one is refused."""
    if len(options.user_dir or ()) > 1:
        raise UserError("fairseq-train reads one --user-dir: give one, whose __init__.py imports the others")
    cells = {path: read_cells(path) for path in dict.fromkeys([options.train, options.dev, *options.test])}
    columns = find_columns(cells[options.train], options)
    if not Columns.given(options):
        for path in (options.dev, *options.test):
            check_columns(path, cells[path], options.train, len(cells[options.train][0]), columns)
    train, dev = (read_table(path, columns, cells=cells[path]) for path in (options.train, options.dev))
    tests = tests_by_name(options.test)
    predicted = [read_table(path, columns, with_targets=False, cells=cells[path]) for path in options.test]
    if options.several_answers and all(table.rows[0].target is None for table in predicted):
        raise UserError("--several-answers is for scores, and no table to predict has targets: leave it out")
    separators = (
        find_separator(train, "source", options.source_separator),
        find_separator(train, "target", options.target_separator),
    )
    check_strings(train, dev, separators, columns)
    limits = length_limits(options.others)
    skipped = "--skip-invalid-size-inputs-valid-test" in options.others  # as in training
    for table in (*([] if skipped else [dev]), *predicted):
        check_lengths(table, separators, limits)
    folder = Path(options.output)
    if os.pathsep in options.output or (folder.exists() and not folder.is_dir()):
        raise UserError(f"--output {folder} is no folder, or has a {os.pathsep!r} in its name: name another")
    data = folder / "data"
    texts = {"train": options.train, "valid": options.dev, **tests}
    written = {name: "".join("\t".join(line) + "\n" for line in cells[path]) for name, path in texts.items()}
    check_tables(folder, texts, written)
    updates = options.updates or max(LEAST_UPDATES, PASSES * len(train.rows) // BATCH)
    chosen = ["--arch", options.arch, "--updates", str(updates), *options.others]
    # bytes of file names that are not UTF-8 become escapes
    given = shlex.join(column_options(columns) + chosen).encode(errors="backslashreplace").decode()
    for seed in options.seeds:
        check_options(folder / f"seed{seed}", given)
    check_dictionaries(data, separators)
    with writing(f"--output {folder}: {data}"):
        data.mkdir(parents=True, exist_ok=True)
    for name, text in written.items():
        with write_whole(str(data / f"{name}.tsv")) as stream:
            stream.write(text)
    for path in cells:  # only now, because the copies may be given
        note_input(path)
    say(described(columns, separators))
    for told in never_separated(train, separators):
        say(told)
    user_dir = options.user_dir[0] if options.user_dir else str(Path(exact_match.__file__).parents[1])
    return Job(folder, data, columns, separators, len(train.rows), tests, user_dir, updates, given, limits)


def check_tables(folder: Path, texts: Mapping[str, str], written: Mapping[str, str]) -> None:
    """Refuse a folder whose new tables would replace given tables, or whose models were trained on other tables.

    ``texts`` has the paths of the given tables by name, and ``written`` the content of their copies.

    Raises:
        UserError: the folder is refused; the message names the table.
    """
    data = folder / "data"
    given = {Path(path).resolve() for path in texts.values()}
    copies = {name: data / f"{name}.tsv" for name in texts}
    other = [
        name for name, path in copies.items() if path.is_file() and as_read(kept_text(path)) != as_read(written[name])
    ]
    tests = [name for name in texts if name not in ("train", "valid")]
    predictions = [folder / f"{name}{kind}" for name in tests for kind in PREDICTED]
    for made in (*(copies[name] for name in other), *predictions):
        if made.resolve() in given:
            raise UserError(f"--output {folder}: its tables would replace {made}: give another folder")
    # a first training failed before it began, so that its tables may be corrected
    failed = any(folder.glob(f"seed*/{OPTIONS}")) and not [*data.glob("dict.*.txt"), *folder.glob("seed*/*.pt")]
    for name in ("train", "valid"):
        if name in other and not failed:
            raise UserError(f"{folder} was trained on another {texts[name]}: give another --output, or remove it")


def as_read(text: str) -> str:
    """Return a table in NFC, as version 1.1.0 copied it."""
    return unicodedata.normalize("NFC", text)


def kept_text(path: Path) -> str:
    """Return the text of a file in the folder; bytes that are not UTF-8, as in a damaged file, become escapes."""
    return path.read_text(encoding="utf-8", errors="backslashreplace")


def check_dictionaries(data: Path, separators: Sequence[str]) -> None:
    """Refuse separators that differ from those of the existing dictionaries.

    Raises:
        UserError: a separator differs; the message names the option.
    """
    for side, separator in zip(("source", "target"), separators):
        path = data / f"dict.{side}.txt"
        if not path.is_file():
            continue
        former = StringTransductionTask.load_dictionary(str(path)).separator
        if former != separator:
            raise UserError(
                f"the symbols of {path} are {described_symbols(former)}: give --{side}-separator "
                f"{separator_name(former)}, or another --output"
            )


def column_options(columns: Columns) -> list[str]:
    """Return the options that name the columns for fairseq."""
    given = ((f"--{name}-column", column) for name, column in columns._asdict().items())
    return [part for option, column in given if column for part in (option, str(column))]


def check_options(save: Path, given: str) -> None:
    """Refuse to continue a training with other options. In a finished training, they would change nothing.

    Raises:
        UserError: the options differ; the message has the former options.
    """
    if not any((save / name).exists() for name in (LAST, ENDED)) or not (save / OPTIONS).is_file():
        return
    if (before := kept_text(save / OPTIONS).rstrip("\n")) != given:
        raise UserError(
            f"{save} was trained with {before}, and not with {given}: give the former options, or another --output"
        )


def train_seed(job: Job, options: "Options", seed: int) -> str:
    """Start or continue a training; return the path of its checkpoint with the highest accuracy on the development set.

    A finished training is not continued.
    """
    save, updates = job.folder / f"seed{seed}", job.updates
    best = save / "checkpoint_best.pt"
    if (save / ENDED).exists() and best.exists():  # fairseq-train would forget --patience
        return str(best)
    save.mkdir(parents=True, exist_ok=True)
    if not (save / LAST).exists():
        with write_whole(str(save / OPTIONS)) as stream:
            stream.write(job.given + "\n")
    log = save / "train.log"
    accuracies = [*map(float, ACCURACY.findall(kept_text(log) if log.exists() else ""))]  # before it was continued
    with tqdm(total=updates, desc=f"training, seed {seed}", unit="update", disable=None) as bar:

        def see(line: str) -> None:
            if found := re.search(r"\bnum_updates[= ](\d+)", line):
                bar.update(int(found[1]) - bar.n)
            tell(line)
            if found := ACCURACY.search(line):
                accuracies.append(float(found[1]))
                bar.set_postfix_str(f"accuracy {found[1]}")

        start(training_command(job, options, seed, save), log, see, "a")
        bar.update(updates - bar.n)
    if accuracies and max(accuracies) - accuracies[-1] > FALL:
        say(
            f"seed {seed}: the accuracy on {options.dev} fell from {max(accuracies)} to {accuracies[-1]}; "
            "the best checkpoint is kept, but try a smaller --lr, with another --output"
        )
    (save / ENDED).touch()
    return str(best)


def training_command(job: Job, options: "Options", seed: int, save: Path) -> list[str]:
    """Return the module of fairseq-train, and its arguments."""
    updates = str(job.updates)
    epochs = -(-job.updates * BATCH // job.words)
    interval = str(max(1, epochs // VALIDATIONS))
    named = column_options(job.columns)
    for side, separator in zip(("source", "target"), job.separators):
        named += [f"--{side}-separator", separator_name(separator)]
    chosen = () if any(one.startswith(CHOSEN[0]) for one in options.others) else CHOSEN
    return [
        *("fairseq_cli.train", str(job.data), "--user-dir", job.user_dir, "--task", "string_transduction", *named),
        *("--arch", options.arch, *model_options(options.arch), *TRAINING),
        *("--lr", RATE if job.updates <= LEAST_UPDATES else LONG_RATE),
        *("--batch-size", str(BATCH), "--seed", str(seed)),
        *("--max-update", updates, "--total-num-update", updates, "--save-dir", str(save)),
        *("--validate-interval", interval, "--save-interval", interval, *["--cpu"] * options.cpu, *options.others),
        *chosen,
    ]


def model_options(arch: str) -> Iterator[str]:
    """Yield the options of ``MODEL`` that an architecture has; none for an unknown one, which fairseq-train reports."""
    parser = ArgumentParser(allow_abbrev=False)
    if known := ARCH_MODEL_REGISTRY.get(arch):
        known.add_args(parser)
    for chosen in MODEL.items():
        _, lacking = parser.parse_known_args(chosen)
        if not lacking:
            yield from chosen


def start(command: Sequence[str], log: Path, see: Callable[[str], None], mode: str = "w") -> None:
    """Run a command of fairseq. Write its output to ``log``, opened by ``mode``, and pass each line to ``see``.

    Raises:
        UserError: the command failed; the message has its last line.
    """
    line = ""
    with writing(str(log)), open(log, mode, encoding="utf-8") as kept:
        process = subprocess.Popen(
            [sys.executable, "-m", *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            env={**os.environ, "PYTHONUTF8": "1", "PYTHONUNBUFFERED": "1"},
        )
        assert process.stdout is not None
        try:
            for text in process.stdout:
                kept.write(text)
                line = text.strip() or line
                see(text)
        except BaseException:
            process.terminate()
            raise
        finally:
            process.wait()
    if process.returncode:
        line = re.sub(r"^[\w.-]+: error: ", "", line)
        raise UserError(f"{command[0].replace('_cli.', '-')} failed: {line}; its output is in {log}")


def results(job: Job, options: "Options", name: str, systems: dict[str, list[str]]) -> Iterator[Sequence[Any]]:
    """Yield the rows of the table for one test set, and write the predictions of the last system."""
    table = read_table(str(job.data / f"{name}.tsv"), job.columns, with_targets=False)
    scores: list[list[float]] = []
    scored = table.rows[0].target is not None
    asked = [*systems.items()]
    if not scored:
        asked = asked[-1:]  # the predictions of the others would only be scored
    for number, (system, checkpoints) in enumerate(asked):
        found = predict(job, options, name, checkpoints, number == 0)
        found = copy_unseen(job, options, checkpoints, table.rows, found)
        if scored:
            words, *measures = score(job, table.rows, found, options.several_answers)
            scores.append(measures)
            yield (name, system, words, *measures)
        if len(scores) == len(options.seeds) > 1:
            yield (name, "mean of seeds", words, *map(mean, zip(*scores)))
    write_predictions(job, options, name, table.rows, found)


def tell(line: str) -> None:
    """Repeat a line of fairseq's log about rows that a model cannot get right, or is not trained on."""
    if re.search(r" unseen in training$| samples have invalid sizes and will be skipped", line.rstrip()):
        say(line.rstrip().rpartition(" | ")[2])


def predict(job: Job, options: "Options", name: str, checkpoints: Sequence[str], told: bool = True) -> list[Sentence]:
    """Return fairseq-generate's predictions for each row of a table; ``told`` reports symbols unseen in training."""
    command = [
        *("fairseq_cli.generate", str(job.data), "--user-dir", job.user_dir, "--task", "string_transduction"),
        *("--path", os.pathsep.join(checkpoints), f"--gen-subset={name}", "--scoring", "exact_match"),
        *("--beam", str(max(options.beam, options.nbest)), "--nbest", str(options.nbest), "--batch-size", "128"),
        *("--num-workers", "0", *["--cpu"] * options.cpu),
        *(f"--max-{side}-positions={limit}" for side, limit in job.limits.items()),
    ]
    lines: list[str] = []
    log = job.folder / f"{name}.generate.log"
    start(command, log, lambda line: lines.append(line.rstrip("\n")))
    for line in lines if told else ():
        tell(line)
    found = read_generated(lines, str(log))
    return [found[number] for number in sorted(found)]


def copy_unseen(
    job: Job, options: "Options", checkpoints: Sequence[str], rows: Sequence[Row], found: list[Sentence]
) -> list[Sentence]:
    """Replace each ``<unk>`` in the predictions by the source's symbol, if the model copies.

    A model that copies writes ``<unk>`` for a symbol that was unseen in training.
    """
    lacking = [k for k, sentence in enumerate(found) if any(UNK in one.text for one in sentence.hypotheses)]
    if not lacking:
        return found
    from fairseq_attnvariants.models import AttentionRNNModel

    paths = os.pathsep.join(checkpoints)
    hub = AttentionRNNModel.from_pretrained(os.curdir, paths, str(job.data), user_dir=job.user_dir)
    if not hub.copies:
        return found
    lines = ["\t".join([rows[k].source, ";".join(rows[k].features)]) for k in lacking]
    beam, filled = max(options.beam, options.nbest), list(found)
    for k, texts in zip(lacking, hub.translate(lines, beam, nbest=options.nbest, replace_unk=True), strict=True):
        pairs = zip(found[k].hypotheses, texts, strict=True)
        same = [one._replace(text=unicodedata.normalize("NFC", text)) for one, text in pairs]
        filled[k] = found[k]._replace(hypotheses=same)
    return filled


def score(job: Job, rows: Sequence[Row], found: Sequence[Sentence], several_answers: bool) -> list[float]:
    """Return the number of words, and accuracy, WER and SER of the best predictions.

    With several answers, rows with the same source and features are one word, and the target closest to the prediction
    counts.
    """
    words: dict[Any, dict[str, int]] = {}
    for number, (row, sentence) in enumerate(zip(rows, found, strict=True)):
        pair = [symbols(text, job.separators[1]) for text in (sentence.hypotheses[0].text, row.target or "")]
        word = (row.source, row.features) if several_answers else number
        counts = exact_match.counts(*pair)
        words[word] = min(words.get(word, counts), counts, key=lambda one: one["_edits"])
    total = {key: sum(counts[key] for counts in words.values()) for key in exact_match.COUNTS}
    return [len(words), *(measure(total) for measure in exact_match.SCORES.values())]


def write_predictions(job: Job, options: "Options", name: str, rows: Sequence[Row], found: Sequence[Sentence]) -> None:
    """Write a table with the best predictions as targets, and with ``--nbest`` above 1 another with all predictions."""
    target, table = job.columns.target - 1, read_cells(str(job.data / f"{name}.tsv"))

    def filled(cells: Sequence[str], prediction: str) -> str:
        return "\t".join([*cells[:target], *[""] * (target - len(cells)), prediction, *cells[target + 1 :]])

    with write_whole(str(job.folder / f"{name}.tsv")) as stream:
        for cells, sentence in zip(table, found, strict=True):
            stream.write(filled(cells, sentence.hypotheses[0].text) + "\n")
    without = "" if rows[0].target is not None else ", which has no targets to score by,"
    say(f"the predictions for {job.tests[name]}{without} are in {job.folder / name}.tsv")
    ranked = job.folder / f"{name}.nbest.tsv"
    if options.nbest == 1:
        ranked.unlink(missing_ok=True)  # of a former search
        return
    with write_whole(str(ranked)) as stream:
        for cells, sentence in zip(table, found, strict=True):
            for rank, hypothesis in enumerate(sentence.hypotheses, start=1):
                stream.write(f"{filled(cells, hypothesis.text)}\t{rank}\t{hypothesis.score}\n")
