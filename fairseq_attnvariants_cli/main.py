"""``fairseq-attnvariants VERB``: what stock fairseq has no command for."""

import argparse
import logging
import os
import sys
from pathlib import Path
from typing import Optional, Sequence

import fairseq_attnvariants

from . import (
    aer,
    align,
    attention,
    average,
    compare,
    confusion,
    eos,
    gates,
    lexicon,
    links,
    neighbours,
    overtranslation,
    replace_unk,
    score,
    similarity,
)
from .files import UserError

VERBS = (
    lexicon,
    replace_unk,
    align,
    aer,
    links,
    confusion,
    overtranslation,
    eos,
    attention,
    similarity,
    gates,
    neighbours,
    score,
    compare,
    average,
)


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Run one verb; returns the exit status."""
    parser = argparse.ArgumentParser(prog="fairseq-attnvariants", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    add_directories(verbs)
    for module in VERBS:
        module.add(verbs)
    options = parser.parse_args(arguments)
    for name in ("fairseq", "sacrebleu"):
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)  # it warns of weights that fonts lack
    try:
        options.run(options)
    except UserError as error:
        print(f"{parser.prog} {options.verb}: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader of standard output, such as head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return 0


def add_directories(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the verbs ``user-dir`` and ``config-dir``."""
    user_dir = verbs.add_parser(
        "user-dir",
        help="print the path for --user-dir",
        description="Print the absolute path of the package, for --user-dir and common.user_dir.",
        epilog='example: fairseq-train --user-dir "$(fairseq-attnvariants user-dir)" --arch rnnsearch ...',
    )
    user_dir.set_defaults(run=lambda _: print(package_dir()))
    config_dir = verbs.add_parser(
        "config-dir",
        help="print the path for fairseq-hydra-train --config-dir",
        description="Print the absolute path of the YAML configurations that the package ships.",
        epilog='example: fairseq-hydra-train --config-dir "$(fairseq-attnvariants config-dir)" --config-name train ...',
    )
    config_dir.set_defaults(run=lambda _: print(package_dir() / "config"))


def package_dir() -> Path:
    """The folder of the installed package."""
    return Path(fairseq_attnvariants.__file__).resolve().parent
