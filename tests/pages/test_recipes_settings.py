"""Recipes refuse results that were made with other settings.

Nothing is trained or translated here: stubs replace the commands, and only write the files of the real ones.
"""

import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import corpus
import pytest
from corpus import ROOT

pytestmark = pytest.mark.more

EXAMPLES = ROOT / "examples"
WRITES = """
echo "${0##*/} $*" >> "$CALLS"
case " $* " in *" --wrong "*) exit 1 ;; esac
while [ $# -gt 0 ]; do
  case $1 in
    --save-dir) mkdir -p "$2"; touch "$2/checkpoint_last.pt" ;;
    hydra.sweep.dir=*) sweep=${1#*=} sweep=${sweep//"'"} ;;
    common.seed=*) for seed in ${1//[!0-9]/ }; do
      run=$sweep/run-$seed-abcdef/checkpoints; mkdir -p "$run"; touch "$run/checkpoint_last.pt"; done ;;
    --table | --seed-table | --output) echo made > "$2" ;;
  esac
  shift
done"""
STUBS = {
    "fairseq-train": WRITES,
    "fairseq-hydra-train": WRITES,
    "fairseq-preprocess": "",
    "fairseq-attnvariants": f'case $1 in *-dir) echo "$PWD"; exit ;; esac\n{WRITES}',
    "python": f"""
        case $1 in *measure.py | *make_corpus.py) ;; *) exec {sys.executable} "$@" ;; esac""",
}
# stubs for scripts of the recipes that call other commands
SCRIPTS = {
    "common/prepare_bpe.sh": 'mkdir -p "$3/bin"; for side in "$4" "$5"; do cat train.txt > "$3/train.$side"; done',
    "common/evaluate.sh": 'for kind in txt scores; do echo a > "$3/${SUBSET:-test}.$kind"; done',
}


def put(path, text):
    path.write_text(f"#!/bin/bash\n{text}\n")
    path.chmod(0o755)


def write_text(folder, splits=("train", "val", "test"), languages=("xx", "yy")):
    folder.mkdir(exist_ok=True)
    for split in splits:
        for language in languages:
            (folder / f"{split}.{language}").write_text("a\n")


@pytest.fixture
def recipe(tmp_path):
    """A function that runs a script in a copy of ``examples/``; it returns the process and the log of its calls."""
    examples, commands, calls = tmp_path / "examples", tmp_path / "commands", tmp_path / "calls"
    shutil.copytree(EXAMPLES, examples, ignore=shutil.ignore_patterns("*.png"))
    commands.mkdir()
    for name, text in STUBS.items():
        put(commands / name, text)
    for name, text in SCRIPTS.items():
        put(examples / name, text)
    (tmp_path / "train.txt").write_text("a\n")
    path = os.pathsep.join(map(str, (commands, corpus.SCRIPTS, os.environ["PATH"])))

    def run(name, *arguments, **environment):
        calls.write_text("")
        environment = {**os.environ, "PATH": path, "CALLS": str(calls), **environment}
        command = [str(examples / name), *map(str, arguments)]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        return done, calls.read_text()

    return run


def refused(found, *words):
    """Return whether a recipe ended with status 2 and one sentence, before any training."""
    done, calls = found
    begun = [line for line in calls.splitlines() if line.split()[0] in ("fairseq-train", "fairseq-hydra-train")]
    return done.returncode == 2 and done.stderr.count("\n") == 1 and all(map(done.stderr.count, words)) and not begun


def went(found):
    done, _ = found
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    return found


def test_a_name_is_of_one_training(recipe, tmp_path):
    def train(*options, NAME="mine", **environment):
        return recipe("baselines/multi30k.sh", "text", "work", "de", "dl4mt", *options, NAME=NAME, **environment)

    went(train("--lr", "1"))
    went(train("--lr", "1", SUBSET="valid"))
    went(train("--lr", "1", LENPEN="1.2"))
    assert (tmp_path / "work/mine/settings").read_text() == "SEED=1 UPDATES=7264 PREPARED=de-10000 dl4mt --lr 1\n"
    for options, environment in (
        (["--lr", "1"], {"SEED": "2"}),
        (["--lr", "1"], {"UPDATES": "48"}),
        (["--lr", "1"], {"MERGES": "4000"}),
        ([], {}),
    ):
        assert refused(train(*options, **environment), "has a training of SEED=1 ", "give another NAME")
    assert not (tmp_path / "work/de-4000").exists()
    _, calls = went(train("--lr", "1", SEED="2", NAME="other"))
    assert "--seed 2" in calls and (tmp_path / "work/other/average.pt").exists()


@pytest.mark.parametrize("updates, every", [("7264", 302), ("5448", 226), ("10896", 453)])
def test_no_checkpoint_that_is_averaged_is_due_at_the_end_of_an_epoch(recipe, tmp_path, updates, every):
    """fairseq keeps no checkpoint by updates at the end of an epoch; Multi30k has 454 updates per epoch."""
    (tmp_path / "train.txt").write_text("a\n" * 29000)
    _, calls = went(recipe("baselines/multi30k.sh", "text", "work", "de", "dl4mt", UPDATES=updates))
    assert f"--save-interval-updates {every} " in calls
    assert refused(recipe("baselines/multi30k.sh", "text", "work", "de", "dl4mt", UPDATES="abc"), "UPDATES=abc")


def test_settings_are_of_who_holds_the_folder(recipe, tmp_path):
    """If two trainings with one name start at the same time, the second one waits, and is refused."""
    train = ["baselines/multi30k.sh", "text", "work", "de", "dl4mt"]
    script = tmp_path / "examples" / "common" / "prepare_bpe.sh"
    script.write_text(script.read_text().replace("#!/bin/bash\n", "#!/bin/bash\nsleep 1\n"))
    with ThreadPoolExecutor() as several:
        both = [several.submit(recipe, *train, NAME="mine", SEED=seed) for seed in ("1", "2")]
    codes = [one.result()[0].returncode for one in both]
    assert sorted(codes) == [0, 2]


def test_a_training_that_did_not_begin_keeps_no_name(recipe):
    """A misspelt option, for example, must not reserve the name."""
    train = ["baselines/multi30k.sh", "text", "work", "de", "dl4mt"]
    done, _ = recipe(*train, "--wrong")
    assert done.returncode == 1
    went(recipe(*train, "--lr", "1"))
    assert refused(recipe(*train), "--lr 1")


def test_a_training_from_before_is_accepted(recipe, tmp_path):
    (tmp_path / "work/mine").mkdir(parents=True)
    (tmp_path / "work/mine/checkpoint_last.pt").touch()
    went(recipe("baselines/multi30k.sh", "text", "work", "de", "dl4mt", NAME="mine", SEED="2"))
    assert not (tmp_path / "work/mine/settings").exists()


@pytest.fixture
def taught(recipe, tmp_path):
    """A function that runs ``distil.sh``; there are three trainings of two systems, and one system is distilled."""
    (tmp_path / "text").mkdir()
    for split in ("val", "test_2016_flickr"):
        for language in ("en", "de"):
            (tmp_path / "text" / f"{split}.{language}").write_text("a\n")
    for system in ("dl4mt", "conddec"):
        for seed in (1, 2, 3):
            run = tmp_path / "work" / f"de-{system}-{seed}"
            run.mkdir(parents=True)
            (run / "average.pt").touch()
            os.utime(run / "average.pt", (1, 1))
    for language in ("en", "de"):
        (tmp_path / "work/de-10000").mkdir(exist_ok=True)
        (tmp_path / f"work/de-10000/train.{language}").write_text("a\n")

    def run(system, **environment):
        return recipe("baselines/distil.sh", "text", "work", "de", system, **environment)

    went(run("dl4mt"))
    return run


def test_what_is_distilled_is_of_its_own_ensemble(taught, tmp_path):
    work = tmp_path / "work"
    assert (work / "distilled-de-dl4mt/de-dl4mt-1/test.scores").exists()
    expected = "RUNS=de-dl4mt-1 de-dl4mt-2 de-dl4mt-3 PREPARED=de-10000\n"
    assert (work / "de-dl4mt-ensemble/settings").read_text() == expected
    _, calls = went(taught("dl4mt", SEED="2"))
    assert "tune work/de-10000/bin" not in calls and (work / "distilled-de-dl4mt/de-dl4mt-2").exists()
    for environment in ({"RUNS": "de-dl4mt-1 de-conddec-1"}, {"MERGES": "4000"}):
        found = taught("dl4mt", **environment)
        assert refused(found, "de-dl4mt-ensemble is of RUNS=de-dl4mt-1 de-dl4mt-2 de-dl4mt-3", "give another NAME")
    _, calls = went(taught("conddec"))
    assert "work/de-conddec-1/average.pt:work/de-conddec-2/average.pt" in calls
    assert (work / "distilled-de-conddec/de-conddec-1/test.scores").exists()
    went(taught("dl4mt", NAME="mixed", RUNS="de-dl4mt-1 de-conddec-1"))
    assert (work / "distilled-mixed/de-dl4mt-1").exists() and (work / "mixed-ensemble/train.scores").exists()


def test_an_ensemble_from_before_is_accepted(taught, tmp_path):
    (tmp_path / "work/de-dl4mt-ensemble/settings").unlink()
    went(taught("dl4mt", RUNS="de-dl4mt-1"))


def test_length_penalties_are_of_the_ensemble_as_it_is(recipe, tmp_path):
    models = [tmp_path / f"{k}.pt" for k in range(3)]
    translate = ["baselines/translate.sh", "prepared", "out", "de", ":".join(map(str, models))]
    for model in models:
        model.touch()
        os.utime(model, (1, 1))
    tuned = ["tune" in went(recipe(*translate, SUBSET="valid"))[1] for _ in range(2)]
    later = (tmp_path / "out/valid.csv").stat().st_mtime + 10
    os.utime(models[2], (later, later))
    assert [*tuned, "tune" in went(recipe(*translate, SUBSET="valid"))[1]] == [True, False, True]


def test_bridges_of_another_start_need_a_folder_of_their_own(recipe, tmp_path):
    (tmp_path / "out/control/1").mkdir(parents=True)
    (tmp_path / "out/control/1/loss").touch()
    for name in ("prepared", "x"):
        (tmp_path / name / "bin").mkdir(parents=True)
    for name in ("gold", "y"):
        (tmp_path / name).touch()

    def bridges(prepared="prepared", gold="gold", **environment):
        environment = {"SEEDS": "1", "SYSTEMS": "control", "START_SEED": "1", **environment}
        return recipe("bridging/apart.sh", prepared, "out", gold, "en", "cs", **environment)

    went(bridges())
    went(bridges(SEEDS="1"))
    reason = f"out has runs of PREPARED={tmp_path}/prepared GOLD={tmp_path}/gold START=5700 UPDATES=2000 START_SEED=1, "
    others = {"START_SEED": "2"}, {"START_SEED": ""}, {"START": "9"}, {"UPDATES": "9"}, {"prepared": "x"}, {"gold": "y"}
    for other in others:
        assert refused(bridges(**other), f"{reason}and not of PREPARED=", "give another OUT")
    assert [path.name for path in (tmp_path / "out").glob("start-*")] == ["start-1"]
    assert refused(bridges(prepared="none"), "apart.sh: there is no none/bin")
    assert refused(bridges(gold="none"), "apart.sh: there is no none")


def test_twice_the_updates_are_twice_those_asked_for(recipe, tmp_path):
    for updates, expected in (({}, "2400"), ({"UPDATES": "2400"}, "4800")):
        out = tmp_path / f"out-{expected}"
        (out / "corpus").mkdir(parents=True)
        _, calls = went(recipe("laboratory/run.sh", "rare", ARCHS="longer", OUT=str(out), **updates))
        half, twice = (line for line in calls.splitlines() if line.startswith("fairseq-hydra-train"))
        assert f"max_update={expected}" not in half
        ends = (f" optimization.max_update={expected}", f" ++lr_scheduler.total_num_update={expected}")
        assert twice.endswith("".join(ends)) and "TWICE" not in half + twice


def test_source_of_ones_own_that_is_edited_is_trained_anew(recipe, tmp_path):
    out, mine = tmp_path / "out", tmp_path / "mine"
    for folder in (out / "corpus", mine / "parts"):
        folder.mkdir(parents=True)
    register = 'register_architecture("mine", base="rnnsearch")'
    (mine / "__init__.py").write_text(f"from fairseq_attnvariants import register_architecture\n{register}\n")
    (mine / "parts/one.py").write_text("SIZE = 1\n")

    def order(archs, **environment):
        return recipe("laboratory/run.sh", "order", OUT=str(out), USER_DIR=str(mine), ARCHS=archs, **environment)

    went(order("recatt mine"))
    (mine / "notes.txt").write_text("of no matter\n")
    went(order("recatt mine"))
    (mine / "parts/one.py").write_text("SIZE = 2\n")
    went(order("recatt"))
    reason = f"{mine} has changed since mine was trained: remove {out}/mine and {out}/mine.source, or give another OUT"
    assert refused(order("recatt mine"), reason)
    shutil.rmtree(out / "mine")
    (out / "mine.source").unlink()
    went(order("recatt mine"))
    [shutil.rmtree(run) for run in out.glob("mine/run-*/checkpoints")]  # runs that failed
    (mine / "parts/one.py").write_text("SIZE = 3\n")
    went(order("recatt mine"))
    assert {path.name for path in out.glob("*.source")} == {"mine.source"}


@pytest.fixture
def systems(recipe, tmp_path):
    """A function that runs a task of the laboratory with a file of systems, in a folder with a corpus."""
    (tmp_path / "out/corpus").mkdir(parents=True)

    def run(text, **environment):
        (tmp_path / "systems.yaml").write_text(text)
        given = {"OUT": str(tmp_path / "out"), "SYSTEMS": "systems.yaml", **environment}
        return recipe("laboratory/run.sh", "order", **given)

    return run


COSTS = "costs: model._name=conddec criterion._name=label_smoothed_cross_entropy_with_fertility\n"
PLAIN = "plain: >\n  model._name=conddec\n  model.dropout=0\n"


@pytest.mark.parametrize("seeds", ["1 2", "1,2", "1, 2", "2 01"])
def test_systems_of_a_file_have_options_a_criterion_and_a_name(systems, tmp_path, seeds):
    out = tmp_path / "out"
    _, calls = went(systems(COSTS + PLAIN, SEEDS=seeds))
    trained = [line for line in calls.splitlines() if line.startswith("fairseq-hydra-train")]
    assert [line.partition("hydra.sweep.dir=")[2].partition(" ")[0] for line in trained] == [
        f"'{out}/{name}'" for name in ("rnnsearch", "costs", "plain")
    ]
    assert all(" common.seed=1,2 " in line for line in trained)
    for line, text in zip(trained[1:], (COSTS, PLAIN)):
        assert line.endswith(" " + " ".join(text.removeprefix("plain: >").removeprefix("costs:").split()))
    runs = [(name, seed) for name in ("rnnsearch", "costs", "plain") for seed in "12"]
    folders = " ".join(f"{out}/{name}/run-{seed}-abcdef" for name, seed in runs)
    assert f"results {folders} {' '.join(f'--name {name}' for name, _ in runs)} " in calls


def test_options_of_a_system_win_over_those_of_its_kind(systems):
    _, calls = went(systems("big: model._name=lstm model.encoder_layers=2 model.decoder_layers=2\n", SEEDS="1"))
    [line] = (line for line in calls.splitlines() if "model._name=lstm" in line)
    for side in ("encoder", "decoder"):
        assert line.rindex(f" model.{side}_layers=2") > line.rindex(f" model.{side}_layers=1")


def test_runs_of_other_seeds_are_not_in_the_table(systems):
    """A run that was stopped, for example, does not count."""
    went(systems(PLAIN, SEEDS="3 4"))
    _, calls = went(systems(PLAIN, SEEDS="1 3"))
    assert {*re.findall("plain/run-(.)-abcdef", calls.partition("results")[2])} == {"1", "3"}


def test_what_did_not_begin_keeps_no_settings(recipe, systems, tmp_path):
    """A corpus that could not be made, or a system that hydra refused, stores no settings."""
    shutil.rmtree(tmp_path / "out")
    put(tmp_path / "commands" / "fairseq-preprocess", "exit 1")
    done, _ = systems(PLAIN, TRAIN="500")
    assert done.returncode == 1
    put(tmp_path / "commands" / "fairseq-preprocess", 'mkdir -p "${@: -1}"')
    put(tmp_path / "commands" / "fairseq-hydra-train", "echo no; [[ $* != *conddec* ]]")
    done, _ = systems(PLAIN)
    log = tmp_path / "out/plain.log"
    assert done.returncode == 1 and done.stderr.endswith(f"no\nrun.sh: a training of plain failed: see {log}\n")
    put(tmp_path / "commands" / "fairseq-hydra-train", WRITES)
    went(systems(PLAIN.replace("dropout=0", "dropout=0.2")))


def test_systems_of_a_file_are_chosen_among(systems):
    _, calls = went(systems(COSTS + PLAIN, ARCHS="recatt plain", SEEDS="1"))
    assert "--name rnnsearch --name recatt --name plain " in calls and "costs" not in calls
    _, calls = went(systems(COSTS + PLAIN, ARCHS="plain plain rnnsearch", SEEDS="1 1"))
    assert "--name rnnsearch --name plain " in calls and calls.count("--name plain ") == calls.count("results ")


def test_a_system_with_other_options_needs_a_folder_of_its_own(systems, tmp_path):
    went(systems(COSTS + PLAIN))
    went(systems(PLAIN + COSTS, SEEDS="1 2 3 4 5 6"))
    kept = (tmp_path / "out/plain/settings").read_text()
    found = systems(COSTS + PLAIN.replace("dropout=0", "dropout=0.2"))
    assert refused(found, "out/plain has runs of model._name=conddec model.dropout=0, and not of ", "give another OUT")
    assert (tmp_path / "out/plain/settings").read_text() == kept


@pytest.mark.parametrize("text, environment, reason", [
    ("", {"SYSTEMS": "nowhere.yaml"}, "SYSTEMS: nowhere.yaml cannot be read: "),
    ("- x", {}, "SYSTEMS: systems.yaml names no system: each is a line, NAME: model._name=ARCHITECTURE"),
    ("a: [", {}, "SYSTEMS: systems.yaml cannot be read: "),
    ("a/b: model._name=recatt", {}, "has a system called a/b: a name has letters"),
    ("corpus: model._name=recatt", {}, "has corpus, which is a name in OUT"),
    ("recatt: model._name=recatt", {}, "has recatt, which the task has already: give it another name"),
    (PLAIN + COSTS + PLAIN, {}, "SYSTEMS: systems.yaml has plain twice: give each line another name"),
    ("mine: recatt", {}, "does not say model._name=ARCHITECTURE of mine"),
    ("mine: model._name=recat", {}, "SYSTEMS: mine has no architecture recat in "),
    ("mine: model._name=recatt criterion._name=sharp", {}, "SYSTEMS: mine has no criterion sharp in "),
    (PLAIN, {"SEEDS": "1 two"}, 'SEEDS="1 two" are no numbers: give such as SEEDS="1 2 3"'),
    (PLAIN, {"UPDATES": "10k"}, "UPDATES=10k is no number from 1 on"),
    (PLAIN, {"TEST": "0"}, "TEST=0 is no number from 1 on"),
    (PLAIN, {"USER_DIR": "nowhere"}, "run.sh: USER_DIR=nowhere is no folder"),
    (PLAIN, {"ARCHS": "plane"}, "ARCHS: plane is no system of order and no architecture in "),
])  # fmt: skip
def test_wrong_systems_are_refused_before_anything_is_written(systems, tmp_path, text, environment, reason):
    shutil.rmtree(tmp_path / "out")
    assert refused(systems(text, **environment), reason)
    assert not (tmp_path / "out").exists()


def test_another_text_of_a_sweep_needs_a_folder_of_its_own(recipe, tmp_path):
    write_text(tmp_path / "corpus", splits=("train", "val", "test", "more"))

    def sweep(*overrides, **environment):
        arguments = ["corpus", "out", "xx", "yy", *overrides]
        return recipe("own_text/sweep.sh", *arguments, **{"TOKENISE": "no", "MERGES": "9", **environment})

    done, _ = sweep(TRAIN="nothing")
    assert done.returncode == 1 and "nothing.xx" in done.stderr
    done, _ = sweep("--wrong")
    assert done.returncode  # an option that does not exist; nothing was trained with it
    went(sweep())  # nothing was made of the file that is not there
    went(sweep(ARCHS="dl4mt"))
    for environment in ({"MERGES": "8"}, {"TRAIN": "more"}, {"VALID": "more"}, {"TEST": "more"}, {"TOKENISE": "yes"}):
        reason = f"CORPUS={tmp_path}/corpus MERGES=9 TRAIN=train VALID=val TEST=test TOKENISE=no, and not of CORPUS="
        assert refused(sweep(**environment), reason, "give another OUT")
    (tmp_path / "other").symlink_to(tmp_path / "corpus")
    went(recipe("own_text/sweep.sh", "other", "out", "xx", "yy", TOKENISE="no", MERGES="9"))
    edited = tmp_path / "corpus" / "test.yy"
    edited.write_text("b\n")
    assert refused(sweep(), "out/words has text of xx-yy, checksum ", "give another OUT")
    edited.write_text("a\n")
    assert refused(sweep(TOKENISE="false"), "sweep.sh: TOKENISE=false is neither yes nor no")
    assert refused(sweep(USER_DIR="nowhere"), "sweep.sh: USER_DIR=nowhere is no folder")
    for _ in range(2):
        assert refused(sweep("model.dropout=0.1"), "has runs of '', and not of 'model.dropout=0.1'", "give another OUT")
        (tmp_path / "out/sweep/settings").unlink()
        (tmp_path / "out/overrides").write_text("\n")  # where an earlier version kept them
    (tmp_path / "out/settings").unlink()  # as from an earlier version
    went(sweep(MERGES="8"))


def test_of_two_sweeps_with_one_folder_the_second_waits(recipe, tmp_path):
    write_text(tmp_path / "corpus")
    put(tmp_path / "commands" / "fairseq-attnvariants", f"sleep 1\n{STUBS['fairseq-attnvariants']}")
    sweep = ["own_text/sweep.sh", "corpus", "out", "xx", "yy"]
    with ThreadPoolExecutor() as several:
        both = [several.submit(recipe, *sweep, TOKENISE="no", MERGES=merges) for merges in ("8", "9")]
    assert sorted(one.result()[0].returncode for one in both) == [0, 2]


def test_languages_that_are_edited_need_another_folder(recipe, tmp_path):
    write_text(tmp_path, languages=("xx", "yy", "zz"))
    many = ["multilingual/run.sh", ".", "out", "xx", "yy", "zz"]
    put(tmp_path / "commands" / "subword-nmt", "echo a")
    for name in ("fairseq-generate", "sacrebleu"):
        put(tmp_path / "commands" / name, "echo H-0")
    went(recipe(*many))
    went(recipe(*many))
    (tmp_path / "val.zz").write_text("b\n")
    assert refused(recipe(*many), "out/text has text of xx yy zz, checksum ", "give another OUT")


@pytest.mark.parametrize("gpu", [True, False])
def test_sentences_are_padded_to_few_lengths_on_a_gpu(gpu, recipe, tmp_path):
    if gpu:
        put(tmp_path / "commands" / "nvidia-smi", "")
    padded = "required[-_]seq[-_]len[-_]multiple[ =]4"
    _, calls = went(recipe("common/train.sh", "data", "one", "dl4mt"))
    assert bool(re.search(padded, calls)) == gpu
    _, calls = went(recipe("common/train.sh", "data", "two", "dl4mt", "--cpu"))
    assert not re.search(padded, calls)
    write_text(tmp_path / "corpus")
    _, calls = went(recipe("own_text/sweep.sh", "corpus", "out", "xx", "yy", TOKENISE="no"))
    assert bool(re.search(padded, calls)) == gpu
    (tmp_path / "laboratory" / "order" / "corpus").mkdir(parents=True)
    _, calls = went(recipe("laboratory/run.sh", "order", SEEDS="1"))
    assert bool(re.search(padded, calls)) == gpu


def test_a_finished_training_is_known_by_any_name_of_its_text(recipe, tmp_path):
    (tmp_path / "data").mkdir()
    train = "common/train.sh"
    assert "fairseq-train" in went(recipe(train, "data", "out", "dl4mt"))[1]
    for name in ("data", "data/", tmp_path / "data"):
        assert "fairseq-train" not in went(recipe(train, name, tmp_path / "out", "dl4mt"))[1]
    (tmp_path / "out").rename(tmp_path / "there")  # a training of an earlier version, too
    (tmp_path / "there/finished").write_text(
        "data --arch dl4mt --criterion label_smoothed_cross_entropy --compute-dtype auto \n"
    )
    assert "fairseq-train" not in went(recipe(train, "data", "there", "dl4mt"))[1]
    assert "fairseq-train" in went(recipe(train, "other", "there", "dl4mt"))[1]


def test_options_that_add_nothing_to_a_finished_training_are_refused(recipe, tmp_path):
    train = ["common/train.sh", "data", "out", "dl4mt"]
    went(recipe(*train))
    went(recipe(*train, "--max-epoch", "9"))  # continues
    put(tmp_path / "commands" / "fairseq-train", "")  # as if nothing is left to train
    done, _ = recipe(*train, "--max-epoch", "9", "--seed", "2")
    assert done.returncode == 2 and "train.sh: out has a training of other options, to which" in done.stderr
    went(recipe(*train, "--max-epoch", "9"))


def test_an_unprepared_text_gets_no_further_test_set(recipe, tmp_path):
    assert refused(
        recipe("common/prepare_test.sh", "text", "none", "test1", "xx", "yy"), "none is not of prepare_bpe.sh"
    )
    assert not (tmp_path / "none").exists()


def test_jobs_are_a_number(recipe):
    assert refused(recipe("captions/queue.sh", "text", "out", JOBS="0"), "queue.sh: JOBS=0 is no number from 1 on")


def test_a_text_is_not_replaced_by_a_part_of_itself(recipe, tmp_path):
    for language in ("xx", "yy"):
        (tmp_path / f"train.{language}").write_text("".join(f"{k}\n" for k in range(9)))
    split = [sys.executable, EXAMPLES / "common/split.py", "--valid", "1", "--test", "1", "train", ".", "xx", "yy"]
    done = subprocess.run(split, cwd=tmp_path, capture_output=True, text=True)
    assert (
        done.returncode == 1
        and done.stderr == "split.py: train would be replaced by a part of itself: give another OUT\n"
    )
    assert (tmp_path / "train.xx").read_text().count("\n") == 9 and not (tmp_path / "valid.xx").exists()
