"""The Triton kernels against the plain arithmetic, under Triton's interpreter, and their compilation for GPUs."""

import copy
import os
import subprocess
import sys
from pathlib import Path

import numpy
import pytest
import torch
from conftest import batch, build

from fairseq_attnvariants.build import ConfigurationError
from fairseq_attnvariants.nn.attention import Energies, additive_energies
from fairseq_attnvariants.nn.cells import AdaptiveGates, GRUGates, LSTMGates, Step

with pytest.MonkeyPatch.context() as environment:
    environment.setenv("TRITON_INTERPRET", "1")  # read when triton, then our module, is imported
    triton = pytest.importorskip("triton")
    from fairseq_attnvariants.nn import kernels

NUMBERS = pytest.mark.parametrize(
    "dtype,exact,tolerance",
    [
        (torch.float64, torch.float64, 1e-12),
        (torch.float32, torch.float32, 1e-6),
        (torch.bfloat16, torch.float32, 1e-2),
    ],
)
GATES = pytest.mark.parametrize("plain,gates,width", [(GRUGates, 3, 1), (AdaptiveGates, 4, 1), (LSTMGates, 4, 2)])
VERSION = tuple(int(number) for number in triton.__version__.split(".")[:2])
LOOPS = pytest.mark.skipif(
    VERSION < (3, 7) and numpy.lib.NumpyVersion(numpy.__version__) >= "2.4.0",
    reason="this Triton's interpreter cannot loop with numpy 2.4",
)
WIDE = 300  # units, of more than one program


@pytest.fixture(autouse=True)
def interpreted(monkeypatch):
    """What Triton imports at a kernel's first launch asks again."""
    monkeypatch.setenv("TRITON_INTERPRET", "1")


def numbers(dtype, *shape):
    return torch.randn(*shape, dtype=torch.float64).to(dtype)


def run(function, tensors, exact=None):
    """The output and every gradient, for a gradient of the output that is not all the same."""
    leaves = [tensor.detach().to(exact or tensor.dtype).requires_grad_() for tensor in tensors]
    output = function(*leaves)
    grad = torch.linspace(-0.1, 0.1, output.numel(), dtype=output.dtype).view(output.shape)
    return [output, *torch.autograd.grad(output, leaves, grad)]


def assert_all_close(found, expected, tolerance):
    for one, other in zip(found, expected):
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance, check_dtype=False)


@NUMBERS
@GATES
def test_gates(plain, gates, width, dtype, exact, tolerance):
    whole, recurrent = numbers(dtype, 3, 2, gates * WIDE), numbers(dtype, 3, gates * WIDE)
    state = numbers(dtype, 3, width * WIDE + 5)

    def step(arithmetic):
        def function(whole, recurrent, state):
            previous = state[:, : width * WIDE]
            pieces = state.new_zeros(5, arithmetic.keeps * WIDE).data
            following = Step.apply(arithmetic, whole[:, 1], recurrent, previous, pieces[1:4])
            keeps.append(pieces)
            return following

        keeps = []
        return function, keeps

    (fused, found), (equation, expected) = step(kernels.KERNELS[plain]), step(plain)
    tensors = whole, recurrent, state
    assert_all_close(run(fused, tensors), run(equation, tensors, exact), tolerance)
    assert_all_close(found, expected, tolerance)


@GATES
def test_gates_read_low_precision_beside_a_float32_state(plain, gates, width):
    tensors = numbers(torch.bfloat16, 2, gates * 5), numbers(torch.bfloat16, 2, gates * 5), torch.randn(2, width * 5)

    def step(arithmetic):
        return lambda *tensors: Step.apply(arithmetic, *tensors, torch.empty(2, arithmetic.keeps * 5))

    found, expected = run(step(kernels.KERNELS[plain]), tensors), run(step(plain), tensors)
    assert [tensor.dtype for tensor in found] == [tensor.dtype for tensor in expected]
    assert_all_close(found[:1], expected[:1], 1e-6)
    assert_all_close(found[1:], expected[1:], 1e-2)


@LOOPS
@NUMBERS
@pytest.mark.parametrize("beam", [1, 3])
def test_energies(beam, dtype, exact, tolerance):
    length, width = kernels.LENGTH + 2, kernels.WIDTH + 6
    keys = numbers(dtype, length, 2, width)  # strided, as annotations are in the order of time
    tensors = numbers(dtype, 2 * beam, width), keys, numbers(dtype, width) / width**0.5

    def energies(arithmetic):
        return lambda query, keys, vector: additive_energies(arithmetic, query, keys.transpose(0, 1), vector)

    found, expected = run(energies(kernels.TritonEnergies), tensors), run(energies(Energies), tensors, exact)
    assert found[0].dtype == exact
    assert_all_close(found, expected, tolerance)


@LOOPS
def test_gradients():
    def double(*shape):
        return torch.randn(*shape, dtype=torch.float64, requires_grad=True)

    def check(function, *inputs):
        return torch.autograd.gradcheck(function, inputs, fast_mode=True)

    for plain, gates, width in ((GRUGates, 3, 1), (AdaptiveGates, 4, 1), (LSTMGates, 4, 2)):
        fused = kernels.KERNELS[plain]
        kept = torch.empty(2, 3 * fused.keeps, dtype=torch.float64)
        inputs = double(2, 3 * gates), double(2, 3 * gates), double(2, 3 * width)
        assert check(lambda *inputs, fused=fused, kept=kept: Step.apply(fused, *inputs, kept.clone()), *inputs)
    attention = double(4, 3), double(2, 5, 3), double(3)
    assert check(additive_energies, kernels.TritonEnergies, *attention)
    assert check(additive_energies, kernels.TritonEnergies, *attention, double(4, 5, 2), double(3, 2))


ADAPTIVE = {"encoder_cell": "adaptive_gru", "decoder_cell": "adaptive_gru"}


@LOOPS
@pytest.mark.parametrize(
    "name,options", [("rnnsearch", {}), ("dl4mt", ADAPTIVE), ("ava", {}), ("hybridatt2", {"decoder_cell": "lstm"})]
)
def test_whole_model(name, options, monkeypatch):
    launched = set()

    def launch(kernel, *arguments, **blocks):
        launched.add(kernel)
        return original(kernel, *arguments, **blocks)

    original = kernels.launch
    monkeypatch.setattr(kernels, "launch", launch)
    source, lengths, previous = batch(lengths=(3, 1), target_lengths=(2, 3))

    def gradients(kind):
        model = build(name, scale=0.5, kernels=kind, **options).double()
        model = copy.deepcopy(model)
        loss = model(source, lengths, previous)[0].log_softmax(-1)[..., 4].sum()
        return [loss, *torch.autograd.grad(loss, [p for p in model.parameters() if p.requires_grad])]

    expected = gradients("plain")
    assert not launched
    assert_all_close(gradients("triton"), expected, 1e-10)
    cells = {"decoder_cell": "gru", **options}["decoder_cell"]
    wanted = set(kernels.KERNELS[{"gru": GRUGates, "adaptive_gru": AdaptiveGates, "lstm": LSTMGates}[cells]].kernels)
    if name != "hybridatt2":  # its score has features
        wanted |= {kernels.energies_forward, kernels.energies_backward}
    assert wanted <= launched


def test_a_cpu_computes_plainly(monkeypatch):
    monkeypatch.setattr(kernels, "INTERPRETED", False)
    plain, fused = (build("dl4mt", scale=0.5, kernels=kind)(*batch())[0] for kind in ("plain", "triton"))
    assert torch.equal(plain, fused)


def test_without_triton_a_model_translates_and_is_not_trained(monkeypatch):
    monkeypatch.setitem(sys.modules, kernels.__name__, None)
    model = build("rnnsearch", scale=0.5, kernels="triton")
    assert torch.equal(model.eval()(*batch())[0], build("rnnsearch", scale=0.5).eval()(*batch())[0])
    with pytest.raises(ConfigurationError, match="--kernels triton .* pip install triton, or leave --kernels plain"):
        model.train()(*batch())


def test_every_kernel_compiles_for_gpus(tmp_path):
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, Path(__file__).with_name("compile_kernels.py")]
    environment["TRITON_CACHE_DIR"] = str(tmp_path)
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 2 * 8
