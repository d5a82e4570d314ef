"""Translation from Python, with attention."""

import dataclasses
import glob
import inspect
import os
from typing import List, NamedTuple

from fairseq.dataclass.configs import GenerationConfig
from fairseq.hub_utils import GeneratorHubInterface
from fairseq.tasks.translation_multi_simple_epoch import TranslationMultiSimpleEpochTask
from torch import Tensor

from ..registry import nearest


class Translation(NamedTuple):
    """A translation, and where the model looked while it wrote it."""

    text: str
    source: List[str]  # S tokens, EOS last
    target: List[str]  # T tokens, EOS last
    attention: Tensor  # T x S, rows sum to 1


class Hub(GeneratorHubInterface):
    """What ``from_pretrained`` returns: fairseq's interface, whose ``translate`` also gives attention."""

    def translate(self, sentences, beam: int = 5, verbose: bool = False, attention: bool = False, **options):
        """The best translation of a sentence, or of each of several.

        Args:
            sentences: a string or a list of strings.
            beam: width of the search.
            verbose: log what is translated.
            attention: return a :class:`Translation` instead of a string.
            options: of fairseq's generator, such as ``lenpen``.

        Raises:
            TypeError: there is no such option.
        """
        if not attention:
            return super().translate(sentences, beam, verbose, **options)
        if not isinstance(sentences, str):
            return [self.translate(sentence, beam, verbose, True, **options) for sentence in sentences]
        tokens = self.encode(sentences)
        best = self.generate(tokens, beam, verbose, **options)[0]
        read = self.task.build_dataset_for_inference([tokens], [len(tokens)])[0]["source"]  # as the model gets it
        source = [self.src_dict[token] for token in read.tolist()]
        target = [self.tgt_dict[token] for token in best["tokens"].tolist()]
        return Translation(self.decode(best["tokens"]), source, target, best["attention"].T.cpu())

    def generate(self, tokenized_sentences, *args, **options):
        """The hypotheses for sentences that :meth:`encode` made; see ``fairseq.hub_utils.GeneratorHubInterface``.

        Raises:
            TypeError: there is no such option, which stock fairseq takes for one that it does not need.
        """
        known = {field.name for field in dataclasses.fields(GenerationConfig)}
        known |= inspect.signature(super().generate).parameters.keys()
        for option in options.keys() - known:
            raise TypeError(f"translation has no option {option!r}{nearest(option, known)}")
        return super().generate(tokenized_sentences, *args, **options)


class Pretrained:
    """Mixin for models: ``from_pretrained`` as fairseq has it, with :class:`Hub`."""

    @classmethod
    def from_pretrained(cls, model_name_or_path, checkpoint_file="model.pt", data_name_or_path=".", **options) -> Hub:
        """Load a model with its task; see ``fairseq.models.BaseFairseqModel.from_pretrained``.

        Args:
            model_name_or_path: the folder of the checkpoint.
            checkpoint_file: its name there, or an ensemble's with colons between.
            data_name_or_path: the folder with the dictionaries; one that begins with a dot is taken from the model's.
            options: that take the place of the checkpoint's.

        Raises:
            ValueError: one of these is not there, as the message says, or the model is of several pairs of languages.
        """
        folder, data = os.fspath(model_name_or_path), os.fspath(data_name_or_path)
        check_paths(folder, checkpoint_file, data)
        loaded = super().from_pretrained(folder, checkpoint_file, data, **options)  # type: ignore[misc]
        if isinstance(loaded.task, TranslationMultiSimpleEpochTask):
            raise ValueError(
                f"{checkpoint_file} in {folder} is of several pairs (--task translation_multi_simple_epoch), of which "
                "fairseq's translation from Python knows nothing: use fairseq-generate or fairseq-interactive"
            )
        return Hub(loaded.cfg, loaded.task, loaded.models)


def check_paths(folder: str, checkpoint: str, data: str) -> None:
    """Refuse what :meth:`Pretrained.from_pretrained` cannot load; what is no folder may be an archive or an address.

    Raises:
        ValueError: saying what to give.
    """
    if folder.endswith(".pt"):
        parent, name = os.path.split(folder)
        raise ValueError(f"{folder} is a file: give its folder and its name, {parent or '.'!r}, {name!r}")
    if not os.path.isdir(folder):
        return
    for name in checkpoint.split(os.pathsep):
        if not os.path.isfile(os.path.join(folder, name)):
            raise ValueError(f"there is no {name} in {folder}: give its name there as checkpoint_file")
    dictionaries = os.path.join(folder if data.startswith(".") else "", data.split(os.pathsep)[0])
    if not glob.glob(os.path.join(glob.escape(dictionaries), "dict.*.txt")):
        where = " (what begins with a dot is taken from the model's folder)" if data.startswith(".") else ""
        raise ValueError(
            f"there are no dictionaries, dict.*.txt, in {os.path.normpath(dictionaries)}{where}: give the folder of "
            "fairseq-preprocess as data_name_or_path"
        )
