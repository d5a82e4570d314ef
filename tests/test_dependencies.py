"""Dependencies point one way, as docs/code.md says."""

import ast
import re
from pathlib import Path

import pytest

import fairseq_attnvariants
import fairseq_attnvariants_cli

PACKAGE, COMMAND = (Path(one.__file__).parent for one in (fairseq_attnvariants, fairseq_attnvariants_cli))
LAYERS = {
    PACKAGE: [
        ["__version__", "registry"],
        ["nn", "arithmetic"],
        ["architectures"],
        ["models", "criterions", "tasks", "optim"],
        ["patches"],
        ["deploy"],
    ],
    COMMAND: [
        ["text", "options", "installed"],
        ["systems", "imported"],
        ["scores", "checks"],
        ["shown"],
        ["subcommands"],
    ],
}


def imported(path, package):
    """Yield the folders and modules of a package that a file imports, by relative imports, except for types alone."""
    inside = path.relative_to(package).parts
    tree = ast.parse(path.read_text())
    types = [part for node in ast.walk(tree) if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
             for part in node.body]  # fmt: skip
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level and node not in types:
            whole = [*inside[: len(inside) - node.level], *(node.module or "").split(".")]
            yield from [whole[0]] if whole[0] else [one.name for one in node.names]


@pytest.mark.parametrize("package", LAYERS)
def test_dependencies_point_one_way(package):
    ranks = {name: rank for rank, names in enumerate(LAYERS[package]) for name in names}
    upward = {
        f"{path.relative_to(package)} imports {name}"
        for path in package.rglob("*.py")
        if len(path.relative_to(package).parts) > 1
        for name in imported(path, package)
        if ranks[name] > ranks[path.relative_to(package).parts[0]]
    }
    assert not upward


def test_equations_do_not_import_fairseq():
    for path in (PACKAGE / "nn").rglob("*.py"):
        assert not re.search(r"^ *(from|import) fairseq\b", path.read_text(), re.MULTILINE), path
