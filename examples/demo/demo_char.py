"""Train attention via attention on names and cognates in characters, with stock fairseq commands on two CPU cores.

The stages work as in ``demo.py``.
"""

import argparse
import hashlib
import re
import shutil
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import pycountry
from babel import Locale
from babel.messages.mofile import read_mo

from demo import (
    Pair,
    binarise,
    clean,
    read_translations,
    run,
    stage,
    stoppable,
    title,
    tool,
    train,
    translate,
    unique,
    user_dir,
    write_lines,
)
from fairseq_attnvariants_cli.text.files import read_lines

LANGUAGES = ("cs", "de", "fr")
LONGEST = 50  # characters in a name
HELD_OUT = 20  # names in each of valid and test, of 256 names on average
UPDATES = 2000
TASK = ("--task", "char_translation")


def main() -> None:
    """Run the stages that are missing and print the scores."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--language", choices=LANGUAGES, default="fr", help="translate English into it (default: fr)")
    parser.add_argument("--shared-with", choices=LANGUAGES, help="only names that this language has, too")
    parser.add_argument(
        "--out", type=Path, default=Path("demo/char"), help="folder for everything (default: %(default)s)"
    )
    parser.add_argument("more", nargs="*", metavar="OPTION", help="further options of fairseq-train, after --")
    options = parser.parse_args()
    with stoppable():
        demo(options.language, options.out / options.language, options.shared_with, options.more)


def demo(language: str, out: Path, shared_with: str | None, more: Sequence[str]) -> None:
    """Run all stages, in order."""
    text, binarised, model, translated = (out / name for name in ("text", "bin", "model", "translated"))
    settings = f"""
        --arch ava
        --encoder-embed-dim 64 --encoder-char-hidden-size 96 --encoder-hidden-size 192 --attention-via-dim 48
        --decoder-embed-dim 64 --decoder-hidden-size 192 --attention-dim 96 --decoder-out-embed-dim 96
        --dropout 0.1 --optimizer adam --clip-norm 1.0 --lr 2e-3 --lr-scheduler polynomial_decay --warmup-updates 50
        --max-tokens 1000 --total-num-update {UPDATES} --max-update {UPDATES}
        --seed 1 --no-epoch-checkpoints
    """.split()

    keep_settings(out, f"--shared-with {shared_with or ''} -- {' '.join(more)}")
    stage("Extract names", lambda part: extract(language, part, shared_with), text)
    stage("Binarise", lambda part: binarise(text, language, part, *user_dir(), *TASK), binarised)
    stage("Train ava", lambda part: train(binarised, part, [*TASK, *settings, *more]), model, resumes=True)
    stage("Translate held-out names", lambda part: translate(binarised, model, part, *TASK), translated)

    translations = read_translations(translated)
    reference, hypothesis = text / f"reference.{language}", out / f"hypothesis.{language}"
    write_lines(hypothesis, [translation.hypothesis for translation in translations])
    references = [*read_lines(str(reference))]
    right = [line.hypothesis == name for line, name in zip(translations, references, strict=True)]

    title("Five translations")
    shown = [i for i, line in enumerate(translations) if 2 <= len(line.source.split()) <= 3][:5]
    for i in shown:
        print(f"source       {translations[i].source}")
        print(f"translation  {translations[i].hypothesis}\nreference    {references[i]}\n")

    title("Draw both levels of attention for the first of them that is right")
    command, read = tool("fairseq-attnvariants"), (binarised, "--path", model / "checkpoint_best.pt")
    drawn = next((i for i in shown if right[i]), shown[0])
    picture = ("--name", "ava", "--output", out / "attention.png")
    run(command, "attention", *read, "--line", drawn + 1, *picture)

    if "--attention-via-words-alone" not in more:  # it has no attention to characters
        title("Similar words")
        run(command, "similarity", *read, "--words", 10)

    title("Score")
    run(command, "score", hypothesis, "--reference", reference, "--name", "ava", "--tokenize", "char")
    trained = set().union(*map(words, read_lines(str(text / "train.en"))))
    fresh = [own for own, line in zip(right, translations) if not trained.intersection(words(line.source))]
    if fresh:
        print(f"of the {len(fresh)} names without a word that training has {100 * sum(fresh) / len(fresh):.1f}")


def keep_settings(out: Path, settings: str) -> None:
    """Write the settings to the folder. If it has others, refuse it if it has a model; if not, remove its text."""
    kept = out / "settings"
    if kept.exists() and kept.read_text() != settings:
        if any(out.rglob("*.pt")):
            sys.exit(f"{out} is of '{kept.read_text()}', and not of '{settings}': give another --out")
        for made in ("text", "bin"):
            shutil.rmtree(out / made, ignore_errors=True)
    out.mkdir(parents=True, exist_ok=True)
    kept.write_text(settings)


def extract(language: str, folder: Path, shared_with: str | None = None) -> None:
    """Write ``train``, ``valid`` and ``test``, and the test set's reference.

    All names of ``valid`` and ``test`` change in translation, and at least half of those of ``train``.

    Args:
        language: language of the translations.
        folder: folder for the files.
        shared_with: another language; names that it lacks are left out.
    """
    found = name_pairs(language)
    if shared_with:
        shared = {pair.source for pair in name_pairs(shared_with)}
        found = [pair for pair in found if pair.source in shared]
    changed: dict[str, list[Pair]] = defaultdict(list)
    kept: dict[str, list[Pair]] = defaultdict(list)
    for pair in found:
        (kept if pair.source == pair.target else changed)[split(pair.source)].append(pair)
    changed["train"] += kept["train"][: len(changed["train"])]
    for name, pairs in changed.items():
        write_lines(folder / f"{name}.en", [pair.source for pair in pairs])
        write_lines(folder / f"{name}.{language}", [pair.target for pair in pairs])
        print(f"{name}: {len(pairs)} names")
    write_lines(folder / f"reference.{language}", [pair.target for pair in changed["test"]])


def name_pairs(language: str) -> list[Pair]:
    """Return the names with a translation, one each, if both have at most :data:`LONGEST` characters."""
    return unique(pair for pair in map(capitalised, names(language)) if 0 < max(map(len, pair)) <= LONGEST)


def names(language: str) -> Iterator[Pair]:
    """Yield names of countries, regions, languages, scripts and currencies from ISO and CLDR, and of CLDR's units."""
    for catalog in sorted(Path(pycountry.LOCALES_DIR, language, "LC_MESSAGES").glob("*.mo")):
        with catalog.open("rb") as stream:
            yield from (Pair(message.id, message.string) for message in read_mo(stream))
    english, other = (
        (locale.territories, locale.languages, locale.scripts, locale.variants, locale.currencies, units(locale))
        for locale in (Locale("en"), Locale(language))
    )
    for sources, targets in zip(english, other, strict=True):
        yield from (Pair(sources[key], targets[key]) for key in sources.keys() & targets.keys())


def units(locale: Locale) -> dict[str, str]:
    """Return the long names of units by key."""
    return {key: names["long"] for key, names in locale.unit_display_names.items() if "long" in names}


def capitalised(pair: Pair) -> Pair:
    """Return a pair of clean texts with capital initials, as ISO has them, and CLDR in some languages."""
    return Pair(*(text[:1].upper() + text[1:] for text in map(clean, pair)))


def split(source: str) -> str:
    """Return the set of a source. Only its words decide, in any order: South Ndebele; Ndebele, South."""
    number = hashlib.sha256(" ".join(sorted(words(source))).encode()).digest()[0]
    return "test" if number < HELD_OUT else "valid" if number < 2 * HELD_OUT else "train"


def words(text: str) -> list[str]:
    """Return the words in lower case, without punctuation."""
    return re.findall(r"\w+", text.lower())


if __name__ == "__main__":
    main()
