"""``fairseq-attnvariants translate``: the runtime of exported folders, which defines the options."""

import argparse
import importlib.util
from typing import Any

from ..installed import runtime
from ..text.files import UserError


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add a description and the runtime's options to the parser.

    Raises:
        UserError: ONNX Runtime is not installed.
    """
    parser.description = (
        "Translate text, a sentence a line, with a folder that export wrote: without fairseq and torch. "
        "The options are those of translate.py in the folder."
    )
    parser.epilog = "example: fairseq-attnvariants translate package test.en --beam 5 > translations.txt"
    module = load()
    module.add_options(parser)

    def run(options: argparse.Namespace) -> Any:
        try:
            return module.run(options, options.others)
        except (module.PackageError, module.SentenceError) as error:
            raise UserError(str(error)) from error

    parser.set_defaults(run=run, takes_others=True)


def load() -> Any:
    """Import the runtime of this version.

    Raises:
        UserError: a library that it needs is not installed.
    """
    spec = importlib.util.spec_from_file_location("fairseq_attnvariants_run", runtime())
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except ImportError as error:
        raise UserError(f"{error.name} is not installed: pip install numpy onnxruntime") from error
    return module
