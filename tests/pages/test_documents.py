"""The shell and Python blocks of the README and of ``docs/`` run as they are printed, with trainings of two updates and
translations of ten words. Commands of all pages, also those that are not run, use existing names."""

import argparse
import dataclasses
import importlib
import os
import re
import shutil
import stat
import subprocess

import corpus
import pytest
import yaml
from corpus import ROOT

from fairseq_attnvariants.architectures.options import AttentionRNNConfig, flag
from fairseq_attnvariants.criterions import losses
from fairseq_attnvariants.registry import Registry
from fairseq_attnvariants_cli.checks import DEMANDS
from fairseq_attnvariants_cli.main import FOLDERS, SUBCOMMANDS, parser

pytestmark = pytest.mark.docs

BLOCK = re.compile(
    r"(?P<skip><!-- not run: [^\n]+ -->\n)?^```(?P<language>bash|python)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)
# check's demands, except the one that takes ten seconds per model, which is in test_extend.py
QUICK_DEMANDS = " ".join(name for name in DEMANDS if name != "exported")
SHORT = {
    "fairseq-train": 'exec "$WARM/fairseq-train" "$@" --max-update 2',
    "fairseq-hydra-train": 'exec "$WARM/fairseq-hydra-train" "$@" optimization.max_update=2',
    **corpus.SHORT,
    "fairseq-attnvariants": f"""
        case "$*" in
          *" --demand "*) ;;
          check*) set -- "$@" --demand {QUICK_DEMANDS} ;;
        esac
        {corpus.SHORT["fairseq-attnvariants"]}""",
}
CPU = re.compile(r"^\w+=.*?  # on a CPU: (.*)$", re.MULTILINE)  # a line for a GPU, and its value without one
# files and variables that a page takes from elsewhere
BEFORE = {
    "own-text": 'export ARCHS="rnnsearch recatt" SEEDS="1 2"',
    "strings": """
        for k in $(seq 70); do printf 'abc\\taː b t͡s\\nba\\tb aː\\ndefghi\\td e f ɡ h iː\\n'; done > list.tsv""",
    "your-data-on-a-gpu": """
        for k in $(seq 2400); do echo "File $k: no '%s' found."; done > all.en
        for k in $(seq 2400); do echo "Datei $k: kein »%s« gefunden."; done > all.de
        head -n 5 all.en > new.en""",
}
PAGES = sorted((ROOT / "docs").glob("*.md"))


def blocks(page):
    """Return the shell blocks of a page that are not marked; Python blocks are joined to one."""
    found = [match for match in BLOCK.finditer(CPU.sub(r"\1", page.read_text())) if not match["skip"]]
    python = "".join(match["text"] for match in found if match["language"] == "python")
    shell = [match["text"] for match in found if match["language"] == "bash"]
    return [*shell, f"python - <<'END'\n{python}END\n"] if python else shell


@pytest.fixture(scope="module")
def short(warm, tmp_path_factory):
    """A function that runs a script in a folder, with trainings of two updates."""
    commands = tmp_path_factory.mktemp("short")
    for name, text in SHORT.items():
        (commands / name).write_text(f"#!/bin/sh\n{text}\n")
        (commands / name).chmod(stat.S_IRWXU)

    def run(script, folder):
        path = os.pathsep.join(map(str, (commands, warm, corpus.SCRIPTS, os.environ["PATH"])))
        environment = {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1", "WARM": str(warm)}
        (folder / "script").write_text(f"set -e\n{script}")
        command = ["bash", "script"]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"

    return run


@pytest.fixture(scope="module")
def quickstart(short, tmp_path_factory):
    """The folder in which the README's blocks ran, except those that install."""
    folder = tmp_path_factory.mktemp("quickstart")
    for name in ("examples", "benchmarks", "models"):
        (folder / name).symlink_to(ROOT / name)
    for block in blocks(ROOT / "README.md"):
        short(block, folder)
    return folder


def test_navigation():
    text = (ROOT / "mkdocs.yml").read_text()
    assert yaml.safe_load(text)["nav"]
    missing = [path for path in (ROOT / "docs").rglob("*.md") if str(path.relative_to(ROOT / "docs")) not in text]
    missing += [path for path in (ROOT / "examples").rglob("*.md") if str(path.relative_to(ROOT)) not in text]
    assert not missing


def test_every_picture_is_in_the_gallery():
    shown = (ROOT / "docs" / "gallery.md").read_text()
    pictures = [path for folder in ("docs", "examples", "benchmarks") for path in (ROOT / folder).rglob("*.png")]
    names = [os.path.relpath(path, ROOT / "docs") for path in pictures]
    assert names and not [name for name in names if f"]({name})" not in shown]


def test_options_are_each_in_one_group():
    """On the site, each option has its help and an anchor in its group."""
    paragraphs = (ROOT / "docs" / "options.md").read_text().split("\n\n")
    groups = [text for text in paragraphs if re.fullmatch(r"(`--[a-z-]+`,?\s*)+", text)]
    listed = [name for text in groups for name in re.findall("`(--.*?)`", text)]
    described = AttentionRNNConfig()
    fields = [one.name for one in dataclasses.fields(described) if described._get_help(one.name) is not None]
    assert sorted(listed) == sorted(map(flag, fields))


def test_names_of_components_are_all_on_the_page_of_options():
    page = (ROOT / "docs" / "options.md").read_text()
    rows = dict(re.findall(r"^\| `(--[a-z-]+)` \| (.*) \|$", page, re.MULTILINE))
    for one in dataclasses.fields(AttentionRNNConfig):
        if isinstance(names := one.metadata.get("names"), Registry):
            row = rows.pop(flag(one.name)).replace("or several joined by `+`: ", "")
            own = [name for name, part in names.items() if str(part.__module__).startswith("fairseq_attnvariants.")]
            assert {*row.replace("**", "").split(", ")} == {*own, one.metadata["rnnsearch"]}
            assert row.split("**")[1] == one.metadata["rnnsearch"]
    assert not rows


@pytest.mark.parametrize("page", ["feng", "kuang", "li", "zhao"])
def test_the_code_of_a_paper_is_where_its_page_says(page):
    lines = (ROOT / "docs" / "papers" / f"{page}.md").read_text().splitlines()
    table = [[cell.strip() for cell in line.split("|")] for line in lines if line.startswith("| ")]
    cells = [row[table[0].index("code in `nn/`")] for row in table[1:]]
    assert any(cells)
    for cell in cells:
        for name in re.findall(r"`(.*?)`", re.sub(r"`.*` in `criterions/losses.py`", "", cell)):
            module, _, part = name.partition(".")
            assert hasattr(importlib.import_module(f"fairseq_attnvariants.nn.{module}"), part), name
        for names in re.findall(r"([^;]*) in `criterions/losses.py`", cell):
            assert all(hasattr(losses, name) for name in re.findall("`(.*?)`", names))


def test_quickstart(quickstart):
    assert (quickstart / "attention.png").stat().st_size > 1000
    assert "BLEU4" in (quickstart / "generated.txt").read_text().splitlines()[-1]


LONG = {"extend", "web-page", "own-text"}  # tests of exports and examples try the same
TRIED = [
    pytest.param(page, id=page.stem, marks=pytest.mark.more if page.stem in LONG else ())
    for page in PAGES
    if blocks(page)
]


@pytest.mark.parametrize("page", TRIED)
def test_page(page, quickstart, short, tmp_path):
    """The blocks of a page run one after the other in a copy of the quickstart's folder."""
    folder = tmp_path / "copy"
    shutil.copytree(quickstart, folder, symlinks=True)
    short("\n".join([BEFORE.get(page.stem, ""), *blocks(page)]), folder)


EVERY_PAGE = [path for path in ROOT.glob("*.md") if path.name != "CHANGELOG.md"]
EVERY_PAGE += [page for name in ("docs", "examples", "benchmarks", "models") for page in (ROOT / name).rglob("*.md")]
REST = r"((?:(?! -- )[^\n|;&)`])*)"  # the rest of a command, without what it passes on
COMMAND = re.compile(rf"fairseq-attnvariants ([a-z][a-z-]*){REST}")
SCRIPT = re.compile(
    rf"(?:(?<=python )|(?<![\w/.$}}-])(?=\.{{1,2}}/|examples/|benchmarks/))([\w./-]+\.(?:sh|py))\b{REST}"
)
FLAG = re.compile(r"(?<=\s)--[a-z][a-z0-9-]*")


def shell(text):
    """Return the shell blocks and code spans of a page, with a command on each line."""
    fences = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
    found = [block for language, block in fences.findall(text) if language in ("", "bash")]
    found += re.findall(r"`([^`\n]+)`", fences.sub("", text))
    return "\n".join(found).replace("\\\n", " ")


def unknown(page):
    """Yield subcommands, flags, scripts, laboratory tasks and make targets in a page's commands that do not exist."""
    code = shell(page.read_text())
    for name, rest in COMMAND.findall(code):
        if name not in {**SUBCOMMANDS, **FOLDERS}:
            yield name
            continue
        [subcommands] = [one for one in parser([name])._actions if isinstance(one, argparse._SubParsersAction)]
        described = subcommands.choices[name]
        if not described.get_default("takes_others"):  # it passes on fairseq-train's options
            yield from (f"{name} {flag}" for flag in FLAG.findall(rest) if flag not in described._option_string_actions)
    unquoted = re.sub(r"'[^'\n]*'|\"[^\"\n]*\"", "", code)  # quotes hold another command's flags
    for name, rest in SCRIPT.findall(unquoted):
        if name.startswith("package/"):  # export writes these
            continue
        found = [folder / name for folder in (page.parent, ROOT, ROOT / "examples") if (folder / name).is_file()]
        if not found:
            yield name
        elif name.endswith(".py"):
            quoted = {*re.findall(r'"(?:--)?([a-z][a-z0-9-]*)"', found[0].read_text())}
            yield from (f"{name} {flag}" for flag in FLAG.findall(rest) if flag[2:] not in quoted)
    tasks = {path.stem for path in (ROOT / "examples" / "laboratory" / "tasks").glob("*.yaml")}
    yield from (task for task in re.findall(r"laboratory/run\.sh ([a-z]+)", code) if task not in tasks)
    [targets] = re.findall(r"^\.PHONY: (.*)", (ROOT / "Makefile").read_text(), re.M)
    yield from (f"make {name}" for name in re.findall(r"(?:^|\s)make ([a-z-]+)", code) if name not in targets.split())


def test_what_is_unknown(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "`fairseq-attnvariants gates data --pth x`, `make demmo`\n\n```bash\n"
        "fairseq-attnvariants score a \\\n    --refrence b | fairseq-attnvariants drw -\n"
        "python benchmarks/growth.py --plt x\nexamples/laboratory/run.sh ordr\nexamples/demo/nothing.sh\n```\n"
    )
    names = ["score --refrence", "drw", "gates --pth", "benchmarks/growth.py --plt", "examples/demo/nothing.sh", "ordr"]
    assert [*unknown(page)] == [*names, "make demmo"]


@pytest.mark.parametrize("page", EVERY_PAGE, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_name_what_there_is(page):
    """This includes blocks that are not run, such as the gallery's."""
    assert [*unknown(page)] == []


def test_every_block_of_parts_of_your_own_is_run():
    assert "<!-- not run" not in (ROOT / "docs" / "extend.md").read_text()
