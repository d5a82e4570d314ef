"""Search by CUDA graphs in every task and command, n-grams that do not repeat, and refusals of options.

With a coverage penalty there are no probabilities to sample from.  ``fairseq-interactive`` does not read ``--lm-path``,
and ``fairseq-generate`` no constraints.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from fairseq.dataclass.configs import GenerationConfig
from fairseq.models import FairseqLanguageModel
from fairseq.ngram_repeat_block import NGramRepeatBlock
from fairseq.tasks.fairseq_task import FairseqTask
from torch import Tensor

from ..architectures.options import flag
from ..models.static_search import StaticSearch, StaticSearchWithAlignment, searchable
from ..registry import ConfigurationError
from .replaced import replaces

NUMBERS = {one.name: one.default for one in dataclasses.fields(GenerationConfig) if one.type in (int, float)}
SEARCHES = "sampling", "diverse_beam_groups", "diversity_rate", "match_source_len", "constraints"


@replaces(FairseqTask, "build_generator")
def build_generator(plain, self, models, args, seq_gen_cls=None, extra_gen_cls_kwargs=None, *more, **named):
    """Build the static search by default for models of this package, unless ``cuda_graphs`` is false.

    Raises:
        ConfigurationError: :func:`check_search` raises it.
    """
    extra = dict(extra_gen_cls_kwargs or {})
    check_search(args, models, extra)
    refused = any(getattr(getattr(model, "cfg", None), "cuda_graphs", None) is False for model in models)
    if seq_gen_cls is None and not refused and all(map(searchable, models)):
        seq_gen_cls = StaticSearch
        if alignment := getattr(args, "print_alignment", None):
            seq_gen_cls = StaticSearchWithAlignment
            extra["print_alignment"] = alignment
    return plain(self, models, args, seq_gen_cls, extra, *more, **named)


def check_search(args: Any, models: Sequence[Any], extra: Mapping[str, Any]) -> None:
    """Refuse options of fairseq's search that end in a traceback or change nothing.

    Args:
        args: the options.
        models: the models that search.
        extra: further arguments of the generator; fairseq-generate alone gives ``lm_model``, a language model or None.

    Raises:
        ConfigurationError: the message names the option and what to do.
    """
    numbers: dict[str, Any] = {name: getattr(args, name, default) for name, default in NUMBERS.items()}
    for name, value in numbers.items():
        if not isinstance(value, (int, float)) or not math.isfinite(value):
            raise ConfigurationError(f"{flag(name)} {value!r} must be a finite number")
    given = [name for name in SEARCHES if getattr(args, name, None) not in (None, False, -1)]
    if len(given) > 1:
        raise ConfigurationError(f"{' and '.join(map(flag, given))} are different kinds of search: give one of them")
    for name in ("beam", "nbest"):
        if numbers[name] < 1:
            raise ConfigurationError(f"{flag(name)} {numbers[name]} must be at least 1")
    least, most = numbers["min_len"], numbers["max_len_b"]
    if least > most and not numbers["max_len_a"]:
        raise ConfigurationError(f"--min-len {least} is more than --max-len-b {most}: change one of them")
    beam, groups = numbers["beam"], numbers["diverse_beam_groups"]
    if groups > 0 and beam % groups:
        raise ConfigurationError(f"--diverse-beam-groups {groups} does not divide --beam {beam}: change one of them")
    for name in ("sampling_topk", "sampling_topp"):
        if numbers[name] > 0 and not getattr(args, "sampling", False):
            raise ConfigurationError(f"{flag(name)} is of --sampling: add that, or leave it out")
    if numbers["lm_weight"] and not getattr(args, "lm_path", None):
        raise ConfigurationError(f"--lm-weight {numbers['lm_weight']} is of --lm-path: add that, or leave it out")
    if numbers["temperature"] <= 0:
        raise ConfigurationError(f"--temperature {numbers['temperature']} must be above 0")
    if getattr(args, "print_step", False):
        raise ConfigurationError("--print-step is of models that change a whole translation in steps: leave it out")
    if getattr(args, "constraints", None) and "lm_model" in extra:
        raise ConfigurationError("--constraints are read only by fairseq-interactive: use that, or leave them out")
    penalised = any(getattr(getattr(model, "decoder", None), "coverage_penalty", 0) for model in models)
    if getattr(args, "sampling", False) and penalised:
        raise ConfigurationError(
            "--sampling draws from probabilities, which a coverage penalty changes: leave out --sampling, or "
            "coverage_penalty in --model-overrides"
        )
    if path := getattr(args, "lm_path", None):
        language_model = extra.get("lm_model")
        if language_model is None:
            raise ConfigurationError(f"--lm-path {path} is read only by fairseq-generate: use that, or leave it out")
        if not isinstance(language_model, FairseqLanguageModel):
            raise ConfigurationError(f"--lm-path {path} is no language model, but a {type(language_model).__name__}")


@replaces(NGramRepeatBlock, "_no_repeat_ngram")
def block_repeated(_, self, tokens: Tensor, scores: Tensor, sentences: int, beam: int, step: int) -> Tensor:
    """Set the scores of tokens that would repeat an n-gram of their hypothesis to minus infinity.

    fairseq compares n-grams with the end of the memory for tokens, which is empty before the last step.  So it allowed
    all repetitions.

    Args:
        tokens: (rows, memory) int64; the first one of a row is no word, and ``step`` words follow
        scores: (rows, vocabulary), changed in place
    """
    words, n = tokens[:, 1 : step + 1], self.no_repeat_ngram_size
    if step >= n:
        said = words.unfold(1, n, 1)  # (rows, n-grams, n)
        last = words[:, step - n + 1 :].unsqueeze(1)
        rows, places = (said[..., :-1] == last).all(-1).nonzero(as_tuple=True)
        scores[rows, said[rows, places, -1]] = -math.inf
    return scores
