"""The runtime as a separate distribution, in an environment without torch."""

import subprocess
import sys
import zipfile

import corpus
import packages
import pytest

pytestmark = [pytest.mark.commands, pytest.mark.slow]


def run(*command, **about):
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, check=True, **about)


@pytest.mark.parametrize("folder, expected", [
    ("fairseq_attnvariants_run", "fairseq_attnvariants_run.py"),
    (".", "fairseq_attnvariants_run/fairseq_attnvariants_run.py"),
])  # fmt: skip
def test_both_distributions_have_the_module(tmp_path, folder, expected):
    """The module has different paths, so both can be installed. Builds use a copy, where setuptools leaves files."""
    corpus.copy_sources(tmp_path / "copy")
    build = (sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--quiet")
    run(*build, "--wheel-dir", tmp_path, tmp_path / "copy" / folder)
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert [name for name in names if name.startswith("fairseq_attnvariants_run") and ".dist-info/" not in name] == [
        expected
    ]


def test_it_installs_and_translates_without_torch(tmp_path):
    """Only numpy and onnxruntime come from the registry."""
    run(sys.executable, "-m", "venv", tmp_path / "env")
    python = tmp_path / "env" / "bin" / "python"
    pip = (python, "-m", "pip")
    asked = subprocess.run([*pip, "download", "--no-deps", "--quiet", "--dest", tmp_path, "pip"], capture_output=True)
    if asked.returncode:
        pytest.skip("no package registry")
    corpus.copy_sources(tmp_path / "copy")
    run(*pip, "install", "--quiet", tmp_path / "copy" / "fairseq_attnvariants_run")
    package = packages.write(tmp_path / "package")
    command = tmp_path / "env" / "bin" / "fairseq-attnvariants-run"
    assert run(command, package, input="the red zebra\n").stdout == "the red zebra\n"
    use = "from fairseq_attnvariants_run import Translator; print(Translator({!r}).translate(['the red'])[0].text)"
    assert run(python, "-c", use.format(str(package)), cwd=tmp_path).stdout == "the red\n"
    assert "torch" not in run(python, "-m", "pip", "list").stdout
