"""Sampling from models whose coverage penalty is on: what they give are no probabilities any more."""

import functools

from fairseq.tasks.fairseq_task import FairseqTask

from ...registry import ConfigurationError


def guard_sampling() -> None:
    """Refuse ``--sampling`` of a model with a coverage penalty, whichever task searches."""
    plain = FairseqTask.build_generator

    @functools.wraps(plain)
    def build_generator(self, models, args, *more, **named):
        penalised = any(getattr(getattr(model, "decoder", None), "coverage_penalty", 0) for model in models)
        if getattr(args, "sampling", False) and penalised:
            raise ConfigurationError(
                "--sampling draws from probabilities, which a coverage penalty changes: leave out --sampling, or "
                "coverage_penalty in --model-overrides"
            )
        return plain(self, models, args, *more, **named)

    FairseqTask.build_generator = build_generator
