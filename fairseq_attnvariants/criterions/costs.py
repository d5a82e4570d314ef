"""What the criterions with costs of their own share."""

from typing import NamedTuple, Sequence, Tuple

from fairseq import metrics
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from torch import Tensor


class Cost(NamedTuple):
    """One weighted term of a loss."""

    weight: float
    total: Tensor
    """summed over the batch."""


class LabelSmoothedCrossEntropyWithCosts(LabelSmoothedCrossEntropyCriterion):
    """Sums the tokens' loss and costs; the costs are a training loss only.

    In validation the costs are measured and logged, and ``loss`` is the tokens' alone.
    """

    name: str
    """what the criterion is registered as"""
    term: str
    """what the costs are made of, a key of the model's output"""
    unit: str
    """what the logged costs are divided by, ``nsentences`` or ``ntokens``"""
    names: Tuple[str, ...]
    """what the costs are logged under"""
    needs: str
    """a model that has the term, for a message"""

    def costs(self, model, term: Tensor, target: Tensor) -> Sequence[Cost]:
        """The batch's costs, one for each of :attr:`names`; ``target`` is ``B x T`` tokens."""
        raise NotImplementedError

    def forward(self, model, sample, reduce=True):
        """The loss, the sample size and what is logged, as fairseq's criterions return them.

        Raises:
            ValueError: the model has not what the costs are made of.
        """
        if self.term not in getattr(model, "cost_terms", ()):
            raise ValueError(
                f"--criterion {self.name} needs a model with {self.needs}; "
                "use --criterion label_smoothed_cross_entropy for this one"
            )
        net_output = model(**sample["net_input"], with_cost_terms=True)
        loss, nll_loss = self.compute_loss(model, net_output, sample, reduce=reduce)
        target = model.get_targets(sample, net_output)
        costs = self.costs(model, net_output[1][self.term][0], target)
        if model.training:
            loss = loss + sum(cost.weight * cost.total for cost in costs)
        sentences = target.size(0)
        logging_output = {
            "loss": loss.data,
            "nll_loss": nll_loss.data,
            **{name: cost.total.data for name, cost in zip(self.names, costs)},
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
        """Log the tokens' terms as the stock criterion does, and the costs per :attr:`unit`."""
        super().reduce_metrics(logging_outputs)
        count = sum(log.get(cls.unit, 0) for log in logging_outputs)
        for name in cls.names:
            total = sum(log.get(name, 0) for log in logging_outputs)
            metrics.log_scalar(name, total / max(count, 1), count, round=3)
