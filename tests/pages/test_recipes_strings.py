"""The queue of the strings' table, on tiny tables, and what it does if it is started again."""

import csv
import itertools
import json
import os
import random
import re
import shutil
import subprocess
import sys
from types import SimpleNamespace

import corpus
import pytest
from corpus import ROOT, script
from test_recipes_settings import put
from test_recipes_shell import STUBS

from fairseq_attnvariants_cli.checks import Subject

sys.path.insert(0, str(ROOT / "examples" / "strings"))

import systems  # noqa: E402

pytestmark = pytest.mark.more

STRINGS = ROOT / "examples" / "strings"
LANGUAGES = [line.split() for line in (STRINGS / "languages.txt").read_text().splitlines()]


def write_public(folder):
    """Write files in the layout of the public repositories, with words of a few letters."""
    rng = random.Random(1)
    for group, language in LANGUAGES:
        for split, short, count in (("train", "trn", 24), ("dev", "dev", 6), ("test", "tst", 6)):
            words = ["".join(rng.choices("abcd", k=rng.randint(1, 4))) for _ in range(count)]
            if group == "inflection":
                name, rows = f"{language}.{short}", [f"{word}\tN;PL\t{word}s" for word in words]
            else:
                name, rows = f"{language}_{split}.tsv", [f"{word}\t{' '.join(word)}" for word in words]
            for part in ("part1", "part3"):  # another task has files with the same names
                (folder / group / part).mkdir(parents=True, exist_ok=True)
                (folder / group / part / name).write_text("".join(f"{row}\n" for row in rows))
                rows = rows[:1]


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    """A function that runs a command in a copy of the recipe's folder, with the tables in ``data``."""
    folder, commands = tmp_path_factory.mktemp("strings") / "strings", tmp_path_factory.mktemp("commands")
    shutil.copytree(STRINGS, folder)
    for name in ("fairseq-generate", "fairseq-attnvariants"):
        put(commands / name, STUBS[name])
    put(commands / "python", f'exec {sys.executable} "$@"')
    path = os.pathsep.join(map(str, (commands, corpus.warm(), corpus.SCRIPTS, os.environ["PATH"])))

    def run(command):
        arguments = ["bash", "-euo", "pipefail", "-c", command]
        environment = {**os.environ, "PATH": path, "WARM": str(corpus.warm()), "USER_DIR": corpus.USER_DIR}
        return subprocess.run(arguments, cwd=folder, env=environment, capture_output=True, text=True)

    run.folder = folder
    write_public(folder / "public")
    done = run("./fetch.sh data public")
    assert done.returncode == 0, done.stderr
    return run


SMALL = " ".join(corpus.SIZES) + " --attention-dim 16 --attention-via-dim 16 --decoder-out-embed-dim 16"


def rows(recipe, out):
    """Return the rows of the runs that are finished."""
    return [*csv.DictReader((recipe.folder / out / "runs.csv").open())]


def test_the_page_s_commands(recipe):
    shell = re.findall(r"^```bash\n(.*?)^```", (STRINGS / "README.md").read_text(), re.M | re.S)[1]
    done = recipe(shell)
    assert done.returncode == 0, done.stderr + (recipe.folder / "out/ice/dl4mt-1.log").read_text()[-2000:]
    [row] = rows(recipe, "out")
    assert [row["language"], row["system"], row["seeds"], row["words"]] == ["ice", "dl4mt", "1", "6"]
    assert float(row["WER"]) == 100 - float(row["accuracy"]) and float(row["minutes"]) >= 0
    assert "| low: WER | seeds | ady | gre | ice | ita | khm | macro average | minutes a run |" in done.stdout
    assert re.search(r"^\| `dl4mt` \| 0 to 1 \|  \|  \| [\d.]+ \|  \|  \|  \| 0.\d \|$", done.stdout, re.M), done.stdout


def test_the_queue(recipe):
    """Two seeds, ensembles of seeds and of architectures; a failed run is reported, and only it is tried again."""
    (recipe.folder / "data" / "gre_train.tsv").write_text("a\n")
    command = f"python run.py data all --languages gre fin --systems dl4mt hard_monotone --seeds 1 2 {SMALL}"
    done = recipe(command)
    logs = "".join(path.read_text()[-2000:] for path in (recipe.folder / "all/fin").glob("*.log"))
    assert done.returncode == 1, done.stderr + logs
    assert [line.split(" failed: ")[0] for line in done.stderr.splitlines()] == [
        *("gre dl4mt 1", "gre hard_monotone 1", "gre dl4mt 2", "gre hard_monotone 2")
    ]
    assert "gre_train.tsv has one column" in (recipe.folder / "all/gre/dl4mt-1.log").read_text()
    found = [(row["language"], row["system"], row["seeds"]) for row in rows(recipe, "all")]
    singles = [("fin", system, seed) for seed in "12" for system in ("dl4mt", "hard_monotone")]
    together = [("fin", name, "1 2") for name in ("dl4mt", "hard_monotone", "dl4mt + hard_monotone")]
    assert found == singles + together
    for row in rows(recipe, "all"):
        assert 0 <= float(row["WER"]) <= 100 and row["words"] == "6"
    again = recipe(command)
    assert [line.split()[2] for line in again.stdout.splitlines()] == ["gre"] * 4
    assert len(rows(recipe, "all")) == len(found)
    table = recipe("python collect.py all/runs.csv").stdout
    assert "| ensemble of 4: `dl4mt` + `hard_monotone` |" in table and table.count("ensemble of 2") == 2


@pytest.fixture
def queue(monkeypatch, tmp_path):
    """A function that runs the queue with commands that are only recorded; each takes two minutes."""
    module = script(STRINGS / "run.py")

    def said_by(command, log):
        run.asked.append(command)
        if run.failing in command:
            raise OSError(f"{run.failing} fails")
        scores = dict(words=6, accuracy=40, WER=60, SER=9)
        return json.dumps([scores]) if "--json" in command else "accuracy = 40, WER = 60, SER = 9 (3 of 6 right)"

    def run(*more):
        monkeypatch.setattr(sys, "argv", ["run.py", "data", str(tmp_path), "--languages", "ice", *more])
        with pytest.raises(SystemExit) as end:
            module.main()
        assert bool(end.value.code) == bool(run.failing)
        return [*csv.DictReader((tmp_path / "runs.csv").open())]

    run.asked, run.failing = [], None
    used = (SimpleNamespace(ru_utime=70 * k, ru_stime=50 * k) for k in itertools.count())
    monkeypatch.setattr(module.resource, "getrusage", lambda _: next(used))
    monkeypatch.setattr(module, "said_by", said_by)
    monkeypatch.setenv("PATH", f"{corpus.SCRIPTS}{os.pathsep}{os.environ['PATH']}")
    return run


def test_an_ensemble_waits_for_all_of_its_models(queue, tmp_path):
    """A stopped run has a checkpoint, which is not final, so it does not count. Finished parts are not repeated."""
    (tmp_path / "settings").write_text("--beam 9")  # settings of a queue that has not begun
    given, queue.failing = ("--systems", "dl4mt", "--seeds", "1", "2"), "2"
    assert [row["seeds"] for row in queue(*given)] == ["1"] and len(queue.asked) == 2
    (tmp_path / "ice/dl4mt/seed1").mkdir(parents=True)
    (tmp_path / "ice/dl4mt/seed1/checkpoint_last.pt").touch()
    queue.failing = None
    assert [(row["seeds"], row["minutes"]) for row in queue(*given)] == [("1", "2.00"), ("2", "2.00"), ("1 2", "2.00")]
    assert len(queue.asked) == 4


@pytest.mark.parametrize("beam", ["1", "4"])
def test_single_models_and_ensembles_search_with_one_beam(beam, queue):
    queue("--systems", "dl4mt", "--seeds", "1", "2", *([] if beam == "1" else ["--beam", beam]))
    asked = [(command[0], command[command.index("--beam") + 1]) for command in queue.asked]
    assert asked == [("fairseq-attnvariants", beam)] * 2 + [("fairseq-generate", beam)]


def test_every_run_is_the_one_that_its_row_says(queue, tmp_path):
    """Commands have the row's system, seed and tables; an ensemble has the best checkpoints of all its models."""
    rows = queue("--systems", "dl4mt", "hard_monotone", "--seeds", "1", "2")
    singles, together = queue.asked[:4], queue.asked[4:]
    tables = [f"data/ice_{split}.tsv" for split in ("train", "dev", "test")]
    assert [command[2:5] for command in singles] == [tables] * 4
    models = [tuple(command[command.index(name) + 1] for name in ("--arch", "--seeds")) for command in singles]
    assert models == [(row["system"], row["seeds"]) for row in rows[:4]]
    for row, command in zip(rows[4:], together, strict=True):
        paths = command[command.index("--path") + 1].split(":")
        assert row["seeds"] == "1 2" and sorted(paths) == sorted(
            f"{tmp_path}/ice/{part}/seed{seed}/checkpoint_best.pt"
            for part in row["system"].split(" + ")
            for seed in (1, 2)
        )
    figures = {"words": "6", "accuracy": "40.00", "WER": "60.00", "SER": "9.00", "minutes": "2.00"}
    assert all(figures.items() <= row.items() for row in rows)


def test_the_minutes_of_an_interrupted_run_are_unknown(recipe):
    """The minutes after the interruption alone would make the run look quick, and be part of the mean."""
    command = f"python run.py data cut --languages ita --systems dl4mt --seeds 1 --updates 2 {SMALL}"
    assert recipe(command).returncode == 0
    [row] = rows(recipe, "cut")
    (recipe.folder / "cut/runs.csv").unlink()
    assert recipe(command).returncode == 0
    assert float(row["minutes"]) >= 0 and rows(recipe, "cut") == [{**row, "minutes": ""}]
    assert recipe("python collect.py cut/runs.csv").stdout.rstrip().endswith("|  |")


def test_other_options_need_another_folder(recipe):
    command = f"python run.py data other --languages ita --systems dl4mt --seeds 1 {SMALL} --updates "
    assert recipe(command + "2").returncode == 0
    done = recipe(command + "3")
    assert done.returncode == 2 and re.search(
        "other has runs of .*--updates 2, and not of .*: give another OUT", done.stderr
    )


def test_ensembles_of_other_sizes_are_rows_of_their_own(recipe):
    path = recipe.folder / "mixed.csv"
    path.write_text("language,system,seeds,words,accuracy,WER,SER,minutes\n")
    with path.open("a") as file:
        for language in systems.LANGUAGES["low"]:
            print(f"{language},dl4mt,1 2 3,100,80,20,5,", file=file)
        print("ady,dl4mt,1 2,100,50,50,5,", file=file)
    lines = [line for line in recipe("python collect.py mixed.csv").stdout.splitlines() if "ensemble" in line]
    assert [line.split("|")[1].split(":")[0].strip() for line in lines] == ["ensemble of 3", "ensemble of 2"]
    assert lines[0].split("|")[-3].strip() == "20.0" and lines[1].split("|")[-3].strip() == ""


@pytest.mark.parametrize("system", systems.SYSTEMS)
def test_every_system_is_built(system):
    arch, *more = systems.SYSTEMS[system][1:]
    assert Subject(arch, ["--task", "string_transduction", *more]).parameters > 0


def test_the_results_are_those_of_the_runs():
    command = [sys.executable, STRINGS / "collect.py", STRINGS / "runs.csv"]
    collected = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    assert collected and collected in (STRINGS / "RESULTS.md").read_text()


def test_the_plan_has_every_run_once():
    ordered = [(language, name) for languages, names in systems.ORDER for language in languages for name in names]
    ordered = [pair for pair in ordered if pair[1] in systems.SYSTEMS]
    assert sorted(ordered) == sorted((language, name) for language in systems.ALL for name in systems.SYSTEMS)
    page = (STRINGS / "README.md").read_text()
    runs = len(ordered) * len(systems.SEEDS)
    assert f"makes all {runs} runs and {len(systems.ALL) * len(systems.ENSEMBLES)} ensembles" in page
    counted = [int(line.split("|")[4]) for line in page.splitlines() if re.match(r"\|.*\| \d+ \|.*\| \d+ \|$", line)]
    assert counted[-1] == sum(counted[:-1]) == runs


def test_a_run_that_is_taken_is_left_to_its_lane(recipe):
    held = "exec {held}> taken/khm/dl4mt.lock; flock $held; "
    done = recipe(
        f"mkdir -p taken/khm; {held}python run.py data taken --languages khm --systems dl4mt --seeds 1 {SMALL}"
    )
    assert (done.returncode, done.stdout) == (0, "") and not (recipe.folder / "taken/runs.csv").exists()


def test_a_seed_that_is_given_twice_is_refused(recipe):
    """Otherwise an ensemble of one model with itself would be in the table."""
    done = recipe("python run.py data twice --seeds 1 1")
    assert done.returncode == 2 and "error: --seeds: one is given twice, leave it out" in done.stderr
    assert not (recipe.folder / "twice").exists()


def test_yoyodyne(recipe):
    """Its checkpoint is tested, inflection has three columns, its models need the option and are selected like others.

    A run that was stopped starts again.
    """
    put(
        recipe.folder / "yoyodyne",
        """case $1 in
          fit)
            echo "$@" >> options
            for folder in yo/*/*/seed1; do mkdir -p "$folder/a"; touch "$folder/a/best.ckpt"; done ;;
          test) echo '│ test_accuracy │ 0.75 │' ;;
        esac""",
    )
    command = "python run.py data yo --languages ita fin --seeds 1"
    done = recipe(f"{command} --systems yoyodyne_hard_attention")
    assert done.returncode == 2 and not (recipe.folder / "yo").exists()
    assert "error: --systems: models of yoyodyne need --yoyodyne, which says where it is" in done.stderr
    (recipe.folder / "yo").mkdir()
    rows_before = [f"{language},{system},1,6,50,50,9,1" for language in ("ita", "fin") for system in systems.SYSTEMS]
    header = "language,system,seeds,words,accuracy,WER,SER,minutes"
    (recipe.folder / "yo/runs.csv").write_text("".join(f"{row}\n" for row in (header, *rows_before)))
    assert recipe(command).stdout == ""
    begun = recipe.folder / "yo/ita/yoyodyne_hard_attention/seed1/stopped"
    begun.mkdir(parents=True)
    (begun / "best.ckpt").touch()
    done = recipe(f"{command} --yoyodyne ./yoyodyne --systems yoyodyne_hard_attention")
    assert done.returncode == 0, done.stderr
    assert recipe(f"{command} --yoyodyne ./yoyodyne").returncode == 0
    found = [(row["language"], row["system"], row["words"], row["WER"]) for row in rows(recipe, "yo")[8:]]
    assert found == [
        (language, f"yoyodyne_{name}", "6", "25.00")
        for name in ("hard_attention", "pointer_generator")
        for language in ("ita", "fin")
    ]
    config = (recipe.folder / "yo/ita/yoyodyne_hard_attention/seed1/config.yaml").read_text()
    assert "class_path: yoyodyne.models.HardAttentionLSTMModel" in config and "max_epochs: 1333" in config
    columns = ["--data.features_col 2 --data.target_col 3" in line for line in (recipe.folder / "options").open()]
    assert columns == [False, True, False, True]
    assert "yoyodyne_hard_attention` | 0 to 1 |" in recipe("python collect.py yo/runs.csv").stdout


def test_fetch_refuses_a_folder_without_a_table(recipe):
    (recipe.folder / "public/low/part1/khm_dev.tsv").unlink()
    done = recipe("./fetch.sh other public")
    assert (
        done.returncode == 1 and done.stderr == "fetch.sh: public has 0 files khm_dev.tsv below it, and one is needed\n"
    )
