"""The command: what it imports, and what all subcommands have in common."""

import argparse
import ast
import io
import json
import os
import platform
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import fairseq_attnvariants
import fairseq_attnvariants_cli
from fairseq_attnvariants_cli.main import FOLDERS, SUBCOMMANDS, main, parser
from fairseq_attnvariants_cli.text.files import write_whole

FOLDER = Path(fairseq_attnvariants_cli.__file__).parent
MODULES = {subcommand: subcommand.replace("-", "_") for subcommand in SUBCOMMANDS}
ON_MODELS = [
    "align", "attention", "attribute", "average", "check", "eos", "export", "gates", "hallucinate", "import-nematus",
    "neighbours", "results", "similarity", "strings", "tune",
]  # fmt: skip
ELSEWHERE = ["get-model"]  # it needs a model: tests/cli/test_get_model.py
SHOWN = '{"text": "x y", "source": ["a", "</s>"], "n_best": [{"text": "x", "symbols": ["x"], "attention": [[1, 0]]}]}\n'
GENERATED = "S-0\ta b\nT-0\tx y\nH-0\t-1\tx <unk>\nP-0\t-1 -1 -1\nA-0\t0-0 1-1\n"

# the files of test_texts below
ON_TEXT = {
    "lexicon": "lexicon source target --alignments align --output -",
    "replace-unk": "replace-unk generated --source source --output -",
    "aer": "aer align --hard align --soft soft --text source target",
    "links": "links generated --remove-bpe",
    "confusion": "confusion source target --alignments align --source-tags source --target-tags target",
    "overtranslation": "overtranslation source target --alignments align",
    "score": "score target --reference target --source source --bootstrap 5",
    "compare": "compare generated --remove-bpe --output -",
    "draw": "draw shown",
    "env": "env",
}


def python(code, cwd=None):
    """Run code in a fresh interpreter."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(FOLDER.parent), *sys.path])}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=60)


def run(line, cwd=None, without=()):
    """Run the command in a fresh interpreter, in which some packages cannot be imported."""
    hidden = f"import sys; sys.modules.update(dict.fromkeys({list(without)!r}))"
    return python(f"{hidden}; from fairseq_attnvariants_cli.main import main; sys.exit(main({line.split()!r}))", cwd)


@pytest.fixture
def texts(tmp_path):
    """A folder of small files."""
    files = dict(source="a b\n", target="x y\n", align="0-0 1-1\n", soft="1.0,0 0,1.0\n", generated=GENERATED)
    files["shown"] = SHOWN
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    return tmp_path


# ---- what is imported


def test_every_subcommand_is_tried():
    in_run = {"translate"}  # tests/run
    assert {*ON_TEXT, *ON_MODELS, *ELSEWHERE, *in_run} == set(SUBCOMMANDS)


@pytest.mark.commands
@pytest.mark.parametrize("subcommand", ON_TEXT)
def test_subcommands_on_text_need_neither_fairseq_nor_torch(texts, subcommand):
    found = run(ON_TEXT[subcommand], texts, without=["fairseq", "torch"])
    assert (found.returncode, found.stderr.count("Traceback")) == (0, 0) and found.stdout, found.stderr


@pytest.mark.commands
@pytest.mark.parametrize("line", ["--help", *FOLDERS, *(f"{subcommand} --help" for subcommand in SUBCOMMANDS)])
def test_help_imports_nothing_heavy(line):
    """These imports would make the help take seconds."""
    heavy = {"torch", "fairseq", "fairseq_attnvariants", "matplotlib"}
    heavy |= {"numpy", "sacrebleu"} if line in ("--help", *FOLDERS) else set()
    found = python(f"""if True:
        import sys
        from fairseq_attnvariants_cli.main import main
        try:
            main({line.split()!r})
        finally:
            assert not {heavy} & set(sys.modules), {heavy} & set(sys.modules)
    """)
    assert (found.returncode, found.stderr) == (0, "") and found.stdout


@pytest.mark.parametrize("subcommand", SUBCOMMANDS)
def test_every_option_has_a_help(subcommand):
    """The help is in a docstring, and no other test fails if it is missing."""
    [subcommands] = [one for one in parser([subcommand])._actions if isinstance(one, argparse._SubParsersAction)]
    described = subcommands.choices[subcommand]
    assert described.description and all(action.help for action in described._actions)


@pytest.mark.parametrize("subcommand", SUBCOMMANDS)
def test_examples_can_be_copied(subcommand, capsys, monkeypatch):
    """Examples fit a narrow terminal, and fairseq's commands in them name the plugin."""
    monkeypatch.setenv("COLUMNS", "60")
    with pytest.raises(SystemExit):
        main([subcommand, "--help"])
    example = capsys.readouterr().out.partition("\nexample:\n")[2]
    assert max(map(len, example.splitlines()), default=0) <= 60 and (example or subcommand == "env")
    for command in example.replace("\\\n", " ").split("&&"):
        words = shlex.split(command.partition(">")[0])
        if words[:1] == ["fairseq-generate"]:
            assert words[words.index("--user-dir") + 1] == "$(fairseq-attnvariants user-dir)"
        elif words:
            assert words[:2] == ["fairseq-attnvariants", subcommand] and parser(words[1:]).parse_args(words[1:])


@pytest.mark.commands
@pytest.mark.parametrize("subcommand", ON_MODELS)
def test_a_missing_fairseq_is_one_line(tmp_path, subcommand):
    line = f"{subcommand} data --path x.pt" + (" --output p.png" if subcommand in ("attention", "export") else "")
    others = {"average": "average x.pt --output y.pt", "results": "results .", "check": "check --arch dl4mt"}
    others |= {"strings": "strings a b c --output d", "hallucinate": "hallucinate a"}
    others["import-nematus"] = "import-nematus m.npz --source-dict a --target-dict b -s x -t y --output d"
    line = others.get(subcommand, line)
    found = python(f"""if True:
        import importlib.metadata, sys
        sys.modules["fairseq"] = None
        original = importlib.metadata.version
        def version(name):
            if name == "fairseq":
                raise importlib.metadata.PackageNotFoundError(name)
            return original(name)
        importlib.metadata.version = version
        importlib.metadata.packages_distributions = dict
        from fairseq_attnvariants_cli.main import main
        sys.exit(main({line.split()!r}))
    """, tmp_path)  # fmt: skip
    assert found.returncode == 2 and found.stderr.count("\n") == 1 and os.listdir(tmp_path) == []
    assert "fairseq 0.12.2, which is not installed: run 'pip install --no-deps fairseq==0.12.2'" in found.stderr


def test_no_subcommand_imports_another():
    """So a change of one subcommand cannot change another."""
    for module in MODULES.values():
        tree = ast.parse((FOLDER / "subcommands" / f"{module}.py").read_text())
        imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.level == 1}
        assert not imported & set(MODULES.values()), module


def test_folders_are_those_of_the_package(capsys):
    package = Path(fairseq_attnvariants.__file__).parent
    assert main(["user-dir"]) == main(["config-dir"]) == 0
    assert capsys.readouterr().out.split() == [str(package), str(package / "config")]


def test_python_may_call_the_command_where_output_is_no_file(monkeypatch):
    """In a notebook, for example, standard output is no file."""
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    assert main(["user-dir"]) == 0 and sys.stdout.getvalue().strip() == str(Path(fairseq_attnvariants.__file__).parent)


def test_results_go_where_output_is_no_file(here, monkeypatch):
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    assert main(ON_TEXT["links"].split()) == 0 and sys.stdout.getvalue() == "0-0 1-1\n"


def test_the_version_is_that_of_the_package(capsys):
    with pytest.raises(SystemExit) as end:
        main(["--version"])
    assert end.value.code == 0
    assert capsys.readouterr().out == f"fairseq-attnvariants {fairseq_attnvariants.__version__}\n"


@pytest.mark.commands
def test_env_tells_what_a_bug_report_needs(capsys):
    assert main(["env"]) == 0
    told = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert told["fairseq_attnvariants"] == fairseq_attnvariants.__version__
    assert told["--user-dir"] == str(Path(fairseq_attnvariants.__file__).parent)
    assert told["fairseq"].startswith("fairseq 0.12.") and told["torch"].startswith(f"torch {torch.__version__}")
    assert told["threads"].startswith(f"{torch.get_num_threads()}, ") and platform.python_version() in told["Python"]
    assert told["start-up"].startswith("file") and f"{os.cpu_count()} cores" in told["processor"]


@pytest.mark.commands
def test_the_module_is_the_command(texts):
    command = [sys.executable, "-m", "fairseq_attnvariants_cli", *ON_TEXT["links"].split()]
    environment = {**os.environ, "PYTHONPATH": str(FOLDER.parent)}
    found = subprocess.run(command, cwd=texts, env=environment, capture_output=True, text=True, timeout=60)
    assert (found.returncode, found.stdout) == (0, "0-0 1-1\n")


# ---- options that subcommands share


@pytest.fixture
def here(texts, monkeypatch):
    monkeypatch.chdir(texts)
    return texts


@pytest.mark.parametrize("subcommand", ["aer", "confusion", "overtranslation"])
def test_a_table_as_json(here, capsys, subcommand):
    assert main([*ON_TEXT[subcommand].split(), "--json", "--table", "table.json"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads((here / "table.json").read_text()) != []


def test_several_tables_as_json(here, capsys):
    assert main([*ON_TEXT["score"].split(), "--json", "--name", "$ours", "--group-table", "groups.json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {row["system"] for row in found["scores"]} == {"$ours"} and set(found["groups"][0]) >= {"$ours"}
    assert found["groups"] == json.loads((here / "groups.json").read_text())


def test_every_subcommand_with_a_table_has_json(capsys):
    for subcommand in SUBCOMMANDS:
        if subcommand not in ("average", "check"):  # check has no table, but a list of demands
            with pytest.raises(SystemExit):
                main([subcommand, "--help"])
            text = capsys.readouterr().out
            assert ("--json" in text) == ("table FILE" in text), subcommand


@pytest.mark.parametrize("line, message", [
    ("", "fairseq-attnvariants: the following arguments are required: SUBCOMMAND (see fairseq-attnvariants --help)"),
    ("nothing", "fairseq-attnvariants nothing: there is no such subcommand: fairseq-attnvariants --help lists all"),
    ("atention", "fairseq-attnvariants atention: there is no such subcommand: did you mean attention?"),
    ("eos data", "the following arguments are required: --path (see fairseq-attnvariants eos --help)"),
    ("eos data --path x --beam 0", "argument --beam: 0 is not at least 1"),
    ("eos data --path x --lenpen 400", "argument --lenpen: 400 is more than 10"),
    ("tune data --path x --lenpen 11", "argument --lenpen: 11 is more than 10"),
    ("eos data --path x --forced --beam 3", "--beam is for a search, and the target is given: leave it out"),
    ("average a.pt b.pt a.pt --output c.pt", "a.pt is given twice: leave one out"),
    ("strings a b c --output d --seeds 1 2 1", "--seeds 1 is given twice: leave one out"),
    ("strings a b c --output d --seeds 1 --seeds 1", "--seeds 1 is given twice: leave one out"),
    ("tune data --path x --lenpen 0.6 1 --lenpen 1", "--lenpen 1.0 is given twice: leave one out"),
    ("tune data --path x --coverage-penalty 0 0", "--coverage-penalty 0.0 is given twice: leave one out"),
    ("neighbours data --path x --words a b a", "--words a is given twice: leave one out"),
    ("check --arch lstm --demand beam --demand beam", "--demand beam is given twice: leave one out"),
    ("align data --path a --path b", "argument --path: a and b are given, and it takes one: leave one out"),
    ("check --arch lstm --arch ava", "argument --arch: lstm and ava are given, and it takes one: leave one out"),
    ("compare a --output p.html --lowercase", "arguments: --lowercase (see fairseq-attnvariants compare --help)"),
    ("compare a --output p.html --ngrams 5", "--ngrams needs two systems"),
    ("eos data --path x --beam few", "argument --beam: invalid int value: 'few'"),
    ("eos data --path x --max-len-b 0", "argument --max-len-b: 0 is not at least 1"),
    (f"eos data --path x --beam {10**400}", f"argument --beam: {10**400} is more than 2147483647"),
    ("similarity data --path x --threshold nan", "argument --threshold: nan is not a finite number"),
    ("similarity data --path x --threshold 50", "argument --threshold: 50 is more than 1"),
    ("attention data --path x --output p.png --width inf", "argument --width: inf is not a finite number"),
    ("attribute data --path x --steps 100000", "argument --steps: 100000 is more than 1000"),
    ("confusion a b --alignments c --source-tags '' --target-tags d", "argument --source-tags: '' is empty: give a"),
    ("eos data --path a.pt:", "argument --path: a.pt: has an empty name before or after ':': remove the ':'"),
    ("eos data --path x --reference ''", "argument --reference: '' is empty: give a value, or set the variable"),
    ("eos data --path x --name ''", "argument --name: '' is empty"),
    ("score '' --reference a", "'' is empty"),
    ("results a --reference b ''", "argument --reference: '' is empty"),
])  # fmt: skip
def test_options_are_refused_in_one_sentence(capfd, line, message):
    assert main(shlex.split(line)) == 2
    out, error = capfd.readouterr()
    assert out == "" and message in error and error.count("\n") == 1


def test_an_option_of_several_values_may_be_given_again(here, capsys):
    """Its values are added to those before, and do not replace them."""
    line = "score target --reference target"
    for more in ("source", "--reference source"):
        assert main([*line.split(), *more.split(), "--json"]) == 0
        assert "nrefs:2|" in json.loads(capsys.readouterr().out)["scores"][0]["signature"]


def test_out_of_memory_is_one_sentence(here, refusal, monkeypatch):
    for error in (MemoryError("Unable to allocate 8 PiB"), RuntimeError("CUDA out of memory. Tried 2 GiB")):

        def fails(*_, error=error):
            raise error

        monkeypatch.setattr("fairseq_attnvariants_cli.subcommands.score.scores", fails)
        assert f"score: {error}: reduce --bootstrap\n" in refusal(["score", "source", "--reference", "target"])
        monkeypatch.setattr("fairseq_attnvariants_cli.subcommands.average.run", fails)
        said = refusal(["average", "one.pt", "two.pt", "--output", "mean.pt"])
        assert said.endswith(f"average: {error}\n")  # average has no such option
    with pytest.raises(RuntimeError, match="other"):
        monkeypatch.setattr("fairseq_attnvariants_cli.subcommands.score.scores", fails_otherwise)
        main(["score", "source", "--reference", "target"])


def fails_otherwise(*_):
    raise RuntimeError("other")


@pytest.mark.parametrize("line", [
    "score source --reference target --dark",
    "compare source target --source source --reference target --output page.html --dark",
    "gates data --path x.pt --dark",
    "attribute data --path x.pt --scale-rows",
])  # fmt: skip
def test_options_of_a_picture_that_is_not_drawn(here, refusal, line):
    assert "needs a picture: give --plot, too" in refusal(line.split())


@pytest.mark.commands
def test_a_closed_standard_error_takes_nothing_else_along(here):
    """Messages are lost, and standard output stays as it would be."""
    line = f"{sys.executable} -m fairseq_attnvariants_cli {ON_TEXT['lexicon']}"
    tables = [
        subprocess.run(f"{line} {more}", shell=True, cwd=here, check=True, capture_output=True).stdout
        for more in ("", "2>&-")
    ]
    assert tables[0] == tables[1] != b""


def test_columns_of_one_name_are_refused(here, refusal):
    line = "score source target --reference target --source source --name by --name group --json"
    assert "two columns of the table are called 'by'" in refusal(line.split())


@pytest.mark.parametrize("wrong", ["abc", "0", "-1", "9" * 100])
def test_a_seed_that_sacrebleu_does_not_take(here, refusal, monkeypatch, wrong):
    monkeypatch.setenv("SACREBLEU_SEED", wrong)
    error = refusal(["score", "source", "target", "--reference", "target", "--bootstrap", "5"])
    assert f"SACREBLEU_SEED={wrong} in the environment is neither a number from 1 on nor none" in error


@pytest.mark.parametrize("subcommand", ["eos", "attention", "score", "compare"])
def test_systems_have_names(here, refusal, subcommand):
    lines = {"eos": "eos data --path a --path b", "attention": "attention data --path a --path b --output p.png"}
    lines |= {"score": "score target target --reference target", "compare": "compare target target --output page.html"}
    assert "1 --name for 2 systems" in refusal([*lines[subcommand].split(), "--name", "one"])


def test_tokenised_text_is_remarked_on_once(here, capfd):
    for name in ("one", "two", "gold"):
        (here / name).write_text("a b c .\n" * 100)
    line = ["score", "one", "two", "--reference", "gold", "--bootstrap", "5", "--source", "gold"]
    assert main(line) == 0
    assert capfd.readouterr().err == "one, two: tokenised text, it seems; then give --tokenize none\n"
    assert main([*line, "--tokenize", "none"]) == 0
    assert capfd.readouterr().err == ""


def test_matplotlib_is_asked_for_before_a_model_is_loaded(here, refusal, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for subcommand, option in (("attention", "--output"), ("gates", "--plot")):
        error = refusal([subcommand, "nowhere", "--path", "nowhere.pt", option, "p.png"])
        assert 'matplotlib is missing: pip install "fairseq-attnvariants[plot]"' in error


def test_a_refusal_leaves_standard_output_as_it_is(capfd):
    """A program that calls :func:`main` can still print."""
    assert main(["check", "--arch", "nope"]) == 2
    print("hello", flush=True)
    assert capfd.readouterr().out == "hello\n"


def test_a_name_may_be_as_long_as_the_system_has_it(tmp_path):
    path = tmp_path / ("n" * 250)
    with write_whole(str(path)) as stream:
        stream.write("text")
    assert [one.name for one in tmp_path.iterdir()] == [path.name] and path.read_text() == "text"
