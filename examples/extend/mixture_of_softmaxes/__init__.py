"""A mixture of softmaxes, and the criterion of its architecture, which keeps all softmaxes in use."""

from dataclasses import dataclass, field
from typing import Annotated

import torch
from fairseq.criterions import register_criterion
from fairseq.criterions.label_smoothed_cross_entropy import (
    LabelSmoothedCrossEntropyCriterion,
    LabelSmoothedCrossEntropyCriterionConfig,
)
from torch import nn

from fairseq_attnvariants import register_architecture, register_readout
from fairseq_attnvariants.nn.layer_norm import at_least_float32
from fairseq_attnvariants.nn.readout import Prediction, TanhReadout
from fairseq_attnvariants.registry import at_least


@register_readout("mixture_of_softmaxes")
class MixtureOfSoftmaxes(TanhReadout):
    """``P(y) = Σ_k π_k softmax(W tanh(V_k g))_y`` with ``π = softmax(M g)`` (Yang et al. 2018, equation 2).

    Args:
        softmaxes: how many are mixed.
    """

    def __init__(self, widths, *parts, softmaxes: Annotated[int, at_least(1)] = 3, **more):
        super().__init__(widths, *parts, **more)
        self.prior = nn.Linear(widths.features, softmaxes, bias=False)
        self.latent = nn.Linear(widths.features, softmaxes * widths.features)

    def predict(self, features, project, steps):
        priors = at_least_float32(self.prior(features)).log_softmax(2)  # N x T x K
        latent = torch.tanh(self.latent(features)).unflatten(2, (priors.size(2), -1))  # N x T x K x f
        each = at_least_float32(project(latent)).log_softmax(3)  # N x T x K x V
        return Prediction((priors.unsqueeze(3) + each).logsumexp(2), terms={"log_priors": priors})


@dataclass
class EvenMixtureConfig(LabelSmoothedCrossEntropyCriterionConfig):
    """The stock criterion's options, and one more."""

    prior_weight: float = field(default=0.1, metadata={"help": "weight of the entropy of each target word's mixture"})


@register_criterion("even_mixture", dataclass=EvenMixtureConfig)
class EvenMixture(LabelSmoothedCrossEntropyCriterion):
    """``+ λ Σ_i Σ_k π_k log π_k``: a mixture that leaves softmaxes out costs more."""

    def __init__(self, task, sentence_avg, label_smoothing, ignore_prefix_size, report_accuracy, prior_weight):
        super().__init__(task, sentence_avg, label_smoothing, ignore_prefix_size, report_accuracy)
        self.prior_weight = prior_weight

    def compute_loss(self, model, net_output, sample, reduce=True):
        loss, nll_loss = super().compute_loss(model, net_output, sample, reduce)
        [priors] = net_output[1]["log_priors"]  # B x T x K
        priors = priors[sample["target"].ne(self.padding_idx)]
        return loss + self.prior_weight * (priors.exp() * priors).sum(), nll_loss


register_architecture("mixture_of_softmaxes", "dl4mt", readout="mixture_of_softmaxes", criterion="even_mixture")
