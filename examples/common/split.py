"""Divide parallel text into training, validation and test text: ``split.py [options] IN OUT LANGUAGE LANGUAGE``.

The script reads ``IN.LANGUAGE``, with one sentence per line, and writes ``OUT/train.LANGUAGE``, ``OUT/valid.LANGUAGE``
and ``OUT/test.LANGUAGE``. It keeps one of several equal pairs, and no pair with an empty side. No sentence of the
validation and test text, in either language and whatever its case, is in another text.
"""

import argparse
import random
import sys
from collections.abc import Iterable
from pathlib import Path


def read_lines(path: str) -> list[str]:
    """Return the lines of a text. Only line feeds end a line."""
    program = Path(sys.argv[0]).name
    try:
        text = Path(path).read_bytes().decode("utf-8-sig")
    except OSError as error:
        sys.exit(f"{program}: {path}: {error.strerror}")
    except UnicodeDecodeError as error:
        number = error.object.count(b"\n", 0, error.start) + 1
        sys.exit(f"{program}: {path}, line {number}: not UTF-8: save it as UTF-8")
    return text.removesuffix("\n").split("\n") if text else []


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write a text, and its folder if it is not there."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")
    except OSError as error:
        sys.exit(f"{Path(sys.argv[0]).name}: {error.filename}: {error.strerror}")


def read_pairs(prefix: str, languages: list[str]) -> list[tuple[str, str]]:
    """Return the pairs without an empty side, each once, in the order of the text."""
    paths = [f"{prefix}.{language}" for language in languages]
    sides = [read_lines(path) for path in paths]
    if len(sides[0]) != len(sides[1]):
        sys.exit(f"split.py: {paths[0]} has {len(sides[0])} lines, and {paths[1]} has {len(sides[1])}")
    return [pair for pair in dict.fromkeys(zip(*sides)) if all(side.strip() for side in pair)]


def split(pairs: list[tuple[str, str]], sizes: dict[str, int], seed: int) -> dict[str, list[tuple[str, str]]]:
    """Return texts of these ``sizes``, drawn at random, and ``train``, the pairs that share no sentence with them."""
    drawn, texts = random.Random(seed).sample(range(len(pairs)), len(pairs)), {}
    for name, size in sizes.items():
        texts[name], taken = [pairs[number] for number in drawn[:size]], set()
        for pair in texts[name]:
            taken.update(enumerate(side.casefold() for side in pair))
        free = (number for number in drawn[size:] if taken.isdisjoint(enumerate(map(str.casefold, pairs[number]))))
        drawn = list(free)
    return {**texts, "train": [pairs[number] for number in sorted(drawn)]}


def main() -> None:
    """Write the three texts, and print how many pairs each has."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("in", "out"):
        parser.add_argument(name)
    parser.add_argument("languages", nargs=2)
    for name in ("valid", "test"):
        parser.add_argument(f"--{name}", type=int, default=1000, help="pairs of this text (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the draw (default: %(default)s)")
    options = vars(parser.parse_args())
    pairs = read_pairs(options["in"], options["languages"])
    sizes = {name: options[name] for name in ("test", "valid")}
    if min(sizes.values()) < 1:
        sys.exit("split.py: --valid and --test are numbers from 1 on")
    texts = split(pairs, sizes, options["seed"])
    if not texts["train"]:
        sys.exit(f"split.py: {len(pairs)} different pairs leave none to train: give smaller --valid and --test")
    out = Path(options["out"])
    if Path(options["in"]).resolve() in [(out / name).resolve() for name in texts]:
        sys.exit(f"split.py: {options['in']} would be replaced by a part of itself: give another OUT")
    for name, text in texts.items():
        for side, language in enumerate(options["languages"]):
            write_lines(out / f"{name}.{language}", (pair[side] for pair in text))
    counts = ", ".join(f"{len(texts[name])} {name}" for name in ("train", "valid", "test"))
    left = len(pairs) - sum(map(len, texts.values()))
    print(f"{len(pairs)} different pairs: {counts}; {left} left out, with a sentence of valid or test")
    if (kept := len(texts["train"])) < (drawn := sum(sizes.values())):
        few = f"split.py: warning: training keeps {kept} pairs, fewer than valid and test together ({drawn})"
        print(f"{few}: give smaller --valid and --test, or more text", file=sys.stderr)


if __name__ == "__main__":
    main()
