"""A custom loss: label smoothed cross entropy, and the entropy of attention."""

from dataclasses import dataclass, field

from fairseq.criterions import register_criterion
from fairseq.criterions.label_smoothed_cross_entropy import (
    LabelSmoothedCrossEntropyCriterion,
    LabelSmoothedCrossEntropyCriterionConfig,
)
from torch.special import entr

import fairseq_attnvariants  # noqa: F401 - for its architectures


@dataclass
class SharpAttentionConfig(LabelSmoothedCrossEntropyCriterionConfig):
    """The options of the base, and the weight of the entropy."""

    entropy_weight: float = field(
        default=0.01, metadata={"help": "weight of the entropy of each target word's attention"}
    )


@register_criterion("sharp_attention", dataclass=SharpAttentionConfig)
class SharpAttention(LabelSmoothedCrossEntropyCriterion):
    """``+ λ Σ_i Σ_j -w_ij log w_ij``, for any model that returns its attention."""

    # fairseq hands out the options that are named here; **options it refuses
    def __init__(self, task, sentence_avg, label_smoothing, ignore_prefix_size, report_accuracy, entropy_weight):
        super().__init__(task, sentence_avg, label_smoothing, ignore_prefix_size, report_accuracy)
        self.entropy_weight = entropy_weight

    def compute_loss(self, model, net_output, sample, reduce=True):
        loss, nll_loss = super().compute_loss(model, net_output, sample, reduce)
        [weights] = net_output[1]["attn"]  # B x T x S
        weights = weights[sample["target"].ne(self.padding_idx)].clamp(min=1e-9)  # at 0, its slope is infinite
        return loss + self.entropy_weight * entr(weights).sum(), nll_loss
