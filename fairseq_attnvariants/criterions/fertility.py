"""Label-smoothed cross-entropy with CondDec's step-decay and left-over costs (001 §5)."""

from dataclasses import dataclass, field

from fairseq.criterions import register_criterion
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterionConfig

from ..losses import fertility_costs
from .costs import Cost, LabelSmoothedCrossEntropyWithCosts


@dataclass
class FertilityConfig(LabelSmoothedCrossEntropyCriterionConfig):
    """The stock criterion's options and a weight for each cost."""

    step_decay_weight: float = field(default=1.0, metadata={"help": "weight of the step-decay cost, 1/T Σ ||Δsd||"})
    left_over_weight: float = field(default=1.0, metadata={"help": "weight of the left-over cost, ||sd_T||"})


NAME = "label_smoothed_cross_entropy_with_fertility"


@register_criterion(NAME, dataclass=FertilityConfig)
class LabelSmoothedCrossEntropyWithFertility(LabelSmoothedCrossEntropyWithCosts):
    """Adds the costs of a condition's path; they are logged per sentence."""

    name, term, unit, names = NAME, "conditions", "nsentences", ("decay_loss", "left_loss")
    needs = "a condition, such as --arch conddec or --decoder-condition"

    def __init__(  # fairseq reads the names of the options from the signature
        self,
        task,
        sentence_avg: bool,
        label_smoothing: float,
        ignore_prefix_size: int,
        report_accuracy: bool,
        step_decay_weight: float,
        left_over_weight: float,
    ):
        super().__init__(task, sentence_avg, label_smoothing, ignore_prefix_size, report_accuracy)
        self.weights = step_decay_weight, left_over_weight

    def costs(self, model, term, target):
        return [*map(Cost, self.weights, fertility_costs(term, target.ne(self.padding_idx)))]
