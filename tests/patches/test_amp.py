"""With ``--amp`` the scale of the loss changes no update; a GPU is simulated by PyTorch's scaler for a CPU."""

import kernels
import pytest
import torch
from conftest import TORCH
from fairseq.optim.adam import FairseqAdam, FairseqAdamConfig
from fairseq.optim.amp_optimizer import AMPOptimizer
from omegaconf import OmegaConf
from torch import nn

from fairseq_attnvariants.optim import FusedAdam, FusedAdamConfig

pytestmark = pytest.mark.skipif(TORCH < (2, 4), reason="on a CPU, torch 2.3 has no scaler and no fused Adam")
SLOPES = torch.tensor([1e-2, 1e-4, 1e-6])


@pytest.fixture(params=["adam", "fused_adam"])
def training(request, monkeypatch):
    """Return a function that trains a parameter with a scale of the loss, and returns it and the next scale."""
    kernels.on_gpu(monkeypatch)
    optimizers = {"adam": (FairseqAdam, FairseqAdamConfig(tpu=False)), "fused_adam": (FusedAdam, FusedAdamConfig())}
    kind, cfg = optimizers[request.param]
    cfg.lr = [0.1]
    common = OmegaConf.create({"optimizer": {}, "common": {"fp16_init_scale": 1, "min_loss_scale": 1e-4}})

    def train(scale, slopes=SLOPES, updates=3):
        parameter = nn.Parameter(torch.ones(3))
        optimizer = AMPOptimizer(common, [parameter], kind(OmegaConf.structured(cfg), [parameter]))
        optimizer._grad_scaler = torch.amp.GradScaler("cpu", init_scale=scale)
        for _ in range(updates):
            optimizer.zero_grad()
            optimizer.backward((parameter * slopes).sum())
            optimizer.clip_grad_norm(0.005)
            optimizer.step()
        return parameter.detach(), optimizer.scaler.get_scale()

    return train


def test_the_scale_of_the_loss_changes_no_update(training):
    (small, _), (large, _) = training(1.0), training(2.0**17)
    assert (small < 0.8).all()  # three updates of about the learning rate
    torch.testing.assert_close(large, small)


def test_gradients_that_are_not_finite_change_nothing(training):
    parameter, scale = training(2.0**17, torch.tensor([1.0, torch.inf, 1.0]), updates=1)
    assert parameter.equal(torch.ones(3)) and scale == 2.0**16
