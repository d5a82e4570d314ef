"""The program ``fairseq-attnvariants SUBCOMMAND``, for tasks that stock fairseq has no command for."""

import argparse
import contextlib
import difflib
import importlib
import io
import logging
import os
import re
import signal
import sys
import textwrap
import warnings
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn

from .installed import installed
from .text.files import UserError, forget_inputs, reason, say, standard_output

PROGRAM = "fairseq-attnvariants"
LARGE = ("--batch-size", "--max-tokens", "--bootstrap")  # options that take memory
OUT_OF_MEMORY = re.compile("out of memory|allocate memory")  # in a RuntimeError of torch

# subcommands that print a folder of the package that fairseq reads
FOLDERS = {
    "user-dir": (".", "print the path for --user-dir and common.user_dir"),
    "config-dir": ("config", "print the path for fairseq-hydra-train --config-dir"),
}
# a subcommand's module is imported only when the user calls it; it imports torch and fairseq only to run a model
GROUPS = {
    "train and check": {
        "check": "test that an architecture pads, batches and decodes correctly, without data",
        "strings": "train on tables of words, such as pronunciations, and score the predictions",
        "hallucinate": "make more words to train inflection on, with random letters in their stems",
        "average": "average the parameters of several checkpoints",
        "tune": "choose the length penalty and the coverage penalty on a validation set",
    },
    "translate": {
        "lexicon": "make a word table from the training text, for replace-unk or for shortlists",
        "replace-unk": "replace the UNKs in the output of fairseq-generate",
        "export": "write a folder that translates without fairseq and torch, or one without pickle",
        "get-model": "copy or download a model that ships with the repository",
        "translate": "translate text with such a folder, by ONNX Runtime",
    },
    "analyse attention": {
        "attention": "draw the attention of one or several models on a sentence",
        "draw": "draw the attention of an exported model, in the terminal or as a picture",
        "attribute": "show which source words each target word depends on, and whether attention agrees",
        "align": "write word alignments from attention, by forced decoding",
        "aer": "compute alignment error rates against gold alignments",
        "eos": "count how often a translation's end is aligned to the end of its source",
        "similarity": "count source words that are similar to their translations, by attention via attention",
        "gates": "show the gates of adaptive weighting, context gates and CondDec, by word or by tag",
        "neighbours": "list the target words nearest to source words that the direct bridge mapped",
    },
    "compare": {
        "score": "compute BLEU, chrF, TER and accuracy, with paired bootstrap, also by groups of sentences",
        "results": "make one table of many runs: means and differences over seeds, intervals, verdicts",
        "compare": "write a page with the translations of several systems side by side",
        "confusion": "count which source tags target tags come from",
        "overtranslation": "compute the ratio of over-translation, by tag",
    },
    "files": {
        "links": "extract text and word links from the output of fairseq-generate",
        "import-nematus": "turn a model of Nematus or Marian into a checkpoint",
        "env": "print installed versions and hardware, for a bug report",
    },
}
LISTED = next(iter(GROUPS))  # the list of subcommands begins with this
SUBCOMMANDS = {name: summary for group in GROUPS.values() for name, summary in group.items()}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a subcommand, and return its exit status.

    The status is 2 after an error that the user can correct. One sentence on standard error describes it.
    """
    if sys.stderr is None:  # standard error is closed: only its output is lost
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere):
            return main(arguments)
    arguments = sys.argv[1:] if arguments is None else arguments
    prepare()
    forget_inputs()
    options = None
    try:
        check_name(arguments)
        options, others = parser(arguments).parse_known_args(arguments)
        if others and not getattr(options, "takes_others", False):
            raise UserError(f"unrecognized arguments: {' '.join(others)} (see {PROGRAM} {options.subcommand} --help)")
        options.others = others
        if getattr(options, "user_dir", None):
            from .systems.user_dirs import import_user_dirs

            import_user_dirs(options.user_dir)
        return options.run(options) or 0
    except BrokenPipeError:  # the reader of standard output, such as head, has closed it
        return 1
    except KeyboardInterrupt:
        say(f"{PROGRAM}: interrupted")
        return 128 + signal.SIGINT
    except refusals() as error:
        return refuse(arguments, str(error))
    except OSError as error:
        return refuse(arguments, reason(error))
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and not OUT_OF_MEMORY.search(str(error)):
            raise
        large = [one for one in LARGE if hasattr(options, one[2:].replace("-", "_"))]
        return refuse(arguments, reason(error) + f": reduce {' or '.join(large)}" * bool(large))


def prepare() -> None:
    """Make signals end the process cleanly, streams accept any text, and libraries print only warnings and errors."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as set by nohup
            signal.signal(number, lambda number, _: sys.exit(128 + number))  # runs all clean-up code
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # not so in a notebook
            stream.reconfigure(errors="backslashreplace")
    warnings.filterwarnings("ignore", "Detected pickle protocol|'torch.load' received")  # our refusal is enough
    warnings.filterwarnings("ignore", "'pin_memory' argument is set as true")  # stock fairseq sets it without a GPU
    quiet = dict.fromkeys(("fairseq", "fairseq_attnvariants", "sacrebleu"), "WARNING")
    for name, level in {**quiet, "matplotlib.font_manager": "ERROR"}.items():
        logging.getLogger(name).setLevel(level)


def refusals() -> tuple[type[Exception], ...]:
    """Return the types of errors that the user can correct: the command's, and the package's if it is imported."""
    registry = sys.modules.get("fairseq_attnvariants.registry")
    return (UserError, ImportError, *([registry.ConfigurationError] if registry else []))


def refuse(arguments: Sequence[str], why: str) -> int:
    """Print on standard error, in one line, why a subcommand failed, and return the exit status."""
    say(f"{' '.join([PROGRAM, *arguments[:1]])}: {why}")
    return 2


class Help(argparse.HelpFormatter):
    """A formatter of help that breaks lines only at spaces, and writes examples that can be copied into a shell."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(text, width, break_on_hyphens=False, break_long_words=False)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if text.startswith(LISTED):
            return text
        if not text.startswith("example: "):
            return "\n".join(indent + line for line in self._split_lines(text, width - len(indent)))
        whole = re.sub('"[^"]*"', lambda quoted: quoted[0].replace(" ", "\0"), text.removeprefix("example: "))
        lines = self._split_lines(whole, width - len(indent) - len("   \\"))
        return f"example:\n{indent}  " + f" \\\n{indent}    ".join(lines).replace("\0", " ")


class Parser(argparse.ArgumentParser):
    """A parser that raises :class:`UserError` for wrong options, and for help or a version that cannot be written."""

    def __init__(self, **options: Any):
        super().__init__(formatter_class=Help, **options)

    def error(self, message: str) -> NoReturn:
        """Raise a :class:`UserError` with the message of argparse."""
        raise UserError(f"{message} (see {self.prog} --help)")

    def _print_message(self, message: str, file: Any = None) -> None:
        with standard_output() as output:  # all messages are help or the version
            output.write(message)


def parser(arguments: Sequence[str]) -> argparse.ArgumentParser:
    """Return the parser of the command, with the options of the subcommand that ``arguments`` begin with."""
    about = "Check, analyse, compare and export models; fairseq's own commands train and translate."
    command = Parser(prog=PROGRAM, description=about, epilog=listing())
    command.add_argument("--version", action="version", version=f"{PROGRAM} {installed(PROGRAM)}")
    subcommands = command.add_subparsers(dest="subcommand", required=True, metavar="SUBCOMMAND", help="one of these:")
    for subcommand, (_, summary) in FOLDERS.items():
        subcommands.add_parser(subcommand, description=summary).set_defaults(run=print_folder)
    for subcommand in SUBCOMMANDS:
        described = subcommands.add_parser(subcommand)
        if subcommand in arguments[:1]:
            module = importlib.import_module(f".subcommands.{subcommand.replace('-', '_')}", __package__)
            if hasattr(module, "add_options"):
                module.add_options(described)
            else:
                from .options import add_options

                add_options(described, module.Options, module.run)
    return command


def listing() -> str:
    """Return the list of all subcommands, by group."""
    folders = {name: summary for name, (_, summary) in FOLDERS.items()}
    lines = []
    for title, group in {**GROUPS, "folders for fairseq": folders}.items():
        lines += [f"{title}:", *(f"  {name:<15} {summary}" for name, summary in group.items()), ""]
    return "\n".join(lines[:-1])


def check_name(arguments: Sequence[str]) -> None:
    """Refuse an unknown subcommand, and suggest the one with the most similar name.

    Raises:
        UserError: no subcommand has this name.
    """
    names = [*SUBCOMMANDS, *FOLDERS]
    if arguments and not arguments[0].startswith("-") and arguments[0] not in names:
        near = difflib.get_close_matches(arguments[0], names, n=1)
        hint = f"did you mean {near[0]}?" if near else f"{PROGRAM} --help lists all"
        raise UserError(f"there is no such subcommand: {hint}")


def print_folder(options: argparse.Namespace) -> None:
    """Run a subcommand of :data:`FOLDERS`: print the path of its folder."""
    with standard_output() as output:
        print(package_dir() / FOLDERS[options.subcommand][0], file=output)


def package_dir() -> Path:
    """Return the folder of the package that fairseq reads, without importing it.

    Raises:
        ImportError: the package is not installed.
    """
    spec = find_spec("fairseq_attnvariants")
    if spec is None or spec.origin is None:
        raise ImportError("the package fairseq_attnvariants is not installed with its command")
    return Path(spec.origin).resolve().parent
