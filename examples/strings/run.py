"""Train and score all systems of the strings' table: ``run.py DATA OUT``.

DATA was made by fetch.sh. Each finished run adds its row to ``OUT/runs.csv``. Run the script again to continue: it
skips runs that have a row. If you start it twice with one OUT, two runs go on at a time, and no run is done twice.
``--languages``, ``--systems`` and ``--seeds`` select runs; other options need another OUT. A failed run leaves its
messages below ``OUT/LANGUAGE``, for example in ``dl4mt-1.log``, and the others go on.
"""

import argparse
import contextlib
import csv
import fcntl
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path

from systems import ALL, ENSEMBLES, LANGUAGES, ORDER, SEEDS, SYSTEMS, YOYODYNE, YOYODYNE_INFLECTION

COLUMNS = "language", "system", "seeds", "words", "accuracy", "WER", "SER", "minutes"
SCORES = re.compile(r"accuracy = ([\d.]+), WER = ([\d.]+), SER = ([\d.]+) \(\d+ of (\d+) right\)")


@contextlib.contextmanager
def locked(path, wait=False):
    """Lock a file, and yield True; if another process has the lock, wait for it or yield False."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
        else:
            yield True


def finished(out):
    """Return the language, the system and the seeds of each run that has a row."""
    path = out / "runs.csv"
    rows = csv.DictReader(path.read_text().splitlines()) if path.exists() else []
    return {(row["language"], row["system"], row["seeds"]) for row in rows}


def add(out, row):
    """Add a row to ``runs.csv``."""
    with locked(out / "runs.lock", wait=True), open(out / "runs.csv", "a") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        if not file.tell():
            writer.writeheader()
        writer.writerow(row)


def said_by(command, log):
    """Run a command, write its messages to a log, and return its output.

    Raises:
        subprocess.CalledProcessError: the command failed.
    """
    with open(log, "w") as errors:
        environment = {"OMP_NUM_THREADS": "1", **os.environ}
        return subprocess.check_output(command, stderr=errors, env=environment).decode()


def train(data, out, language, system, seed, beam, more):
    """Train one seed, and score the test set."""
    tables = [str(data / f"{language}_{split}.tsv") for split in ("train", "dev", "test")]
    folder = out / language / system
    command = ["fairseq-attnvariants", "strings", *tables, "--output", str(folder), "--seeds", str(seed), "--cpu"]
    command += ["--beam", str(beam), "--json", *SYSTEMS[system], *more]
    rows = json.loads(said_by(command, f"{folder}-{seed}.log"))
    return {name: rows[0][name] for name in ("words", "accuracy", "WER", "SER")}


def by_yoyodyne(data, out, language, system, seed, yoyodyne):
    """Train one seed of a yoyodyne model, for as many epochs as the other systems, and score the test set."""
    model, *more = YOYODYNE[system]
    more += YOYODYNE_INFLECTION if language in LANGUAGES["inflection"] else ()
    folder = out / language / system / f"seed{seed}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    tables = {split: data / f"{language}_{split}.tsv" for split in ("train", "dev", "test")}
    words = {split: len(table.read_text().splitlines()) for split, table in tables.items()}
    config, template = folder / "config.yaml", Path(__file__).with_name("yoyodyne.yaml").read_text()
    epochs = max(20, 2000 * 16 // words["train"])
    config.write_text(template.format(seed=seed, epochs=epochs, model=model, folder=folder, **tables))
    said_by([yoyodyne, "fit", "--config", str(config), *more], f"{folder}.fit.log")
    [checkpoint] = folder.rglob("best.ckpt")
    command = [yoyodyne, "test", "--config", str(config), *more, "--ckpt_path", str(checkpoint)]
    accuracy = 100 * float(re.search(r"test_accuracy\W+([\d.e-]+)", said_by(command, f"{folder}.test.log"))[1])
    return {"words": words["test"], "accuracy": accuracy, "WER": 100 - accuracy, "SER": "nan"}


def ensemble(out, language, systems, seeds, beam):
    """Score the test set with an ensemble of all seeds of some systems."""
    paths = [out / language / system / f"seed{seed}" / "checkpoint_best.pt" for system in systems for seed in seeds]
    user_dir = subprocess.check_output(["fairseq-attnvariants", "user-dir"], text=True)
    command = ["fairseq-generate", str(out / language / systems[0] / "data"), "--user-dir", user_dir.strip()]
    command += ["--task", "string_transduction", "--gen-subset", f"{language}_test", "--scoring", "exact_match"]
    command += ["--path", os.pathsep.join(map(str, paths)), "--batch-size", "128", "--num-workers", "0", "--cpu"]
    command += ["--beam", str(beam)]
    found = SCORES.search(said_by(command, out / language / f"{'+'.join(systems)}.log"))
    return dict(zip(("accuracy", "WER", "SER", "words"), found.groups()))


def jobs(options):
    """Yield all runs in order. An ensemble comes after all of its parts."""
    seeds = options.seeds
    for languages, systems in ORDER:
        for seed in seeds:
            for language in languages:
                yield from ((language, system, [seed], [system]) for system in systems)
        for language in languages if len(seeds) > 1 else ():
            for name, parts in ENSEMBLES.items():
                if parts[-1] in systems:
                    yield language, name, seeds, parts


def main():
    """Read the command line and do the runs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, metavar="DATA")
    parser.add_argument("out", type=Path, metavar="OUT")
    parser.add_argument("--languages", nargs="+", choices=ALL, default=ALL, metavar="LANGUAGE")
    parser.add_argument("--systems", nargs="+", choices=[*SYSTEMS, *YOYODYNE], metavar="SYSTEM")
    parser.add_argument("--seeds", nargs="+", type=int, default=SEEDS, metavar="SEED")
    parser.add_argument("--beam", type=int, default=1, help="beam width of all but yoyodyne (default: %(default)s)")
    parser.add_argument("--yoyodyne", metavar="COMMAND", help="where yoyodyne is; without it none of its models")
    parser.epilog = "other options, such as --updates 100, are for fairseq-attnvariants strings"
    options, more = parser.parse_known_args()
    if len({*options.seeds}) < len(options.seeds):
        parser.error("--seeds: one is given twice, leave it out")
    chosen = {*(options.systems or [*SYSTEMS, *(YOYODYNE if options.yoyodyne else ())])}
    if not options.yoyodyne and chosen & {*YOYODYNE}:
        parser.error("--systems: models of yoyodyne need --yoyodyne, which says where it is")
    if options.yoyodyne and not shutil.which(options.yoyodyne):
        parser.error(f"--yoyodyne: {options.yoyodyne} is no command")
    settings, kept = " ".join([f"--beam {options.beam}", *more]), options.out / "settings"
    begun = (options.out / "runs.csv").exists() or any(options.out.glob("*/*/seed*"))
    if begun and kept.exists() and kept.read_text() != settings:
        parser.error(f"{options.out} has runs of {kept.read_text()}, and not of {settings}: give another OUT")
    options.out.mkdir(parents=True, exist_ok=True)
    kept.write_text(settings)
    failed = False
    for language, system, seeds, parts in jobs(options):
        if language not in options.languages or not {*parts} <= chosen:
            continue
        run = language, system, " ".join(map(str, seeds))
        singles = {(language, part, str(seed)) for part in parts for seed in seeds}
        with locked(options.out / language / f"{system}.lock") as mine:
            there = finished(options.out)
            if not mine or run in there or (len(singles) > 1 and not singles <= there):
                continue
            print(time.strftime("%F %T"), *run, flush=True)
            goes_on = (options.out / language / system / f"seed{seeds[0]}" / "checkpoint_last.pt").exists()
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            try:
                if len(singles) > 1:
                    scores = ensemble(options.out, language, parts, seeds, options.beam)
                elif system in YOYODYNE:
                    scores = by_yoyodyne(options.data, options.out, language, system, seeds[0], options.yoyodyne)
                else:
                    scores = train(options.data, options.out, language, system, seeds[0], options.beam, more)
            except Exception as error:  # the next run may succeed
                failed = True
                print(f"{' '.join(run)} failed: see the log in {options.out / language}: {error}", file=sys.stderr)
                continue
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            scores = {**scores, **{name: f"{float(scores[name]):.2f}" for name in ("accuracy", "WER", "SER")}}
            keys = dict(zip(COLUMNS, run))
            unknown = goes_on and len(singles) == 1  # the time before an interruption is not known
            add(options.out, {**keys, **scores, "minutes": "" if unknown else f"{seconds / 60:.2f}"})
    sys.exit(failed)


if __name__ == "__main__":
    main()
