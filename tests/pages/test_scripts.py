"""Scripts of the examples and the benchmarks describe themselves with ``--help``."""

import ast

import corpus
import pytest
from corpus import ROOT

pytestmark = pytest.mark.more

NEEDED = {"tag.py": "HanTa", "demo_char.py": "pycountry"}  # other imports are installed
SCRIPTS = [
    path
    for path in sorted([*ROOT.glob("examples/*/*.py"), *ROOT.glob("benchmarks/*.py")])
    if '__name__ == "__main__"' in path.read_text()
]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_help_is_the_docstring(script, tmp_path):
    """A script with ``--help`` does nothing else."""
    if script.name in NEEDED:
        pytest.importorskip(NEEDED[script.name])
    text = ast.get_docstring(ast.parse(script.read_text())) or ""
    done = corpus.run("python.script", script, "--help", cwd=tmp_path)
    assert done.stderr == "" and done.stdout.startswith("usage: ")
    assert text and f"\n\n{text}\n\n" in done.stdout
    assert not [*tmp_path.iterdir()]
