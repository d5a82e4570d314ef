"""The pages use the words of the field, one for each thing, and short sentences."""

import re

import pytest
from corpus import ROOT

FOLDERS = "docs", "examples", "benchmarks", "fairseq_attnvariants_run"
FILES = [path for path in ROOT.glob("*.md") if path.name != "CHANGELOG.md"]
FILES += [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.md")]
PAGES = {path.relative_to(ROOT).as_posix(): path for path in sorted(FILES)}
LONGEST = 22  # words a sentence may have on average

OTHER_RATES = "learning|error|sampling|decay|dropout|frame|clock"
WORDS = {  # what not to write, and what instead
    r"(?<!instead\s)of (?:one's|your|their|its|our|my) own": "your own, separate, custom",
    r"in the place of": "instead of",
    r"made-up": "synthetic",
    "beside": "with, next to, compared with",
    r"stands?(?!\s+for|-)|standing|stood": "is, are",
    r"but for": "except",
    r"trained out": "full schedule",
    r"(?:\d|one|two|three|four|five|some|few) pass(?:es)?": "epoch",
    r"pieces?": "subword",
    rf"(?<!-)(?!(?:{OTHER_RATES}))\w+ rates?(?!\s+of\b)": "learning rate",
    r"(?:words|layers|units|pairs|sentences|symbols|one|\d+) a (?:side|line)": "per side, per line",
    r"memory of earlier attention": "attention history",
    r"references? (?:decoded|forced)|words decoded": "forced decoding",
    r"words that can come": "vocabulary shortlist",
    r"level with": "no relevant difference",
    r"levers?": "setting",
    r"entered": "registered",
}
OPENING = r"(?:(?<=[.!?:]\s)|(?<=\n)|(?<=\n-\s))(?:Of (?:those|these|what|several)|Those (?:that|of)|What [^?.]*[.])"


def prose(text):
    """A page without code, addresses and comments, in as many lines."""
    hidden = r"^```.*?^```|<!--.*?-->|`[^`]*`|(?<=\])\([^)]*\)|<[^>\s][^>]*>"
    return re.sub(hidden, lambda match: "`" + "\n" * match[0].count("\n"), text, flags=re.M | re.S)


def wrong_words(text):
    """Line, words and what to write instead of them."""
    patterns = {rf"(?i:\b(?:{pattern})\b)": instead for pattern, instead in WORDS.items()}
    return sorted(
        (text.count("\n", 0, match.start()) + 1, " ".join(match[0].split()), instead)
        for pattern, instead in {**patterns, OPENING: "subject and verb first"}.items()
        for match in re.finditer(pattern.replace(" ", r"\s+"), text)
    )


def sentence_length(text):
    """Words of a sentence, on average, outside of tables and headings; 0 of a page without sentences."""
    text = re.sub(r"^(?:#|\||\s*!?\[[^\]]*\]`$).*$", "", text, flags=re.M)
    text = re.sub(r"\*\*(?:\S+ ?){1,4}[.:]\*\*", "", text)  # names of paragraphs
    blocks = re.split(r"\n\s*\n|\n\s*(?=[-*:] |\d+\. )", text)
    sentences = [sentence for block in blocks for sentence in re.split(r"(?<=[.!?])[*)\"]*\s+", block)]
    counts = [len(re.findall(r"\S*[\w`]\S*", sentence)) for sentence in sentences]
    counts = [count for count in counts if count > 1]
    return sum(counts) / len(counts) if counts else 0


def test_what_is_read():
    """Prose alone, with line numbers, also of phrases over two lines."""
    page = "# Beside\n\nA word in the\nplace of `beside`.\n\n```bash\nbeside\n```\nThe rate, the learning rate.\n"
    assert [words for *words, _ in wrong_words(prose(page))] == [[1, "Beside"], [3, "in the place of"], [9, "The rate"]]
    assert wrong_words("Good.\n\n- Those that fail.\n")[0][:2] == (3, "Those that")
    assert (
        sentence_length(
            "# Head\n\n| a | b |\n\n**Name.** One two three.\nOne two\nthree four five.\n- one two\n- three four\n"
        )
        == 3
    )


@pytest.mark.parametrize("page", PAGES)
def test_words(page):
    found = wrong_words(prose(PAGES[page].read_text()))
    told = "\n".join(f"{page}:{line}: {words!r}: write {instead}" for line, words, instead in found)
    assert not found, f"\n{told}"


@pytest.mark.parametrize("page", PAGES)
def test_sentences(page):
    average = sentence_length(prose(PAGES[page].read_text()))
    assert average <= LONGEST, f"{page}: {average:.1f} words a sentence, {LONGEST} at most"
