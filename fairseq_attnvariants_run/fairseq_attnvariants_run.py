"""Translate with a package that ``fairseq-attnvariants export`` wrote; needs only numpy and onnxruntime.

In Python ``Translator(DIR).translate(["a sentence"])``; on the command line ``python DIR/translate.py FILE > out``, or
``--serve PORT``. FORMAT.md describes a package. Nothing in a package is executed. The model's hash and its
operators are checked before onnxruntime reads it.
"""

import argparse
import contextlib
import errno
import functools
import hashlib
import json
import os
import re
import signal
import stat
import sys
import threading
import time
import unicodedata
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

try:
    import numpy as np
    import onnxruntime
except ImportError as error:
    if __name__ != "__main__":
        raise
    sys.exit(f"error: {error.name} is not installed: pip install numpy onnxruntime")

__version__ = "0.3.1"

FORMATS = 1, 2  # the second has features
BATCH = 40  # sentences in a batch
OPERATORS = {"DynamicQuantizeMatMul", "MatMulIntegerToFloat", "MatMulNBits"}  # of com.microsoft; all of ai.onnx
INPUTS = {"source", "beam", "max_len", "min_len", "unkpen"}
OUTPUTS = {  # of the graph, with the kinds of their numbers
    **dict.fromkeys(["words", "parents", "ended_parents"], "i"),
    **dict.fromkeys(["scores", "ended_scores", "attention"], "f"),
    "ended": "b",
}
NOT_AS_DESCRIBED = "the model's outputs are not what FORMAT.md describes"
LARGEST_FILE = 2**31 - 1  # what protobuf can read
LARGEST_MANIFEST = 2**24
LONGEST_LINE = 20_000  # characters
LONGEST_WORD = 1_000  # characters; merges of a word take quadratic time
LONGEST_TAG = 100  # characters of a feature in a message
LARGEST_ATTENTION = 2**28  # weights of one batch, if every translation has the greatest length: 1 GiB
NESTED = 32  # graphs inside of graphs
EOS = "</s>"


class PackageError(Exception):
    """A package is damaged, unsafe or of another format."""


class SentenceError(ValueError):
    """A sentence cannot be translated, or an option or a file cannot be used."""


def first_line(error: Exception) -> str:
    """The first line of an error's message, or its name."""
    return (str(error) or type(error).__name__).splitlines()[0]


# ---------------------------------------------------------------------------------------------------- reading a package


def varint(data: memoryview, at: int) -> tuple[int, int]:
    """Return the protobuf number that starts at ``at``, and the position after it."""
    value = 0
    for shift in range(0, 70, 7):
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
    raise IndexError


def fields(data: memoryview) -> Iterator[tuple[int, Any]]:
    """Yield number and value of each field of a protobuf message; a value is an integer, or bytes, as of a message.

    Raises:
        IndexError: the data ends too early, or is no message.
    """
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        wire = key & 7
        if wire == 0:
            value: Any
            value, at = varint(data, at)
        else:
            size = {1: 8, 5: 4}.get(wire, LARGEST_FILE)  # ONNX has no groups
            if wire == 2:
                size, at = varint(data, at)
            value, at = data[at : at + size], at + size
        if key >> 32 or at > len(data):
            raise IndexError
        yield key >> 3, value


# the messages of ONNX which can contain operators or tensors: fields and their contents (onnx.proto)
MESSAGES = {
    "model": {7: "graph", 8: "opset"},
    "graph": {1: "node", 5: "tensor", 15: "sparse tensor"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse tensor", 23: "sparse tensor"},
    "sparse tensor": {1: "tensor", 2: "tensor"},
    "tensor": {},
    "opset": {},
}
REFUSED = {("model", 20): "training information", ("model", 25): "functions", ("tensor", 13): "external data"}


def operators(data: memoryview, message: str = "model", depth: int = 0) -> Iterator[str]:
    """Yield the operators of an ONNX model and its nested graphs, such as ``MatMul``, ``com.microsoft::MatMulNBits``.

    Raises:
        PackageError: the model has external data, functions, training information, foreign domains or operators, or
            graphs that are nested too deep.
    """
    if depth > 4 * NESTED:
        raise PackageError(f"graphs are nested more than {NESTED} deep")
    domains, names = [""], []
    for number, value in fields(data):
        if (message, number) in REFUSED or ((message, number) == ("tensor", 14) and value):
            raise PackageError(f"it has {REFUSED.get((message, number), 'external data')}, which is refused")
        if isinstance(value, int):
            continue
        if (message, number) in {("node", 7), ("opset", 1)}:
            domains.append(bytes(value).decode())
        elif (message, number) == ("node", 4):
            names.append(bytes(value).decode())
        elif number in MESSAGES[message]:
            yield from operators(value, MESSAGES[message][number], depth + 1)
    for domain in domains:
        if domain not in ("", "ai.onnx", "com.microsoft"):
            raise PackageError(f"it uses the domain {domain!r}; only ai.onnx and com.microsoft are allowed")
    for name in names:
        foreign = "com.microsoft" in domains
        if foreign and name not in OPERATORS:
            raise PackageError(f"it uses com.microsoft::{name}; of com.microsoft only {', '.join(sorted(OPERATORS))}")
        yield f"com.microsoft::{name}" if foreign else name


FIELDS: dict[str, tuple] = {  # of manifest.json: the fields that are read here, with types or values
    **{f"{side}.units": ("words", "spaced", "characters", "graphemes", "decomposed") for side in ("source", "target")},
    **{f"{side}.{name}": (str,) for side in ("source", "target") for name in ("symbols", "fingerprint")},
    "source.end": (list,),
    "source.features": (..., int),  # missing if sources have no features
    "source.features_after": (..., bool),
    **{f"special.{name}": (int,) for name in ("pad", "eos", "unk")},
    **{f"search.{name}": (int,) for name in ("beam", "min_len", "largest_beam", "largest_source", "largest_target")},
    **{f"search.{name}": (int, float) for name in ("lenpen", "unkpen", "max_len_a", "max_len_b")},
    "search.normalize": (bool,),
    "text.lowercase": (bool,),
    "text.tokenizer": (None, "none", ("kind", "moses")),
    "text.truecase": (None, dict),
    "text.bpe": (None, ("kind", "subword-nmt")),
    "copies": (bool,),
    "graph.operators": (list,),
    "files": (dict,),
}
LARGEST_NUMBER = 1e9


class Files:
    """The files of a package; reads only files in this folder that ``manifest.json`` describes.

    Raises:
        PackageError: there is no manifest, or it has another format.
    """

    def __init__(self, folder: str | os.PathLike):
        self.folder = Path(folder)
        self.manifest: dict[str, Any] = self._parsed("manifest.json", self._bytes("manifest.json", LARGEST_MANIFEST))
        found = self.manifest.get("format") if isinstance(self.manifest, dict) else None
        if found not in FORMATS:
            known = " and ".join(map(str, FORMATS))
            self.refuse("manifest.json", f"its format is {found!r}, and this program reads {known}")
        for name, allowed in FIELDS.items():
            value: Any = self.manifest
            for part in name.split("."):
                value = value.get(part, ...) if isinstance(value, dict) else ...
            value = ("kind", value["kind"]) if isinstance(value, dict) and "kind" in value else value
            if not (type(value) in allowed or value in allowed):
                self.refuse("manifest.json", f"{name} is missing or unknown")
            if isinstance(value, (int, float)) and abs(value) > LARGEST_NUMBER:
                self.refuse("manifest.json", f"{name} is too large")
        if self.manifest["search"]["min_len"] >= self.manifest["search"]["largest_target"]:
            self.refuse("manifest.json", "search.min_len is too large")

    def refuse(self, name: str, reason: str) -> Any:
        """Raise a ``PackageError`` about a file."""
        raise PackageError(f"{self.folder / name}: {reason}")

    def _bytes(self, name: str, largest: int) -> bytes:
        path = self.folder / name
        try:
            if path.resolve().parent != self.folder.resolve():
                self.refuse(name, "it is outside of the package")
            about = path.stat()
            if not stat.S_ISREG(about.st_mode) or about.st_size > largest:
                self.refuse(name, f"it is no file, or larger than {largest} bytes")
            return path.read_bytes()
        except (OSError, RuntimeError) as error:  # a link to itself
            return self.refuse(name, f"it cannot be read ({getattr(error, 'strerror', None) or error})")

    def _parsed(self, name: str, data: bytes) -> Any:
        try:
            return json.loads(data.decode(), parse_constant=lambda constant: self.refuse(name, f"it has {constant}"))
        except (ValueError, RecursionError) as error:
            return self.refuse(name, f"it is not JSON ({error})")

    def read(self, name: Any) -> bytes:
        """The content of a file of the package.

        Raises:
            PackageError: the manifest does not have the file, or the file is not as the manifest says.
        """
        if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", name):
            self.refuse("manifest.json", f"{name!r} cannot be the name of a file")
        about = self.manifest["files"].get(name)
        if not isinstance(about, dict) or not isinstance(about.get("bytes"), int):
            self.refuse("manifest.json", f"files does not describe {name}")
        data = self._bytes(name, LARGEST_FILE)
        if len(data) != about["bytes"] or hashlib.sha256(data).hexdigest() != about.get("sha256"):
            self.refuse(name, "it is not the file that was exported (other size or SHA-256): copy the package again")
        return data

    def text(self, name: Any) -> str:
        """The text of a file in UTF-8."""
        try:
            return self.read(name).decode()
        except UnicodeDecodeError as error:
            return self.refuse(name, f"it is not UTF-8 ({error.reason})")

    def json(self, name: Any, kind: type) -> Any:
        """The content of a JSON file: a list of strings, or an object."""
        value = self._parsed(name, self.read(name))
        strings = all(isinstance(one, str) for one in value) if isinstance(value, list) else True
        if not isinstance(value, kind) or not strings:
            self.refuse(name, "it holds no list of strings" if kind is list else "it holds no object")
        return value

    def symbols(self, side: str) -> list[str]:
        """The dictionary of ``source`` or ``target``."""
        about = self.manifest[side]
        symbols = self.json(about["symbols"], list)
        if hashlib.sha256("\n".join(symbols).encode("utf-8", "surrogatepass")).hexdigest() != about["fingerprint"]:
            self.refuse(about["symbols"], "its fingerprint is not the one in manifest.json")
        return symbols

    def session(self, threads: int) -> onnxruntime.InferenceSession:
        """Check the model, and open it with onnxruntime."""
        data = self.read("model.onnx")
        try:
            if foreign := set(operators(memoryview(data))) - set(map(str, self.manifest["graph"]["operators"])):
                raise PackageError(f"it uses {', '.join(sorted(foreign))}, which manifest.json does not list")
        except (IndexError, UnicodeDecodeError):
            self.refuse("model.onnx", "it is no ONNX model")
        except PackageError as error:
            self.refuse("model.onnx", str(error))
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        options.log_severity_level = 3
        options.add_session_config_entry("session.load_model_format", "ONNX")  # the checks do not read its own format
        try:
            session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # onnxruntime has no common class
            self.refuse("model.onnx", f"onnxruntime cannot read it ({first_line(error)})")
        names = {one.name for one in session.get_inputs()}, {one.name for one in session.get_outputs()}
        if names[0] != INPUTS or not names[1] >= OUTPUTS.keys():
            self.refuse("model.onnx", f"it has the inputs and outputs {sorted(names[0])}, {sorted(names[1])}")
        return session


# ------------------------------------------------------------------------------------------------------------- text


def single_spaced(text: str) -> str:
    """Return ``text`` with one space for every run of ASCII's white space, and none at its ends."""
    return re.sub(r"[ \t\n\v\f\r]+", " ", text).strip(" ")


class Subwords:
    """Cuts words into subwords, by the merges of subword-nmt."""

    def __init__(self, codes: str, separator: str = "@@", vocabulary: Sequence[str] | None = None):
        lines = codes.rstrip("\n").split("\n")
        version = lines.pop(0).split()[-1] if lines[0].startswith("#version:") else "0.1"
        self.end_apart = version == "0.1"  # the mark of a word's end is a separate symbol
        merges = [tuple(line.strip("\r\n ").split(" ")) for line in lines]
        for number, merge in enumerate(merges, start=1):
            if len(merge) != 2 or version not in ("0.1", "0.2"):
                raise PackageError(f"codes: merge {number} is not two subwords, or the version is not 0.1 or 0.2")
        self.ranks = {merge: rank for rank, merge in reversed(list(enumerate(merges)))}
        self.merged = {"".join(merge): merge for merge in self.ranks}
        self.separator, self.vocabulary = separator, frozenset(vocabulary or ())
        self.split = functools.lru_cache(maxsize=50_000)(self._split)

    def _split(self, word: str) -> list[str]:
        if len(word) > LONGEST_WORD:
            raise SentenceError(f"it has a word of {len(word)} characters, and at most {LONGEST_WORD} are allowed")
        parts = [*word, "</w>"] if self.end_apart else [*word[:-1], word[-1] + "</w>"]
        while pairs := [pair for pair in zip(parts, parts[1:]) if pair in self.ranks]:
            best = min(pairs, key=self.ranks.__getitem__)
            at = 0
            while at < len(parts) - 1:
                if (parts[at], parts[at + 1]) == best:
                    parts[at : at + 2] = ["".join(best)]
                at += 1
        parts[-1] = parts[-1].removesuffix("</w>")
        if not parts[-1]:
            parts.pop()
        if self.vocabulary:
            parts = self._allowed(parts)
        return [*(part + self.separator for part in parts[:-1]), parts[-1]]

    def _allowed(self, parts: list[str]) -> list[str]:
        """Undo the merges of a word's parts until each subword is in the vocabulary or cannot be split."""
        found: list[str] = []  # from the word's end
        waiting = [*((part, False) for part in parts[:-1]), (parts[-1], True)]
        while waiting:
            part, final = waiting.pop()
            pair = self.merged.get(part + "</w>" * final)
            if (part if final else part + self.separator) in self.vocabulary or pair is None:
                found.append(part)
            else:
                right = pair[1].removesuffix("</w>") if final else pair[1]
                waiting += [(pair[0], False), (right, final)] if right else [(pair[0], False)]
        return found[::-1]

    def __call__(self, words: list[str]) -> list[str]:
        """The subwords of words."""
        kept = LONGEST_WORD // 20  # longer words are rare, and would fill the memory
        return [part for word in words for part in (self.split if len(word) <= kept else self._split)(word)]


ESCAPES = [("&", "&amp;"), ("|", "&#124;"), ("<", "&lt;"), (">", "&gt;"), ("'", "&apos;"), ('"', "&quot;")]
ESCAPES += [("[", "&#91;"), ("]", "&#93;")]
UNESCAPES = [("&bar;", "|"), ("&#124;", "|"), ("&lt;", "<"), ("&gt;", ">"), ("&bra;", "["), ("&ket;", "]")]
UNESCAPES += [("&quot;", '"'), ("&apos;", "'"), ("&#91;", "["), ("&#93;", "]"), ("&amp;", "&")]


def ranges(text: str) -> list[tuple[str, str]]:
    """The first and the last character of each range of a class of characters.

    Raises:
        TypeError: ``text`` is no such class.
    """
    found = list(zip(text[::2], text[1::2]))
    if not found or len(text) % 2 or any(first > last for first, last in found):
        raise TypeError(f"{text!r} is no class of characters")
    return found


class Moses:
    """The Moses tokeniser and detokeniser of a language, as sacremoses has them.

    ``tables`` has classes of characters (the first and last of each range) and abbreviations, which keep their full
    stop: ``prefixes`` always, ``numeric`` in front of a number.
    """

    def __init__(self, tables: dict[str, Any], hyphens: bool = False, escape: bool = True):
        try:
            self.language = tables["language"]
            alnum, alpha, lower, number, currency, cjk = (
                "".join(f"\\U{ord(a):08x}-\\U{ord(b):08x}" for a, b in ranges(tables[name]))
                for name in ("alnum", "alpha", "lower", "number", "currency", "cjk")
            )
            self.prefixes, self.numeric = frozenset(tables["prefixes"]), frozenset(tables["numeric"])
        except (KeyError, TypeError) as error:
            raise PackageError(f"the tables of the Moses tokeniser are incomplete ({error})") from error
        self.escape = escape
        # rules with large classes take milliseconds to compile; so this waits until a line has their character
        self.alpha, self.lower, self.cjk = f"[{alpha}]", f"[{lower}]", f"[{cjk}]"
        self.opening = rf"[{currency}(\[{{¿¡]+"
        self.others = rf"([^{alnum}\s.'`,-])"
        self.hyphen = rf"([{alnum}])-(?=[{alnum}])" if hyphens else None
        self.commas = [(rf"([^{number}]),", r"\1 , "), (rf",([^{number}])", r" , \1"), (rf"([{number}]),$", r"\1 , ")]
        a, other = f"([{alpha}])", f"([^{alpha}])"
        self.apostrophes = [("'", " ' ")]
        if self.language == "en":
            self.apostrophes = [(f"{other}'{other}", r"\1 ' \2"), (f"([^{alpha}{number}])'{a}", r"\1 ' \2")]
            self.apostrophes += [
                (f"{a}'{other}", r"\1 ' \2"),
                (f"{a}'{a}", r"\1 '\2"),
                (f"([{number}])'(s)", r"\1 '\2"),
            ]
        elif self.language in ("fr", "it"):
            self.apostrophes = [(f"{x}'{y}", r"\1 ' \2") for x, y in ((other, other), (other, a), (a, other))]
            self.apostrophes += [(f"{a}'{a}", r"\1' \2")]

    def tokenise(self, text: str) -> list[str]:
        """The words of a line."""
        text = re.sub(r"[\000-\037]", "", re.sub(r"\s+", " ", text)).strip()
        text = re.sub(self.others, r" \1 ", text)
        if self.hyphen and "-" in text:
            text = re.sub(self.hyphen, r"\1 @-@ ", text)
        end = len(text)
        text = re.sub(r"\.{2,}", lambda dots: f" {'DOT' * len(dots[0])}MULTI{' ' * (dots.end() < end)}", text)
        for character, rules in ((",", self.commas), ("'", self.apostrophes)):
            for rule, new in rules if character in text else ():
                text = re.sub(rule, new, text)
        words = text.split()
        text = " ".join(self._full_stop(*pair) for pair in zip(words, [*words[1:], ""]))
        text = re.sub(r"\.' ?$", " . ' ", text)
        text = re.sub("(?:DOT)+MULTI", lambda dots: "." * (len(dots[0]) // 3 - 1), text)
        for character, name in ESCAPES if self.escape else ():
            text = text.replace(character, name)
        return text.split()

    def _full_stop(self, word: str, following: str) -> str:
        """Return a word, and split off its full stop if this ends a sentence."""
        stem = word.removesuffix(".")
        if not stem or stem == word or ("." in stem and re.search(self.alpha, stem)) or stem in self.prefixes:
            return word
        if re.match(self.lower, following) or (stem in self.numeric and re.match("[0-9]", following)):
            return word
        return stem + " ."

    def detokenise(self, words: Sequence[str]) -> str:
        """Return the text of words."""
        text = f" {' '.join(words)} ".replace(" @-@ ", "-")
        for name, character in UNESCAPES:
            text = text.replace(name, character)
        words, text, space = text.split(), "", " "
        quotes: dict[str, int] = {}
        for i, word in enumerate(words):
            before, after = words[i - 1] if i else "", words[i + 1] if i + 1 < len(words) else ""
            left = right = False  # whether the word sticks to its neighbour
            if re.match(self.cjk, word) and self.language != "ko":
                left = bool(before and re.match(self.cjk, before[-1]))
            elif re.fullmatch(self.opening, word):
                right = True
            elif re.fullmatch(r"[,.?!:;\\%})\]]+", word):
                left = True
                if self.language == "fr" and word in "?!:;\\%":
                    text += " "
            elif self.language == "en" and before and word[0] == "'" and re.match(self.alpha, word[1:]):
                left = True
            elif self.language in ("fr", "it", "ga") and word[-1] == "'" and re.search(self.alpha + "'$", word):
                right = bool(re.match(self.alpha, after))
            elif re.fullmatch(r"['\"„“`]+", word):
                kind = '"' if re.fullmatch("[„“]+", word) else word
                if self.language == "cs" and word in ("„", "“"):
                    quotes[kind] = "„“".index(word)
                closing = quotes.get(kind, 0) % 2 == 1
                possessive = self.language == "en" and word == "'" and before.endswith("s") and not closing
                left, right = closing or possessive, not closing and not possessive
                quotes[kind] = quotes.get(kind, 0) + (not possessive)
            text += ("" if left else space) + word
            space = "" if right else " "
        return re.sub(" {2,}", " ", text).strip()


SENTENCE_ENDS = {".", ":", "?", "!"}
IN_FRONT = {"(", "[", '"', "'", "&apos;", "&quot;", "&#91;", "&#93;"}  # of the first word of a sentence


def true_case(words: Sequence[str], cases: dict[str, str]) -> list[str]:
    """Words in their most frequent case; mark-up and factors stay as they are."""
    cased = []
    for word in words:
        stem, bar, factors = word.partition("|")
        plain = stem and not re.search(r"<\S[^>]*>", word)
        cased.append(cases.get(stem.lower(), stem) + bar + factors if plain else word)
    return cased


def sentence_case(words: Sequence[str]) -> list[str]:
    """Words, with a capital letter at the beginning of each sentence."""
    cased, first = [], True
    for word in words:
        cased.append(word[:1].upper() + word[1:] if first else word)
        first = word in SENTENCE_ENDS or (first and word in IN_FRONT)
    return cased


class Text:
    """Converts raw text to source symbols, and target symbols to raw text, as the manifest says.

    ``known`` are the symbols of ``source.json``.
    """

    def __init__(self, files: Files, known: list[str]):
        about, self.manifest = files.manifest["text"], files.manifest
        moses, bpe, case = about["tokenizer"], about["bpe"], about["truecase"]
        self.moses: dict[str, Moses] = {}
        if isinstance(moses, dict):  # else "none", or null
            flags = bool(moses.get("hyphens")), bool(moses.get("escape"))
            self.moses = {side: Moses(files.json(moses.get(side), dict), *flags) for side in ("source", "target")}
        self.cases = None if case is None else files.json(case.get("source"), dict)
        if not all(isinstance(word, str) for word in (self.cases or {}).values()):
            files.refuse(case.get("source"), "its values are not all words")
        unk, first = self.manifest["special"]["unk"], self.manifest["source"].get("features")
        if first is not None and not (unk < first < len(known) and known[unk] not in known[first:]):
            files.refuse("manifest.json", "source.features is outside of the dictionary, or <unk> is a feature")
        self.features = {} if first is None else {symbol: i for i, symbol in enumerate(known) if i >= first}
        self.unknown = known[unk]
        self.clusters: frozenset[str] = frozenset()
        if self.manifest["source"]["units"] == "graphemes":
            self.clusters = frozenset(symbol for symbol in known[unk + 1 : first] if len(symbol) > 1)
        self.longest = max(map(len, self.clusters), default=1)
        self.separator, self.subwords = "", None
        if bpe is not None:
            self.separator = str(bpe.get("separator"))
            allowed = files.json(bpe["vocabulary"], list) if bpe.get("vocabulary") else None
            self.subwords = Subwords(files.text(bpe.get("codes")), self.separator, allowed)

    def symbols(self, line: str) -> list[str]:
        """The symbols of a line of raw text, without EOS; the features, which follow a tab in the line, come first.

        Raises:
            SentenceError: the model reads features, and the line has none, or unknown or malformed ones.
        """
        if not self.features:
            return self.letters(line)
        line, tab, features = line.partition("\t")
        letters = [self.unknown if symbol in self.features else symbol for symbol in self.letters(line)]
        if not letters:
            return []
        if not tab:
            raise SentenceError("it has no features: they come after a tab, such as N;PL")
        return [*self.tags(unicodedata.normalize("NFC", features)), *letters]

    def tags(self, text: str) -> list[str]:
        """The symbols of features; those of ``N;PSS(2,PL)`` are ``[N]``, ``[PSS]``, ``[PSS(2)]`` and ``[PSS(PL)]``.

        Raises:
            SentenceError: parentheses do not match, or a tag is unknown.
        """
        found: dict[str, None] = {}  # a set in the order of the text
        layers: list[str] = []
        unmatched = SentenceError("the parentheses of its features do not match")
        for name, opens, mark in re.findall(r"([^();,]+)(\(?)|([();,])", text):
            if name := name.strip():
                found[f"[{layers[-1]}({name})]" if layers and not opens else f"[{name}]"] = None
                layers += [name] * bool(opens)
            elif mark == ")" and layers:
                layers.pop()
            elif opens or mark in ("(", ")"):
                raise unmatched
        if layers:
            raise unmatched
        if unknown := [tag[1:-1] for tag in found if tag not in self.features]:
            raise SentenceError(f"the model does not know its feature {unknown[0][:LONGEST_TAG]}: leave it out")
        return sorted(found, key=self.features.__getitem__)

    def letters(self, line: str) -> list[str]:
        """The symbols of a line without features."""
        if self.manifest["text"]["lowercase"]:
            line = line.lower()
        if self.moses:
            line = " ".join(self.moses["source"].tokenise(line))
        if self.cases is not None:
            line = " ".join(true_case(line.split(), self.cases))
        units = self.manifest["source"]["units"]
        if units == "characters":
            return list(single_spaced(line))
        if units == "decomposed":
            return list(unicodedata.normalize("NFD", line.strip()))
        if units == "graphemes":
            return list(self.graphemes(unicodedata.normalize("NFC", line.strip())))
        if units == "spaced":
            words = [symbol for symbol in unicodedata.normalize("NFC", line.strip()).split(" ") if symbol]
        else:
            words = line.split()
        return self.subwords(words) if self.subwords else words

    def graphemes(self, line: str) -> Iterator[str]:
        """Yield the symbols of a line: each is the longest one in the dictionary, or else a character."""
        while line:
            known = (line[:length] for length in range(self.longest, 1, -1) if line[:length] in self.clusters)
            yield (symbol := next(known, line[0]))
            line = line[len(symbol) :]

    def line(self, symbols: Sequence[str]) -> str:
        """The raw text of symbols without EOS."""
        units = self.manifest["target"]["units"]
        if units == "characters":
            line = single_spaced("".join(symbols))
        elif units not in ("words", "spaced"):
            line = unicodedata.normalize("NFC", "".join(symbols))
        else:
            line = " ".join(symbols)
            line = (line + " ").replace(self.separator + " ", "").rstrip() if self.subwords else line
        if self.cases is not None:
            line = " ".join(sentence_case(line.split()))
        return self.moses["target"].detokenise(line.split()) if self.moses else line


# ------------------------------------------------------------------------------------------------------ translating


class Hypothesis(NamedTuple):
    """One translation of a sentence."""

    text: str
    score: float  # log-probability, divided by the length (EOS counts) to the power of lenpen
    symbols: list[str]  # with EOS; copies may replace unknown ones
    log_probabilities: list[float]  # of the symbols
    replaced: list[int]  # positions of unknown symbols that copies of source symbols replace
    attention: np.ndarray | None  # weights, symbols x source
    word_attention: np.ndarray | None  # weights, symbols x words, for two levels


class Translation(NamedTuple):
    """The n-best list of a sentence, with the symbols that the model read."""

    source: list[str]  # symbols, with EOS
    words: list[str] | None  # of the upper level, with EOS; None without two levels
    n_best: list[Hypothesis]

    @property
    def text(self) -> str:
        """The best translation."""
        return self.n_best[0].text

    def without_attention(self) -> "Translation":
        """Return the translation without attention weights, in less memory."""
        return self._replace(n_best=[one._replace(attention=None, word_attention=None) for one in self.n_best])

    def plain(self) -> dict[str, Any]:
        """Return the translation as a dictionary for JSON."""
        lists = [hypothesis._asdict() for hypothesis in self.n_best]
        for hypothesis in lists:
            for name in ("attention", "word_attention"):
                weights = hypothesis.pop(name)
                if weights is not None:
                    hypothesis[name] = weights.astype(float).round(4).tolist()
        words = {} if self.words is None else {"words": self.words}
        return {"text": self.text, "source": self.source, **words, "n_best": lists}


class Translator:
    """A model that ``fairseq-attnvariants export`` wrote.

    Args:
        folder: the package.
        threads: the number of threads of onnxruntime.

    Raises:
        PackageError: the package is damaged, unsafe or of another format.
    """

    def __init__(self, folder: str | os.PathLike, threads: int = 1):
        files = Files(folder)
        self.manifest, self.search = files.manifest, files.manifest["search"]
        self.source, self.target = files.symbols("source"), files.symbols("target")
        self.pad, self.eos, self.unk = (self.manifest["special"][name] for name in ("pad", "eos", "unk"))
        self.end = self.manifest["source"]["end"]
        used = ((self.source, [self.pad, self.eos, self.unk, *self.end]), (self.target, [self.eos, self.unk]))
        if not all(isinstance(i, int) and 0 <= i < len(symbols) for symbols, indices in used for i in indices):
            files.refuse("manifest.json", "special or source.end is outside of a dictionary")
        self.index = {symbol: i for i, symbol in enumerate(self.source) if i > self.unk}  # the last of equal symbols
        self.index[self.source[self.unk]] = self.unk
        self.known = frozenset(self.target[self.unk + 1 :])
        self.text = Text(files, self.source)
        self.features_after = self.manifest["source"].get("features_after", False)
        self.session = files.session(threads)

    def translate(
        self,
        lines: Sequence[str],
        beam: int | None = None,
        attention: bool = True,
        n_best: int = 1,
        replace_unk: bool = True,
        batch_size: int = BATCH,
    ) -> list[Translation]:
        """Translate lines of raw text; results are in the order of the lines, and empty lines have empty translations.

        Args:
            lines: one sentence each.
            beam: the beam width; by default the package's.
            attention: whether results have attention weights.
            n_best: the number of translations to return for a sentence.
            replace_unk: replace ``<unk>`` by the source symbol with the largest attention weight.
            batch_size: the number of sentences that are translated at a time.

        Raises:
            SentenceError: a line cannot be read, such as one that is too long, or an argument is out of range; then
                nothing is translated.
        """
        if isinstance(lines, str):
            raise SentenceError("translate takes a list of lines, and not one string")
        if batch_size < 1:
            raise SentenceError(f"batch_size must be at least 1, not {batch_size}")
        beam = self.beam(beam, n_best)
        return self.search_all(self.read(lines, beam), beam, n_best, replace_unk, batch_size, attention)

    def read(self, lines: Sequence[str], beam: int) -> list[list[str]]:
        """The :meth:`symbols` of each line.

        Raises:
            SentenceError: a line cannot be read; the message has its number.
        """
        sources = []
        for number, line in enumerate(lines, start=1):
            try:
                sources.append(self.symbols(line, beam))
            except SentenceError as error:
                raise SentenceError(f"line {number}: {error}") from None
        return sources

    def beam(self, beam: int | None, n_best: int = 1) -> int:
        """The beam width, which is by default the package's.

        Raises:
            SentenceError: the beam width or ``n_best`` is out of range.
        """
        beam = self.search["beam"] if beam is None else beam
        if not 1 <= beam <= self.search["largest_beam"]:
            raise SentenceError(f"the beam must be from 1 to {self.search['largest_beam']}, not {beam}")
        if not 1 <= n_best <= beam:
            advice = ": give a wider beam" if n_best > beam else ""
            raise SentenceError(f"n-best must be from 1 to the beam of {beam}, not {n_best}{advice}")
        return beam

    def symbols(self, line: str, beam: int) -> list[str]:
        """Return the symbols that the model reads for a line, without EOS; nothing if the line is empty.

        Raises:
            SentenceError: the line is too long, for this beam or for any, or its features cannot be read.
        """
        if len(line) > LONGEST_LINE:
            raise SentenceError(f"it has {len(line)} characters, and at most {LONGEST_LINE} are allowed: split it")
        symbols = self.text.symbols(line)
        if len(symbols) > (largest := self.search["largest_source"] - len(self.end)):
            raise SentenceError(f"it has {len(symbols)} symbols, and the model reads at most {largest}: split it")
        if self.weights(symbols, beam) > LARGEST_ATTENTION:
            raise SentenceError("it is too long for this beam: split it, or take a smaller beam")
        return symbols

    def search_all(
        self,
        sources: Sequence[list[str]],
        beam: int,
        n_best: int,
        replace_unk: bool,
        batch_size: int,
        attention: bool,
    ) -> list[Translation]:
        """Translate sources from :meth:`symbols`, in batches of similar lengths."""
        nothing = Hypothesis("", 0.0, [self.source[self.eos]], [0.0], [], np.zeros((1, 1), np.float32), None)
        empty = Translation(nothing.symbols, None, [nothing])
        empty = empty if attention else empty.without_attention()
        results = {i: empty for i, source in enumerate(sources) if not source}
        waiting = sorted((i for i, source in enumerate(sources) if source), key=lambda i: -len(sources[i]))
        while waiting:
            size = min(batch_size, LARGEST_ATTENTION // self.weights(sources[waiting[0]], beam))
            batch, waiting = waiting[:size], waiting[size:]
            found = self._batch([sources[i] for i in batch], beam, n_best, replace_unk)
            results.update(zip(batch, found if attention else [one.without_attention() for one in found]))
        return [results[i] for i in range(len(sources))]

    def _max_len(self, length: int) -> int:
        longest = min(self.search["max_len_a"] * length + self.search["max_len_b"], self.search["largest_target"] - 1)
        return max(0, int(longest), self.search["min_len"])

    def weights(self, symbols: list[str], beam: int) -> int:
        """The largest number of attention weights that ``beam`` hypotheses or translations of a sentence can have."""
        length = len(symbols) + len(self.end)
        return length * (self._max_len(length) + 1) * beam

    def _batch(self, sources: list[list[str]], beam: int, n_best: int, replace_unk: bool) -> list[Translation]:
        rows = [self._indices(symbols) for symbols in sources]
        source = np.full((len(rows), max(map(len, rows))), self.pad, np.int64)
        for row, indices in zip(source, rows):
            row[: len(indices)] = indices
        given = {
            "source": source,
            "beam": np.array(beam, np.int64),
            "max_len": np.array([self._max_len(len(row)) for row in rows], np.int64),
            "min_len": np.array(self.search["min_len"], np.int64),
            "unkpen": np.array(self.search["unkpen"], np.float32),
        }
        names = [output.name for output in self.session.get_outputs()]
        try:
            out = dict(zip(names, self.session.run(names, given)))
        except Exception as error:  # onnxruntime has no class that all its errors share
            raise PackageError(f"the model cannot be run ({first_line(error)})") from error
        if not self._as_described(out, source, beam):
            raise PackageError(NOT_AS_DESCRIBED)
        return [self._sentence(out, b, symbols, n_best, replace_unk) for b, symbols in enumerate(sources)]

    def _as_described(self, out: dict[str, np.ndarray], source: np.ndarray, beam: int) -> bool:
        """Whether the shapes and kinds of outputs are as in FORMAT.md, and whole numbers are in range."""
        read = [value for name, value in out.items() if name in OUTPUTS or name == "word_attention"]
        if not all(isinstance(value, np.ndarray) and value.ndim and len(value) for value in read):
            return False
        shape = len(out["words"]), len(source), beam
        shapes = {**dict.fromkeys(OUTPUTS, shape), "attention": (*shape, source.shape[1])}
        upper = out.get("word_attention", out["attention"])
        limits = ("words", len(self.target)), ("parents", beam), ("ended_parents", beam)
        return bool(
            all((out[name].shape, out[name].dtype.kind) == (shapes[name], kind) for name, kind in OUTPUTS.items())
            and (upper.shape[:-1], upper.dtype.kind) == (shape, "f")
            and all(out[name].min() >= 0 and out[name].max() < limit for name, limit in limits)
            and out["ended"].any((0, 2)).all()
        )

    def _indices(self, symbols: list[str]) -> list[int]:
        """The row of symbols in the input ``source``, without padding."""
        indices = [*(self.index.get(symbol, self.unk) for symbol in symbols), *self.end]
        features = self._features(symbols) if self.features_after else 0
        return [*indices[features:], *indices[:features]]

    def _features(self, symbols: list[str]) -> int:
        """The number of features, which are the first symbols."""
        return sum(symbol in self.text.features for symbol in symbols)

    def _sentence(
        self, out: dict[str, np.ndarray], b: int, symbols: list[str], n_best: int, replace_unk: bool
    ) -> Translation:
        """Read the n-best list of sentence ``b``, as FORMAT.md says."""
        features = self._features(symbols)
        symbols = symbols[features:] if self.features_after else symbols  # features are beyond the columns read below
        first = 0 if self.features_after else features
        source = [*symbols, *(self.source[i] for i in self.end)]
        words = None
        if "word_attention" in out:
            words = [*filter(None, "".join(source[first:-1]).split(" ")), source[-1]]
        found = []
        for t, j in np.argwhere(out["ended"][:, b])[: out["words"].shape[2]].tolist():
            path = [out["ended_parents"][t, b, j]]  # the hypothesis that was continued, at each step
            indices, sums = [self.eos], [out["ended_scores"][t, b, j]]
            for s in range(t - 1, -1, -1):
                indices.append(out["words"][s, b, path[-1]])
                sums.append(out["scores"][s, b, path[-1]])
                path.append(out["parents"][s, b, path[-1]])
            rows = np.arange(t + 1), b, np.array(path[::-1])
            score = float(sums[0]) / (np.float64(t + 1) ** self.search["lenpen"] if self.search["normalize"] else 1)
            upper = None if words is None else out["word_attention"][rows][:, : len(words)]
            looks = out["attention"][rows][:, : len(source)], upper
            if not all(np.isfinite(numbers).all() for numbers in (sums, *looks) if numbers is not None):
                raise PackageError(NOT_AS_DESCRIBED)
            found.append((score, indices[::-1], np.diff(sums[::-1], prepend=0).tolist(), *looks))
        found.sort(key=lambda one: -one[0])
        best = [self._hypothesis(symbols, first, replace_unk, *one) for one in found[:n_best]]
        return Translation(source, words, best)

    def _hypothesis(
        self, source, first, replace_unk, score, indices, log_probabilities, attention, word_attention
    ) -> Hypothesis:
        symbols, replaced = [self.target[i] for i in indices], []
        looks, source = attention[:, first : len(source)], source[first:]  # features are not copied
        if self.manifest["copies"]:
            lacking = looks * np.array([symbol not in self.known for symbol in source])
            looks = np.where(lacking.any(axis=1, keepdims=True), lacking, looks)
        for i, index in enumerate(indices if replace_unk else ()):
            if index == self.unk:
                symbols[i] = source[looks[i].argmax()]
                replaced.append(i)
        text = self.text.line(symbols[:-1])
        return Hypothesis(text, score, symbols, log_probabilities, replaced, attention, word_attention)


# -------------------------------------------------------------------------------------------- command line and server


def chunks(descriptor: int) -> Iterator[list[bytes]]:
    """Yield lists of lines of a stream as they arrive; of a line that is much too long only the start."""
    rest = b""
    while data := os.read(descriptor, 2**16):
        *lines, rest = (rest + data).split(b"\n")
        rest = rest[: 4 * LONGEST_LINE + 4]
        if lines:
            yield lines
    if rest:
        yield [rest]


def portions(files: Sequence[str]) -> Iterator[tuple[str, int, list[bytes]]]:
    """Yield :func:`chunks` of files or standard input: the prefix of messages, the number of the first line, the lines.

    Raises:
        SentenceError: a file cannot be read; a missing file is an error before any file is read.
    """
    with contextlib.ExitStack() as opened:
        streams = []
        for file in files or ["-"]:
            with readable(file):
                stream = sys.stdin if file == "-" else opened.enter_context(open(file, "rb"))
                streams.append((file, chunks(stream.fileno())))
        for file, lines_of in streams:
            first = 1
            with readable(file):
                for lines in lines_of:
                    yield f"{file}: " if files else "", first, lines
                    first += len(lines)


def visible(text: str) -> str:
    """The text with escapes instead of characters that are not printable."""
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)


@contextlib.contextmanager
def readable(file: str) -> Iterator[None]:
    """Turn errors of reading a file into sentences.

    Raises:
        SentenceError: the file cannot be read.
    """
    try:
        yield
    except OSError as error:
        name = "standard input" if file == "-" else file
        raise SentenceError(f"{name} cannot be read ({error.strerror})") from error


def translate_lines(translator: Translator, options: argparse.Namespace) -> bool:
    """Translate files, or standard input, to standard output; return whether every line was translated.

    Raises:
        SentenceError: the beam is too large, or a file cannot be read.
    """
    number, whole, beam = 0, True, translator.beam(options.beam, options.n_best)
    more = options.n_best, options.replace_unk, options.batch_size, options.attention
    if (sys.stdin is None and "-" in (options.files or "-")) or sys.stdout is None:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))
    for name, first, lines in portions(options.files):
        sources: list[list[str]] = []
        refused: dict[int, str] = {}
        for i, line in enumerate(lines, start=first):
            try:
                if len(line) > 4 * LONGEST_LINE:  # it may be cut off within a character
                    raise SentenceError(f"it has more than {LONGEST_LINE} characters: split it")
                sources.append(translator.symbols(line.decode("utf-8" if i > 1 else "utf-8-sig"), beam))
            except (SentenceError, UnicodeDecodeError) as error:
                refused[len(sources)] = str(error) if isinstance(error, SentenceError) else "it is not UTF-8"
                print(f"{name}line {i} is not translated: {visible(refused[len(sources)])}", file=sys.stderr)
                sources.append([])
        for k, translation in enumerate(translator.search_all(sources, beam, *more)):
            number += 1
            rows = [translation.text]
            if options.attention:
                answer = {"error": refused[k]} if k in refused else translation.plain()
                rows = [json.dumps(answer, ensure_ascii=False)]
            elif options.n_best > 1:  # no rows for a line that is empty or refused
                rows = [f"{number}\t{one.score:.6f}\t{one.text}" for one in translation.n_best if sources[k]]
            sys.stdout.buffer.writelines(row.encode("utf-8", "replace") + b"\n" for row in rows)
        sys.stdout.buffer.flush()
        whole = whole and not refused
    return whole


LARGEST_BODY = 2**18  # bytes in a request
MOST_LINES = 100  # in a request
LONGEST_SERVED = 2_000  # characters in a line
WIDEST_SERVED = 32  # beam, unless the package's beam is wider
LARGEST_ANSWER = 2**23  # weights of attention, if every translation has the greatest length: 300 MiB with its JSON
CONNECTIONS = 64  # at a time; more are closed
WAITING = 16  # requests that wait for the model; more get status 503
HOST = "127.0.0.1"
PATIENCE = 10.0  # seconds that a client has to send a request, and to take each block of the answer
BLOCK = 2**16  # bytes


class Desk:
    """Answers requests, one at a time."""

    KINDS = {"text": str, "lines": list, "beam": int, "n_best": int, "replace_unk": bool, "attention": bool}

    def __init__(self, translator: Translator, batch_size: int = BATCH):
        self.translator = translator
        self.batch_size = batch_size
        self.model, self.waiting = threading.Lock(), threading.BoundedSemaphore(WAITING + 1)

    def answer(self, body: bytes) -> tuple[int, dict[str, Any]]:
        """Return the status and the answer for the body of a request."""
        if not self.waiting.acquire(blocking=False):
            return 503, {"error": "too many requests are waiting: try again"}
        try:
            lines, options = self._understood(body)
            with self.model:
                found = self.translator.translate(lines, batch_size=self.batch_size, **options)
            return 200, {"translations": [one.plain() for one in found]}
        except SentenceError as error:
            return 400, {"error": str(error)}
        except PackageError as error:
            return 500, {"error": str(error)}
        finally:
            self.waiting.release()

    def _understood(self, body: bytes) -> tuple[list[str], dict[str, Any]]:
        """The lines of a request, and options of ``translate``."""
        try:
            request = json.loads(body.decode())
        except (ValueError, RecursionError):
            raise SentenceError("the request is not JSON") from None
        if not isinstance(request, dict) or ("text" in request) == ("lines" in request):
            raise SentenceError('the request must be an object with either "text" or "lines"')
        for name, value in request.items():
            if type(value) is not self.KINDS.get(name):
                raise SentenceError(f"{name!r} is unknown or has another type: known are {', '.join(self.KINDS)}")
        lines = request.pop("lines") if "lines" in request else [request.pop("text")]
        if not all(isinstance(line, str) for line in lines):
            raise SentenceError("'lines' must be a list of texts")
        if len(lines) > MOST_LINES or any(len(line) > LONGEST_SERVED for line in lines):
            raise SentenceError(f"at most {MOST_LINES} lines, of at most {LONGEST_SERVED} characters each, are allowed")
        search = self.translator.search
        widest = min(search["largest_beam"], max(WIDEST_SERVED, search["beam"]))
        if request.get("beam", 1) > widest:
            raise SentenceError(f"the beam must be from 1 to {widest}, not {request['beam']}")
        if request.get("attention"):
            count = request.get("n_best", 1)
            sources = self.translator.read(lines, self.translator.beam(request.get("beam"), count))
            weights = sum(self.translator.weights(each, count) for each in sources)
            if weights > LARGEST_ANSWER:
                raise SentenceError("the attention of so many words is too large: ask for fewer lines at a time")
        return lines, {"attention": False, **request}


def serve(translator: Translator, host: str, port: int, batch_size: int) -> None:
    """Answer ``POST /translate`` until SIGINT or SIGTERM, which end the process within a second.

    Raises:
        SentenceError: the port is not available.
    """
    import http.server  # takes a fifth of the time of a start
    import socket

    desk = Desk(translator, batch_size)
    connections = threading.BoundedSemaphore(CONNECTIONS)
    sending: dict[Any, float] = {}  # connections with an incomplete request, and when they began

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version, timeout = "HTTP/1.1", PATIENCE

        def log_message(self, format: str, *args: Any) -> None:
            pass

        def reply(self, status: int, answer: dict[str, Any]) -> None:
            body = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Connection", "close")
            self.end_headers()
            for start in range(0, len(body), BLOCK):  # the time limit begins again with each block
                self.wfile.write(body[start : start + BLOCK])

        def do_POST(self) -> None:
            length = self.headers.get("Content-Length", "")
            if self.path != "/translate":
                self.reply(404, {"error": "POST to /translate"})
            elif not re.fullmatch("[0-9]{1,9}", length):
                self.reply(411, {"error": "the request needs a Content-Length"})
            elif int(length) > LARGEST_BODY:
                self.reply(413, {"error": f"the request has more than {LARGEST_BODY} bytes"})
            else:
                body = self.rfile.read(int(length))
                sending.pop(self.connection, None)
                self.reply(*desk.answer(body))

        def do_GET(self) -> None:
            self.reply(404, {"error": "POST to /translate"})

    class Server(http.server.ThreadingHTTPServer):
        request_queue_size = 128
        address_family = socket.AF_INET6 if ":" in host else socket.AF_INET

        def process_request(self, request: Any, client_address: Any) -> None:
            if not connections.acquire(blocking=False):
                return self.shutdown_request(request)
            sending[request] = time.monotonic()
            try:
                super().process_request(request, client_address)
            except BaseException:  # the system has no thread for it
                self.ended(request)
                raise

        def process_request_thread(self, request: Any, client_address: Any) -> None:
            try:
                super().process_request_thread(request, client_address)
            finally:
                self.ended(request)

        def ended(self, request: Any) -> None:
            sending.pop(request, None)
            connections.release()

        def service_actions(self) -> None:
            for request, since in list(sending.items()):
                if time.monotonic() - since > PATIENCE and sending.pop(request, 0.0):
                    with contextlib.suppress(OSError):
                        request.shutdown(2)

        def handle_error(self, request: Any, client_address: Any) -> None:
            if not isinstance(error := sys.exc_info()[1], OSError):  # else the client has gone
                print(f"a request failed: {type(error).__name__}: {error}", file=sys.stderr)

    def stop(*_: Any) -> None:
        raise SystemExit

    try:
        server = Server((host, port), Handler)
    except (OSError, OverflowError) as error:
        raise SentenceError(f"port {port} of {host} is not available ({error})") from error
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    address = f"[{host}]" if ":" in host else host
    print(f"http://{address}:{server.server_port}/translate takes POST", file=sys.stderr, flush=True)
    try:
        server.serve_forever(poll_interval=0.2)
    except SystemExit:
        server.socket.close()
        desk.model.acquire(timeout=0.5)  # let the current translation end,
        time.sleep(0.1)  # and send its answer,
        os._exit(0)  # without waiting for clients


def add_options(parser: argparse.ArgumentParser, package: Path | None = None) -> None:
    """Add the options that :func:`run` reads; with ``package`` there is no argument ``DIR``."""
    add = parser.add_argument
    if package is None:
        add("package", metavar="DIR", help="the folder that export wrote")
    else:
        parser.set_defaults(package=package)
    add("files", metavar="FILE", nargs="*", help="text, one sentence per line; - is standard input (default)")
    add("--beam", type=int, metavar="N", help="beam width (default: that of export)")
    add(
        "--n-best",
        type=int,
        default=1,
        metavar="N",
        help="write N translations per sentence, as line number, score, text",
    )
    add("--attention", action="store_true", help="write JSON: n-best lists with symbols, scores and attention")
    add("--keep-unk", dest="replace_unk", action="store_false", help="leave <unk> instead of copying a source word")
    add("--batch-size", type=int, default=BATCH, metavar="N", help="sentences in a batch (default: %(default)s)")
    add("--threads", type=int, default=1, metavar="N", help="threads of onnxruntime (default: %(default)s)")
    add("--serve", type=int, metavar="PORT", help="answer POST /translate at this port (0: a free one)")
    add("--host", default=HOST, help="address to serve at (default: %(default)s, only this machine)")


AS_IS = (None, 1, False, True)  # beam, n-best, attention and copies by default
MOST_THREADS = 1024


def run(options: argparse.Namespace, others: Sequence[str]) -> int:
    """Translate lines, or serve; return the exit status.

    Args:
        options: values of the options from :func:`add_options`.
        others: arguments that the parser left: files after an option.

    Raises:
        PackageError: the package is damaged, unsafe or of another format.
        SentenceError: an option has a wrong value, or a file, standard input or standard output fails.
    """
    unknown = [one for one in others if one.startswith("-") and one != "-"]
    if unknown:
        raise SentenceError(f"{' '.join(unknown)} is no option (--help has all)")
    options.files += others
    if "" in (options.host, *options.files):  # an empty host would be every address of the machine
        raise SentenceError("'' is no FILE and no --host: give a value, or set the variable that it comes from")
    if options.files.count("-") > 1:
        raise SentenceError("only one text can be standard input: name a file for the others")
    if options.batch_size < 1 or not 1 <= options.threads <= MOST_THREADS:
        raise SentenceError(f"--batch-size must be at least 1, and --threads from 1 to {MOST_THREADS}")
    if options.serve is not None and options.files:
        raise SentenceError(f"--serve answers requests, and {options.files[0]} is text: leave one out")
    if options.serve is not None and (options.beam, options.n_best, options.attention, options.replace_unk) != AS_IS:
        raise SentenceError(
            "--beam, --n-best, --attention and --keep-unk are fields of a request to --serve: leave them out"
        )
    if options.serve is None and options.host != HOST:
        raise SentenceError("--host is the address of --serve: leave it out, or give a port")
    translator = Translator(options.package, options.threads)
    if options.serve is not None:
        serve(translator, options.host, options.serve, options.batch_size)
    numbers = [getattr(signal, name) for name in {"SIGINT", "SIGPIPE"} & set(dir(signal))]
    before = {number: signal.signal(number, signal.SIG_DFL) for number in numbers}  # end at once, without a traceback
    try:
        return 0 if translate_lines(translator, options) else 1
    except OSError as error:
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # otherwise the remaining output would fail again
        raise SentenceError(f"standard input or output fails ({error.strerror})") from error
    finally:
        for number, handler in before.items():  # otherwise a broken connection ends the calling program
            signal.signal(number, handler)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program with a command line; return the exit status."""
    if sys.stderr is None:  # it is closed, and print would write messages among the translations
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    here = Path(__file__).resolve().parent
    parser = argparse.ArgumentParser(description="Translate text, a sentence a line, to standard output.")
    add_options(parser, here if (here / "manifest.json").exists() else None)
    try:
        return run(*parser.parse_known_args(arguments))
    except (PackageError, SentenceError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
