"""``--optimizer fused_adam`` makes the updates of fairseq's ``adam``, except for the position of ε."""

import copy

import pytest
import torch
from corpus import train_arguments, train_here
from fairseq.optim.adam import FairseqAdam, FairseqAdamConfig
from omegaconf import OmegaConf

from fairseq_attnvariants.optim import FusedAdam, FusedAdamConfig
from fairseq_attnvariants.registry import ConfigurationError

SETTINGS = dict(lr=[0.01], weight_decay=0.1, adam_betas="(0.8, 0.95)", adam_eps=1e-12)


def updated(kind, config, steps=range(6), state=None, **more):
    """Return parameters after some steps, and the optimizer."""
    torch.manual_seed(0)
    parameters = [torch.nn.Parameter(torch.randn(shape, dtype=torch.float64)) for shape in ((3, 4), (5,))]
    optimizer = kind(OmegaConf.structured(config(**SETTINGS, **more)), parameters)
    for step in steps:
        if step == 3 and state is not None:
            optimizer.load_state_dict(state)
        torch.manual_seed(step + 1)
        for parameter in parameters:
            parameter.grad = torch.randn_like(parameter)
        optimizer.step()
    return parameters, optimizer


def test_updates_are_those_of_fairseqs_adam():
    found, _ = updated(FusedAdam, FusedAdamConfig)
    expected, _ = updated(FairseqAdam, FairseqAdamConfig, tpu=False)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


def test_half_precision_may_flatten_the_parameters():
    """``--fp16`` and ``--ddp-backend fully_sharded`` do so by default."""
    assert updated(FusedAdam, FusedAdamConfig)[1].supports_flat_params


def test_memory_efficient_half_precision_is_refused():
    with pytest.raises(
        ConfigurationError, match="fused_adam has no --memory-efficient-fp16 or -bf16: use --optimizer ad"
    ):
        _ = updated(FusedAdam, FusedAdamConfig)[1].supports_memory_efficient_fp16


def test_a_state_continues_on_another_device():
    """PyTorch would keep the kernels that the state was saved with."""
    _, optimizer = updated(FusedAdam, FusedAdamConfig, range(3))
    state = copy.deepcopy(optimizer.state_dict())
    for group in state["param_groups"]:
        group["fused"] = "of another device"
    _, found = updated(FusedAdam, FusedAdamConfig, [3], state)
    assert found.optimizer.param_groups[0]["fused"] is False
    assert [one["step"] for one in found.optimizer.state.values()] == [4, 4]


@pytest.mark.commands
def test_a_training_goes_on_as_if_it_had_not_stopped(data, tmp_path):
    found = []
    for stops in (["2"], ["1", "2"]):
        folder = tmp_path / "-".join(stops)
        for epochs in stops:
            more = ["--optimizer", "fused_adam", "--adam-betas", "(0.9, 0.98)", "--max-epoch", epochs]
            train_here(*train_arguments(data, folder, *more))
        found.append(torch.load(folder / "checkpoint_last.pt", weights_only=True)["model"])
    torch.testing.assert_close(*found, rtol=0, atol=0)


def test_a_state_is_overridden_as_fairseqs_is():
    """``--optimizer-overrides`` overrides it."""
    _, optimizer = updated(FusedAdam, FusedAdamConfig, range(3))
    optimizer.load_state_dict(optimizer.state_dict(), {"weight_decay": 0.5})
    assert [group["weight_decay"] for group in optimizer.optimizer.param_groups] == [0.5]


@pytest.mark.parametrize("option", ["adam_betas", "adam_eps", "weight_decay"])
def test_defaults_are_those_of_fairseqs_adam(option):
    """A change of the optimizer changes the kernels, and nothing else."""
    assert getattr(FusedAdamConfig(), option) == getattr(FairseqAdamConfig(), option)
