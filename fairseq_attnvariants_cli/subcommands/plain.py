"""``fairseq-attnvariants plain``: a model as safetensors, JSON and text."""

import os
from dataclasses import dataclass

from ..options import option
from ..text.files import UserError, say
from ..text.folders import new_folder


@dataclass
class Options:
    """Write a model as a folder of plain files: model.safetensors, config.json and the dictionaries. No file contains a
    pickle. from_pretrained reads the folder, and so does fairseq-generate --path DIR/model.safetensors.

    example: fairseq-attnvariants plain data-bin --path checkpoints/checkpoint_best.pt --output en-de

    Args:
        data: folder made by fairseq-preprocess, with the dictionaries
        path: the model
        output: the new folder
    """

    data: str = option("DATA", positional=True)
    path: str = option("CHECKPOINT", required=True)
    output: str = option("DIR", required=True)


def run(options: Options) -> None:
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
