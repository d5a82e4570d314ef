"""Measure translations of a synthetic language sentence by sentence, in percent.

    python measure.py CORPUS TRANSLATIONS...

CORPUS is what ``make_corpus.py`` has written, TRANSLATIONS are files ``SUBSET-NAME.hypothesis.txt``, as
``fairseq-attnvariants results`` leaves them in the folders of runs. Beside each of them comes a file for each measure,
with one number a sentence:

======== =============================================================================================================
exact    100 if all is right, or 0
prefix   words before the first error, of those of the reference and its end
kept     words of the reference that stand in the translation, as often as there (its complement: omissions)
fresh    words of the translation that the reference has, as often as there (its complement: repetitions, inventions)
jumps    neighbours in the translation that are neighbours in the reference, of those of the reference
source   words that stand in the translation, of those that the source decides
rare     the same of those that training has seldom
cognate  the same of those that are spelt after their source word
name     the same of names
sooner   as exact, of a sentence in which words are said sooner than they stand in the source
later    the same of words that are said later
particle neighbours among the particles of the translation that are neighbours among those of the reference, of these
======== =============================================================================================================

More is better everywhere. A sentence that has no such word has ``nan``, and does not count.
"""

import argparse
import math
from collections import Counter
from itertools import takewhile
from pathlib import Path
from typing import Dict, Hashable, List, Sequence

from make_corpus import PARTICLES

SUFFIX = ".hypothesis.txt"


def shared(found: Sequence[Hashable], expected: Sequence[Hashable]) -> int:
    """How many of the one are among the other, each as often as there at most."""
    return sum((Counter(found) & Counter(expected)).values())


def percent(part: int, whole: int) -> float:
    """A share; of nothing there is none."""
    return 100 * part / whole if whole else math.nan


def measures(found: Sequence[str], expected: Sequence[str], sides: Sequence[str]) -> Dict[str, float]:
    """The measures that the docstring of this file lists; ``sides`` say what decides each word of the reference."""
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


def read(path: Path) -> List[List[str]]:
    """The words of each line."""
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
