"""The costs and the criterions on numbers that can be checked by hand."""

import math

import pytest
import torch
from conftest import Task

from fairseq_attnvariants.criterions import (
    LabelSmoothedCrossEntropyWithBridging,
    LabelSmoothedCrossEntropyWithFertility,
)
from fairseq_attnvariants.losses import embedding_distance, fertility_costs


def test_fertility_costs_by_hand():
    """001 section 5 on two sentences of 2 and 1 steps; what stands at padding never counts."""
    conditions = torch.tensor(
        [
            [[3.0, 4.0], [0.0, 4.0], [0.0, 1.0]],  # moves by 3 and by 3; 1 is left over
            [[6.0, 8.0], [0.0, 0.0], [50.0, 50.0]],  # moves by 10; nothing is left over
        ]
    )
    decay, left = fertility_costs(conditions, torch.tensor([[True, True], [True, False]]))
    torch.testing.assert_close(decay, torch.tensor((3.0 + 3.0) / 2 + 10.0))
    torch.testing.assert_close(left, torch.tensor(1.0), rtol=1e-5, atol=1e-5)


def test_gradients_are_finite_when_the_condition_does_not_move():
    conditions = torch.zeros(2, 4, 3, requires_grad=True)
    decay, left = fertility_costs(conditions, torch.ones(2, 3, dtype=torch.bool))
    (decay + left).backward()
    assert conditions.grad.isfinite().all()


def test_a_row_without_real_tokens_costs_nothing():
    decay, left = fertility_costs(torch.randn(1, 3, 2), torch.zeros(1, 2, dtype=torch.bool))
    assert decay == 0 and left == 0


@pytest.mark.parametrize("squared,expected", [(True, 25.0 + 4.0), (False, 5.0 + 2.0)])
def test_embedding_distance_by_hand(squared, expected):
    bridged = torch.tensor([[[3.0, 4.0], [1.0, 3.0], [9.0, 9.0]]])
    target = torch.tensor([[[0.0, 0.0], [1.0, 1.0], [0.0, 0.0]]])
    distance = embedding_distance(bridged, target, torch.tensor([[True, True, False]]), squared)
    torch.testing.assert_close(distance, torch.tensor(expected))


class Model(torch.nn.Module):
    """Uniform predictions over ``V`` words, and a given cost term."""

    def __init__(self, size, name, term):
        super().__init__()
        self.size, self.cost_terms, self.term = size, {name: ""}, term
        self.decoder = torch.nn.Module()
        self.decoder.embed_tokens = torch.nn.Embedding.from_pretrained(torch.zeros(size, 2))

    def forward(self, prev_output_tokens, with_cost_terms):
        (name,) = self.cost_terms
        return torch.zeros(*prev_output_tokens.shape, self.size), {name: [self.term]}

    def get_normalized_probs(self, net_output, log_probs):
        return torch.log_softmax(net_output[0], -1)

    def get_targets(self, sample, net_output):
        return sample["target"]


def criterion_value(kind, name, term, training=True, sentence_avg=False, **options):
    """The criterion on targets of 2 and 1 tokens, padded to 2."""
    task = Task()
    target = torch.tensor([[4, 2], [2, 1]])
    sample = {"net_input": {"prev_output_tokens": target}, "target": target, "ntokens": 3}
    criterion = kind(task, sentence_avg, 0.1, 0, False, **options)
    model = Model(len(task.target_dictionary), name, term).train(training)
    loss, size, log = criterion(model, sample)
    tokens = 3 * math.log(model.size)  # whatever the smoothing, where all words are equally likely
    assert log["nll_loss"] == pytest.approx(tokens) and log["ntokens"] == 3 and log["nsentences"] == 2
    return loss.item() - tokens, size, log


def test_fertility_criterion_by_hand():
    conditions = torch.tensor([[[3.0, 4.0], [0.0, 4.0], [0.0, 1.0]], [[6.0, 8.0], [0.0, 0.0], [50.0, 50.0]]])
    weights = dict(step_decay_weight=2.0, left_over_weight=0.5)
    given = LabelSmoothedCrossEntropyWithFertility, "conditions", conditions
    costs, size, log = criterion_value(*given, **weights)
    assert costs == pytest.approx(2.0 * 13.0 + 0.5 * 1.0, abs=1e-4) and size == 3
    assert (log["decay_loss"].item(), log["left_loss"].item()) == pytest.approx((13.0, 1.0), abs=1e-4)
    costs, size, log = criterion_value(*given, training=False, sentence_avg=True, **weights)
    assert costs == pytest.approx(0, abs=1e-5) and size == 2 and log["decay_loss"].item() == pytest.approx(13.0)


@pytest.mark.parametrize("norm,distance", [("squared", 25.0 + 4.0 + 1.0), ("plain", 5.0 + 2.0 + 1.0)])
def test_bridging_criterion_by_hand(norm, distance):
    bridged = torch.tensor([[[3.0, 4.0], [0.0, 2.0]], [[1.0, 0.0], [70.0, 70.0]]])
    options = dict(bridging_weight=3.0, bridging_norm=norm)
    costs, _, log = criterion_value(LabelSmoothedCrossEntropyWithBridging, "bridged", bridged, **options)
    assert costs == pytest.approx(3.0 * distance, rel=1e-5)
    assert log["bridging_loss"].item() == pytest.approx(distance)


@pytest.mark.parametrize("kind,name,options,advice", [
    (LabelSmoothedCrossEntropyWithFertility, "bridged", dict(step_decay_weight=1, left_over_weight=1), "conddec"),
    (LabelSmoothedCrossEntropyWithBridging, "conditions", dict(bridging_weight=1, bridging_norm="plain"), "bridge"),
])  # fmt: skip
def test_a_model_without_the_part_is_refused_by_name(kind, name, options, advice):
    with pytest.raises(ValueError, match=f"--criterion label_smoothed.*--arch {advice}"):
        criterion_value(kind, name, torch.zeros(1), **options)
