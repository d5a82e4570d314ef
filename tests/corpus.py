"""A tiny corpus of reversed sentences, and fairseq's commands run on it."""

import atexit
import importlib.util
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from functools import cache
from pathlib import Path

import composing
import pytest
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq_cli import preprocess as fairseq_preprocess
from fairseq_cli import train
from warm import COMMANDS, LINES

import fairseq_attnvariants

ROOT = Path(__file__).parent.parent
USER_DIR = str(Path(fairseq_attnvariants.__file__).parent)
SCRIPTS = Path(sys.executable).parent
# keep freed memory: the kernel would clear it when it is allocated again, which takes longer than a small model
MALLOC = {"MALLOC_MMAP_THRESHOLD_": str(1 << 30), "MALLOC_TRIM_THRESHOLD_": str(1 << 30)}
SOURCES = ["fairseq_attnvariants.pth", "setup.py", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE"]
SOURCES += ["fairseq_attnvariants_startup.py", "fairseq_attnvariants_stock.py"]
PACKAGES = ["fairseq_attnvariants", "fairseq_attnvariants_cli", "hydra_plugins", "fairseq_attnvariants_run"]
WORDS = ["ant", "bee", "cat", "dog", "elk", "fox", "gnu", "hen", "ibex", "jay"]
SIZES = ["--encoder-embed-dim", "16", "--encoder-hidden-size", "16"]
SIZES += ["--decoder-embed-dim", "16", "--decoder-hidden-size", "16"]
# translations of untrained models do not end: these scripts replace the commands, and limit lengths or updates
SHORT_TRANSLATIONS = "--max-len-b 10"
SHORT = {
    "fairseq-generate": f'exec "$WARM/fairseq-generate" "$@" {SHORT_TRANSLATIONS} --num-workers 0',
    "fairseq-attnvariants": f"""
        case "$*" in
          *" --gen-subset --"*) ;;
          results*" --measure "*"{{translations}}"* | tune*) set -- "$@" {SHORT_TRANSLATIONS} ;;
          results*" --measure "*=*) ;;
          results*) set -- "$@" {SHORT_TRANSLATIONS} ;;
          *" --forced"* | *" --reference"*) ;;
          strings*) set -- "$@" --updates 2 ;;
          attention* | attribute* | eos* | gates* | similarity*) set -- "$@" {SHORT_TRANSLATIONS} ;;
        esac
        exec "$WARM/fairseq-attnvariants" "$@" """,
}


def pipe_of(content):
    """The path of a pipe that holds a few bytes, which can be read once."""
    reading, writing = os.pipe()
    os.write(writing, content)
    os.close(writing)
    return f"/dev/fd/{reading}"


def copy_sources(folder):
    """Copy the sources of the distributions, because building leaves files in its folder."""
    folder.mkdir(exist_ok=True)
    for name in SOURCES:
        shutil.copy(ROOT / name, folder)
    for name in PACKAGES:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))


@cache
def warm():
    """Start ``warm.py`` and return its folder of commands, fairseq's and this package's."""
    folder = tempfile.TemporaryDirectory()
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", **MALLOC}
    process = subprocess.Popen([sys.executable, Path(__file__).with_name("warm.py"), folder.name], env=environment)
    atexit.register(folder.cleanup)
    atexit.register(process.terminate)
    while not all(Path(folder.name, kind).exists() for kind in LINES):
        assert process.poll() is None
        time.sleep(0.1)
    return Path(folder.name)


def run(command, *arguments, check=True, stdin=None, cwd=None, environment=None):
    """Run a command as a user would, a :func:`warm` one if there is one; return the process, with output as text."""
    folder = warm() if command in COMMANDS else SCRIPTS
    process = subprocess.run(
        [str(folder / command), *map(str, arguments)],
        input=stdin,
        capture_output=True,
        text=True,
        cwd=cwd,
        env={
            **os.environ,
            "PATH": f"{SCRIPTS}{os.pathsep}{os.environ['PATH']}",
            "OMP_NUM_THREADS": "1",
            **(environment or {}),
        },
        timeout=600,
    )
    if check:
        assert process.returncode == 0, f"{command} failed:\n{process.stdout[-2000:]}\n{process.stderr[-4000:]}"
    return process


def script(path):
    """Import a script as a separate module, which may import the scripts next to it."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(path.parent)
        spec.loader.exec_module(module)
    return module


def write_corpus(folder, train=120):
    """Write ``{train,valid,test}.{xx,yy}``: sentences of 1 to 6 words and their reversal."""
    rng = random.Random(1)
    for split, count in (("train", train), ("valid", 12), ("test", 12)):
        lines = [" ".join(rng.choices(WORDS, k=rng.randint(1, 6))) for _ in range(count)]
        if split == "test":
            lines[3] = "zebra yak"  # only unknown words
        (folder / f"{split}.xx").write_text("".join(line + "\n" for line in lines))
        (folder / f"{split}.yy").write_text("".join(" ".join(reversed(line.split())) + "\n" for line in lines))


def reversed_links(text):
    """Return the gold alignments of a file of sentences with their reversal, one line per sentence."""
    lengths = [len(line.split()) for line in text.read_text().splitlines()]
    return "".join(" ".join(f"{i}-{n - 1 - i}" for i in range(n)) + "\n" for n in lengths)


def preprocess(folder, name="bin", *more):
    """Binarise the corpus in ``folder`` to ``folder/name``."""
    prefixes = [f"--{split}pref={folder / split}" for split in ("train", "valid", "test")]
    more = more or ("--joined-dictionary",)
    run("fairseq-preprocess", "-s", "xx", "-t", "yy", *prefixes, "--destdir", folder / name, *more)
    return folder / name


def train_arguments(data, save_dir, *more, arch="rnnsearch"):
    """Return the arguments of a short, seeded fairseq-train."""
    arguments = [data, "--user-dir", USER_DIR, "--arch", arch, *SIZES, "--save-dir", save_dir, "--seed", "5"]
    arguments += ["--optimizer", "adam", "--lr", "0.01", "--clip-norm", "1", "--batch-size", "8", "--cpu"]
    return [*map(str, arguments), "--log-format", "simple", "--num-workers", "0", *map(str, more)]


def hydra_arguments(data, save_dir, *more, arch="rnnsearch", user_dir=USER_DIR):
    """Return the arguments of the same fairseq-hydra-train."""
    arguments = ["--config-dir", f"{USER_DIR}/config", "--config-name", "train", f"common.user_dir={user_dir}"]
    arguments += [f"model.{name.lstrip('-').replace('-', '_')}={value}" for name, value in zip(SIZES[::2], SIZES[1::2])]
    arguments += [f"task.data={data}", f"model._name={arch}", f"checkpoint.save_dir={save_dir}", "common.seed=5"]
    arguments += ["optimization.lr=[0.01]", "optimizer.adam_betas='(0.9, 0.999)'", "dataset.batch_size=8"]
    return [*arguments, "common.cpu=true", "dataset.num_workers=0", *more]


def train_here(*arguments):
    """Run ``fairseq-train`` in this process, without importing torch again."""
    sys.audit("corpus.command")
    composing.remember()
    arguments = options.parse_args_and_arch(options.get_training_parser(), [*map(str, arguments)])
    train.main(convert_namespace_to_omegaconf(arguments))


def preprocess_here(*arguments):
    """Run ``fairseq-preprocess`` in this process."""
    sys.audit("corpus.command")
    fairseq_preprocess.main(options.get_preprocessing_parser().parse_args([*map(str, arguments)]))
