"""Translation from Python, with attention."""

from typing import List, NamedTuple

from fairseq.hub_utils import GeneratorHubInterface
from torch import Tensor


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
        """
        if not attention:
            return super().translate(sentences, beam, verbose, **options)
        if not isinstance(sentences, str):
            return [self.translate(sentence, beam, verbose, True, **options) for sentence in sentences]
        tokens = self.encode(sentences)
        best = self.generate(tokens, beam, verbose, **options)[0]
        source = [self.src_dict[token] for token in tokens.tolist()]
        target = [self.tgt_dict[token] for token in best["tokens"].tolist()]
        return Translation(self.decode(best["tokens"]), source, target, best["attention"].T.cpu())


class Pretrained:
    """Mixin for models: ``from_pretrained`` as fairseq has it, with :class:`Hub`."""

    @classmethod
    def from_pretrained(cls, *args, **options) -> Hub:
        """Load a model with its task; see ``fairseq.models.BaseFairseqModel.from_pretrained``."""
        loaded = super().from_pretrained(*args, **options)  # type: ignore[misc]
        return Hub(loaded.cfg, loaded.task, loaded.models)
