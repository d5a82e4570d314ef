"""All replaced attributes of other packages' modules are in one table, in ``docs/checkpoints.md``."""

import ast
import re

import pytest
from corpus import ROOT

from fairseq_attnvariants.patches.replaced import replaces

PACKAGE = ROOT / "fairseq_attnvariants"
SOURCES = [
    *PACKAGE.rglob("*.py"),
    *(ROOT / "fairseq_attnvariants_cli").rglob("*.py"),
    *(ROOT / "hydra_plugins").rglob("*.py"),
    ROOT / "fairseq_attnvariants_startup.py",
    ROOT / "fairseq_attnvariants_stock.py",
]
ROW = re.compile(r"^\| `([\w/]+\.py)` \| (.*?) \|", re.MULTILINE)


def replaced(source):
    """Return the attributes that a module sets on other packages' modules and classes, and ``type(...)``."""
    nodes = [*ast.walk(ast.parse(source))]
    foreign = set()

    def root(node, through=ast.Attribute):
        while isinstance(node, through):
            node = node.func if isinstance(node, ast.Call) else node.value
        return getattr(node, "id", "")

    for node in nodes:
        if isinstance(node, ast.Import) or isinstance(node, ast.ImportFrom) and not node.level:
            foreign |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
        if isinstance(node, ast.arg) and getattr(node.annotation, "id", "") == "ModuleType":
            foreign.add(node.arg)
    for node in nodes:  # another name for a class
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            of_type = isinstance(node.value, ast.Call) and root(node.value.func) == "type"
            foreign |= {node.targets[0].id} if of_type or root(node.value) in foreign else set()
    found = set()
    for node in nodes:
        for assigned in getattr(node, "targets", []):
            for target in getattr(assigned, "elts", [assigned]):
                if isinstance(target, ast.Attribute) and root(target, (ast.Attribute, ast.Call)) in foreign:
                    found.add(target.attr)
        if isinstance(node, ast.Call) and root(node.func) in ("setattr", "replaces"):
            found |= {node.args[1].value} if isinstance(node.args[1], ast.Constant) else set()
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") in ("append", "insert"):
            changed = node.func.value
            found |= {changed.attr} if isinstance(changed, ast.Attribute) and root(changed) in foreign else set()
    return found


def test_every_way_to_replace_is_found():
    code = """
import argparse, dataclasses, importlib, sys
from fairseq import models, options
from .own import table
models.build_model, options.add = build, add
container = argparse._Container
container.check = check
importlib.import_module(name).torch = load
for module in sys.modules.values():
    setattr(module, "eval", evaluate)
sys.meta_path.insert(0, finder)
kind = type(default)
kind.__hash__ = object.__hash__
table.own = action.type = self.cfg = 1
def repair(module: ModuleType):
    module.np = numpy
@replaces(sys, "excepthook")
def excepthook(show, error):
    show(error)
"""
    names = {"build_model", "add", "check", "torch", "eval", "meta_path", "__hash__", "np", "excepthook"}
    assert replaced(code) == names


@pytest.mark.slow
def test_the_table_lists_everything_that_is_replaced():
    page = (ROOT / "docs" / "checkpoints.md").read_text()
    listed = {
        name: {span.split(".")[-1] for span in re.findall(r"`([^`]+)`", cell)} for name, cell in ROW.findall(page)
    }
    found = {path: replaced(path.read_text()) for path in SOURCES}
    names = {path.relative_to(PACKAGE if PACKAGE in path.parents else ROOT).as_posix(): found[path] for path in SOURCES}
    assert listed == {name: attributes for name, attributes in names.items() if attributes}


@pytest.mark.parametrize("kind", [staticmethod, classmethod, lambda plain: plain])
def test_what_is_replaced_stays_of_its_kind(kind):
    class Owner:
        one = kind(lambda *given: given)

    before = Owner().one(2)

    @replaces(Owner, "one")
    def doubled(there, *given):
        return there(*given) * 2

    owner = Owner()
    assert [type(given) for given in owner.one(2)] == [type(given) for given in before] * 2
