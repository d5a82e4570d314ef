"""Write a folder with a fairseq checkpoint and dictionaries, from a model that another toolkit trained."""

import io
import os
from pathlib import Path
from typing import Any, NamedTuple

import torch
from fairseq.data import Dictionary
from fairseq.dataclass.configs import FairseqConfig
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from omegaconf import OmegaConf, open_dict

from fairseq_attnvariants.architectures.options import AttentionRNNConfig
from fairseq_attnvariants.architectures.variants import fill
from fairseq_attnvariants.models import AttentionRNNModel
from fairseq_attnvariants.patches.loading.plain import checkpoint
from fairseq_attnvariants.registry import ConfigurationError

from ..text.files import UserError
from .nematus import Network
from .vocabulary import Vocabulary

ARCHITECTURE = "dl4mt"
MODEL = "model.pt"


class Side(NamedTuple):
    """A language, its dictionary, and the number of rows of its embedding matrix."""

    language: str
    vocabulary: Vocabulary
    rows: int

    def write(self, folder: str) -> Dictionary:
        """Write ``dict.LANGUAGE.txt``, and return the dictionary that fairseq reads from it."""
        path = os.path.join(folder, f"dict.{self.language}.txt")
        with open(path, "w", encoding="utf-8", newline="\n") as stream:
            stream.writelines(f"{line}\n" for line in self.vocabulary.lines(self.rows))
        return Dictionary.load(path)


def write_folder(folder: str, network: Network, source: Side, target: Side) -> AttentionRNNModel:
    """Write the checkpoint and the dictionaries of a network, and return its model.

    Raises:
        UserError: an array is missing, unread or of another shape, or this package has no such model.
    """
    dictionaries = source.write(folder), target.write(folder)
    cfg = configuration(network, source.language, target.language)
    try:
        model = AttentionRNNModel.build_model(cfg.model, TranslationTask(cfg.task, *dictionaries))
    except ConfigurationError as error:
        raise UserError(f"{network.arrays.path} has arrays that do not fit together: {error}") from error
    network.fill(model, *(side.vocabulary.rows(side.rows) for side in (source, target)))
    state = checkpoint(OmegaConf.to_container(cfg, resolve=True, enum_to_str=True), model.state_dict())
    content = io.BytesIO()  # torch.save raises a RuntimeError on a full disk
    torch.save({**state, "criterion": None, "task_state": {}}, content)
    Path(folder, MODEL).write_bytes(content.getbuffer())
    return model


def configuration(network: Network, source: str, target: str) -> Any:
    """Return fairseq's configuration of an imported network, for translation between two languages."""
    cfg = OmegaConf.structured(FairseqConfig())
    task = TranslationConfig(data=".", source_lang=source, target_lang=target)
    model = AttentionRNNConfig(**network.options, dropout=0.0)
    model.max_source_positions = model.max_target_positions = task.max_source_positions
    fill(model, ARCHITECTURE)
    with open_dict(cfg):
        cfg.task = {**vars(task), "_name": "translation"}
        cfg.model = {**vars(model), "_name": ARCHITECTURE}
        cfg.criterion = {"_name": "cross_entropy", "sentence_avg": False}
    return cfg
