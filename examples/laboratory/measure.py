"""Measure translations of a synthetic language sentence by sentence, in percent.

    python measure.py CORPUS TRANSLATIONS...

CORPUS was made by ``make_corpus.py``. TRANSLATIONS are files ``SUBSET-NAME.hypothesis.txt``, which
``fairseq-attnvariants results`` writes to the folders of runs. Next to each of them, the script writes one file per
measure, with one number per sentence:

======== =============================================================================================================
exact    100 if the translation equals the reference, else 0
prefix   words before the first error, as a share of the reference's words and end of sentence
kept     share of the reference's words that the translation has (the rest: omissions)
fresh    share of the translation's words that the reference has (the rest: repetitions and inventions)
jumps    share of the reference's pairs of neighbours, with both ends, that are neighbours in the translation
source   as kept, for the words that the source decides
rare     as kept, for words that are rare in training
cognate  as kept, for words that are spelt after their source word
name     as kept, for names
sooner   as exact, for sentences in which words come sooner than in the source
later    as exact, for sentences in which words come later than in the source
particle as jumps, for the sequence of particles alone, without both ends
======== =============================================================================================================

More is better for all measures. A repeated word counts as often as both sentences have it. A sentence without such
words has ``nan``, and does not count.
"""

import argparse
import math
from collections import Counter
from collections.abc import Hashable, Sequence
from itertools import takewhile
from pathlib import Path

from make_corpus import PARTICLES

SUFFIX = ".hypothesis.txt"


def shared(found: Sequence[Hashable], expected: Sequence[Hashable]) -> int:
    """Return the size of the multiset intersection of both sequences."""
    return sum((Counter(found) & Counter(expected)).values())


def percent(part: int, whole: int) -> float:
    """Return a share in percent, or NaN if the whole is 0."""
    return 100 * part / whole if whole else math.nan


def measures(found: Sequence[str], expected: Sequence[str], sides: Sequence[str]) -> dict[str, float]:
    """Return the measures of this file's docstring. ``sides`` has what decides each word of the reference."""
    ended, wanted = [*found, "</s>"], [*expected, "</s>"]
    right = len(list(takewhile(lambda pair: pair[0] == pair[1], zip(ended, wanted))))
    pairs = [list(zip(["<s>", *words], words)) for words in (ended, wanted)]
    decided = [word for word, which in zip(expected, sides) if which != "target"]
    said = [[word for word in words if word in PARTICLES] for words in (found, expected)]
    particles = [list(zip(words, words[1:])) for words in said]
    own = {side: [word for word, which in zip(expected, sides) if which == side] for side in {*sides}}
    result = {
        "exact": 100.0 * (list(found) == list(expected)),
        "prefix": percent(right, len(wanted)),
        "kept": percent(shared(found, expected), len(expected)),
        "fresh": percent(shared(found, expected), len(found)),
        "jumps": percent(shared(*pairs), len(pairs[1])),
        "source": percent(shared(found, decided), len(decided)),
        "particle": percent(shared(*particles), len(particles[1])),
    }
    for side in ("rare", "cognate", "name"):
        result[side] = percent(shared(found, own.get(side, [])), len(own.get(side, [])))
    for side in ("sooner", "later"):
        result[side] = result["exact"] if side in own else math.nan
    return result


def read(path: Path) -> list[list[str]]:
    """Return the words of each line."""
    with path.open(encoding="utf-8", newline="\n") as lines:
        return [line.split() for line in lines]


def main() -> None:
    """Write a file for each translation and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path, metavar="CORPUS")
    parser.add_argument("translations", type=Path, nargs="+", metavar="TRANSLATIONS")
    options = parser.parse_args()
    for path in options.translations:
        if not path.name.endswith(SUFFIX):
            parser.error(f"{path}: the name must end in {SUFFIX}, as results writes it")
        subset = path.name.partition("-")[0]
        sides, expected = (read(options.corpus / f"{subset}.{suffix}") for suffix in ("sides", "tgt"))
        numbers = [measures(*sentence) for sentence in zip(read(path), expected, sides, strict=True)]
        for name in numbers[0]:
            lines = "".join(f"{one[name]:.4f}\n" for one in numbers)
            path.with_name(path.name.removesuffix(SUFFIX) + f".{name}").write_text(lines)


if __name__ == "__main__":
    main()
