"""Label-smoothed cross-entropy with CondDec's step-decay and left-over costs (001 §5)."""

from dataclasses import dataclass, field

from fairseq import metrics
from fairseq.criterions import register_criterion
from fairseq.criterions.label_smoothed_cross_entropy import (
    LabelSmoothedCrossEntropyCriterion,
    LabelSmoothedCrossEntropyCriterionConfig,
)

from ..losses import fertility_costs


@dataclass
class FertilityConfig(LabelSmoothedCrossEntropyCriterionConfig):
    """The stock criterion's options and a weight for each cost."""

    step_decay_weight: float = field(default=1.0, metadata={"help": "weight of the step-decay cost, 1/T Σ ||Δsd||"})
    left_over_weight: float = field(default=1.0, metadata={"help": "weight of the left-over cost, ||sd_T||"})


@register_criterion("label_smoothed_cross_entropy_with_fertility", dataclass=FertilityConfig)
class LabelSmoothedCrossEntropyWithFertility(LabelSmoothedCrossEntropyCriterion):
    """Sums the tokens' loss and the sentences' costs; the costs are a training loss only.

    In validation the costs are measured and logged, and ``loss`` is the tokens' alone.
    """

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
        self.step_decay_weight = step_decay_weight
        self.left_over_weight = left_over_weight

    def forward(self, model, sample, reduce=True):
        """The loss, the sample size and what is logged, as fairseq's criterions return them.

        Raises:
            ValueError: the model has no condition.
        """
        net_output = model(**sample["net_input"])
        conditions = net_output[1].get("conditions")
        if conditions is None:
            raise ValueError(
                "--criterion label_smoothed_cross_entropy_with_fertility needs a model with a condition, such as "
                "--arch conddec or --decoder-condition; use --criterion label_smoothed_cross_entropy for this one"
            )
        loss, nll_loss = self.compute_loss(model, net_output, sample, reduce=reduce)
        target = model.get_targets(sample, net_output)
        decay, left = fertility_costs(conditions[0], target.ne(self.padding_idx))
        if model.training:
            loss = loss + self.step_decay_weight * decay + self.left_over_weight * left
        sentences = target.size(0)
        logging_output = {
            "loss": loss.data,
            "nll_loss": nll_loss.data,
            "decay_loss": decay.data,
            "left_loss": left.data,
            "ntokens": sample["ntokens"],
            "nsentences": sentences,
            "sample_size": sentences if self.sentence_avg else sample["ntokens"],
        }
        if self.report_accuracy:
            correct, total = self.compute_accuracy(model, net_output, sample)
            logging_output["n_correct"], logging_output["total"] = correct.data, total.data
        return loss, logging_output["sample_size"], logging_output

    @classmethod
    def reduce_metrics(cls, logging_outputs) -> None:
        """Log the tokens' terms as the stock criterion does, and the costs per sentence."""
        super().reduce_metrics(logging_outputs)
        sentences = sum(log.get("nsentences", 0) for log in logging_outputs)
        for name in ("decay_loss", "left_loss"):
            total = sum(log.get(name, 0) for log in logging_outputs)
            metrics.log_scalar(name, total / max(sentences, 1), sentences, round=3)
