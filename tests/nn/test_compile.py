"""A compiled step gives the results of the step, for sentences of any length, and is compiled once."""

import shutil
from functools import partialmethod

import pytest
import torch
from conftest import COMPOSED, batch, build
from torch import nn

from fairseq_attnvariants.architectures.refusals import check_compiler
from fairseq_attnvariants.architectures.variants import VARIANTS
from fairseq_attnvariants.registry import ConfigurationError

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not hasattr(torch.compiler, "is_compiling"), reason="--compile needs torch 2.3"),
]

SAMPLE = {"rnnsearch", "dl4mt", "conddec_rnnatt", "adaptive_both", "ava_deep", "char2char", "hard_monotone", *COMPOSED}
# with kernels in C++, which take half a minute per model, or with graphs alone
CASES = [
    pytest.param(name, name == "rnnsearch", marks=() if name in SAMPLE else pytest.mark.more)
    for name in [*VARIANTS, *COMPOSED]
]
CASES += [pytest.param(name, True, marks=pytest.mark.exhaustive) for name in ("ava", "local")]


def run(model, source, lengths, previous):
    torch.manual_seed(len(source))  # for the masks
    output, extra = model(source, lengths, previous, with_cost_terms=True)
    made = [output, *(values[0] for values in extra.values())]
    loss = sum(value.square().mean() for value in made)
    return [*made, *torch.autograd.grad(loss, list(model.parameters()))]


@pytest.mark.parametrize("name,kernels", CASES)
def test_a_compiled_step_is_the_step(name, kernels, monkeypatch):
    """After the first batch, other lengths and sizes are not compiled again; each batch has separate masks."""
    if not kernels:
        monkeypatch.setattr(nn.Module, "compile", partialmethod(nn.Module.compile, backend="eager"))
    sizes = [(31, 4, 26), (32, 5, 27), (37, 5, 28)]  # no width of the models equals these
    batches = [batch((s,) * rows, (t,) * rows, seed=n, words=7) for n, (s, t, rows) in enumerate(sizes)]
    plain, compiled = (build(name, scale=0.3, decoder_dropout_hidden=0.2, compile=on).train() for on in (False, True))
    torch._dynamo.reset()
    for number, sample in enumerate(batches):
        with torch._dynamo.config.patch(error_on_recompile=number > 0, fail_on_recompile_limit_hit=True):
            found = run(compiled, *sample)
        torch.testing.assert_close(found, run(plain, *sample), rtol=1e-4, atol=1e-5)
    assert compiled.state_dict().keys() == plain.state_dict().keys()


@pytest.mark.parametrize("name", ["rnnsearch", "coverage", pytest.param("hybridatt2", marks=pytest.mark.more)])
def test_no_step_keeps_what_its_energies_are_made_of(name, monkeypatch):
    """``B x k x S x A``, which the compiler would keep for some histories."""
    partitioned = partialmethod(nn.Module.compile, backend="aot_eager_decomp_partition")
    monkeypatch.setattr(nn.Module, "compile", partitioned)
    torch._dynamo.reset()
    model, kept = build(name, attention_dim=32, compile=True).train(), []
    with torch.autograd.graph.saved_tensors_hooks(
        lambda tensor: kept.append(tuple(tensor.shape)) or tensor, lambda it: it
    ):
        model(*batch((29,) * 8, (6,) * 8))
    assert kept and (8, 1, 30, 32) not in kept


def test_refused_without_a_compiler(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda _: None)
    model = build("rnnsearch", compile=True)
    model.eval()(*batch())  # translating needs no compiler
    with pytest.raises(ConfigurationError, match="--compile needs a C\\+\\+ compiler"):
        model.train()(*batch())
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(ConfigurationError, match="--compile needs triton for CUDA"):
        check_compiler(torch.device("cuda"))
