"""All shell blocks of the recipes' pages run, on a hundred lines, with trainings of two updates of tiny models."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import corpus
import pytest
from corpus import ROOT
from fairseq.models import ARCH_MODEL_REGISTRY
from test_recipes_settings import put

pytestmark = pytest.mark.more

EXAMPLES = ROOT / "examples"
RECIPES = ["baselines", "alignment", "attribution", "distortion_fertility", "adaptive_weighting"]
RECIPES += ["bridging", "attention_via_attention", "scan", "copying", "models"]
CORPORA = ["TEXT", "ENJA", "NIST", "NEWS", "wmt15", "wmt17"]
# for loops over many architectures: those that later commands read, or whose trainings differ
SOME = {"baselines": "rnnsearch lstm", "scan": "rnnsearch recatt"}
SOME["distortion_fertility"] = "rnnsearch rnnatt conddec conddec_rnnatt"
SETS = ["val", "dev", "test", "test_2016_flickr", "czenali", *(f"nist0{year}" for year in (2, 3, 4, 5, 6, 8)), "liu"]
SETS += ["newstest2013", "newstest2014", *(f"newstest{year}.tc" for year in (2014, 2015, 2016))]
SIZES = " ".join(f"--{side}-{width} 8" for side in ("encoder", "decoder") for width in ("embed-dim", "hidden-size"))
CHARACTERS = " ".join(f"--{name} 8" for name in ("encoder-char-hidden-size", "attention-dim", "attention-via-dim"))

# replacements of commands: small models, no network, no programs outside of the package
STUBS = {
    "fairseq-train": f"""
        sizes="{SIZES}" updates=2
        case "$*" in
          *"--arch ava"*) sizes="$sizes {CHARACTERS} --decoder-out-embed-dim 8" ;;
          *"--arch lstm"*) sizes="$sizes --decoder-out-embed-dim 8" ;;
          *"--arch transformer"*) sizes="--encoder-embed-dim 8 --decoder-embed-dim 8" ;;
        esac
        case "$*" in *--keep-interval-updates*) updates=24 ;; esac  # as many as are averaged
        exec "$WARM/fairseq-train" "$@" $sizes --max-update $updates --batch-size 8 --cpu --num-workers 0""",
    "fairseq-generate": corpus.SHORT["fairseq-generate"].replace('"$@"', '"$@" --cpu'),
    "fairseq-hydra-train": "",
    "fairseq-attnvariants": """
        subcommand=$1 text=${2-}
        if [ $# = 1 ] && [ "$1" = user-dir ]; then echo "$USER_DIR"; exit; fi  # eighty times
        for argument; do
          shift
          case "$subcommand $argument" in
            "lexicon --alignments" | "lexicon --save-alignments")
              argument=--alignments
              sed 's/.*/0-0/' "$text" > "$1" ;;
          esac
          set -- "$@" "$argument"
        done
        """
    + corpus.SHORT["fairseq-attnvariants"],
    "download.sh": "",
    "pip": "",
    "tag": "sed -E 's/[^ ]+/N/g'",
    "python": f"""
        case "$1" in
          *tokenise.py) cat ;;
          tag.py) exec tag ;;
          ../../benchmarks/*) ;;
          lengths.py) exec "$WARM/python.script" "$@" ;;
          ../demo/demo.py)
            mkdir -p demo/de/text
            for language in en de; do
              for split in train test; do cp TEXT/$split.$language demo/de/text/; done
              cp TEXT/val.$language demo/de/text/valid.$language
            done ;;
          *) exec {sys.executable} "$@" ;;
        esac""",
}


def read_pair(prefix):
    return [Path(f"{prefix}.{side}").read_text().splitlines() for side in ("xx", "yy")]


@pytest.fixture(scope="module")
def examples(tmp_path_factory):
    """A copy of ``examples/`` with the texts that each recipe starts from in its folder."""
    text, folder = tmp_path_factory.mktemp("text"), tmp_path_factory.mktemp("examples") / "examples"
    corpus.write_corpus(text, train=88)
    for side in ("xx", "yy"):  # alignment's training text ends with its test sentences
        with open(text / f"train.{side}", "a") as train:
            train.write((text / f"test.{side}").read_text())
    shutil.copytree(EXAMPLES, folder)
    test = [len(line.split()) for line in (text / "test.xx").read_text().splitlines()]
    for recipe in RECIPES:
        for name in ("train", *SETS):
            for languages, side in (("en zh", "xx"), ("de fr cs ja en1", "yy")):
                for language, place in ((one, two) for one in languages.split() for two in CORPORA):
                    (folder / recipe / place).mkdir(exist_ok=True)
                    split = "train" if name == "train" else "test"
                    shutil.copy(text / f"{split}.{side}", folder / recipe / place / f"{name}.{language}")
        for language in ("en", "zh"):
            shutil.copy(text / "test.xx", folder / recipe / f"liu.{language}")
        for name in ("liu.gold", "encs_czenali.gold"):
            (folder / recipe / name).write_text("0-0\n" * len(test))
        (folder / recipe / "nist06.pos.zh").write_text("".join("N " * length + "\n" for length in test))
    for split in ("train", "test"):
        lines = ["IN: {} OUT: {}".format(*pair) for pair in zip(*read_pair(text / split))]
        for task in ("simple", "length"):
            path = folder / "scan" / "SCAN" / f"{task}_split" / f"tasks_{split}_{task}.txt"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("\n".join([*lines, ""]))
    put(folder / "common" / "fetch_multi30k.sh", "")
    put(folder / "models" / "fetch.sh", "")
    put(folder / "adaptive_weighting" / "download.sh", "")
    put(folder / "attention_via_attention" / "download.sh", "")
    return folder


def some(recipe, names):
    """Return the beginning of a loop over some architectures, from one over many, which all exist."""
    assert {*names.replace("\\\n", " ").split()} <= ARCH_MODEL_REGISTRY.keys()
    return f"for arch in {SOME[recipe]};"


@pytest.mark.parametrize("recipe", RECIPES)
def test_readme(recipe, warm, examples, tmp_path):
    for name, text in STUBS.items():
        put(tmp_path / name, text)
    path = os.pathsep.join([str(tmp_path), str(warm), str(corpus.SCRIPTS), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "WARM": str(warm), "USER_DIR": corpus.USER_DIR}
    environment["ALIGNMENTS"] = str(tmp_path / "links")
    text = (
        "".join(page.read_text() for page in sorted((examples / recipe).glob("RE*.md")))
        .replace("tail -n 2501", "tail -n 12")
        .replace("--best 5", "--best 1")
        .replace("./multi30k.sh", "UPDATES=24 ./multi30k.sh")
        .replace("./train.sh ENJA", "UPDATES=24 ./train.sh ENJA")
        .replace("./distil.sh", "UPDATES=24 ./distil.sh")
        .replace("../bridging/apart.sh", "SEEDS=1 SYSTEMS='control alone soft unit' ../bridging/apart.sh")
        .replace("for seed in 1 2 3; do\n  for ", "for seed in 1; do\n  for ")
        .replace("for seed in 1 2 3; do SEED", "for seed in 1; do SEED")  # one training per system
        .replace("for seed in 1 2 3;", "for seed in 1 2;")
        .replace("for rate in 2e-3 1e-3;", "for rate in 2e-3;")
        .replace("for seed in (1, 2, 3)", "for seed in (1, 2)")
    )
    text = re.sub(r"for arch in ((?:\w+[\s\\]+){5,}\w+);", lambda match: some(recipe, match[1]), text)
    shell = re.findall(r"^```bash\n(.*?)^```", text, re.M | re.S)
    assert shell
    for block in shell:
        command = ["bash", "-euo", "pipefail", "-c", block]
        process = subprocess.run(command, cwd=examples / recipe, env=environment, capture_output=True, text=True)
        assert process.returncode == 0, f"{block}\n{process.stdout[-3000:]}\n{process.stderr[-3000:]}"


@pytest.mark.parametrize("command, variable, files", [
    ("common/fetch_multi30k.sh text en de", "MULTI30K", ["train.lc.norm.tok", "val.lc.norm.tok"]),
    ("models/fetch.sh text", "ENJA", ["train", "dev", "test"]),
])  # fmt: skip
def test_fetch_refuses(command, variable, files, tmp_path):
    """A text with another checksum, or one that cannot be fetched, does not get its name."""
    (tmp_path / "site").mkdir()
    for name in files:
        for language in ("en", "de", "ja"):
            (tmp_path / "site" / f"{name}.{language}").write_text("a dog\n")
    for site, reason in (("site", "checksum differs"), ("nowhere", "")):
        environment = {**os.environ, variable: f"file://{tmp_path}/{site}"}
        process = subprocess.run(
            f"bash {EXAMPLES}/{command}".split(), cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        assert process.returncode != 0 and reason in process.stderr
        assert not list((tmp_path / "text").iterdir())


def test_fetch_multi30k_fetches_what_there_is(tmp_path):
    """The test sets of 2017 are fetched, too, which Czech does not have."""
    names = ("train", "val", "test_2016_flickr", "test_2017_flickr", "test_2017_mscoco")
    files = [f"{name}.{language}" for language in ("en", "cs") for name in names]
    files = [name for name in files if not ("2017" in name and name.endswith("cs"))]
    text = (EXAMPLES / "common" / "fetch_multi30k.sh").read_text()
    listed = re.findall(r"^[0-9a-f]{64} (\S+)$", text, re.M)
    assert files == [name for name in listed if name.endswith(("en", "cs"))] and len(listed) == 18
    (tmp_path / "site").mkdir()
    for name in files:
        content = f"{name}\n"
        (tmp_path / "site" / name.replace(".", ".lc.norm.tok.")).write_text(content)
        checksum = hashlib.sha256(content.encode()).hexdigest()
        text = re.sub(rf"^[0-9a-f]{{64}} {re.escape(name)}$", f"{checksum} {name}", text, flags=re.M)
    (tmp_path / "fetch_multi30k.sh").write_text(text)
    shutil.copy(EXAMPLES / "common" / "fetch.sh", tmp_path)
    environment = {**os.environ, "MULTI30K": f"file://{tmp_path}/site"}
    subprocess.run(["bash", tmp_path / "fetch_multi30k.sh", tmp_path / "text", "en", "cs"], env=environment, check=True)
    fetched = {path.name: path.read_text() for path in (tmp_path / "text").iterdir()}
    assert fetched == {name: f"{name}\n" for name in files}
