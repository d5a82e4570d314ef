"""Score an exported model on raw text: ``score.py CORPUS PACKAGE SOURCE TARGET``.

The package translates the test set as raw text. English is scored in the corpus's words, lowercased. Japanese is scored
in characters and in words. A bigram model of the training text splits the translations into words. The references keep
the corpus's words, so words that are split otherwise count as wrong. The first row shows how many these are: it scores
the references after the bigram model has split them. The other rows are all sentences, and those of which training has
neither side.
"""

import argparse
import math
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from sacrebleu.metrics import BLEU, CHRF, TER
from sacremoses import MosesDetokenizer, MosesTokenizer
from text import parsed, read_lines

LONGEST = 12  # characters in a Japanese word


class Segmenter:
    """Split Japanese text into words by a bigram model, which is trained on text in words."""

    def __init__(self, lines: Sequence[str]):
        sentences = [["", *line.split()] for line in lines]
        self.words = Counter(word for words in sentences for word in words)
        self.pairs = Counter(pair for words in sentences for pair in zip(words, words[1:]))
        self.total = sum(self.words.values())

    def log_probability(self, before: str, word: str) -> float:
        """Return a word's log-probability after another word. The only unknown words are single characters."""
        single = self.words[word] or (0.01 if len(word) == 1 else 0)
        paired = self.pairs[before, word] / max(1, self.words[before])
        return math.log(0.9 * paired + 0.1 * single / self.total) if single else -math.inf

    def __call__(self, text: str) -> str:
        """Return the most probable words of a text, with spaces between them."""
        best: list[dict[str, tuple[float, list[str]]]] = [{"": (0.0, [])}]  # at each position, by the last word
        for end in range(1, len(text) + 1):
            ends = {}
            for word in (text[begin:end] for begin in range(max(0, end - LONGEST), end)):
                found = (
                    (score + self.log_probability(before, word), [*words, word])
                    for before, (score, words) in best[end - len(word)].items()
                )
                ends[word] = max(found, key=lambda one: one[0], default=(-math.inf, []))
            best.append({word: one for word, one in ends.items() if one[0] > -math.inf})
        return " ".join(max(best[-1].values(), key=lambda one: one[0])[1])


def row(name: str, hypotheses: Sequence[str], references: Sequence[str]) -> str:
    """Return a line of the table: the number of sentences, BLEU, chrF2 and TER of symbols with spaces between them."""
    metrics = BLEU(tokenize="none", force=True), CHRF(), TER()
    values = [metric.corpus_score(list(hypotheses), [list(references)]).score for metric in metrics]
    return f"{name:<24} {len(references):>4} " + " ".join(f"{value:6.2f}" for value in values)


def main() -> None:
    """Translate the test set with the program in the package, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path, metavar="CORPUS")
    parser.add_argument("package", type=Path, metavar="PACKAGE")
    options = parsed(parser)
    target = options.target
    train, test = (
        {side: read_lines(f"{options.corpus}/{name}.{side}") for side in ("ja", "en")} for name in ("train", "test")
    )
    english = MosesDetokenizer("en")
    raw = {
        "ja": ["".join(line.split()) for line in test["ja"]],
        "en": [english.detokenize(line.split()) for line in test["en"]],
    }
    source = "\n".join(raw[options.source]) + "\n"
    command = [sys.executable, str(options.package / "translate.py")]
    done = subprocess.run(command, input=source.encode(), stdout=subprocess.PIPE)
    if done.returncode:  # its reason is on standard error
        sys.exit(f"score.py: {command[1]} ends with status {done.returncode}")
    found = done.stdout.decode().removesuffix("\n").split("\n")
    seen = {side: set(train[side]) for side in train}
    new = [k for k in range(len(found)) if not any(test[side][k] in seen[side] for side in seen)]
    if target == "en":
        tokenise = MosesTokenizer("en").tokenize
        scored = {"words": ([tokenise(line, return_str=True, escape=False) for line in found], test["en"])}
    else:
        split = Segmenter(train["ja"])
        characters = [[" ".join(line) for line in lines] for lines in (found, raw["ja"])]
        scored = {"words": ([split(line) for line in found], test["ja"]), "characters": characters}
    print(f"{'':<24} {'':>4} {'BLEU':>6} {'chrF2':>6} {'TER':>6}")
    if target == "ja":
        print(row("the reference's words", [split(line) for line in raw["ja"]], test["ja"]))
    for name, (hypotheses, references) in scored.items():
        print(row(f"{name}, all", hypotheses, references))
        if new:
            print(row(f"{name}, new to training", [hypotheses[k] for k in new], [references[k] for k in new]))


if __name__ == "__main__":
    main()
