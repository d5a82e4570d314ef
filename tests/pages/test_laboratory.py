"""The synthetic languages are as described, and each task runs from its corpus to its table."""

import json
import math
import os
import random
import re
import shutil
import subprocess
import sys
from collections import Counter

import corpus
import pytest
import yaml
from corpus import ROOT, script
from fairseq.models import ARCH_MODEL_REGISTRY

pytestmark = pytest.mark.more

LABORATORY = ROOT / "examples" / "laboratory"


language, measure = script(LABORATORY / "make_corpus.py"), script(LABORATORY / "measure.py")
NAMES = sorted(path.stem for path in (LABORATORY / "tasks").glob("*.yaml"))


def described(name):
    return yaml.safe_load((LABORATORY / "tasks" / f"{name}.yaml").read_text())


def architecture(options):
    return options.partition("model._name=")[2].split()[0]


def test_every_task_is_described():
    assert sorted(language.TASKS) == sorted([*NAMES, "quickstart"])
    for name in NAMES:
        task = described(name)
        assert {task["baseline"], task["control"]} <= set(task["systems"]) and task["margin"] > 0
        assert set(map(architecture, task["systems"].values())) <= {*ARCH_MODEL_REGISTRY}


@pytest.fixture(scope="module")
def texts():
    """For each task, its training text, and its test texts by the value of the dial."""
    made = {}
    for name, task in language.TASKS.items():
        rng = random.Random(2)
        made[name] = task.train(rng, 400), {value: task.test(rng, value, 40) for value in task.dial}
    return made


@pytest.mark.parametrize("name", language.TASKS)
def test_what_is_written_beside_the_text_is_true(name, texts, tmp_path):
    train, tests = texts[name]
    language.write(tmp_path / "train", train)
    lines = {path.suffix[1:]: path.read_text().splitlines() for path in tmp_path.iterdir()}
    assert set(lines) == {"src", "tgt", "links", "fertilities", "sides"}
    for number, pair in enumerate([*train, *(pair for test in tests.values() for pair in test)]):
        assert pair.source and all(0 <= link < len(pair.source) for word in pair.target for link in word.links)
        for word in pair.target:
            assert bool(word.links) != (word.side == "target")
            stems = [pair.source[link].rstrip("s") for link in word.links]
            if word.side == "source" and name not in ("rare", "cipher", "sides"):  # a word shows its source word
                assert any(word.text.startswith(stem) for stem in stems)
        if number < len(train):
            source, target, links, fertilities, sides = (lines[suffix][number].split() for suffix in (
                "src", "tgt", "links", "fertilities", "sides",
            ))  # fmt: skip
            assert (source, len(target)) == (pair.source, len(sides))
            of = Counter(int(link.partition("-")[0]) for link in links)
            assert [of[j] for j in range(len(source))] == [*map(int, fertilities)]


def test_the_dials_turn_what_they_say(texts):
    for name in NAMES:
        dial = described(name)["dial"].partition("=")[2].split(",")
        assert dial == [str(value) for value in texts[name][1]]
    for distance, pairs in texts["order"][1].items():
        for pair in pairs:
            take, put = pair.source.index("take"), pair.source.index("put")
            assert (put - take - 3 if put > take else take - put - 1) == distance
            moved = {pair.source[take + k] + ending for k in (1, 2) for ending in ("o", "i", "um", "u")}
            places = [j for j, word in enumerate(pair.target) if word.text in moved]
            assert places == [places[0], places[0] + 1] and len(places) == 2
    for distinct, pairs in texts["twins"][1].items():
        assert all(len({*pair.source}) == (len(pair.source) if distinct == "all" else distinct) for pair in pairs)
    for most, pairs in texts["counts"][1].items():
        assert max(max(Counter(word.text for word in pair.target).values()) for pair in pairs) == most
    for times, pairs in texts["length"][1].items():
        assert {len(pair.source) for pair in pairs} == {round(20 * times)}
    assert max(len(pair.source) for pair in texts["length"][0]) == 20
    for share, pairs in texts["sides"][1].items():
        for pair in pairs:
            said = [word.text for word in pair.target if word.text in language.PARTICLES]
            assert abs(100 * len(said) / len(pair.target) - share) < 1
            place = language.PARTICLES.index(pair.source[0].removeprefix("from-"))
            assert said == [language.PARTICLES[(place + k) % 16] for k in range(len(said))]
    for share, pairs in texts["cipher"][1].items():
        assert all(sum(word.side == "cognate" for word in pair.target) == share / 25 for pair in pairs)


def said(pair):
    return " ".join(word.text for word in pair.target)


def test_what_is_moved_is_said_where_its_task_says(texts):
    """Places and sides of words follow from the words of the source alone."""
    for pair in sum(texts["order"][1].values(), texts["order"][0]):
        take, put = pair.source.index("take"), pair.source.index("put")
        taken = pair.source[take + 1 : take + 3]
        left = [word for word in pair.source if word not in ("take", *taken)]
        order = [one for word in left for one in (taken if word == "put" else [word])]
        assert said(pair) == " ".join(language.TARGET[word] for word in order)
        side = "sooner" if put < take - 1 else "later" if put > take + 3 else "source"
        assert [word.side for word in pair.target] == [side if word in taken else "source" for word in order]
    assert {word.side for pair in texts["order"][1][8] for word in pair.target} == {"source", "sooner", "later"}

    adjective, noun = "|".join(language.ADJECTIVES), "|".join(language.NOUNS)
    for pair in sum(texts["rare"][1].values(), texts["rare"][0]):
        rare = {pair.source[word.links[0]]: word.text for word in pair.target if word.side == "rare"}
        source = re.sub(rf"\b({adjective}) ({noun})\b", r"\2 \1", " ".join(pair.source))
        assert said(pair) == " ".join({**language.TARGET, **rare}[word] for word in source.split())

    for pair in sum(texts["facts"][1].values(), texts["facts"][0]):
        name, *event = re.search(r"today (\w+) (\w+) (\w+) (\w+)", " ".join(pair.source)).groups()
        assert said(pair) == " ".join([name, *(language.TARGET[word] for word in event[::-1])])
        assert pair.source.count("today") == 1 and pair.source.count("once") == 2

    # a verb or a place, a phrase's adjectives, noun and plural
    phrase = rf"(\w+ )?(?:the|this|some) ((?:(?:{adjective}) )*)({noun})(s?)\b"
    for pair in sum(texts["quickstart"][1].values(), texts["quickstart"][0]):
        (_, *subject), *others = re.findall(phrase, " ".join(pair.source))
        words = []
        for before, adjectives, thing, plural in [["", *subject], *others[::-1]]:
            words += [thing, *[thing] * len(plural), *adjectives.split(), *before.split()]
        assert said(pair) == " ".join(language.TARGET[word] for word in words)


def test_tests_are_longer_than_training_where_a_task_says_so(texts):
    lengths = {
        name: [{len(pair.source) for pair in pairs} for pairs in (train, sum(tests.values(), []))]
        for name, (train, tests) in texts.items()
    }
    train, test = lengths["twins"]
    assert (min(train), max(train), test) == (4, 20, {21, 22})
    assert lengths["sides"] == [{9, 13}, {17}]  # the first word determines the first particle
    number = re.compile("two|three|four")
    train, test = ([" ".join(pair.source) for pair in pairs] for pairs in (texts["counts"][0], texts["counts"][1][4]))
    words = [{len(number.sub("", line).split()) for line in lines} for lines in (train, test)]
    assert words == [{2, 3, 4, 5, 6, 7}, {8}]
    for line, pair in zip(test, texts["counts"][1][4]):
        for count, word in re.findall(r"(two|three|four) (\w+)", line):
            times = ["two", "three", "four"].index(count) + 2
            assert said(pair).split().count(language.TARGET[word]) == times


def test_only_the_first_particle_is_said_by_the_source(texts):
    for share, pairs in texts["sides"][1].items():
        for pair in pairs:
            sides = [(word.links == (0,), word.side) for word in pair.target if word.text in language.PARTICLES]
            assert sides == [(k == 0, "target" if k else "source") for k in range(len(sides))]
            assert bool(sides) == (share > 0)


def test_no_letter_of_a_cipher_is_kept(texts):
    for pair in sum(texts["cipher"][1].values(), texts["cipher"][0]):
        for source, word in zip(pair.source, pair.target):
            kept = [one == other for one, other in zip(source, word.text)]
            assert not any(kept[:-2]) if word.side == "cognate" else not all(kept[:-2]), (source, word.text)


def corpus_files(folder, *more):
    command = ["make_corpus.py", "rare", str(folder), "--test", "30", *more]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", command)
        language.main()
    return {path.name: path.read_text() for path in folder.iterdir()}


def test_a_corpus_has_the_sentences_and_the_seed_that_are_asked_for(tmp_path):
    """Training has as few sentences as rare words need; validation no more than given, with several frequencies."""
    one, same, other = (
        corpus_files(tmp_path / str(k), "--train", "1120", "--seed", seed) for k, seed in enumerate(("1", "1", "2"))
    )
    assert one == same and all(one[name] != other[name] for name in one if name.endswith("src"))
    lines = {name.partition(".")[0]: text.count("\n") for name, text in one.items()}
    assert lines == {"train": 1120, **dict.fromkeys(["valid", "test", "test1", "test2", "test3"], 30)}
    seen = Counter(re.findall(r"rare(\d+)-", one["valid.src"]))
    assert seen["20"] and len(seen) > 1


def test_rare_words_need_their_sentences(tmp_path):
    command = [sys.executable, str(LABORATORY / "make_corpus.py"), "rare", str(tmp_path / "text"), "--train", "500"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2 and "--train 500: the rare words alone are in 1120 sentences" in done.stderr
    assert not (tmp_path / "text").exists()


def test_words_are_as_rare_as_they_say_and_cognates_and_names_to_test_are_new():
    rng = random.Random(3)
    train = language.TASKS["rare"].train(rng, 1500)
    seen = Counter(word for pair in train for word in {*pair.source})
    for frequency in language.SEEN:
        tested = language.TASKS["rare"].test(rng, frequency, 40)
        words = {pair.source[word.links[0]] for pair in tested for word in pair.target if word.side == "rare"}
        assert len(words) == 40 and {seen[word] for word in words} == {frequency}
        assert len({word.text for pair in tested for word in pair.target if word.side == "rare"}) == 40
    facts = language.TASKS["facts"]
    train = facts.train(rng, 2000)
    reported, written = ({word for pair in train for word in words(pair)} for words in (
        lambda pair: pair.source, lambda pair: [word.text for word in pair.target],
    ))  # fmt: skip
    for share, right in ((0, lambda names: names <= written), (100, lambda names: not names & written)):
        names = {pair.target[0].text for pair in facts.test(rng, share, 100)}
        assert names <= reported and right(names) and len(names) > 20
    cipher = language.TASKS["cipher"]
    known = {word for pair in cipher.train(rng, 500) for word in pair.source if word.endswith("en")}
    new = {word for pair in cipher.test(rng, 100, 100) for word in pair.source}
    assert known and new and not known & new


def test_measures():
    def score(found, expected="a k b c", sides="source target source rare"):
        return measure.measures(found.split(), expected.split(), sides.split())

    nothing = dict.fromkeys(["cognate", "name", "sooner", "later", "particle"], math.nan)
    right = dict.fromkeys(["exact", "prefix", "kept", "fresh", "jumps", "source", "rare"], 100)
    assert score("a k b c") == pytest.approx({**right, **nothing}, nan_ok=True)
    wrong = dict(exact=0, prefix=20, kept=50, fresh=50, jumps=20, source=200 / 3, rare=0)
    assert score("a m b b") == pytest.approx({**wrong, **nothing}, nan_ok=True)
    assert score("a k b c c")["prefix"] == 80  # it does not end there
    assert math.isnan(score("")["fresh"]) and score("")["kept"] == 0
    assert [score(found, sides="source later later source")["later"] for found in ("a k b c", "a b c")] == [100, 0]
    # words between particles and missing particles do not count, only which particle follows which
    particles = dict(expected="a ka b ke ki c ku", sides="source source source target target source target")
    for found, share in (
        ("a ka b ke ki c ku", 100),
        ("ka x x x ke ki ku", 100),
        ("a ka b ki c ku", 100 / 3),
        ("ke ki", 100 / 3),
    ):
        assert score(found, **particles)["particle"] == pytest.approx(share)
    assert [score("b c a k")[name] for name in ("kept", "fresh", "jumps")] == [100, 100, 40]  # a k, b c


# for each task, one system; together, all kinds of systems that are more than the name of an architecture
SYSTEMS = dict(
    order="guided", twins="lstm", counts="conddec", length="coverage costs plain", sides="wide", rare="bridge_direct"
)
SYSTEMS |= dict(cipher="ava lstm", facts="pointer_generator")
ADDED = {
    "length": {
        "costs": "model._name=conddec criterion._name=label_smoothed_cross_entropy_with_costs",
        "plain": "model._name=rnnsearch criterion._name=cross_entropy",  # has no label smoothing
    }
}
STUB = """#!/bin/bash
for argument; do
  shift
  case $argument in
    model.*_size=* | model.*_dim=*) argument=${argument%%=*}=8 ;;
    *encoder_filters=*) argument=model.encoder_filters=2-2 ;;
  esac
  set -- "$@" "$argument"
done
exec "$WARM/fairseq-hydra-train" "$@"
"""


@pytest.mark.parametrize("name", NAMES)
def test_a_task_from_its_corpus_to_its_table(name, warm, tmp_path):
    """Trainings have two updates of tiny models, with two seeds in one task."""
    seeds = 2 if name == "twins" else 1
    (tmp_path / "fairseq-hydra-train").write_text(STUB)
    (tmp_path / "fairseq-hydra-train").chmod(0o755)
    path = os.pathsep.join(map(str, (tmp_path, warm, corpus.SCRIPTS, os.environ["PATH"])))
    environment = {**os.environ, "PATH": path, "WARM": str(warm), "UPDATES": "2", "ARCHS": SYSTEMS[name], "TRAIN": "90"}
    environment |= {"TEST": "3", "OUT": str(tmp_path / "out"), "SEEDS": "1 2"[: 2 * seeds - 1]}
    if name in ADDED:
        environment["SYSTEMS"] = str(tmp_path / "systems.yaml")
        (tmp_path / "systems.yaml").write_text(yaml.safe_dump(ADDED[name]))
    if name == "rare":
        environment["TRAIN"] = "1200"
    done = subprocess.run([str(LABORATORY / "run.sh"), name], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    task = described(name)
    task["systems"] |= ADDED.get(name, {})
    rows = json.loads((tmp_path / "out" / f"{name}.json").read_text())
    dial, _, values = task["dial"].partition("=")
    systems = [task["baseline"], *SYSTEMS[name].split()]
    places = [(system, value) for system in systems for value in values.split(",")]
    assert [(row["system"], row[dial]) for row in rows] == places
    for system in systems:
        found = {path.name.rpartition("-")[0] for path in (tmp_path / "out" / system).iterdir() if path.is_dir()}
        assert found == {f"{architecture(task['systems'][system])}-{seed}" for seed in range(1, 1 + seeds)}
    for row in rows:
        nothing = (name, row[dial]) in [("cipher", "0"), ("sides", "0")]  # no cognates, no particles
        assert row["seeds"] == seeds and (row[task["measure"]] is None if nothing else 0 <= row[task["measure"]] <= 100)
        verdict = row[f"{task['measure']} verdict"]
        hardest = row["system"] != task["baseline"] and row[dial] == values.split(",")[-1]
        assert seeds < 3 and verdict == ("open" if hardest else None)
    assert task["measure"] in done.stdout and (tmp_path / "out" / "finer.md").exists()
    header, *lines = (tmp_path / "out" / "seeds.csv").read_text().splitlines()
    assert header.split(",") == ["system", dial, "seed", task["measure"], *task["finer"]]
    assert [line.split(",")[:2] for line in lines] == [[row["system"], row[dial]] for row in rows for _ in range(seeds)]


def test_each_sentence_is_measured_on_its_own_reference(tmp_path, monkeypatch):
    """A file's name begins with the subset and a dash.  A text of another length is refused, not cut."""
    for name, text in {
        "test1.tgt": "a b c\na ka b\n",
        "test1.sides": "source source source\nsource target rare\n",
    }.items():
        (tmp_path / name).write_text(text)
    found = tmp_path / "test1-more-of-it.hypothesis.txt"
    found.write_text("a x\na ka b\n")
    monkeypatch.setattr("sys.argv", ["measure.py", str(tmp_path), str(found)])
    measure.main()
    written = {path.suffix[1:]: path.read_text().split() for path in tmp_path.glob("test1-more-of-it.*")}
    assert written["exact"] == ["0.0000", "100.0000"] and written["rare"] == ["nan", "100.0000"]
    assert written["kept"] == written["source"] == ["33.3333", "100.0000"] and written["fresh"][0] == "50.0000"
    found.write_text("a x\n")
    with pytest.raises(ValueError, match=r"^zip\(\) argument 2 is longer than argument 1$"):
        measure.main()


def test_translations_of_another_name_are_refused(tmp_path, monkeypatch, capsys):
    (tmp_path / "t-mine.txt").write_text("a b\n")
    monkeypatch.setattr("sys.argv", ["measure.py", str(tmp_path), str(tmp_path / "t-mine.txt")])
    with pytest.raises(SystemExit):
        measure.main()
    assert "t-mine.txt: the name must end in .hypothesis.txt" in capsys.readouterr().err
    assert (tmp_path / "t-mine.txt").read_text() == "a b\n"


def refused(name, folder=LABORATORY, **environment):
    """Run a task that ``run.sh`` refuses, and return what it prints."""
    path = f"{corpus.SCRIPTS}{os.pathsep}{os.environ['PATH']}"
    run = [str(folder / "run.sh"), name]
    done = subprocess.run(run, env={**os.environ, "PATH": path, **environment}, capture_output=True, text=True)
    assert done.returncode == 2
    return done.stderr


def test_a_folder_of_other_runs_is_refused(tmp_path):
    (tmp_path / "settings").write_text("TASK=twins UPDATES=1200 TRAIN=8000 TEST=200\n")
    (tmp_path / "corpus").mkdir()
    message = "has runs of TASK=twins UPDATES=1200 TRAIN=8000 TEST=200, and not of TASK=order"
    assert message in refused("order", OUT=str(tmp_path))
    assert {path.name for path in tmp_path.iterdir()} == {"settings", "corpus"}


def test_an_architecture_that_is_not_there(tmp_path):
    error = refused("order", OUT=str(tmp_path), ARCHS="recat")
    assert "no architecture in " in error and "mean recatt?)" in error
    assert not [*tmp_path.iterdir()]


def test_a_task_that_is_not_there():
    assert "usage: run.sh cipher|counts|facts|length|order|rare|sides|twins" in refused("nothing")


@pytest.mark.parametrize("change, why", [
    ({"updates": None}, "tasks/mine.yaml lacks updates"),
    ({"dial": "distance=0,2,4"}, "but make_corpus.py has the values 0,2,4,8"),
    ({"finer": ["exact", "later", "sonner"]}, "has the measure sonner"),
    ({"control": "guide"}, "has the control guide"),
    ({}, "no is no system of mine"),  # the parts fit together, and the system that is asked for is refused
])  # fmt: skip
def test_a_task_whose_parts_do_not_fit_together(change, why, tmp_path):
    """``run.sh`` refuses it before any training."""
    shutil.copytree(ROOT / "examples" / "common", tmp_path / "common")
    folder = shutil.copytree(LABORATORY, tmp_path / "laboratory")
    make = folder / "make_corpus.py"
    make.write_text(make.read_text().replace('"order": mixed(', '"mine": mixed((0, 2, 4, 8), order), "order": mixed('))
    task = {key: value for key, value in (described("order") | change).items() if value is not None}
    (folder / "tasks" / "mine.yaml").write_text(yaml.safe_dump(task))
    error = refused("mine", folder, OUT=str(tmp_path / "out"), ARCHS="no")
    assert why in error and len(error.splitlines()) == 1
    assert not (tmp_path / "out").exists()
