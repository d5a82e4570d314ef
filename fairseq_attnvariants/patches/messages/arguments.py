"""Missing arguments are completed or named, and a refusal is one sentence without a traceback.

Stock fairseq passes missing arguments to hydra, which ends in a traceback of the configuration.
"""

import argparse
import dataclasses
import os
import re
import sys
from collections.abc import Sequence

from fairseq import options, utils
from fairseq.file_io import PathManager
from fairseq.registry import REGISTRIES
from omegaconf import MISSING

from ...architectures.options import flag
from ...architectures.variants import default_criterion
from ...registry import ConfigurationError
from ..replaced import replaces
from .data import find_languages

SWITCHED = re.compile(r"unrecognized arguments:.* (True|False)\b", re.IGNORECASE)
SWITCH = (
    "; a switch takes no True or False: given, it turns its default around (--left-pad-source turns padding on the "
    "left off)"
)
TEXT = ("tokenizer", "bpe")  # components with options


@replaces(options, "parse_args_and_arch")
def parse_args_and_arch(parse, parser, *args, **named):
    """Check and complete the arguments before fairseq makes a configuration of them."""
    refuse = parser.error
    parser.error = lambda message: refuse(message + (SWITCH if SWITCHED.search(message) else ""))
    choose_criterion(parser, args[0] if args else named.get("input_args"))
    if parser.get_default("task") is None:  # in fairseq-validate, which fails without a task
        parser.set_defaults(task="translation")
    parsed = parse(parser, *args, **named)
    given = parsed[0] if isinstance(parsed, tuple) else parsed
    for kind in TEXT:
        complete(parser, given, kind)
    check_models(parser, given)
    if getattr(given, "num_shards", 1) > 1 or getattr(given, "shard_id", 0):
        parser.error(
            "--num-shards and --shard-id: fairseq 0.12.2 ignores them, and each process would translate the whole "
            "text: binarise the parts as test sets, and name one by --gen-subset"
        )
    return parsed


@replaces(sys, "excepthook")
def excepthook(show, kind, error, traceback) -> None:
    """Print a refusal as one sentence; hydra's commands do so themselves, unless the user asks for the traceback."""
    folder, command = os.path.split(sys.argv[0])
    if os.path.basename(folder) == "fairseq_cli":  # python -m fairseq_cli.train, as strings starts it
        command = f"fairseq-{command.removesuffix('.py')}"
    if isinstance(error, ConfigurationError) and command.startswith("fairseq-") and "hydra" not in command:
        print(f"{command}: error: {error}", file=sys.stderr)
    else:
        show(kind, error, traceback)


def choose_criterion(parser: argparse.ArgumentParser, line: Sequence[str] | None) -> None:
    """Make the architecture's criterion the default if the command line names none."""
    asked = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for names in (("--user-dir",), ("--arch", "-a"), ("--criterion",)):
        asked.add_argument(*names, nargs="?")  # fairseq's parser reports a missing value
    given, _ = asked.parse_known_args(line)
    if given.criterion is None and parser.get_default("criterion") is not None:
        utils.import_user_module(given)
        try:
            own = default_criterion(given.arch)
        except ConfigurationError as error:
            parser.error(str(error))
        if own:
            parser.set_defaults(criterion=own)


def check_models(parser: argparse.ArgumentParser, given: argparse.Namespace) -> None:
    """Refuse a ``--path`` that is no file, unless checkpoints have a suffix or shards: fairseq completes such names."""
    sharded = getattr(given, "checkpoint_suffix", "") or getattr(given, "checkpoint_shard_count", 1) > 1
    for path in utils.split_paths(given.path) if getattr(given, "path", None) and not sharded else ():
        if not path:
            parser.error(
                f"--path {given.path} has an empty name before or after {os.pathsep!r}: remove the {os.pathsep!r}"
            )
        if os.path.isdir(path):
            parser.error(f"--path {path} is a folder: name a checkpoint in it, such as {path}/checkpoint_best.pt")
        if not PathManager.exists(path):
            parser.error(f"--path {path}: there is no such file; several are separated by {os.pathsep!r}")


def complete(parser: argparse.ArgumentParser, parsed: argparse.Namespace, kind: str) -> None:
    """Find the languages for ``--tokenizer`` or ``--bpe`` in the data folder; refuse other missing options."""
    name = getattr(parsed, kind, None)
    if name is None:
        return
    settings = REGISTRIES[kind]["dataclass_registry"].get(name)
    if settings is None:
        parser.error(f"--{kind} {name} has no configuration in fairseq 0.12.2 and does not start: leave it out")
    wanted = [field.name for field in dataclasses.fields(settings) if field.type is str]
    missing = [option for option in wanted if getattr(parsed, option, None) in (None, MISSING)]
    if {"source_lang", "target_lang"} & {*missing}:
        try:
            folder = utils.split_paths(parsed.data)[0]
            parsed.source_lang, parsed.target_lang = find_languages(folder, parsed.source_lang, parsed.target_lang)
        except ConfigurationError as error:
            parser.error(f"--{kind} {name}: {error}")
    for option in missing:
        if getattr(parsed, option, None) in (None, MISSING):
            parser.error(f"--{kind} {name} needs {flag(option)}")
