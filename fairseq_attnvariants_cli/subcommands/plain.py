"""``fairseq-attnvariants plain``: a model as safetensors, JSON and text."""

import argparse
import os

from ..text.files import UserError, say
from ..text.folders import new_folder


def run(options: argparse.Namespace) -> None:
    """Read the checkpoint, write the folder."""
    with new_folder(options.output) as folder:
        from fairseq_attnvariants.deploy.plain import MODEL, save
        from fairseq_attnvariants.registry import ConfigurationError

        from ..systems.model import read_checkpoint

        state = read_checkpoint(options.path)
        try:
            save(folder, state, options.data)
        except ConfigurationError as error:
            raise UserError(f"{options.path}: {error}") from error
    say(f"{os.path.join(options.output, MODEL)}, with its configuration and dictionaries")


def add(parser: argparse.ArgumentParser) -> None:
    """Write a model to a folder of plain files: model.safetensors, config.json and the dictionaries. Nothing in them is
    pickled. from_pretrained reads the folder, and fairseq-generate --path DIR/model.safetensors.

    example: fairseq-attnvariants plain data-bin --path checkpoints/checkpoint_best.pt --output en-de
    """
    parser.add_argument("data", metavar="DATA", help="folder of fairseq-preprocess, with the dictionaries")
    parser.add_argument("--path", metavar="CHECKPOINT", required=True, help="the model")
    parser.add_argument("--output", metavar="DIR", required=True, help="the new folder")
