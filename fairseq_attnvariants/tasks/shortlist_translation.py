"""Stock translation with vocabulary shortlists; see :mod:`.shortlist`."""

from dataclasses import dataclass
from typing import Any, Optional

from fairseq.data import Dictionary
from fairseq.tasks import register_task
from fairseq.tasks.translation import TranslationConfig, TranslationTask

from ..architectures.options import flag, option
from ..registry import ConfigurationError
from .shortlist import Shortlist, ShortlistGenerator, read_candidates

SIZE, FREQUENT = 50, 100


def read_shortlist(options: Any, source: Dictionary, target: Dictionary) -> Shortlist | None:
    """Return the shortlist of ``shortlist``, ``shortlist_size`` and ``shortlist_frequent``; None without the first.

    Raises:
        ConfigurationError: the table has no words of these dictionaries, or an option is below 0 or changes nothing.
    """
    sizes: list[int] = []
    for name, default in (("shortlist_size", SIZE), ("shortlist_frequent", FREQUENT)):
        size = getattr(options, name)
        if size is not None and not options.shortlist:
            raise ConfigurationError(f"{flag(name)} changes --shortlist, which is not given: add it")
        if size is not None and size < 0:
            raise ConfigurationError(f"{flag(name)} must be 0 or above, not {size}")
        sizes.append(default if size is None else size)
    return Shortlist(read_candidates(options.shortlist), source, target, *sizes) if options.shortlist else None


@dataclass
class ShortlistTranslationConfig(TranslationConfig):
    """The stock translation task's options, and those of the list."""

    shortlist: Optional[str] = option(
        "choose target words only from this table's entries for the source words; fairseq-attnvariants lexicon "
        "--candidates writes it (default: the whole vocabulary)"
    )
    shortlist_size: Optional[int] = option(f"translations per source word in the list (default: {SIZE})")
    shortlist_frequent: Optional[int] = option(
        f"number of most frequent words that are in every list (default: {FREQUENT})"
    )


@register_task("shortlist_translation", dataclass=ShortlistTranslationConfig)
class ShortlistTranslationTask(TranslationTask):
    """Stock translation; ``--shortlist`` restricts search to a vocabulary shortlist.

    It works with models of any task that reads the same dictionaries.  To translate with a model of
    ``--task translation``, give this task's name instead.

    Raises:
        ConfigurationError: the table has no words of the data folder's dictionaries, or an option is below 0 or changes
            nothing.
    """

    def __init__(self, cfg: ShortlistTranslationConfig, src_dict: Dictionary, tgt_dict: Dictionary):
        super().__init__(cfg, src_dict, tgt_dict)
        self.shortlist = read_shortlist(cfg, src_dict, tgt_dict)

    def build_generator(self, models, args, seq_gen_cls=None, extra_gen_cls_kwargs=None, prefix_allowed_tokens_fn=None):
        """Build the stock task's generator; with ``--shortlist`` it searches a shortlist for each batch.

        Raises:
            ConfigurationError: an option of the search needs the full vocabulary.
        """
        allowed = prefix_allowed_tokens_fn or getattr(args, "prefix_allowed_tokens_fn", None)
        generator = super().build_generator(models, args, seq_gen_cls, extra_gen_cls_kwargs, prefix_allowed_tokens_fn)
        if self.shortlist is None:
            return generator
        whole = {
            "--score-reference": getattr(args, "score_reference", False),
            "--lm-path": (extra_gen_cls_kwargs or {}).get("lm_model") is not None,
            "prefix_allowed_tokens_fn": allowed is not None,
        }
        for name, given in whole.items():
            if given:
                raise ConfigurationError(
                    f"{name} reads the whole vocabulary, and --shortlist leaves most of it out: choose one"
                )
        return ShortlistGenerator(generator, self.shortlist)
