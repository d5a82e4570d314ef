"""Options that several subcommands have."""

import argparse
import math
import os
from typing import Any, Callable, List, Sequence

from .text.files import UserError, say
from .text.pieces import STYLES


def at_least(least: float, kind: Callable[[str], Any] = int, most: float = math.inf) -> Callable[[str], Any]:
    """An option's type: numbers from ``least`` on, up to ``most``."""

    def parse(text: str) -> Any:
        value = kind(text)
        if not math.isfinite(value):
            raise argparse.ArgumentTypeError(f"{text} is not a finite number")
        if value < least:
            raise argparse.ArgumentTypeError(f"{text} is not at least {least}")
        if value > most:
            raise argparse.ArgumentTypeError(f"{text} is more than {most:g}")
        return value

    parse.__name__ = kind.__name__  # for what argparse says
    return parse


natural, positive, amount, length = at_least(0), at_least(1), at_least(0, float), at_least(1, float)
MOST = 100  # of a length penalty, and of the tokens of a translation for each of its source
penalty = at_least(0, float, MOST)
SEARCH = {"beam": 5, "lenpen": 1.0, "max_len_a": 0.0, "max_len_b": 200}  # fairseq's defaults


def add_number(
    parser: argparse._ActionsContainer, option: str, help: str, default: Any = None, type: Any = natural, **more: Any
) -> None:
    """Add an option that is a number, natural unless ``type`` says otherwise; its help ends in its default."""
    if default is not None and "default" not in help:
        help += " (default: %(default)s)"
    parser.add_argument(option, **{"metavar": "N", "help": help, "default": default, "type": type, **more})


class FormerName(argparse.Action):
    """The name that an option had in an earlier version: help does not show it, and a warning says the new one."""

    def __init__(self, option_strings: Sequence[str], dest: str, option: argparse.Action):
        super().__init__(option_strings, option.dest, option.nargs, default=argparse.SUPPRESS, help=argparse.SUPPRESS)
        self.type, self.option = option.type, option

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: Any = None) -> None:
        """Do as the option does."""
        new = self.option.option_strings[0]
        say(f"{option_string} is deprecated and will go away: use {new}, which does the same")
        self.option(parser, namespace, values, new)


def add_system_options(parser: argparse.ArgumentParser, several: bool = False, ensemble: bool = True) -> None:
    """Add what :func:`~.model.load` reads; ``several`` collects ``--path`` in a list, with a ``--name`` for each."""
    parser.add_argument("data", metavar="DATA", help="folder of fairseq-preprocess, with the dictionaries")
    parser.add_argument(
        "--path",
        metavar="CHECKPOINT",
        required=True,
        action="append" if several else "store",
        help="the model"
        + (f", or an ensemble a{os.pathsep}b" if ensemble else "")
        + ("; several times for several models" if several else ""),
    )
    if several:
        add_name_option(parser)
    parser.add_argument("--cpu", action="store_true", help="do not use CUDA")
    add_user_dir_option(parser)


def add_user_dir_option(parser: argparse.ArgumentParser) -> None:
    """Add what :func:`~.model.import_user_dirs` reads, which the command does before a subcommand runs."""
    parser.add_argument(
        "--user-dir",
        metavar="FOLDER",
        action="append",
        help="folder with parts or architectures of your own, as for fairseq-train; several times for several",
    )


def add_model_options(parser: argparse.ArgumentParser, several: bool = False, ensemble: bool = True) -> None:
    """Add what :func:`~.model.load` and :func:`~.model.read_text` read; see :func:`add_system_options`."""
    add_system_options(parser, several, ensemble)
    text = parser.add_mutually_exclusive_group()
    text.add_argument("--source", metavar="FILE", help="source text, cut into tokens as for fairseq-preprocess")
    text.add_argument("--gen-subset", metavar="NAME", default="test", help="or a split in DATA (default: %(default)s)")
    parser.add_argument("--reference", metavar="FILE", help="target text of --source, cut into tokens as well")
    add_batch_options(parser)


def add_batch_options(parser: argparse.ArgumentParser) -> None:
    """Add what :func:`~.model.limits` reads."""
    add_number(parser, "--batch-size", "sentences", 64, type=positive)
    add_number(parser, "--max-tokens", "tokens", 4000, type=positive)


def add_target_options(parser: argparse.ArgumentParser) -> None:
    """Add what :func:`forced` and :func:`~.model.generate` read."""
    target = parser.add_mutually_exclusive_group()
    target.add_argument("--forced", action="store_true", help="decode the target side (default with --reference)")
    target.add_argument("--generate", action="store_true", help="translate, and decode the translation (default)")
    add_search_options(parser)


def add_search_options(parser: argparse.ArgumentParser) -> None:
    """Add what :func:`settle_search` completes, under fairseq's names."""
    add_beam_options(parser)
    add_number(parser, "--lenpen", "length penalty (default: 1)", type=penalty, metavar="X")


def add_beam_options(parser: argparse.ArgumentParser) -> None:
    """Add how wide a search is and when it ends."""
    add_number(parser, "--beam", "width (default: 5)", type=positive)
    add_number(
        parser,
        "--max-len-a",
        "a translation of a source of x tokens has up to Ax + B (default: 0; to characters 3, from subwords 12)",
        type=penalty,
        metavar="A",
    )
    add_number(parser, "--max-len-b", "see A (default: 200)", type=positive, metavar="B")


def settle_search(options: argparse.Namespace) -> None:
    """Give fairseq's defaults to what of a search was not asked for."""
    for name, value in SEARCH.items():
        if getattr(options, name, None) is None:
            setattr(options, name, value)


def forced(options: argparse.Namespace) -> bool:
    """Whether the target is given, and not generated; the options of the search are complete then.

    Raises:
        UserError: both are asked for, or an option is of a search that there is none of.
    """
    if options.generate and options.reference:
        raise UserError("give --reference or --generate, not both")
    given = options.forced or options.reference is not None
    for name in SEARCH:
        if given and getattr(options, name) is not None:
            raise UserError(f"--{name.replace('_', '-')} is of a search, and the target is given: leave it out")
    settle_search(options)
    return given


def add_pieces_option(parser: argparse.ArgumentParser) -> None:
    """Add ``--remove-bpe``, under fairseq's name and with its meaning."""
    parser.add_argument(
        "--remove-bpe",
        metavar="STYLE",
        nargs="?",
        const="@@ ",
        choices=STYLES,
        help=f"join pieces to words: {', '.join(map(repr, STYLES))} (default where it is given bare: '@@ ')",
    )


def add_name_option(parser: argparse.ArgumentParser) -> None:
    """Add what :func:`names` reads."""
    name = parser.add_argument("--name", metavar="TEXT", action="append", help="of each system (default: its path)")
    parser.add_argument("--title", action=FormerName, option=name)


def names(options: argparse.Namespace, paths: Sequence[str]) -> List[str]:
    """What the systems are called where they are shown.

    Raises:
        UserError: there are more or fewer names than systems, one is empty, or two systems have one name.
    """
    if options.name and len(options.name) != len(paths):
        raise UserError(f"{len(options.name)} --name for {len(paths)} systems")
    if "" in (options.name or ()):
        raise UserError("--name '' is empty")
    short = [" + ".join(os.sep.join(part.split(os.sep)[-2:]) for part in path.split(os.pathsep)) for path in paths]
    found = options.name or (short if len(set(short)) == len(short) else paths)
    for name in found:
        if found.count(name) > 1:
            raise UserError(f"two systems are called {name!r}: give each another --name")
    return [name.encode(errors="backslashreplace").decode() for name in found]  # bytes that are no UTF-8 are escaped
