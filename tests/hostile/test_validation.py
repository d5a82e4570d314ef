"""Errors of validation, which stock fairseq finds after an epoch without saving, are found before the first batch."""

import shutil
from types import SimpleNamespace

import corpus
import pytest
from fairseq.dataclass.configs import FairseqConfig
from fairseq.logging import metrics
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from omegaconf import OmegaConf

from fairseq_attnvariants.patches.loading.checkpoints import load
from fairseq_attnvariants.patches.training import validation
from fairseq_attnvariants.patches.training.validation import first_scores
from fairseq_attnvariants.registry import ConfigurationError

pytestmark = [pytest.mark.hostile, pytest.mark.filterwarnings("ignore")]  # stock fairseq has many

HIGHEST = "--maximize-best-checkpoint-metric"
REFUSED = {
    "no BLEU": (["--best-checkpoint-metric", "bleu", HIGHEST], "metric bleu: .* no such value; --eval-bleu logs it"),
    "no chrF": (
        ["--eval-bleu", "--best-checkpoint-metric", "chrf", HIGHEST],
        "metric chrf: .* no such value; --task char_translation",
    ),
    "no interval of kept updates": (
        ["--keep-interval-updates-pattern", "0"],
        "^--keep-interval-updates-pattern 0: an interval is 1 or above",
    ),
    "no such metric": (["--best-checkpoint-metric", "nll"], "metric nll: .* there are bsz, loss, nll_loss, ppl"),
    "the worst BLEU": (["--eval-bleu", "--best-checkpoint-metric", "bleu"], f"would be kept: add {HIGHEST}$"),
    "the worst chrF": (["--best-checkpoint-metric", "chrf"], f"would be kept: add {HIGHEST}$"),
    "the worst accuracy": (["--best-checkpoint-metric", "accuracy"], f"would be kept: add {HIGHEST}$"),
    "the worst word error rate": (["--best-checkpoint-metric", "wer", HIGHEST], f"wer is better the .* out {HIGHEST}$"),
    "the worst symbols": (["--best-checkpoint-metric", "ser", HIGHEST], f"ser is better the lower .* out {HIGHEST}$"),
    "the worst perplexity": (["--best-checkpoint-metric", "ppl", HIGHEST], f"ppl is better the lower .* {HIGHEST}$"),
    "the worst part of a loss": (
        ["--best-checkpoint-metric", "nll_loss", HIGHEST],
        f"nll_loss is better .* {HIGHEST}$",
    ),
    "the worst loss": ([HIGHEST], f"loss is better the lower it is, .* leave out {HIGHEST}$"),
    "no JSON": (
        ["--eval-bleu", "--eval-bleu-args", "{beam: 4}"],
        r"""--eval-bleu-args {beam: 4}: this is no JSON object; .* hydra 'task.eval_bleu_args="{\\"beam\\": 4}"'$""",
    ),
    "no tokenizer": (
        ["--eval-bleu", "--eval-bleu-detok", "mosse"],
        "--eval-bleu-detok mosse: there is no such tokenizer",
    ),
    "no object": (["--eval-bleu", "--eval-bleu-args", "4"], "--eval-bleu-args 4: this is no JSON object"),
    "no JSON of the tokenizer": (["--eval-bleu", "--eval-bleu-detok-args", "de"], "--eval-bleu-detok-args de: this is"),
    "no subwords": (["--eval-bleu", "--eval-bleu-remove-bpe=true"], "--eval-bleu-remove-bpe true: there are no such"),
    "an option that no search has": (
        ["--eval-bleu", "--eval-bleu-args", '{"baem": 4}'],
        r"--eval-bleu-args: no search has 'baem' \(did you mean beam\?\)",
    ),
    "no number": (["--eval-bleu", "--eval-bleu-args", '{"lenpen": "1"}'], "^--lenpen '1' must be a finite number"),
    "another search": (
        ["--eval-bleu", "--eval-bleu-args", '{"constraints": "ordered"}'],
        "validation of valid ends in TypeError",
    ),
    "no interval": (["--save-interval", "0"], "^--save-interval 0: an interval is 1 or above"),
    "no interval of validation": (["--validate-interval", "0"], "^--validate-interval 0: an interval is 1 or above"),
    "no scores to be patient": (["--patience", "2", "--disable-validation"], "^--patience waits for scores"),
    "no scores for the rate": (
        ["--lr-scheduler", "reduce_lr_on_plateau", "--disable-validation"],
        "^--lr-scheduler reduce_lr_on_plateau waits for scores",
    ),
    "more tokens": (
        ["--max-tokens-valid", "3"],
        r"valid.xx-yy has 4 symbols in its source, .* \(in validation --max-tokens-valid\) is 3: make it larger",
    ),
    "longer sentences": (
        ["--max-source-positions", "3"],
        r"--max-source-positions \(of a trained model .*\) is 3: .* --skip-invalid-size-inputs-valid-test",
    ),
}


def test_a_task_without_bleu_is_not_advised_to_log_it(tmp_path):
    (tmp_path / "train.tsv").write_text("ab\tba\nba\tab\n")
    shutil.copy(tmp_path / "train.tsv", tmp_path / "valid.tsv")
    more = ("--task", "string_transduction", "--best-checkpoint-metric", "bleu", HIGHEST)
    with pytest.raises(ValueError, match="metric bleu: .*; there are accuracy, bsz, loss"):
        corpus.train_here(*corpus.train_arguments(tmp_path, tmp_path / "run", *more))


def test_any_error_of_validation_is_told_with_the_text(runs, tmp_path, monkeypatch):
    def fails(*_, **__):
        raise ValueError("of somebody else's")

    monkeypatch.setattr("fairseq.tasks.translation.TranslationTask.valid_step", fails)
    with pytest.raises(ValueError, match="^validation of valid ends in ValueError: of somebody else's"):
        corpus.train_here(*corpus.train_arguments(runs.data, tmp_path / "run", "--max-update", "1"))


@pytest.mark.parametrize("kind", REFUSED)
def test_what_validation_cannot_do_is_refused_before_the_first_batch(runs, tmp_path, kind):
    more, reason = REFUSED[kind]
    smoothed = ("--criterion", "label_smoothed_cross_entropy", "--max-update", "2")
    with pytest.raises(ValueError, match=reason):
        corpus.train_here(*corpus.train_arguments(runs.data, tmp_path / "run", *smoothed, *more))
    assert not list(tmp_path.glob("**/*.pt"))


def test_the_trial_changes_nothing(runs, tmp_path):
    """Sampled translations draw random numbers, but dropout of the first update draws the same ones as without them."""
    bleu = ("--eval-bleu", "--eval-bleu-args", '{"sampling": true, "beam": 1}')
    for folder, more in (("with", bleu), ("without", ("--disable-validation",))):
        corpus.train_here(*corpus.train_arguments(runs.data, tmp_path / folder, "--max-update", "2", *more))
    one, other = (load(tmp_path / folder / "checkpoint_last.pt")["model"] for folder in ("with", "without"))
    assert all(one[name].equal(other[name]) for name in one)


def test_empty_translations_have_a_bleu_of_0(runs, tmp_path):
    """Stock fairseq logs no BLEU then, and fails because it is missing."""
    empty = ("--eval-bleu", "--eval-bleu-args", '{"max_len_b": 0, "min_len": 0}', "--best-checkpoint-metric", "bleu")
    corpus.train_here(*corpus.train_arguments(runs.data, tmp_path, "--max-update", "2", *empty, HIGHEST))
    assert load(tmp_path / "checkpoint_best.pt")["extra_state"]["val_loss"] == 0


def test_a_task_may_add_a_metric_when_validation_is_over(runs, tmp_path, monkeypatch):
    """fairseq allows it, so the trial's scores lack this metric, and must not be refused for it."""
    add = lambda self, model, stats, agg: stats.update(mine=0.5)  # noqa: E731
    monkeypatch.setattr(TranslationTask, "post_validate", add, raising=False)
    corpus.train_here(
        *corpus.train_arguments(runs.data, tmp_path, "--max-update", "1", "--best-checkpoint-metric", "mine")
    )
    assert load(tmp_path / "checkpoint_best.pt")["extra_state"]["val_loss"] == 0.5


def stand_in(valid_step, batches=("a", "b"), **options):
    """Return the part of a trainer that validation uses; the first batch has the sentences in another order."""
    iterator = SimpleNamespace(dataset=batches, frozen_batches=[[1, 0], [0]], collate_fn=lambda sentences: sentences)
    return SimpleNamespace(get_valid_iterator=lambda subset: iterator, valid_step=valid_step, **options)


def test_scores_of_the_trial_are_of_one_sentence_and_not_logged():
    seen = []

    def step(sentences):
        seen.append(sentences)
        metrics.log_scalar("loss", 2.0)
        metrics.log_scalar("_of_bleu", 3.0)

    with metrics.aggregate() as logged:
        assert first_scores(stand_in(step), "valid") == {"loss": 2.0}
    assert seen == [["b"]] and not logged.get_smoothed_values()


@pytest.mark.parametrize("error, said", [
    (ConfigurationError("a sentence"), "^a sentence$"),
    (ValueError("a word"), "^validation of valid ends in ValueError: a word$"),
    (
        AssertionError("sentence at index 0 of size 9 exceeds max_tokens limit of 3!"),  # stock fairseq's
        "AssertionError: sentence .*; give a larger --max-tokens-valid$",
    ),
])  # fmt: skip
def test_errors_of_the_trial(error, said):
    def step(_):
        raise error

    with pytest.raises(ConfigurationError, match=said):
        first_scores(stand_in(step), "valid")


def test_every_text_of_validation_is_tried(monkeypatch):
    scores = {"valid": {"loss": 1.0}, "valid1": {"ppl": 2.0}}
    monkeypatch.setattr(validation, "first_scores", lambda trainer, subset: scores[subset])
    cfg = OmegaConf.structured(FairseqConfig)
    cfg.lr_scheduler, cfg.dataset.valid_subset = {"_name": "fixed"}, "valid,valid1"
    trainer = SimpleNamespace(cfg=cfg, task=SimpleNamespace(cfg=None))
    with pytest.raises(ConfigurationError, match="metric loss: validation of valid1 logs no such value; there are ppl"):
        validation.check_validation(trainer)
    cfg.checkpoint.patience = 3  # there are scores to wait for
    scores["valid1"]["loss"] = 1.0
    validation.check_validation(trainer)


def test_options_of_a_validation_that_is_not_made_are_not_looked_at(runs, tmp_path):
    plain = ("--max-update", "1", "--eval-bleu-detok", "mosse", "--eval-bleu-args", "no JSON")
    none = ("--disable-validation", "--best-checkpoint-metric", "bleu")
    corpus.train_here(*corpus.train_arguments(runs.data, tmp_path / "plain", *plain))
    corpus.train_here(*corpus.train_arguments(runs.data, tmp_path / "none", *plain, *none))
    assert all((tmp_path / name / "checkpoint_last.pt").exists() for name in ("plain", "none"))


def test_options_of_bleu_without_a_value_are_refused():
    """hydra gives such options: ``task.eval_bleu_args=null``."""
    for name in ("eval_bleu_args", "eval_bleu_detok_args"):
        cfg = TranslationConfig(eval_bleu=True)
        setattr(cfg, name, None)
        with pytest.raises(ConfigurationError, match=f"--{name.replace('_', '-')} None: this is no JSON object"):
            validation.check_bleu(cfg)
