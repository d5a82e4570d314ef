"""A test of validation before the first batch, on one sentence of each text.

Stock fairseq validates for the first time at the end of an epoch.  A metric that is not logged, a sentence that is too
long for ``--max-tokens``, or a wrong option of ``--eval-bleu`` ends the training there, and nothing is saved.  For a
metric of which more is better, it keeps the worst checkpoint without ``--maximize-best-checkpoint-metric``, and does
not warn.
"""

import dataclasses
import json
from typing import Any

from fairseq.data.data_utils import post_process
from fairseq.dataclass.configs import GenerationConfig
from fairseq.logging import metrics
from fairseq.registry import REGISTRIES
from fairseq.tasks.translation import TranslationTask

from ...architectures.options import flag
from ...registry import ConfigurationError, nearest
from ..replaced import replaces

HIGHER = {"accuracy", "acc", "acc_and_f1", "bleu", "chrf", "f1", "mcc"}
LOWER = {"loss", "ppl", "wer", "cer", "uer", "ser"}
LOGGED_BY = {"bleu": "--eval-bleu logs it", "chrf": "--task char_translation --eval-bleu logs it"}
# fairseq divides by these at the end of an epoch or after saving
INTERVALS = (
    ("checkpoint", "save_interval"),
    ("checkpoint", "keep_interval_updates_pattern"),
    ("dataset", "validate_interval"),
)


@replaces(TranslationTask, "build_model")
def build_model(build, self, *args, **named):
    """Check the options of ``--eval-bleu`` when the model is built."""
    if self.cfg.eval_bleu:
        check_bleu(self.cfg)
    return build(self, *args, **named)


@replaces(TranslationTask, "reduce_metrics")
def reduce_metrics(reduce, self, logging_outputs, criterion) -> None:
    """Give a BLEU score also if all translations are empty."""
    if sum(log.get("_bleu_totals_0", 1) for log in logging_outputs) == 0:
        # almost no words: with none at all, fairseq logs no BLEU, and then fails when it reads it
        logging_outputs = [{**log, "_bleu_totals_0": 1e-9} for log in logging_outputs]
    reduce(self, logging_outputs, criterion)


def check_bleu(cfg: Any) -> None:
    """Refuse options of ``--eval-bleu`` that fairseq could not read.

    Raises:
        ConfigurationError: naming the option.
    """
    for name, example in (("eval_bleu_args", '{"beam": 4}'), ("eval_bleu_detok_args", '{"source_lang": "de"}')):
        try:
            known = isinstance(json.loads(getattr(cfg, name)), dict)
        except (TypeError, ValueError):
            known = False
        if not known:
            escaped = example.replace('"', '\\"')
            raise ConfigurationError(
                f"{flag(name)} {getattr(cfg, name)}: this is no JSON object; quote it twice, as in {flag(name)} "
                f"'{example}', or by hydra 'task.{name}=\"{escaped}\"'"
            )
    known_options = [field.name for field in dataclasses.fields(GenerationConfig)]
    for option in json.loads(cfg.eval_bleu_args):
        if option not in known_options:
            raise ConfigurationError(f"--eval-bleu-args: no search has {option!r}{nearest(option, known_options)}")
    tokenizers = REGISTRIES["tokenizer"]["registry"]
    if cfg.eval_bleu_detok not in tokenizers:
        raise ConfigurationError(
            f"--eval-bleu-detok {cfg.eval_bleu_detok}: there is no such tokenizer; there are "
            f"{', '.join(sorted(tokenizers))}"
        )
    try:
        post_process("", cfg.eval_bleu_remove_bpe)
    except NotImplementedError:
        raise ConfigurationError(
            f"--eval-bleu-remove-bpe {cfg.eval_bleu_remove_bpe}: there are no such subwords; they are '@@ ', which is "
            "what the option alone means, or sentencepiece, by hydra task.eval_bleu_remove_bpe=sentencepiece"
        ) from None


def check_options(cfg: Any) -> None:
    """Refuse options that stock fairseq reads only at the end of an epoch, and whose values make no sense.

    Raises:
        ConfigurationError: an interval is 0, an option needs scores without validation, or the worst would be kept.
    """
    for section, option in INTERVALS:
        if cfg[section][option] == 0:
            raise ConfigurationError(f"{flag(option)} 0: an interval is 1 or above")
    plateau = cfg.lr_scheduler._name == "reduce_lr_on_plateau"
    waiting = "--lr-scheduler reduce_lr_on_plateau" if plateau else "--patience" if cfg.checkpoint.patience > 0 else ""
    if cfg.dataset.disable_validation and waiting:
        raise ConfigurationError(
            f"{waiting} waits for scores, and with --disable-validation there are none: leave one out"
        )
    if cfg.dataset.disable_validation:
        return
    metric, highest = cfg.checkpoint.best_checkpoint_metric, cfg.checkpoint.maximize_best_checkpoint_metric
    if metric in HIGHER and not highest:
        raise ConfigurationError(
            f"--best-checkpoint-metric {metric} is better the higher it is, and the lowest would be kept: add "
            "--maximize-best-checkpoint-metric"
        )
    if highest and (metric in LOWER or metric.endswith("_loss")):
        raise ConfigurationError(
            f"--best-checkpoint-metric {metric} is better the lower it is, and the highest would be kept: leave out "
            "--maximize-best-checkpoint-metric"
        )


def check_numbers(cfg: Any) -> None:
    """Refuse numbers with which fairseq divides by 0, makes one batch of all, or ends without an update.

    Raises:
        ConfigurationError: naming the option.
    """
    dataset, optimization = cfg.dataset, cfg.optimization
    if dataset.get("batch_size") is None and dataset.get("max_tokens") is None:
        raise ConfigurationError("--batch-size or --max-tokens is needed: say how many sentences or tokens a batch has")
    least = {"batch_size": 1, "max_tokens": 1, "batch_size_valid": 1, "max_tokens_valid": 1, "num_workers": 0}
    found = [(option, dataset.get(option), smallest) for option, smallest in least.items()]
    found += [("log_interval", cfg.common.get("log_interval"), 1)]
    for option, smallest in (("update_freq", 1), ("lr", 0)):
        if not len(optimization[option]):
            raise ConfigurationError(f"{flag(option)}: the list is empty: give a number")
        found += [(option, value, smallest) for value in optimization[option]]
    for option, value, smallest in found:
        if value is not None and not value >= smallest:
            raise ConfigurationError(f"{flag(option)} {value}: the number is {smallest} or above")


def check_validation(trainer: Any) -> None:
    """Validate one sentence of each text, and refuse a ``--best-checkpoint-metric`` that is not among its scores.

    Raises:
        ConfigurationError: :func:`check_options` raises it, validation fails, or the metric is not logged.
    """
    cfg, metric = trainer.cfg, trainer.cfg.checkpoint.best_checkpoint_metric
    check_options(cfg)
    if cfg.dataset.disable_validation:
        return
    for subset in cfg.dataset.valid_subset.split(","):
        scores = first_scores(trainer, subset)
        if metric not in scores and not hasattr(trainer.task, "post_validate"):
            hint = f"there are {', '.join(sorted(scores))}"
            if hasattr(trainer.task.cfg, "eval_bleu"):
                hint = LOGGED_BY.get(metric, hint)
            raise ConfigurationError(
                f"--best-checkpoint-metric {metric}: validation of {subset} logs no such value; {hint}"
            )


def first_scores(trainer: Any, subset: str) -> dict[str, Any]:
    """Return what validation logs for a text's first sentence.

    This does not change the training: each update sets the seed and the model's mode again.

    Raises:
        ConfigurationError: the text cannot be divided into batches, or the sentence cannot be validated.
    """
    with metrics.aggregate(new_root=True) as logged:
        try:
            batches = trainer.get_valid_iterator(subset)
            sentence = batches.collate_fn([batches.dataset[index] for index in batches.frozen_batches[0][:1]])
            trainer.valid_step(sentence)
        except ConfigurationError:
            raise
        except Exception as error:
            hint = "; give a larger --max-tokens-valid" if "max_tokens" in str(error) else ""
            raise ConfigurationError(f"validation of {subset} ends in {type(error).__name__}: {error}{hint}") from error
        return logged.get_smoothed_values()
