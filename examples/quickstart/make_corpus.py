"""Write a small parallel corpus of a made-up language, for the quickstart in the README.

    python make_corpus.py FOLDER

Its target words show where they come from, so that a picture of attention can be read at a glance: ``dog`` is ``dogo``,
``red`` is ``redi`` and ``saw`` is ``sawum``. What a translation has to learn is order and fertility: adjectives follow
their noun, the verb comes last, articles have no translation, and a noun in the plural is said twice.
"""

import random
import sys
from pathlib import Path
from typing import List, Tuple

NOUNS = [
    "dog",
    "cat",
    "bird",
    "horse",
    "ball",
    "tree",
    "house",
    "king",
    "farmer",
    "teacher",
    "river",
    "garden",
    "song",
    "letter",
]
ADJECTIVES = ["red", "small", "old", "quick", "green", "happy", "tall", "quiet"]
VERBS = ["saw", "found", "liked", "heard", "followed", "painted"]
PLACES = ["near", "behind", "above", "under"]
SIZES = {"train": 2000, "valid": 100, "test": 100}

Pair = Tuple[List[str], List[str]]  # source and target words


def noun_phrase(rng: random.Random) -> Pair:
    """Such as ``the red dogs``: ``dogo dogo redi``."""
    noun, adjectives = rng.choice(NOUNS), rng.sample(ADJECTIVES, rng.choice([0, 0, 1, 1, 2]))
    plural = rng.random() < 0.3
    source = [rng.choice(["the", "some"] if plural else ["the", "this"]), *adjectives, noun + "s" * plural]
    return source, [noun + "o"] * (1 + plural) + [word + "i" for word in adjectives]


def sentence(rng: random.Random) -> Pair:
    """Such as ``the red dogs saw this tree near the house``: ``dogo dogo redi houseo nearu treeo sawum``."""
    subject, thing, verb = noun_phrase(rng), noun_phrase(rng), rng.choice(VERBS)
    source, target = [*subject[0], verb, *thing[0]], [*thing[1], verb + "um"]
    if rng.random() < 0.5:
        place, where = rng.choice(PLACES), noun_phrase(rng)
        source, target = [*source, place, *where[0]], [*where[1], place + "u", *target]
    return source, [*subject[1], *target]


def main(folder: Path) -> None:
    """Write ``{train,valid,test}.{src,tgt}``."""
    rng = random.Random(1)
    folder.mkdir(parents=True, exist_ok=True)
    for split, size in SIZES.items():
        pairs = [sentence(rng) for _ in range(size)]
        for side, suffix in enumerate(("src", "tgt")):
            lines = "".join(" ".join(pair[side]) + "\n" for pair in pairs)
            (folder / f"{split}.{suffix}").write_text(lines, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
