"""CondDec's costs on numbers that can be checked by hand."""

import torch

from fairseq_attnvariants.losses import fertility_costs


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
