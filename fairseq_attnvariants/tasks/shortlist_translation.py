"""Stock translation with vocabulary shortlists; see :mod:`.shortlist`."""

from dataclasses import dataclass
from typing import Optional

from fairseq.data import Dictionary
from fairseq.tasks import register_task
from fairseq.tasks.translation import TranslationConfig, TranslationTask

from ..architectures.options import option
from ..registry import ConfigurationError
from .shortlist import Shortlist, ShortlistGenerator, read_table

SIZE, FREQUENT = 50, 100


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

    It takes models of any task that reads the same dictionaries.  A model of ``--task translation`` needs only this
    task's name to translate.

    Raises:
        ConfigurationError: the table is none of this data folder's words, or an option changes nothing.
    """

    def __init__(self, cfg: ShortlistTranslationConfig, src_dict: Dictionary, tgt_dict: Dictionary):
        super().__init__(cfg, src_dict, tgt_dict)
        self.shortlist: Optional[Shortlist] = None
        sizes = {"--shortlist-size": cfg.shortlist_size, "--shortlist-frequent": cfg.shortlist_frequent}
        for flag, size in sizes.items():
            if size is not None and not cfg.shortlist:
                raise ConfigurationError(f"{flag} changes --shortlist, which is not given: add it")
            if size is not None and size < 0:
                raise ConfigurationError(f"{flag} must be 0 or above, not {size}")
        if cfg.shortlist:
            size, frequent = (
                given if given is not None else default for given, default in zip(sizes.values(), (SIZE, FREQUENT))
            )
            self.shortlist = Shortlist(read_table(cfg.shortlist), src_dict, tgt_dict, size, frequent)

    def build_generator(self, models, args, seq_gen_cls=None, extra_gen_cls_kwargs=None, prefix_allowed_tokens_fn=None):
        """Build the stock task's generator, which gets a list for each batch.

        Raises:
            ConfigurationError: what it is asked for reads the whole vocabulary.
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
        for flag, given in whole.items():
            if given:
                raise ConfigurationError(
                    f"{flag} reads the whole vocabulary, and --shortlist leaves most of it out: choose one"
                )
        return ShortlistGenerator(generator, self.shortlist)
