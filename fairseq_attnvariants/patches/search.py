"""Search by CUDA graphs in every task and command, and refusals of options that the search cannot follow.

With a coverage penalty there are no probabilities to sample from.  ``fairseq-interactive`` does not read ``--lm-path``.
"""

from fairseq.models import FairseqLanguageModel
from fairseq.tasks.fairseq_task import FairseqTask

from ..models.static_search import StaticSearch, StaticSearchWithAlignment, searchable
from ..registry import ConfigurationError
from .replaced import replaces


@replaces(FairseqTask, "build_generator")
def build_generator(plain, self, models, args, seq_gen_cls=None, extra_gen_cls_kwargs=None, *more, **named):
    """Build the static search by default for models of this package, unless ``cuda_graphs`` is false.

    Raises:
        ConfigurationError: ``--sampling`` with a coverage penalty; ``--lm-path`` is no language model or not read.
    """
    penalised = any(getattr(getattr(model, "decoder", None), "coverage_penalty", 0) for model in models)
    if getattr(args, "sampling", False) and penalised:
        raise ConfigurationError(
            "--sampling draws from probabilities, which a coverage penalty changes: leave out --sampling, or "
            "coverage_penalty in --model-overrides"
        )
    if path := getattr(args, "lm_path", None):
        language_model = (extra_gen_cls_kwargs or {}).get("lm_model")
        if language_model is None:
            raise ConfigurationError(f"--lm-path {path} is read only by fairseq-generate: use that, or leave it out")
        if not isinstance(language_model, FairseqLanguageModel):
            raise ConfigurationError(f"--lm-path {path} is no language model, but a {type(language_model).__name__}")
    refused = any(getattr(getattr(model, "cfg", None), "cuda_graphs", None) is False for model in models)
    if seq_gen_cls is None and not refused and all(map(searchable, models)):
        seq_gen_cls = StaticSearch
        if alignment := getattr(args, "print_alignment", None):
            seq_gen_cls = StaticSearchWithAlignment
            extra_gen_cls_kwargs = {**(extra_gen_cls_kwargs or {}), "print_alignment": alignment}
    return plain(self, models, args, seq_gen_cls, extra_gen_cls_kwargs, *more, **named)
