"""Search by CUDA graphs, whatever task and command search."""

from fairseq.tasks.fairseq_task import FairseqTask

from ..models.static_search import StaticSearch, StaticSearchWithAlignment, searchable
from .replaced import replaces


@replaces(FairseqTask, "build_generator")
def build_generator(plain, self, models, args, seq_gen_cls=None, extra_gen_cls_kwargs=None, *more, **named):
    """The static search is the default for models of this package, unless ``cuda_graphs`` is false."""
    refused = any(getattr(getattr(model, "cfg", None), "cuda_graphs", None) is False for model in models)
    if seq_gen_cls is None and not refused and all(map(searchable, models)):
        alignment = getattr(args, "print_alignment", None)
        if alignment:
            extra_gen_cls_kwargs = {**(extra_gen_cls_kwargs or {}), "print_alignment": alignment}
        seq_gen_cls = StaticSearchWithAlignment if alignment else StaticSearch
    return plain(self, models, args, seq_gen_cls, extra_gen_cls_kwargs, *more, **named)
