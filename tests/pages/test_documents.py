"""The shell and Python blocks of the README and of ``docs/`` run as they are printed, with trainings of two updates and
translations of ten words."""

import dataclasses
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
from fairseq_attnvariants_cli.checks import DEMANDS

pytestmark = pytest.mark.docs

BLOCK = re.compile(
    r"(?P<skip><!-- not run: [^\n]+ -->\n)?^```(?P<language>bash|python)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)
# of check, but for what takes ten seconds a model, which test_extend.py tries
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
CPU = re.compile(r"^\w+=.*?  # on a CPU: (.*)$", re.MULTILINE)  # a line for a GPU, and what it is without one
# what a page takes from elsewhere
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
    """The shell blocks of a page that are not marked otherwise; of Python blocks one is made."""
    found = [match for match in BLOCK.finditer(CPU.sub(r"\1", page.read_text())) if not match["skip"]]
    python = "".join(match["text"] for match in found if match["language"] == "python")
    shell = [match["text"] for match in found if match["language"] == "bash"]
    return [*shell, f"python - <<'END'\n{python}END\n"] if python else shell


@pytest.fixture(scope="module")
def short(warm, tmp_path_factory):
    """Runs a script in a folder; what it trains, it trains for two updates."""
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
    """The folder in which the README's blocks ran, but for those that install."""
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
    """On the site each has its help and an anchor there."""
    paragraphs = (ROOT / "docs" / "options.md").read_text().split("\n\n")
    groups = [text for text in paragraphs if re.fullmatch(r"(`--[a-z-]+`,?\s*)+", text)]
    listed = [name for text in groups for name in re.findall("`(--.*?)`", text)]
    described = AttentionRNNConfig()
    fields = [one.name for one in dataclasses.fields(described) if described._get_help(one.name) is not None]
    assert sorted(listed) == sorted(map(flag, fields))


def test_quickstart(quickstart):
    assert (quickstart / "attention.png").stat().st_size > 1000
    assert "BLEU4" in (quickstart / "generated.txt").read_text().splitlines()[-1]


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=lambda page: page.stem)
def test_page(page, quickstart, short, tmp_path):
    """The blocks of a page, one after the other, in a copy of the quickstart's folder."""
    folder = tmp_path / "copy"
    shutil.copytree(quickstart, folder, symlinks=True)
    short("\n".join([BEFORE.get(page.stem, ""), *blocks(page)]), folder)


def test_every_block_of_parts_of_your_own_is_run():
    assert "<!-- not run" not in (ROOT / "docs" / "extend.md").read_text()
