"""Dependencies point one way, as docs/code.md says."""

import ast
import re
from pathlib import Path

import fairseq_attnvariants

PACKAGE = Path(fairseq_attnvariants.__file__).parent
LAYERS = [
    ["__version__", "registry"],
    ["nn", "arithmetic"],
    ["architectures"],
    ["models", "criterions", "tasks", "optim"],
    ["patches"],
    ["deploy"],
]
RANKS = {name: rank for rank, names in enumerate(LAYERS) for name in names}


def imported(path):
    """Yield the folders and modules of the package that a file imports, by relative imports."""
    inside = path.relative_to(PACKAGE).parts
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level:
            whole = [*inside[: len(inside) - node.level], *(node.module or "").split(".")]
            yield from [whole[0]] if whole[0] else [one.name for one in node.names]


def test_dependencies_point_one_way():
    upward = {
        f"{path.relative_to(PACKAGE)} imports {name}"
        for path in PACKAGE.rglob("*.py")
        if len(path.relative_to(PACKAGE).parts) > 1
        for name in imported(path)
        if RANKS[name] > RANKS[path.relative_to(PACKAGE).parts[0]]
    }
    assert not upward


def test_equations_do_not_import_fairseq():
    for path in (PACKAGE / "nn").rglob("*.py"):
        assert not re.search(r"^ *(from|import) fairseq\b", path.read_text(), re.MULTILINE), path
