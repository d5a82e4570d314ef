"""Repairs of stock fairseq 0.12.2 that need no ``--user-dir``: each is made when a module of fairseq is imported.

``fairseq_attnvariants_startup.py`` calls :func:`find_spec` for fairseq's modules, and imports this module only then.

Lines.  A line ends in ``\\n`` or ``\\r\\n``.  fairseq opens text with universal newlines, so a lone carriage return
also ends a line: that sentence becomes two, and every pair after it is wrong.  fairseq takes a byte order mark for a
part of the first word, and ends in a traceback at bytes that are not UTF-8.  fairseq-preprocess, fairseq-interactive
and fairseq-score refuse such text before they read it, and so do the modules of :data:`REPAIRS` that open text.

numpy.  fairseq uses names that numpy 1.24 to 2.4 removed.  Only the modules that use them get them back.

hydra.  fairseq-hydra-train completes a configuration before it imports ``common.user_dir``, whose code may change how
that is done.  So ``common.user_dir`` is imported first.
"""

import builtins
import codecs
import functools
import io
import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType, SimpleNamespace
from typing import Any

RETURN = (
    "a carriage return that no line feed follows, at which fairseq would end the line: put a space there, or a line "
    r"feed if it is to end one (tr '\r' ' ' < FILE)"
)
MARK = "a byte order mark, which fairseq takes for a part of the first word: remove it (tail -c +4 FILE)"


def find_spec(name: str, path) -> ModuleSpec | None:
    """The spec of a module to repair, or None for all others."""
    repair = REPAIRS.get(name)
    spec = PathFinder.find_spec(name, path) if repair else None
    if spec is None or repair is None or spec.loader is None:
        return None
    run = spec.loader.exec_module

    def exec_module(module: ModuleType) -> None:
        run(module)
        repair(module)

    spec.loader.exec_module = exec_module  # type: ignore[method-assign]
    return spec


# ---- lines


def misread(line: bytes, number: int) -> str:
    """Return what fairseq would misread in a line, or an empty text if nothing."""
    if number == 1 and line.startswith(codecs.BOM_UTF8):
        return MARK
    if b"\r" in line.removesuffix(b"\r\n"):
        return RETURN
    try:
        line.decode()
    except UnicodeDecodeError as error:
        return f"not UTF-8 ({error.reason}): save it as UTF-8"
    return ""


def refuse_misread(path: str) -> None:
    """Refuse a text that fairseq would misread.  A pipe, which can be read only once, is not checked.

    Raises:
        ValueError: with the number of its line.
    """
    if not os.path.isfile(path):
        return
    with builtins.open(path, "rb") as stream:
        for number, line in enumerate(stream, start=1):
            if why := misread(line, number):
                raise ValueError(f"{path}, line {number}: {why}")


class Lines(io.TextIOWrapper):
    """A stream of lines; the command ends at the first line that fairseq would misread."""

    number = 0

    def readline(self, size: int = -1) -> str:  # type: ignore[override]
        """Read the next line."""
        line = super().readline(size)
        self.number += 1
        if why := misread(line.encode(errors="surrogateescape"), self.number):
            name = getattr(self, "name", "standard input")
            sys.exit(f"{os.path.basename(sys.argv[0])}: error: {name}, line {self.number}: {why}")
        return line


def repair_open(module: Any) -> None:
    """Make a module refuse to open text that fairseq would misread."""

    def open_text(path, mode="r", *args, **options):
        if mode == "r":
            refuse_misread(path)
        return builtins.open(path, mode, *args, **options)

    module.open = open_text


def repair_parsers(module: Any) -> None:
    """Make the parsers of fairseq-preprocess and fairseq-interactive check the text files that the options name."""
    module.get_preprocessing_parser = checking(module.get_preprocessing_parser, preprocessed)
    module.get_interactive_generation_parser = checking(
        module.get_interactive_generation_parser, lambda found: [streamed(found, "input")]
    )


def repair_score(module: Any) -> None:
    """Make the parser of fairseq-score check the text files that the options name."""
    module.get_parser = checking(module.get_parser, lambda found: [streamed(found, "sys"), found.ref])


def checking(make: Callable[..., ArgumentParser], texts: Callable[[Namespace], list[str | None]]):
    """Wrap a function that makes a parser: the parser refuses arguments if fairseq would misread one of their texts."""

    @functools.wraps(make)
    def make_parser(*args, **options) -> ArgumentParser:
        parser = make(*args, **options)
        parse = parser.parse_known_args

        def parse_known_args(*args, **options):
            found, rest = parse(*args, **options)
            try:
                for path in texts(found):
                    if path:
                        refuse_misread(path)
            except (OSError, ValueError) as error:
                parser.exit(2, f"{parser.prog}: error: {error}\n")
            return found, rest

        parser.parse_known_args = parse_known_args  # type: ignore[method-assign]
        return parser

    return make_parser


def preprocessed(found: Namespace) -> list[str | None]:
    """The files that fairseq-preprocess is going to read."""
    several = (prefix for option in (found.validpref, found.testpref) for prefix in (option or "").split(","))
    prefixes = filter(None, (found.trainpref, *several))
    sides = [found.source_lang, *[found.target_lang] * (not found.only_source)]
    sides += [found.align_suffix] * bool(found.align_suffix)
    texts = [f"{prefix}.{side}" if side else prefix for prefix in prefixes for side in sides]
    return [*texts, found.alignfile, found.srcdict, found.tgtdict]


def streamed(found: Namespace, name: str) -> str | None:
    """The file that an option names; None for a stream, which becomes standard input, read as :class:`Lines`."""
    path = getattr(found, name)
    if os.path.isfile(path):
        return path
    if not isinstance(sys.stdin, Lines):  # arguments are parsed twice
        stream = sys.stdin.buffer if path == "-" else builtins.open(path, "rb")  # noqa: SIM115
        sys.stdin = Lines(stream, encoding="utf-8", errors="surrogateescape", newline="\n")
    setattr(found, name, "-")
    return None


# ---- numpy


class Numpy:
    """numpy, with names that it no longer has."""

    int, float = int, float
    compat = SimpleNamespace(long=int)

    def __init__(self, numpy: ModuleType):
        self.numpy = numpy

    def __getattr__(self, name: str) -> Any:
        """Every other name comes from numpy."""
        return getattr(self.numpy, name)

    def percentile(self, values, percentages, interpolation: str = "linear"):
        """The percentiles, with the former name of the argument ``method``."""
        return self.numpy.percentile(values, percentages, method=interpolation)


def repair_numpy(module: Any) -> None:
    """Give a module :class:`Numpy` as ``np``."""
    module.np = Numpy(module.np)


# ---- hydra


def repair_hydra_train(module: Any) -> None:
    """Import ``common.user_dir``, which may replace ``initialize.add_defaults``, before ``add_defaults`` is called."""
    from fairseq.dataclass import initialize
    from fairseq.utils import import_user_module

    def add_defaults(cfg) -> None:
        import_user_module(cfg.common)
        initialize.add_defaults(cfg)

    module.add_defaults = add_defaults


REPAIRS: dict[str, Callable[[ModuleType], None]] = {
    "fairseq_cli.hydra_train": repair_hydra_train,
    "fairseq.options": repair_parsers,
    "fairseq_cli.score": repair_score,
    "fairseq.data.dictionary": repair_open,
    "fairseq.data.indexed_dataset": repair_open,  # --dataset-impl raw
    "fairseq.tasks.sentence_prediction": repair_open,  # labels
    "fairseq.tasks.sentence_ranking": repair_open,
    "fairseq.utils": repair_open,  # --encoder-embed-path of stock models, --replace-unk
    "fairseq.data.data_utils": repair_numpy,  # int, percentile(interpolation=...)
    "fairseq.data.language_pair_dataset": repair_numpy,  # compat
    "fairseq.data.token_block_dataset": repair_numpy,  # compat
    "fairseq.modules.dynamic_crf_layer": repair_numpy,  # float
}
