"""Label-smoothed cross-entropy with the direct bridge's embedding loss (003 §2.3)."""

from dataclasses import dataclass, field

from fairseq.criterions import register_criterion
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterionConfig
from fairseq.dataclass import ChoiceEnum

from ..losses import embedding_distance
from .costs import Cost, LabelSmoothedCrossEntropyWithCosts

NORM = ChoiceEnum(["squared", "plain"])


@dataclass
class BridgingConfig(LabelSmoothedCrossEntropyCriterionConfig):
    """The stock criterion's options, and the weight and kind of the embedding loss."""

    bridging_weight: float = field(default=1.0, metadata={"help": "weight of the embedding loss, Σ ||W x - e(y)||²"})
    bridging_norm: NORM = field(  # type: ignore[valid-type]
        default="squared", metadata={"help": "sum the squared norms or the plain ones"}
    )


NAME = "label_smoothed_cross_entropy_with_bridging"


@register_criterion(NAME, dataclass=BridgingConfig)
class LabelSmoothedCrossEntropyWithBridging(LabelSmoothedCrossEntropyWithCosts):
    """Adds the distance of the mapped source embedding to the target's; it is logged per target token."""

    name, term, unit, names = NAME, "bridged", "ntokens", ("bridging_loss",)
    needs = "a direct bridge, such as --arch bridge_direct or --bridge-direct hard"

    def __init__(  # fairseq reads the names of the options from the signature
        self,
        task,
        sentence_avg: bool,
        label_smoothing: float,
        ignore_prefix_size: int,
        report_accuracy: bool,
        bridging_weight: float,
        bridging_norm: str,
    ):
        super().__init__(task, sentence_avg, label_smoothing, ignore_prefix_size, report_accuracy)
        self.weight = bridging_weight
        self.squared = str(bridging_norm) == "squared"

    def costs(self, model, term, target):
        embedded = model.decoder.embed_tokens(target)
        return [Cost(self.weight, embedding_distance(term, embedded, target.ne(self.padding_idx), self.squared))]
