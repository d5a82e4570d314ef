"""Gradients on a CPU are clipped there, also on a machine with a GPU."""

import pytest
import torch
from fairseq import utils
from torch import nn

import fairseq_attnvariants  # noqa: F401


@pytest.fixture
def parameters():
    torch.manual_seed(0)
    made = [nn.Parameter(torch.zeros(size)) for size in ((3, 4), (5,), (2,))]
    for parameter in made[:2]:  # the third has no gradient
        parameter.grad = torch.randn_like(parameter)
    return made


@pytest.mark.parametrize("most", [0, 0.5, 100])
def test_beside_a_gpu(most, parameters, monkeypatch):
    """The result is the same as without a GPU; stock fairseq would look for a GPU, which this machine lacks."""
    before = [parameter.grad.clone() for parameter in parameters[:2]]
    norm = utils.clip_grad_norm_(parameters, most)
    clipped = [parameter.grad.clone() for parameter in parameters[:2]]
    for parameter, gradient in zip(parameters, before):
        parameter.grad = gradient.clone()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    torch.testing.assert_close(utils.clip_grad_norm_(iter(parameters), most), norm)
    torch.testing.assert_close([parameter.grad for parameter in parameters[:2]], clipped)
    assert torch.equal(clipped[0], before[0]) == (most in (0, 100))


def test_without_a_limit_gradients_stay_as_they_are(parameters, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    parameters[0].grad[0, 0] = torch.inf
    before = [parameter.grad.clone() for parameter in parameters[:2]]
    assert utils.clip_grad_norm_(parameters, 0) == torch.inf
    assert all(map(torch.equal, before, (parameter.grad for parameter in parameters[:2])))


def test_one_tensor(parameters, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    norm = parameters[0].grad.norm()
    torch.testing.assert_close(utils.clip_grad_norm_(parameters[0], 1.0), norm)
    torch.testing.assert_close(parameters[0].grad.norm(), torch.tensor(1.0))


def test_a_norm_of_several_processes_is_theirs(monkeypatch):
    """fairseq adds the norms of other processes if a model is divided among processes."""
    parameter = nn.Parameter(torch.zeros(2))
    parameter.grad = torch.tensor([3.0, 4.0])
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert utils.clip_grad_norm_(parameter, 5.0, lambda norm: 2 * norm) == 10
    torch.testing.assert_close(parameter.grad.norm(), torch.tensor(2.5))


def test_a_norm_may_be_larger_than_float16(monkeypatch):
    parameter = nn.Parameter(torch.zeros(4, dtype=torch.float16))
    parameter.grad = torch.full((4,), 6e4, dtype=torch.float16)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert utils.clip_grad_norm_(parameter, 0).isclose(parameter.grad.float().norm())


def test_without_gradients_the_norm_is_0(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert utils.clip_grad_norm_([nn.Parameter(torch.zeros(2))], 1.0) == 0
