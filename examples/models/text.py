"""Rewrite the corpus as users write: ``text.py CORPUS OUT SOURCE TARGET``.

CORPUS has train, dev and test in Japanese (.ja) and English (.en), in words with spaces between them. Japanese loses
the spaces. Every tenth training pair loses the full stops of both sides, if both have one, because users forget them.
If Japanese is the source, another tenth has Japanese digits and signs in ASCII (NFKC), as many keyboards write them.
"""

import argparse
import sys
import unicodedata
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "common"))
from split import read_lines, write_lines  # noqa: E402

SPLITS = {"train": "train", "dev": "valid", "test": "test"}


def varied(number: int, japanese: str, english: str, source: str) -> tuple[str, str]:
    """Return a training pair, changed if its number is one of those to change."""
    if number % 10 == 1 and japanese.endswith("。") and english.endswith(" ."):
        return japanese[:-1], english[:-2]
    if number % 10 == 6 and source == "ja":
        return unicodedata.normalize("NFKC", japanese), english
    return japanese, english


def parsed(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """Read the command line, which ends in SOURCE and TARGET."""
    for name in ("source", "target"):
        parser.add_argument(name, choices=("ja", "en"), metavar=name.upper())
    options = parser.parse_args()
    if options.source == options.target:
        parser.error(f"SOURCE and TARGET are both {options.source}: one is ja, the other one en")
    return options


def main() -> None:
    """Write OUT/{train,valid,test}.{ja,en}."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path, metavar="CORPUS")
    parser.add_argument("out", type=Path, metavar="OUT")
    options = parsed(parser)
    for split, name in SPLITS.items():
        japanese, english = (read_lines(f"{options.corpus}/{split}.{language}") for language in ("ja", "en"))
        if len(japanese) != len(english):
            sys.exit(f"text.py: {options.corpus}/{split} has {len(japanese)} lines of ja and {len(english)} of en")
        pairs = [("".join(ja.split()), " ".join(en.split())) for ja, en in zip(japanese, english)]
        if name == "train":
            pairs = [varied(number, *pair, options.source) for number, pair in enumerate(pairs)]
        for language, lines in zip(("ja", "en"), zip(*pairs)):
            write_lines(options.out / f"{name}.{language}", lines)


if __name__ == "__main__":
    main()
