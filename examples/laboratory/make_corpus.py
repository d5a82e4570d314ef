"""Write a parallel corpus of a synthetic language, with the correct links of all words.

    python make_corpus.py quickstart FOLDER
    python make_corpus.py order|twins|counts|length|sides|rare|cipher|facts FOLDER [--train N] [--test N] [--seed N]

Target words show their source words, so that a picture of attention is easy to read: ``dog`` becomes ``dogo``, ``red``
``redi`` and ``saw`` ``sawum``. In the quickstart, adjectives follow their noun, the verb comes last, articles have no
translation, and the translation repeats a plural noun. Each other task has a dial. At its first value a mechanism is
not needed, at its last value it is; ``tasks/`` has the predictions. The training text of a task mixes all values of its
dial, and each value has a test set: ``test``, ``test1``, ``test2``, ...

All files have one line per sentence. ``.src`` and ``.tgt`` have the text. ``.links`` has pairs ``i-j`` of linked source
and target words, counted from 0. ``.fertilities`` has the number of target words that each source word is linked to.
``.sides`` has what decides each target word, ``source`` or ``target``. For some words it has another label instead of
``source``: ``rare`` for a word that is rare in training, ``cognate`` for one that is spelt after its source word,
``name`` for a name, which is the same in both languages, and ``sooner`` or ``later`` for a word that comes sooner or
later than its source word.
"""

import argparse
import random
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

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
TARGET = {
    word: word + ending
    for words, ending in ((NOUNS, "o"), (ADJECTIVES, "i"), (VERBS, "um"), (PLACES, "u"))
    for word in words
}
WORDS = list(TARGET)


class Word(NamedTuple):
    """A target word."""

    text: str
    links: tuple[int, ...] = ()  # numbers of the source words that it translates, from 0
    side: str = "source"


class Pair(NamedTuple):
    """A sentence or a phrase, and its translation."""

    source: list[str]
    target: list[Word]


def arrange(parts: Sequence[Pair], order: Sequence[int]) -> Pair:
    """Return the parts one after the other, with their translations in this ``order`` of the parts' numbers."""
    source: list[str] = []
    starts = []
    for part in parts:
        starts.append(len(source))
        source += part.source
    target = [
        word._replace(links=tuple(starts[k] + link for link in word.links)) for k in order for word in parts[k].target
    ]
    return Pair(source, target)


def translated(words: Sequence[str]) -> Pair:
    """Return the words and their translations, word by word."""
    return Pair([*words], [Word(TARGET[word], (j,)) for j, word in enumerate(words)])


# quickstart and length


def noun_phrase(rng: random.Random) -> Pair:
    """A phrase such as ``the red dogs``: ``dogo dogo redi``."""
    noun, adjectives = rng.choice(NOUNS), rng.sample(ADJECTIVES, rng.choice([0, 0, 1, 1, 2]))
    plural = rng.random() < 0.3
    source = [rng.choice(["the", "some"] if plural else ["the", "this"]), *adjectives, noun + "s" * plural]
    target = [Word(TARGET[noun], (len(source) - 1,))] * (1 + plural)
    return Pair(source, target + [Word(TARGET[word], (j,)) for j, word in enumerate(adjectives, start=1)])


def clause(rng: random.Random) -> Pair:
    """A clause such as ``the red dogs saw this tree near the house``: ``dogo dogo redi houseo nearu treeo sawum``."""
    subject, thing, verb = noun_phrase(rng), noun_phrase(rng), rng.choice(VERBS)
    parts, order = [subject, translated([verb]), thing], [0, 2, 1]
    if rng.random() < 0.5:
        place, where = rng.choice(PLACES), noun_phrase(rng)
        parts, order = [*parts, translated([place]), where], [0, 4, 3, 2, 1]
    return arrange(parts, order)


LONGEST = 20  # source words of a training sentence of the task length


def phrases(rng: random.Random, least: int, most: int) -> Pair:
    """Noun phrases with prepositions between them, ``least`` to ``most`` source words, translated in the same order."""
    while True:
        pair = noun_phrase(rng)
        while len(pair.source) < least:
            pair = arrange([pair, translated([rng.choice(PLACES)]), noun_phrase(rng)], range(3))
        if len(pair.source) <= most:
            return pair


def length(rng: random.Random, times: float, training: bool) -> Pair:
    """Phrases such as ``the red dogs near this house``: up to 20 words in training, 20 times ``times`` in a test."""
    exactly = round(LONGEST * times)
    return phrases(rng, rng.randint(5, LONGEST), LONGEST) if training else phrases(rng, exactly, exactly)


# order, twins, counts


def order(rng: random.Random, distance: int, training: bool) -> Pair:
    """A sentence whose two words after "take" are translated at "put", ``distance`` words to the left or to the right.

    For example, ``dog take red old cat saw near put king`` becomes ``dogo cato sawum nearu redi oldi kingo``.
    """
    words = rng.sample(WORDS, rng.randint(11, 13))
    rest = words[2:]
    start = rng.randint(0, len(rest) - distance)
    parts = (rest[:start], rest[start : start + distance], rest[start + distance :])
    left, between, right = map(translated, parts)
    later = rng.random() < 0.5
    side = "source" if distance == 0 else "later" if later else "sooner"
    taken = Pair(["take", *words[:2]], [Word(TARGET[word], (j,), side) for j, word in enumerate(words[:2], 1)])
    put = Pair(["put"], [])
    if later:
        return arrange([left, taken, between, put, right], [0, 2, 1, 4])
    return arrange([left, put, between, taken, right], [0, 3, 2, 4])


def twins(rng: random.Random, distinct: str, training: bool) -> Pair:
    """A sentence of 4 to 20 words, 21 or 22 in a test, translated word by word, with ``distinct`` different words."""
    count = rng.randint(4, 20) if training else rng.randint(21, 22)
    several = rng.sample(WORDS, count if distinct == "all" else min(count, int(distinct)))
    words = several + rng.choices(several, k=count - len(several))
    rng.shuffle(words)
    return translated(words)


FERTILITIES = {word: (1, 2, 1, 3, 1, 4, 1, 0)[k % 8] for k, word in enumerate(WORDS)}
COUNTS = ["", "", "two", "three", "four"]


def counts(rng: random.Random, most: int, training: bool) -> Pair:
    """A sentence of 2 to 7 words, 8 in a test, each translated 0 to ``most`` times.

    A count word before a word, or else the word itself, decides how many times. For example, ``three dog horse king``
    becomes ``dogo dogo dogo horseo horseo horseo``.
    """
    several = rng.randint(2, 7) if training else 8
    parts = []
    for word in rng.sample([word for word in WORDS if FERTILITIES[word] <= most], several):
        times, count = FERTILITIES[word], []
        if times == 1 and most > 1 and rng.random() < 0.5:
            times = rng.randint(2, most)
            count = [COUNTS[times]]
        links = tuple(range(1 + len(count)))
        parts.append(Pair([*count, word], [Word(TARGET[word], links)] * times))
    return arrange(parts, range(several))


# sides

PARTICLES = [consonant + vowel for consonant in "kmst" for vowel in "aeiu"]
AGREEING, PLAIN = WORDS[:16], WORDS[16:]


def sides(rng: random.Random, share: int, training: bool) -> Pair:
    """A sentence of 8 or 12 words, 16 in a test, with particles as ``share`` percent of its translation.

    A particle follows each word of :data:`AGREEING`. The first particle is that of the first source word. Each other
    one follows the previous particle in the circle of :data:`PARTICLES`, however far apart they are. For example,
    ``from-ki dog near cat`` becomes ``dogo ki nearu cato ku``.
    """
    count = rng.choice([8, 12]) if training else 16
    agreeing = round(count * share / (100 - share))
    words = rng.sample(AGREEING, agreeing) + rng.sample(PLAIN, count - agreeing)
    rng.shuffle(words)
    place = first = rng.randrange(len(PARTICLES))
    target: list[Word] = []
    said = False
    for j, word in enumerate(words, start=1):
        target.append(Word(TARGET[word], (j,)))
        if word in AGREEING:
            particle = PARTICLES[place % len(PARTICLES)]
            place += 1
            target.append(Word(particle, side="target") if said else Word(particle, (0,)))
            said = True
    return Pair(["from-" + PARTICLES[first], *words], target)


# rare

SEEN = (1, 2, 5, 20)
RARE_WORDS = 40  # words of each frequency


def rare_word(seen: int, k: int) -> tuple[Word, str]:
    """Return the translation of the kth word that training has ``seen`` times, and the word, which is not similar."""
    return Word(f"a{seen}o{37 * k % 100}", (0,), "rare"), f"rare{seen}-{k}"


def with_another(rng: random.Random, word: Word, source: str) -> Pair:
    """A sentence of five to seven words by Zipf's law and another word. Translated adjectives follow their noun."""
    weights = [1 / (k + 1) for k in range(len(WORDS))]
    words = rng.choices(WORDS, weights, k=rng.randint(5, 7))
    parts = [translated([word]) for word in words]
    parts.insert(rng.randint(0, len(words)), Pair([source], [word]))
    order = list(range(len(parts)))
    for k in range(len(parts) - 1):
        if parts[k].source[0] in ADJECTIVES and parts[k + 1].source[0] in NOUNS:
            order[k], order[k + 1] = order[k + 1], order[k]
    return arrange(parts, order)


def rare_training(rng: random.Random, count: int) -> list[Pair]:
    """Return training sentences: each rare word occurs ``seen`` times; the others have frequent words only."""
    rare = [rare_word(seen, k) for seen in SEEN for k in range(RARE_WORDS) for _ in range(seen)]
    pairs = [with_another(rng, *word) for word in rare]
    while len(pairs) < count:
        word = rng.choice(WORDS)
        pairs.append(with_another(rng, Word(TARGET[word], (0,)), word))
    rng.shuffle(pairs)
    return pairs


def rare_test(rng: random.Random, seen: int, count: int) -> list[Pair]:
    """Return test sentences, each with one of the words that training has ``seen`` times, in turn."""
    return [with_another(rng, *rare_word(seen, k % RARE_WORDS)) for k in range(count)]


# cipher

VOWELS, CONSONANTS = "aeiou", "bdfgklmnprst"
LETTERS = {a: b for row in (VOWELS, CONSONANTS) for a, b in zip(row, row[2:] + row[:2])}


def stem(rng: random.Random) -> str:
    """Return two or three random syllables."""
    return "".join(rng.choice(CONSONANTS) + rng.choice(VOWELS) for _ in range(rng.randint(2, 3)))


def unrelated() -> list[tuple[str, str]]:
    """Return thirty words, with translations that are not similar to them."""
    rng = random.Random(0)
    return [(stem(rng) + "sh", stem(rng) + "ch") for _ in range(30)]


def in_training(stem: str) -> bool:
    """Return whether a stem is for training. The other stems are for tests."""
    return sum(map(ord, stem)) % 5 > 0


def cipher(rng: random.Random, share: int, training: bool) -> Pair:
    """A sentence of four words, ``share`` percent of them cognates: letters mapped one by one, and another suffix."""
    kinds = [k < 4 * share / 100 for k in range(4)]
    rng.shuffle(kinds)
    source, target = [], []
    for j, cognate in enumerate(kinds):
        if cognate:
            letters = stem(rng)
            while in_training(letters) != training:
                letters = stem(rng)
            source.append(letters + "en")
            target.append(Word("".join(LETTERS[letter] for letter in letters) + "ax", (j,), "cognate"))
        else:
            one, other = rng.choice(unrelated())
            source.append(one)
            target.append(Word(other, (j,)))
    return Pair(source, target)


# facts

NAMES = 120  # training has all in reports, and every second one in summaries


def facts(rng: random.Random, share: int, training: bool) -> Pair:
    """A report of three events and a summary of today's. In tests, ``share`` percent of summaries have new names."""
    news = rng.randrange(3)
    source: list[str] = []
    target: list[Word] = []
    for k in range(3):
        number = rng.randrange(NAMES)
        if k == news:
            number = number // 2 * 2 + (not training and 100 * rng.random() < share)
        name, (verb, adjective, noun), place = f"ann{number}", map(rng.choice, (VERBS, ADJECTIVES, NOUNS)), len(source)
        source += ["today" if k == news else "once", name, verb, adjective, noun]
        if k == news:
            target = [Word(name, (place + 1,), "name")]
            target += [Word(TARGET[source[j]], (j,)) for j in (place + 4, place + 3, place + 2)]
    return Pair(source, target)


# all tasks


class Task(NamedTuple):
    """The dial of a task, and the functions that make its sentences."""

    dial: tuple[Any, ...]  # at the first value the mechanism is not needed, at the last it is
    train: Callable[[random.Random, int], list[Pair]]  # returns this number of sentences
    test: Callable[[random.Random, Any, int], list[Pair]]  # the same for a value of the dial


def mixed(dial: tuple[Any, ...], sentence: Callable[[random.Random, Any, bool], Pair]) -> Task:
    """Return a task whose training text has all values of the dial equally often."""
    return Task(
        dial,
        lambda rng, count: [sentence(rng, dial[k % len(dial)], True) for k in range(count)],
        lambda rng, value, count: [sentence(rng, value, False) for _ in range(count)],
    )


TASKS = {
    "quickstart": mixed((0,), lambda rng, value, training: clause(rng)),
    "order": mixed((0, 2, 4, 8), order),
    "twins": mixed(("all", 4, 2), twins),
    "counts": mixed((1, 2, 3, 4), counts),
    "length": mixed((1, 1.1, 1.25, 1.5), length),
    "sides": mixed((0, 20, 33, 50), sides),
    "rare": Task(SEEN[::-1], rare_training, rare_test),
    "cipher": mixed((0, 50, 100), cipher),
    "facts": mixed((0, 50, 100), facts),
}


def write(prefix: Path, pairs: Sequence[Pair]) -> None:
    """Write a text with its links, fertilities and sides."""
    fertilities = [Counter(link for word in pair.target for link in word.links) for pair in pairs]
    columns: dict[str, list[list[str]]] = {
        "src": [pair.source for pair in pairs],
        "tgt": [[word.text for word in pair.target] for pair in pairs],
        "links": [[f"{i}-{j}" for j, word in enumerate(pair.target) for i in word.links] for pair in pairs],
        "fertilities": [[str(has[j]) for j in range(len(pair.source))] for pair, has in zip(pairs, fertilities)],
        "sides": [[word.side for word in pair.target] for pair in pairs],
    }
    for suffix, lines in columns.items():
        Path(f"{prefix}.{suffix}").write_text("".join(" ".join(line) + "\n" for line in lines), encoding="utf-8")


def main() -> None:
    """Write ``{train,valid,test,test1,...}.{src,tgt,links,fertilities,sides}``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=TASKS)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--train", type=int, default=2000, help="sentences (default: %(default)s)")
    parser.add_argument("--test", type=int, default=100, help="sentences of each test set, and of validation")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    rng, task = random.Random(options.seed), TASKS[options.task]
    least = sum(SEEN) * RARE_WORDS
    if options.task == "rare" and options.train < least:
        parser.error(f"--train {options.train}: the rare words alone are in {least} sentences")
    options.folder.mkdir(parents=True, exist_ok=True)
    write(options.folder / "train", task.train(rng, options.train))
    write(options.folder / "valid", task.train(rng, options.test)[: options.test])
    for k, value in enumerate(task.dial):
        write(options.folder / f"test{k or ''}", task.test(rng, value, options.test))


if __name__ == "__main__":
    main()
