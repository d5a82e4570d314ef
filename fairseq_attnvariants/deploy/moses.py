"""Tables of the Moses tokeniser and truecaser for a package, because its runtime and page contain none."""

from collections.abc import Iterable
from typing import Any

from ..registry import ConfigurationError

CLASSES = {"alnum": "IsAlnum", "alpha": "IsAlpha", "lower": "IsLower", "number": "IsN", "currency": "IsSc"}


def ranges(characters: Iterable[str]) -> str:
    """A set of characters as a string: the first and last character of each range, one range after another."""
    ends: list[list[int]] = []
    for code in sorted(set(map(ord, characters))):
        if ends and code == ends[-1][1] + 1:
            ends[-1][1] = code
        else:
            ends.append([code, code])
    return "".join(chr(code) for pair in ends for code in pair)


def moses_tables(language: str) -> dict[str, Any]:
    """Return the rules of the Moses tokeniser and detokeniser for a language, from sacremoses.

    Raises:
        ConfigurationError: sacremoses is not installed, or the language is Finnish, whose detokeniser has other rules.
    """
    try:
        import sacremoses
        from sacremoses.util import CJKChars
    except ImportError as error:
        raise ConfigurationError("the Moses tokeniser needs sacremoses: pip install sacremoses") from error
    if language == "fi":
        raise ConfigurationError(
            "the Moses detokeniser for Finnish is not supported in a package: use another tokeniser"
        )
    tokenizer, detokenizer = sacremoses.MosesTokenizer(language), sacremoses.MosesDetokenizer(language)
    sets = {name: getattr(tokenizer, attribute, None) for name, attribute in CLASSES.items()}
    numeric = set(tokenizer.NUMERIC_ONLY_PREFIXES)
    prefixes = {prefix for prefix in tokenizer.NONBREAKING_PREFIXES if not tokenizer.has_numeric_only(prefix)}
    return {
        "language": language,
        **{name: ranges(characters or getattr(detokenizer, CLASSES[name])) for name, characters in sets.items()},
        "cjk": "".join(chr(code) for pair in CJKChars.ranges for code in pair),
        "prefixes": sorted(prefixes - numeric),
        "numeric": sorted(numeric),
    }


def truecase_table(path: str, lines: Iterable[str]) -> dict[str, str]:
    """The most frequent case of each word in a truecasing model of Moses, by the word in lower case.

    Args:
        path: the file or option that a refusal names
        lines: the lines of the model

    Raises:
        ConfigurationError: the lines are not those of a truecasing model.
    """
    counted: dict[str, dict[str, int]] = {}
    for number, line in enumerate(lines, start=1):
        fields = line.split()
        counts = [count.split("/")[0].strip("()") for count in fields[1::2]]
        if len(fields) % 2 or not all(count.isdecimal() for count in counts):
            raise ConfigurationError(
                f"{path}, line {number}: not a truecasing model, which has words with counts as in 'The (4/5) the (1)'"
            )
        for word, count in zip(fields[::2], counts):
            counted.setdefault(word.lower(), {})[word] = int(count)
    return {lower: max(cases, key=cases.__getitem__) for lower, cases in counted.items()}
