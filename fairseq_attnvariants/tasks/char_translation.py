"""Translation of plain text by models on characters (Zhao and Zhang 2018 §4)."""

import logging
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import torch
from fairseq import utils
from fairseq.data import BaseWrapperDataset, Dictionary, LanguagePairDataset
from fairseq.tasks import FairseqTask, register_task
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from sacrebleu.metrics import BLEU, CHRF
from torch import Tensor

from ..architectures.options import option
from ..registry import ConfigurationError
from .character_dictionary import SPACE_IN_FILE, CharacterDictionary, to_characters
from .limits import with_limits
from .scores import SummedScore, log_scores

logger = logging.getLogger(__name__)

DICTIONARY_SIZE = 304  # 300 characters and fairseq's four special symbols
# a translation has at most A symbols for each source symbol (a subword has about four characters), and B more
MAX_LEN_A, MAX_LEN_A_SUBWORDS, MAX_LEN_B = 3, 12, 200
# noncharacters, one for each side, so that an unknown character counts as one character and never as correct
UNKNOWN_IN_REFERENCE, UNKNOWN_IN_HYPOTHESIS = "\ufffe", "\uffff"


@dataclass
class CharTranslationConfig(TranslationConfig):
    """The stock translation task's options, with lengths in characters."""

    max_source_positions: int = option("longest accepted source, in characters, plus 2 (a space and EOS)", 10000)
    max_target_positions: int = option("longest accepted or generated target, in characters, plus 1 (EOS)", 10000)
    max_train_characters: int = option("leave pairs with more characters on one side out of training; 0 keeps all", 300)
    source_subwords: bool = option("read words or subwords, and write characters (bpe2char)", False)
    eval_bleu: bool = option("translate the validation set and log its BLEU and its chrF", False)


@register_task("char_translation", dataclass=CharTranslationConfig)
class CharTranslationTask(TranslationTask):
    """Translation from text to text by models on characters.

    A source is its characters, a space and EOS, so that every word ends with a space; a target is its characters and
    EOS.  ``source_dictionary`` and ``target_dictionary`` are :class:`CharacterDictionary`.  Alignments count symbols.
    With ``--source-subwords`` sources and their dictionary are those of the stock task.
    fairseq-generate scores words with ``--scoring sacrebleu``; its default counts 4-grams of characters.

    Raises:
        ConfigurationError: a dictionary of the data folder does not have the symbols, characters or subwords, that the
            options need; ``--num-batch-buckets`` is set; or ``--max-train-characters`` is below 0.
    """

    def __init__(self, cfg: CharTranslationConfig, src_dict: Dictionary, tgt_dict: CharacterDictionary):
        if cfg.num_batch_buckets:
            raise ConfigurationError("--num-batch-buckets does not work with --task char_translation: leave it out")
        if cfg.source_subwords and isinstance(src_dict, CharacterDictionary):
            raise ConfigurationError(
                f"the source dictionary of {cfg.data} is one of characters: leave --source-subwords out, or give "
                "fairseq-preprocess a dictionary of subwords with --srcdict"
            )
        for side, dictionary in (("source", src_dict), ("target", tgt_dict)):
            if not isinstance(dictionary, CharacterDictionary) and (side == "target" or not cfg.source_subwords):
                raise ConfigurationError(
                    f"the {side} dictionary of {cfg.data} is not one of characters: preprocess the text with "
                    "fairseq-preprocess --user-dir ... --task char_translation; a source of subwords needs "
                    "--source-subwords"
                )
        if cfg.max_train_characters < 0:
            raise ConfigurationError(f"--max-train-characters must be at least 0, not {cfg.max_train_characters}")
        super().__init__(cfg, src_dict, tgt_dict)
        self.trains = self.constrained = False
        bleu = BLEU(tokenize="none" if cfg.eval_tokenized_bleu else "13a", force=True)
        self.scores = SummedScore("bleu", bleu), SummedScore("chrf", CHRF())

    @classmethod
    def load_dictionary(cls, filename: str) -> Dictionary:
        """Read ``dict.txt``, of characters or of subwords."""
        with open(filename, encoding="utf-8", errors="ignore") as lines:
            kind = CharacterDictionary if lines.readline().startswith(f"{SPACE_IN_FILE} ") else Dictionary
        return kind.load(filename)

    @classmethod
    def build_dictionary(
        cls, filenames, workers: int = 1, threshold: int = -1, nwords: int = -1, padding_factor: int = 8
    ) -> CharacterDictionary:
        """The most frequent characters of text files; ``nwords`` includes four special symbols and is 304 if unset."""
        dictionary = CharacterDictionary()
        for filename in filenames:
            Dictionary.add_file_to_dictionary(filename, dictionary, to_characters, workers)
        dictionary.finalize(threshold, nwords if nwords > 0 else DICTIONARY_SIZE, padding_factor)
        return dictionary

    def load_dataset(self, split, epoch=1, combine=False, **kwargs) -> None:
        """Load a split; sources of characters end in a space and EOS."""
        super().load_dataset(split, epoch, combine, **kwargs)
        limit = self.cfg.max_source_positions if self.cfg.truncate_source else sys.maxsize
        self._end_last_words(self.datasets[split], limit)

    def build_dataset_for_inference(self, src_tokens, src_lengths, constraints=None) -> LanguagePairDataset:
        """Return a dataset of encoded sources; sources of characters end in a space and EOS."""
        return self._end_last_words(super().build_dataset_for_inference(src_tokens, src_lengths, constraints))

    def _end_last_words(self, pairs: LanguagePairDataset, limit: int = sys.maxsize) -> LanguagePairDataset:
        if self.cfg.source_subwords:
            return pairs
        pairs.src = SpaceBeforeEOS(pairs.src, pairs.src_sizes, self.src_dict.space(), limit)
        pairs.src_sizes = pairs.src.sizes
        pairs.sizes = pairs.src_sizes if pairs.tgt is None else np.stack((pairs.src_sizes, pairs.tgt_sizes), axis=1)
        return pairs

    def build_bpe(self, args):
        """Build a model of subwords; with ``--source-subwords`` it applies to sources alone.

        Raises:
            ConfigurationError: fairseq-interactive would cut constraints into subwords, too.
        """
        bpe = super().build_bpe(args)
        if bpe is None or not self.cfg.source_subwords:
            return bpe
        if self.constrained:
            raise ConfigurationError(
                "--bpe would cut --constraints as it cuts the source, and with --source-subwords they are characters: "
                "leave --bpe out, and give the source in subwords"
            )
        return SimpleNamespace(encode=bpe.encode, decode=str)  # targets are characters, with no subwords to join

    def build_criterion(self, cfg, *more):
        """Build the stock task's criterion, and note that this process trains or validates."""
        self.trains = True
        return super().build_criterion(cfg, *more)

    def filter_indices_by_size(self, indices, dataset, max_positions=None, ignore_invalid_inputs=False):
        """Leave out pairs that are too long; in training also those that exceed ``--max-train-characters``.

        Only training and ``--skip-invalid-size-inputs-valid-test`` ignore invalid inputs; otherwise they are an error.
        """
        limit = self.cfg.max_train_characters
        training = self.trains and dataset is self.datasets.get(self.cfg.train_subset)
        limited = limit and training and ignore_invalid_inputs
        if limited:
            max_positions = utils.resolve_max_positions(max_positions, (limit + 2, limit + 1))
        found = super().filter_indices_by_size(indices, dataset, max_positions, ignore_invalid_inputs)
        if limited and not len(found):
            raise ConfigurationError(
                f"--max-train-characters {limit} leaves no pair of {self.cfg.train_subset}: make it larger, or 0"
            )
        return found

    def build_generator(self, models, args, *more, **named):
        """Build a generator whose limit on length suits characters.

        If ``--max-len-a`` and ``--max-len-b`` both have fairseq's defaults, 0 and 200, they become 3 and 200, or 12 and
        200 for a source of subwords, even if the defaults were given on the command line.  Otherwise both are kept.
        """
        self.constrained = bool(getattr(args, "constraints", None))
        args = with_limits(args, MAX_LEN_A_SUBWORDS if self.cfg.source_subwords else MAX_LEN_A, MAX_LEN_B)
        return super().build_generator(models, args, *more, **named)

    def valid_step(self, sample, model, criterion):
        """Validate a batch; with ``--eval-bleu`` the logged numbers include the counts of BLEU and chrF."""
        # the method of TranslationTask logs BLEU alone
        loss, sample_size, logging_output = FairseqTask.valid_step(self, sample, model, criterion)
        if self.cfg.eval_bleu:
            hypotheses, references = self._translate(sample, model)
            for score in self.scores:
                logging_output.update(score.counts(hypotheses, references))
        return loss, sample_size, logging_output

    def reduce_metrics(self, logging_outputs, criterion) -> None:
        """Log the criterion's metrics, and in validation ``bleu`` and ``chrf`` of all counts so far."""
        FairseqTask.reduce_metrics(self, logging_outputs, criterion)
        for score in self.scores:
            log_scores(logging_outputs, score.keys, {score.name: score.score})

    def _translate(self, sample, model):
        found = self.inference_step(self.sequence_generator, [model], sample)
        hypotheses = [self._text(best["tokens"], UNKNOWN_IN_HYPOTHESIS) for best, *_ in found]
        references = [self._text(target, UNKNOWN_IN_REFERENCE) for target in sample["target"]]
        if self.cfg.eval_bleu_print_samples:
            logger.info("example hypothesis: " + hypotheses[0])
            logger.info("example reference: " + references[0])
        return hypotheses, references

    def _text(self, tokens: Tensor, unknown: str) -> str:
        tokens = utils.strip_pad(tokens, self.tgt_dict.pad()).int().cpu()
        text = self.tgt_dict.string(tokens, unk_string=unknown)
        return self.tokenizer.decode(text) if self.tokenizer else text


class SpaceBeforeEOS(BaseWrapperDataset):
    """Encoded sentences, with a space before their EOS; cut to ``limit`` symbols, space and EOS included."""

    def __init__(self, sentences: Sequence[Tensor], sizes: Sequence[int], space: int, limit: int = sys.maxsize):
        super().__init__(sentences)
        self.space = space
        self.limit = limit
        self._sizes = np.minimum(np.asarray(sizes, dtype=np.int64) + 1, limit)

    def __getitem__(self, index: int) -> Tensor:
        """Return one sentence."""
        sentence = self.dataset[index]
        return torch.cat([sentence[:-1][: self.limit - 2], sentence.new_tensor([self.space]), sentence[-1:]])

    @property
    def sizes(self) -> np.ndarray:
        """The length of every sentence."""
        return self._sizes
