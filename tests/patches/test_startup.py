"""The start-up hook, in separate interpreters, and the check of installed packages."""

import subprocess
import sys
import textwrap
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

import fairseq_attnvariants_startup
from fairseq_attnvariants.patches import environment
from fairseq_attnvariants.patches.environment import check_environment

pytestmark = pytest.mark.commands

STARTUP = fairseq_attnvariants_startup.__file__
ROOT = str(Path(STARTUP).parent)
MODULE = """
from dataclasses import dataclass, field

@dataclass
class Inner:
    value: int = 1

@dataclass
class Outer:
    plain: Inner = Inner()
    inside: Inner = field(default=Inner(2), metadata={"help": "as fairseq writes it too"})
"""

since_311 = pytest.mark.skipif(sys.version_info < (3, 11), reason="dataclasses are not strict before Python 3.11")


@pytest.fixture
def python(tmp_path):
    """A function that runs code in an interpreter without ``.pth`` files; there, ``hook()`` does what the file does."""

    def run(code, version=None):
        preamble = f"import sys; before = set(sys.modules); sys.path[:0] = {[str(tmp_path), ROOT]!r}\n"
        if version:
            preamble += f"sys.version_info = {version}\n"
        preamble += f"def hook():\n    exec(open({STARTUP!r}).read(), {{'__name__': 'startup'}})\n"
        command = [sys.executable, "-I", "-S", "-c", preamble + textwrap.dedent(code)]
        return subprocess.run(command, capture_output=True, text=True, timeout=60)

    for package in ("fairseq", "hydra", "unrelated"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text("")
        (tmp_path / package / "configs.py").write_text(MODULE)
    return run


def succeeds(process):
    assert process.returncode == 0, process.stderr
    return True


@since_311
@pytest.mark.parametrize("package", ["fairseq", "hydra"])
def test_dataclass_defaults_are_allowed_and_stay_defaults(python, package):
    assert "ValueError: mutable default" in python(f"import {package}.configs").stderr
    assert succeeds(python(f"""
        hook()
        from {package}.configs import Inner, Outer
        assert Outer.__dataclass_fields__["plain"].default is Outer().plain
        assert Outer() == Outer(Inner(1), Inner(2)) and Outer() != Outer(Inner(2))
        assert hash(Outer().plain) != hash(Inner(1))
    """))  # fmt: skip


@since_311
def test_other_packages_are_judged_as_ever(python):
    for first in ("", "import fairseq.configs\n"):
        assert "ValueError: mutable default" in python(f"hook()\n{first}import unrelated.configs").stderr
    assert succeeds(python("""
        hook()
        import fairseq.configs
        from dataclasses import dataclass
        for default in ([], {}, set()):
            try:
                dataclass(type("Config", (), {"__annotations__": {"x": object}, "x": default}))
            except ValueError:
                continue
            raise AssertionError(default)
    """))  # fmt: skip


def test_nothing_happens_before_fairseq_is_imported(python):
    assert succeeds(python("""
        finders = list(sys.meta_path)
        hook()
        assert set(sys.modules) == before, set(sys.modules) - before
        assert sys.meta_path[1:] == finders
        import json, unrelated
        import dataclasses
        assert not hasattr(dataclasses._get_field, "allows_dataclass_defaults")
    """))  # fmt: skip


@since_311
def test_nothing_happens_twice(python):
    assert succeeds(python("""
        import dataclasses
        original = dataclasses._get_field
        hook(); hook()
        import fairseq, hydra
        assert [cell.cell_contents for cell in dataclasses._get_field.__closure__].count(original) == 1
    """))  # fmt: skip


def test_dataclasses_stay_as_they_are_on_python_310(python):
    assert succeeds(python("""
        import dataclasses
        hook()
        import fairseq
        assert not hasattr(dataclasses._get_field, "allows_dataclass_defaults")
        """, version=(3, 10)))  # fmt: skip


def test_help_that_is_made_when_it_is_printed_is_allowed_to_hydra_alone(python):
    """argparse of Python 3.14 reads help at once, but the help of hydra 1.3 is no string."""
    assert succeeds(python("""
        import argparse
        hook()
        sys.version_info = (3, 14)
        checked = argparse._ActionsContainer._check_help = lambda self, action: "%" in action.help
        import hydra, unrelated
        for module, allowed in (("hydra._internal.utils", True), ("unrelated", False)):
            lazy = type("Lazy", (), {"__module__": module, "__repr__": lambda self: "help"})()
            try:
                argparse._ActionsContainer._check_help(None, argparse.Action(["-x"], "x", help=lazy))
            except TypeError:
                assert not allowed
            else:
                assert allowed
        sys.modules.pop("hydra"); wrapped = argparse._ActionsContainer._check_help
        import hydra
        assert argparse._ActionsContainer._check_help is wrapped
    """))  # fmt: skip


@since_311
def test_fields_of_fairseq_lose_the_none_of_their_types_since_python_314(python):
    """fairseq recognises Optional by its old printed form; plugins' dataclasses derive from fairseq's."""
    code = """
        hook()
        import fairseq, dataclasses, typing
        class FairseqDataclass: pass
        def types(*bases):
            annotations = {"size": int | None, "sizes": list[int] | None, "plain": str, "map": typing.Dict[str, None]}
            members = {"__annotations__": annotations, **dict.fromkeys(annotations)}
            made = dataclasses.dataclass(type("Config", bases, members))
            assert typing.get_type_hints(made) == annotations
            return [field.type for field in dataclasses.fields(made)]
        kept = [int | None, list[int] | None, str, typing.Dict[str, None]]
        assert types() == kept, types()
        assert types(FairseqDataclass) == EXPECTED, types(FairseqDataclass)
    """
    assert succeeds(python(code.replace("EXPECTED", "[int, list[int], *kept[2:]]"), version=(3, 14)))
    assert succeeds(python(code.replace("EXPECTED", "kept"), version=(3, 13)))


PUT_RIGHT = "run 'pip install --no-deps fairseq==0.12.2'"


@pytest.mark.parametrize("installed,sentence", [
    ({}, f"needs fairseq 0.12.2, which is not installed: {PUT_RIGHT}"),
    ({"fairseq": "0.12.1"}, f"needs fairseq 0.12.2, but 0.12.1 is installed: {PUT_RIGHT}"),
    ({"ve-fairseq": "0.12.2"}, "but the module fairseq here is that of ve-fairseq 0.12.2: run 'pip uninstall ve-f"),
    ({"fairseq-fixed": "0.12.3"}, "but the module fairseq here is that of fairseq-fixed 0.12.3: run 'pip"),
    ({"fairseq": "0.12.3", "ve-fairseq": "0.12.3"}, "fairseq 0.12.3 and ve-fairseq are installed in one place"),
    ({"ve-fairseq": "0.12.3"}, "needs torch 2.1 or later, which is not installed"),
    ({"ve-fairseq": "0.12.3", "torch": "2.13.0+cpu"}, None),
    ({"fairseq": "0.12.2", "fairseq-fixed": "0.12.3.1"}, "fairseq 0.12.2 and fairseq-fixed are installed in one"),
    ({"fairseq": "0.12.2"}, "needs torch 2.1 or later, which is not installed: run 'pip install --upgrade torch'"),
    ({"fairseq": "0.12.2", "torch": "2.0.1+cu118"}, "needs torch 2.1 or later, but 2.0.1+cu118 is installed: run"),
    ({"fairseq": "0.12.2", "torch": "1.13.1"}, "needs torch 2.1 or later, but 1.13.1 is installed"),
    ({"fairseq": "0.12.2", "torch": "2.1.0a0+32f93b1"}, None),
    ({"fairseq": "0.12.2", "torch": "2.13.0+cpu"}, None),
    ({"fairseq": "0.12.2+3d262bb", "torch": "2.13.0+cpu"}, None),
    ({"fairseq": "0.12.3", "torch": "2.13.0+cpu"}, None),
])  # fmt: skip
def test_what_is_missing_is_said_in_one_sentence(monkeypatch, installed, sentence):
    def version(package):
        if package not in installed:
            raise PackageNotFoundError(package)
        return installed[package]

    monkeypatch.setattr(environment, "version", version)
    owners = [package for package in installed if "fairseq" in package]
    monkeypatch.setattr(environment, "packages_distributions", lambda: {"fairseq": owners})
    if sentence is None:
        check_environment()
    else:
        with pytest.raises(ImportError) as error:
            check_environment()
        assert sentence in str(error.value) and "\n" not in str(error.value)


BOTH = {"ve-fairseq": "0.12.3", "fairseq-light": "0.12.3", "torch": "2.13.0+cpu"}


def test_two_forks_are_one_too_many(monkeypatch):
    """The package works with one of them alone."""
    monkeypatch.setattr(environment, "version", BOTH.get)
    monkeypatch.setattr(environment, "packages_distributions", lambda: {"fairseq": ["ve-fairseq", "fairseq-light"]})
    monkeypatch.setattr(environment, "_version", lambda name: BOTH.get(name, ""))
    with pytest.raises(ImportError, match="run 'pip uninstall ve-fairseq fairseq-light' first"):
        check_environment()
