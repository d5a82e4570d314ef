"""The benchmarks on small models, and what they compute from their measurements."""

import json
import os
import re
import statistics
import subprocess
from functools import cache, partial
from types import SimpleNamespace

import corpus
import pytest
import torch
from corpus import ROOT, SCRIPTS
from fairseq.data import Dictionary, LanguagePairDataset

pytestmark = pytest.mark.more

BENCHMARKS = ROOT / "benchmarks"
PARTS = {"machine", "training", "search", "fairseq-train", "profile"}


def call(*line):
    path = f"{SCRIPTS}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    return subprocess.run([*map(str, line)], capture_output=True, text=True, env=environment, cwd=BENCHMARKS)


def test_all_of_it(tmp_path):
    done = call("./gpu.sh", "--small", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    out = tmp_path / "out"
    rows = [json.loads(line) for line in (out / "gpu.jsonl").read_text().splitlines()]
    assert not [row["error"] for row in rows if "error" in row]
    assert {row["part"] for row in rows} == {*PARTS, "took"}
    ways = {
        way for arch in ("rnnsearch", "dl4mt", "recatt", "ava", "gnmt", "gnmt_v2") for way in (arch, f"{arch}:graphs")
    }
    assert {row["way"] for row in rows if row["part"] == "training"} == {"lstm", *ways}
    searches = {row["way"]: row["search"] for row in rows if row["part"] == "search"}
    assert searches.items() >= {"rnnsearch": "SequenceGenerator", "rnnsearch:graphs": "StaticSearch"}.items()
    assert "skipped" in (out / "tests.txt").read_text().splitlines()[-1]
    for text in ("**Aims**", "| stock `lstm`", "of NVIDIA's 140,909", "not measured"):
        assert text in done.stdout
    assert (out / "table.md").read_text() in done.stdout


@pytest.mark.parametrize("line,status,message", [
    (["--fast"], 2, "usage: gpu.sh [--small] [OUT]"),
    (["one", "two"], 2, "usage: gpu.sh [--small] [OUT]"),
    (["{out}"], 1, "gpu.sh: torch sees no GPU here; --small tries it on a CPU"),
])  # fmt: skip
def test_refusals(line, status, message, tmp_path):
    done = call("./gpu.sh", *(one.format(out=tmp_path / "out") for one in line))
    assert (done.returncode, done.stderr.strip()) == (status, message)


def test_tables_of_what_was_measured_before_it_was_cut_off(tmp_path):
    row = dict(part="training", size="256/512", batch=80, dtype="float32", gib=2.0, rate=9000.0)
    rows = [
        dict(part="machine", device="NVIDIA H100", torch="2.13.0", cuda="13.0", small=False),
        dict(row, way="lstm", ms=30.0),
        dict(row, way="rnnsearch", ms=60.0, ratio=0.5, low=0.4, high=0.6),
        dict(row, way="rnnsearch:graphs", ms=10.0, ratio=3.0, low=2.5, high=3.5, gib=2.8),
        dict(row, way="dl4mt:graphs", ms=20.0, ratio=1.5, low=1.5, high=1.5),
        dict(part="fairseq-train", size="256/512", batch=80, way="lstm", ms=30.0, rate=9.0),
        dict(part="fairseq-train", size="256/512", batch=80, way="rnnsearch:graphs", ms=15.0, rate=9.0),
        dict(row, size="GNMT v2", dtype="fp16", way="gnmt_v2:graphs", ms=9.0, rate=70454.5, tokens_a_word=2.0),
        dict(part="left out", name="compile", left=10, needs=90),
    ]
    text = "".join(json.dumps(one) + "\n" for one in rows) + '{"part": "train'
    (tmp_path / "gpu.jsonl").write_text(text)
    done = call(SCRIPTS / "python", "gpu_table.py", tmp_path / "gpu.jsonl")
    lines = [[*map(str.strip, line.strip("|").split("|"))] for line in done.stdout.splitlines()]
    assert ["training, 256/512, batch 80", "`rnnsearch`, graphs", "2.5", "3.00", "reached", "1.40, above"] in lines
    assert ["training, 256/512, batch 80", "`dl4mt`, graphs", "2.0", "1.50", "missed", ""] in lines
    assert ["fairseq-train, 256/512, batch 80", "`rnnsearch`, graphs", "2.0", "2.00", "reached", ""] in lines
    assert ["`rnnsearch`", "0.50 (0.40 to 0.60), 2.00 GiB", ""] in lines
    assert ["`gnmt_v2`, graphs", "140,909", "1.00"] in lines
    assert "compile: no time" in done.stdout and "line 10: cut off" in done.stderr


def test_the_pages_have_what_was_measured_on_a_gpu():
    """Every ratio, rate, memory and time of README.md's tables is one that gpu_table.py prints."""
    text = (BENCHMARKS / "README.md").read_text()
    section = text[text.index("## On a GPU") : text.index("## The gain of each fast path")]
    rows = [[*map(str.strip, line.strip("|").split("|"))] for line in section.splitlines() if line.startswith("|")]
    printed = call(SCRIPTS / "python", "gpu_table.py", "h200.jsonl").stdout
    shown = [cell for _, *cells in rows for cell in cells if re.fullmatch(r"[\d.,]+(?: \(.*)?", cell)]
    assert len(shown) > 90 and not [cell for cell in shown if not re.search(rf" {re.escape(cell)}[ ,]", printed)]


@pytest.mark.parametrize("script, line, row", [
    ("ablation.py", "--batches 1 --archs rnnsearch", r"\| rnnsearch +\| memory shared by hypotheses +\| [\d.]+ \("),
    ("floor.py", "--batches 1 --archs rnnsearch", r"\| rnnsearch +\|"),
    ("search.py", "--ways lstm dl4mt+bfloat16+list", r"dl4mt\+bfloat16\+list +[\d.]+ sentences/s +x[\d.]+ "),
    ("speed.py", "--batches 1 --archs dl4mt", r"generation, beam 5, .*\n.*\n  dl4mt +[\d.]+ +x[\d.]+ "),
])  # fmt: skip
def test_those_of_a_cpu(script, line, row):
    """The sizes are too small to measure speed."""
    tiny = "--embed 8 --hidden 16 --vocabulary 40 --batch 3 --length 6 --rounds 1"
    done = corpus.run("python.script", BENCHMARKS / script, *tiny.split(), *line.split())
    assert re.search(row, done.stdout), done.stdout


def test_speed_keeps_the_ratio_of_each_round(tmp_path):
    """So a finding can be tested by its rounds."""
    tiny = "--embed 8 --hidden 16 --characters --batch 3 --length 6 --batches 1 --rounds 3 --archs dl4mt"
    file = tmp_path / "speed.json"
    done = corpus.run("python.script", BENCHMARKS / "speed.py", *tiny.split(), "--train-only", "--json", file)
    assert "training: target characters per second" in done.stdout
    rows = json.loads(file.read_text())["training"]
    assert rows["lstm"]["rounds"] == [1, 1, 1] and len(rows["dl4mt"]["rounds"]) == 3
    assert statistics.median(rows["dl4mt"]["rounds"]) == rows["dl4mt"]["ratio"]


def test_exported_models_against_the_stock_lstm():
    """The sizes are too small to measure speed."""
    tiny = "--sizes 8/16 --archs rnnsearch --ways float32 int8 --vocabulary 60 --batch 3 --sentences 2 --words 4"
    done = call(SCRIPTS / "python", "deployed.py", *tiny.split(), "--rounds", 1)
    assert done.returncode == 0, done.stderr
    number = r"\d+\.\d\d"
    spread = rf"{number} \({number} to {number}\)"
    assert re.search(r"\n\| 8/16 \| single \| batches of 3 \| .*\n\|---.*\n\| lstm \| 1 \(.* ms\) \|", done.stdout)
    for way in ("float32", "int8"):
        assert re.search(rf"\n\| rnnsearch {way} \| {spread} \| {spread} \| {number}, \d+ \|\n", done.stdout)


@cache
def module(name):
    return corpus.script(BENCHMARKS / f"{name}.py")


def start(name, line, monkeypatch):
    """Run a benchmark in this process."""
    monkeypatch.setattr("sys.argv", [f"{name}.py", *line.split()])
    module(name).main()


def parsed(line):
    return module("speed").parse(line.split())


OF_SPEED = ["batch", "batches", "length", "target-length", "vocabulary", "rounds", "beam", "embed", "hidden"]
NUMBERS = {
    "speed": OF_SPEED,
    "ablation": OF_SPEED,
    "floor": [name for name in OF_SPEED if name != "beam"],
    "search": [*(name for name in OF_SPEED if name != "batches"), "words"],
    "deployed": ["vocabulary", "listed", "words", "beam", "sentences", "batch", "rounds"],
    "growth": ["vocabulary", "rounds"],
    "memory": ["lengths", "batch", "embed", "hidden"],
    "peers": ["rounds"],
}


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_that_measure_nothing_are_refused(name, monkeypatch, capsys):
    for option in NUMBERS[name]:
        with pytest.raises(SystemExit, match="2"):
            start(name, f"--{option} 0", monkeypatch)
        assert f"{name}.py: error: argument --{option}: 0 is not at least" in capsys.readouterr().err


@pytest.mark.parametrize("name, line, message", [
    ("speed", "--spread nan", "error: argument --spread: nan is not a finite number"),
    ("speed", "--json none/figures", "--json: none/figures cannot be written: No such file or directory"),
    ("speed", "none", "there is no data folder none"),
    ("ablation", "--more lstm=", "error: --more: lstm is none of --archs: leave it out"),
    ("search", "--more foo=", "error: --more: foo is none of --ways: leave it out"),
    ("ablation", "--archs lstm --batches 1 --batch 1", "--archs: lstm is not of this package, and has no fast ways"),
    ("deployed", "--sizes 8x16", "error: argument --sizes: invalid widths value: '8x16'"),
    ("deployed", "--sizes 8/0", "error: argument --sizes: 0 is not at least 1"),
    ("growth", "--source 8 8", "error: --source needs at least two different values to grow between"),
    ("growth", "--width 8 16", "error: --width: 8 is too small, the least is 16"),
    ("growth", "--archs lstm foo", "error: there is no architecture foo: it is lstm or one of rnnsearch"),
    ("peers", "--least 1 --most 2 --way foo", "error: --way foo: write NAME=COMMAND"),
    ("peers", "--least 1 --most 2 --way =x", "error: --way =x: write NAME=COMMAND"),
    ("peers", "--least 1 --most 2 --way a=x --way a=y", "error: --way a=y: this name is given twice"),
    ("peers", "--least 2 --most 2 --way a=x", "error: --least must be less than --most"),
    ("peers", "--least -1 --most 2 --way a=x", "error: argument --least: -1 is not at least 0"),
    ("gpu", "out --seconds nan", "error: argument --seconds: nan is not a finite number"),
    ("gpu", "none/out", "error: FILE none/out: No such file or directory"),
    ("gpu_table", "none", "error: FILE none: No such file or directory"),
    ("gpu_table", "/dev/null", "error: FILE /dev/null: no row of gpu.py: give what it wrote"),
    ("gpu_table", __file__, "no row of gpu.py: give what it wrote"),
    ("deployed", "--same none none none", "error: --same: none cannot be read: No such file or directory"),
    ("deployed", "--same none none /dev/null", "error: --same: /dev/null has no sentence: give one with some"),
    ("deployed", f"--same none none {__file__}", "error: --same: none/manifest.json: it cannot be read"),
    ("deployed", "--same none none none --rounds 3", "error: --same compares translations alone: leave the other"),
    ("speed", "--more lstm", "error: --more lstm: write ARCH=FLAGS"),
    ("speed", '--more lstm="', 'error: --more lstm=": No closing quotation'),
    ("search", "--ways dl4mt --shortlist none", "error: --shortlist is of ways with +list, and --ways has none"),
    ("search", "--ways dl4mt+list --shortlist none --batch 1", "none: there is no such file"),
])  # fmt: skip
def test_one_sentence_for_what_cannot_be_measured(name, line, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        start(name, line, monkeypatch)
    assert message in f"{capsys.readouterr().err}{ended.value}" and not [*tmp_path.iterdir()]


def test_ratios_are_of_the_same_round_and_the_first_round_warms_up():
    spread = module("spread")
    times = {"fast": iter([99.0, 1.0, 2.0, 4.0]), "slow": iter([0.1, 4.0, 4.0, 4.0])}
    found = spread.in_turns({name: partial(next, values) for name, values in times.items()}, 3)
    assert found == {"fast": [1, 2, 4], "slow": [4, 4, 4]}
    assert spread.against(found, "slow") == {"fast": [4, 2, 1], "slow": [1, 1, 1]}
    assert spread.spread([4.0, 2.0, 1.0]) == "2.00 (1.00 to 4.00)"


def test_random_text_has_the_lengths_and_words_that_are_asked_for():
    speed = module("speed")
    given = parsed("--length 20 --target-length 30 --batch 50 --batches 4 --vocabulary 40")
    dictionary, *sides = speed.sample_text(given)
    assert len(dictionary) == 40
    for sentences, mean in zip(sides, (20, 30)):
        lengths = [len(sentence) - 1 for sentence in sentences]  # without EOS
        assert len(lengths) == 200 and statistics.mean(lengths) == pytest.approx(mean, abs=0.7)
        assert statistics.stdev(lengths) == pytest.approx(0.25 * mean, rel=0.15)
        assert {*torch.cat([sentence[:-1] for sentence in sentences]).tolist()} == {*range(5, 40)}
        assert all(sentence[-1] == dictionary.eos() for sentence in sentences)
    assert statistics.correlation(*([len(one) for one in side] for side in sides)) > 0.95
    dictionary, [sentence, *_], _ = speed.sample_text(parsed("--characters --length 40"))
    words = "".join(" " if symbol == dictionary.space() else "x" for symbol in sentence[:-1]).split()
    assert {*map(len, words[:-1])} == {5} and len(dictionary) == 304
    paper = parsed("--paper-size --embed 8")
    assert (paper.embed, paper.hidden, paper.vocabulary) == (620, 1000, 30000)  # Bahdanau et al. 2015


def test_lengths_of_growth_have_the_end_of_the_sentence():
    growth, speed = module("growth"), module("speed")
    line = growth.command_line("rnnsearch", growth.Shape(20, 30, 2000, 32), 40)
    _, [sample] = speed.load(speed.parse(line))
    assert sample["nsentences"] == 2000 and sample["ntokens"] / 2000 == pytest.approx(30, abs=0.6)
    assert sample["net_input"]["src_lengths"].float().mean().item() == pytest.approx(20, abs=0.6)
    assert growth.exponent([10, 20], [3.0, 12.0]) == pytest.approx(2)
    assert growth.exponent([10, 40], [3.0, 6.0]) == pytest.approx(0.5) and growth.exponent([1, 2], [0.0, 1.0]) is None


def test_operations_of_products_are_those_that_pytorch_counts():
    floor = module("floor")
    some = {(2, 3): torch.rand(2, 3), (3, 4): torch.rand(3, 4), (2, 4): torch.rand(2, 4), (3,): torch.rand(3)}
    batches = torch.rand(5, 2, 3), torch.rand(5, 3, 4), torch.rand(5, 2, 4)
    for function, operands, passes in (
        (torch.mm, (some[2, 3], some[3, 4]), 2 * 2 * 3 * 4),
        (torch.addmm, (some[2, 4], some[2, 3], some[3, 4]), 2 * 2 * 3 * 4),
        (torch.mv, (some[2, 3], some[3,]), 2 * 2 * 3),
        (torch.bmm, batches[:2], 5 * 2 * 2 * 3 * 4),
        (torch.baddbmm, (batches[2], *batches[:2]), 5 * 2 * 2 * 3 * 4),
    ):
        with floor.Products() as products:
            function(*operands)
            function(*operands)
        [((seen, layouts), count)] = products.seen.items()
        assert (count, floor.operations(layouts)) == (2, passes)
        assert floor.alone(seen, layouts)().shape == function(*operands).shape


def test_multiply_adds_are_half_of_the_operations():
    product = SimpleNamespace(forward=lambda sample: sample @ torch.rand(3, 4))
    assert module("speed").Trainer.multiply_adds(product, torch.rand(2, 3)) == 2 * 3 * 4


@pytest.mark.parametrize("length", [7, 8, 9])
def test_batches_of_graphs_are_padded_as_fairseq_pads_them(length):
    words, sides = Dictionary(), [[torch.full((n,), 4) for n in (3, longest)] for longest in (length, length + 1)]
    data = LanguagePairDataset(sides[0], [3, length], words, sides[1], [3, length + 1], words)
    found = module("gpu").padded(data.collater([data[0], data[1]]), 4, words.pad())
    data.pad_to_multiple = 4
    expected = data.collater([data[0], data[1]])
    for one, other in ((found, expected), (found["net_input"], expected["net_input"])):
        assert all(value.equal(other[name]) for name, value in one.items() if isinstance(value, torch.Tensor))


def test_starting_does_not_count_among_peers(monkeypatch, capsys):
    monkeypatch.setattr(module("peers"), "seconds", lambda line, number, _: 7 + number * float(line))
    start("peers", "--least 10 --most 40 --way one=0.5 --way other=0.125", monkeypatch)
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [row[:4] for row in rows] == [["one", "500.0", "ms", "x1.00"], ["other", "125.0", "ms", "x4.00"]]


def test_commands_of_peers_have_a_number_and_an_empty_folder(tmp_path):
    seconds = module("peers").seconds
    passed = seconds(f"ls -A {{folder}} > {tmp_path}/found; echo {{n}} >> {tmp_path}/found; sleep 0.2", 3, False)
    assert (tmp_path / "found").read_text() == "3\n" and passed > 0.2
    assert seconds("for ((i = 0; i < 3 * 10**5; i++)); do :; done", 3, True) > 0.1 > seconds("sleep 0.3", 3, True)
    with pytest.raises(SystemExit, match="broken\n\nends with status 1"):
        seconds("{ echo broken >&2; false; } | cat", 3, False)


def test_without_a_fast_way_means_with_its_patches(monkeypatch):
    ablation, clock = module("ablation"), SimpleNamespace(fast=True)
    run = lambda: 2.0 if clock.fast else 3.0  # noqa: E731
    assert ablation.ratios(run, {"it": [(clock, "fast", False)], "no": []}, 2) == {"it": [1.5, 1.5], "no": [1, 1]}
    assert clock.fast
    assert ablation.chosen({"a": 1, "b": 2, "c": 3}, {"a": False, "b": True}) == {"b": 2, "c": 3}


def test_random_shortlists_have_as_many_words_as_real_ones():
    listed = module("search").RandomLists(3000).symbols().tolist()
    assert len(listed) == 1500 == len({*listed}) and listed == sorted(listed)
    assert listed[:4] == [0, 1, 2, 3] and 2900 < listed[-1] < 3000


def test_equal_translations_are_a_share_of_lines(tmp_path, monkeypatch, capsys):
    deployed = module("deployed")
    said = {"one": ["a", "b", "c", "d"], "other": ["a", "x", "c", "d"]}
    translator = lambda folder: SimpleNamespace(  # noqa: E731
        translate=lambda lines, attention: [SimpleNamespace(text=said[folder][int(line[0])]) for line in lines]
    )
    monkeypatch.setattr(deployed, "load", lambda: SimpleNamespace(Translator=translator))
    (tmp_path / "text").write_text("0\n1\n \n2\u20282\n3\n")  # lines end as in translate
    start("deployed", f"--same one other {tmp_path}/text", monkeypatch)
    assert capsys.readouterr().out == "75.0% of 4 translations are the same\n"


def test_growth_and_memory_measure_small_models(tmp_path):
    shapes = "--source 5 6 --target 5 6 --batch 1 2 --width 16 32 --middle 5 5 1 16 --archs rnnsearch ava"
    more = ["--rounds", "1", "--vocabulary", "20", "--json", tmp_path / "growth.json"]
    done = corpus.run("python.script", BENCHMARKS / "growth.py", *shapes.split(), *more)
    assert "Hidden width (source 5, target 5, batch 1); growth from 16 to 32" in done.stdout
    points = json.loads((tmp_path / "growth.json").read_text())["points"]
    shapes = {tuple(point[name] for name in ("source", "target", "batch", "width")) for point in points}
    assert shapes == {(5, 5, 1, 16), (6, 5, 1, 16), (5, 6, 1, 16), (5, 5, 2, 16), (5, 5, 1, 32)} and len(points) == 10
    assert all(point["seconds"] > 0 and point["multiply_adds"] > point["parameters"] / 2 > 0 for point in points)
    line = "--archs rnnsearch --lengths 6 --batch 2 --embed 8 --hidden 16"
    done = corpus.run("python.script", BENCHMARKS / "memory.py", *line.split())
    assert re.fullmatch(r"rnnsearch +0\.0 M parameters, 2 x 6 characters: \d\.\d\d GiB\n", done.stdout)
