"""A wheel, an editable install and a source archive have all files, and uninstalling leaves none."""

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from zipfile import ZipFile

import corpus
import pytest


def missing():
    """Return why no wheel can be built here, or None; the tests use installed packages, and no network."""
    for package, oldest in (("setuptools", 77), ("pip", 23)):
        try:
            if int(version(package).split(".")[0]) < oldest:
                return f"needs {package} {oldest} or later"
        except PackageNotFoundError:
            return f"needs {package}"
    return None


pytestmark = [pytest.mark.commands, pytest.mark.skipif(missing() is not None, reason=missing() or "")]


def run(*command, cwd=None, **environment):
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "", **environment}
    process = subprocess.run(
        [*map(str, command)], cwd=cwd, env=environment, capture_output=True, text=True, timeout=120
    )
    assert process.returncode == 0, process.stdout + process.stderr
    return process.stdout


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """A copy of the checkout's package, so that building leaves nothing in the checkout."""
    folder = tmp_path_factory.mktemp("sources")
    corpus.copy_sources(folder)
    (folder / "tests").mkdir()
    (folder / "tests" / "test_nothing.py").write_text("")
    (folder / "models" / "ja-en").mkdir(parents=True)
    (folder / "models" / "ja-en" / "model.onnx").write_text("")
    return folder


@pytest.fixture(scope="module")
def wheels(sources, tmp_path_factory):
    """A wheel as ``pip install .`` builds it, and the one that ``pip install -e .`` gets from the same backend."""
    folder = tmp_path_factory.mktemp("wheels")
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", folder / "plain"]
    run(sys.executable, "-m", "pip", "wheel", *options, sources, cwd=folder)
    (folder / "editable").mkdir()
    build = "import sys, setuptools.build_meta as backend; backend.build_editable(sys.argv[1])"
    run(sys.executable, "-c", build, folder / "editable", cwd=sources)
    return {kind: next((folder / kind).glob("*.whl")) for kind in ("plain", "editable")}


def package_files(folder):
    files = [path for name in corpus.PACKAGES for path in folder.glob(f"{name}/**/*") if path.is_file()]
    own = {"FORMAT.md", "README.md", "pyproject.toml"}  # of the runtime's distribution
    return {path.relative_to(folder).as_posix() for path in files if path.name not in own}


def test_wheel_holds_the_whole_package_and_the_startup_file(sources, wheels):
    inside = {name for name in ZipFile(wheels["plain"]).namelist() if ".dist-info/" not in name}
    assert inside == {
        "fairseq_attnvariants.pth",
        "fairseq_attnvariants_startup.py",
        "fairseq_attnvariants_stock.py",
        *package_files(sources),
    }
    assert "fairseq_attnvariants/config/train.yaml" in inside
    assert "fairseq_attnvariants_cli/subcommands/compare.html" in inside


def test_source_archive_builds_the_same_wheel(sources, wheels, tmp_path):
    """The archive alone is enough to build the wheel."""
    build = "import sys, setuptools.build_meta as backend; backend.build_sdist(sys.argv[1])"
    run(sys.executable, "-c", build, tmp_path, cwd=sources)
    with tarfile.open(next(tmp_path.glob("*.tar.gz"))) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    assert inside >= {*corpus.SOURCES, *package_files(sources)}
    assert not any(name.startswith("models") for name in inside)  # get-model gets them
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", tmp_path]
    run(sys.executable, "-m", "pip", "wheel", *options, next(tmp_path.glob("*.tar.gz")), cwd=tmp_path)
    names = [sorted(ZipFile(path).namelist()) for path in (next(tmp_path.glob("*.whl")), wheels["plain"])]
    assert names[0] == names[1]


@pytest.mark.parametrize("kind", ["plain", "editable"])
def test_hook_is_there_from_the_start_and_gone_after_uninstalling(sources, wheels, tmp_path, kind):
    venv.create(tmp_path, symlinks=True)
    python = tmp_path / "bin" / "python"
    clean = sorted(tmp_path.rglob("*"))
    pip = [sys.executable, "-m", "pip", "--python", python]
    run(*pip, "install", "--no-deps", "--no-index", wheels[kind])
    run(python, "-c", f"""if True:
        import sys
        # nothing of this package, and no heavy module, is imported before it is needed
        heavy = {{"torch", "numpy", "fairseq", "hydra", "dataclasses", "pathlib", "fairseq_attnvariants"}}
        assert not heavy & set(sys.modules), heavy & set(sys.modules)
        import fairseq_attnvariants_startup as startup
        assert startup.__file__.startswith({str(tmp_path if kind == "plain" else sources)!r}), startup.__file__
        assert sys.meta_path[0] is startup.Watcher, sys.meta_path
        assert sum(finder is startup.Watcher for finder in sys.meta_path) <= 1
    """, cwd=tmp_path)  # fmt: skip
    run(*pip, "uninstall", "--yes", "fairseq-attnvariants")
    assert run(python, "-c", "import sys; print(len(sys.meta_path))", cwd=tmp_path) == "3\n"
    left = [path for path in tmp_path.rglob("*") if path not in clean and path.name != "__pycache__"]
    assert not left


@pytest.mark.parametrize("folder", ["clean", "beside other things"])
def test_bare_name_works_from_any_folder(wheels, tmp_path, folder):
    """``--user-dir fairseq_attnvariants`` works next to an installed fairseq, here an empty folder."""
    site, cwd = tmp_path / "site", tmp_path / folder
    with ZipFile(wheels["plain"]) as wheel:
        wheel.extractall(site)
    (site / "fairseq").mkdir()
    cwd.mkdir()
    if folder != "clean":
        for name in ("fairseq_attnvariants", "models", "tasks"):
            (cwd / name).mkdir()
        (cwd / "models" / "other.py").write_text("raise RuntimeError('a file of somebody else was imported')\n")
    run(sys.executable, "-c", f"""if True:
        import argparse, sys
        import fairseq.utils
        fairseq.utils.__file__ = {str(site / "fairseq" / "utils.py")!r}
        fairseq.utils.import_user_module(argparse.Namespace(user_dir="fairseq_attnvariants"))
        from fairseq.models import ARCH_MODEL_REGISTRY
        assert "rnnsearch" in ARCH_MODEL_REGISTRY
        assert {str(site)!r} in sys.modules["fairseq_attnvariants"].__file__, sys.modules["fairseq_attnvariants"]
    """, cwd=cwd, PYTHONPATH=str(site), OMP_NUM_THREADS="1")  # fmt: skip


def test_an_installed_wheel_trains_and_translates(wheels, tmp_path):
    """``fairseq-train --user-dir fairseq_attnvariants`` works in an empty folder, with fairseq and the wheel."""
    text, here, environment = tmp_path / "text", tmp_path / "empty", tmp_path / "environment"
    for folder in (text, here):
        folder.mkdir()
    corpus.write_corpus(text)
    data = corpus.preprocess(text)

    venv.create(environment, symlinks=True)
    python, libraries = environment / "bin" / "python", Path(sysconfig.get_path("purelib"))
    run(sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", wheels["plain"])
    [site] = environment.glob("lib/python*/site-packages")
    for package in ("fairseq", "fairseq_cli"):
        shutil.copytree(libraries / package, site / package, copy_function=os.symlink)
    (site / "libraries.pth").write_text(f"{libraries}\n")  # torch and the rest

    def installed(command, *arguments):
        script = environment / "bin" / command
        script = script if script.exists() else corpus.SCRIPTS / command
        return run(python, script, *arguments, cwd=here, PYTHONPATH="", OMP_NUM_THREADS="1")

    assert installed("fairseq-attnvariants", "user-dir").strip() == str(site / "fairseq_attnvariants")
    common = [data, "--user-dir", "fairseq_attnvariants", "--cpu", "--batch-size", "8"]
    options = ["--arch", "recatt", *corpus.SIZES, "--optimizer", "adam", "--max-update", "2", "--save-dir", "out"]
    installed("fairseq-train", *common, *options)
    assert "H-11" in installed("fairseq-generate", *common, "--path", "out/checkpoint_last.pt", "--beam", "2")
