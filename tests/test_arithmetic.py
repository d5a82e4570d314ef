"""Number types of products: int8 against float64, and what is chosen by timing."""

import copy
import gc
import logging
import pickle
from types import SimpleNamespace

import pytest
import torch
from conftest import Task, assert_rounded, batch, build, dictionary, stepwise
from corpus import USER_DIR, run, train_arguments
from fairseq.sequence_generator import SequenceGenerator
from torch import nn

from fairseq_attnvariants.architectures.variants import VARIANTS
from fairseq_attnvariants.arithmetic import choice, quantised, reduced
from fairseq_attnvariants.arithmetic.choice import CHOICE
from fairseq_attnvariants.arithmetic.quantised import QuantisedLinear, Quantiser
from fairseq_attnvariants.arithmetic.reduced import Timing
from fairseq_attnvariants.registry import ConfigurationError
from fairseq_attnvariants.tasks.shortlist import Row, Shortlist, ShortlistGenerator


def quantise(layer):
    return QuantisedLinear(layer, quantised.rounded(layer.weight.detach()))


@pytest.mark.parametrize("shape", [(5, 12), (2, 3, 12), (1, 12)])
@pytest.mark.parametrize("bias", [True, False])
def test_products_in_int8(shape, bias):
    """Against a loop over rows; and no farther from the product itself than rounding explains."""
    layer, value = nn.Linear(12, 7, bias=bias), torch.randn(shape) * 3
    found = quantise(layer)(value)
    assert found.shape == (*shape[:-1], 7)
    for row, result in zip(value.reshape(-1, 12).double(), found.reshape(-1, 7)):
        scale = row.abs().max() / 127
        for weights, offset, one in zip(layer.weight.double(), layer.bias if bias else torch.zeros(7), result):
            own = weights.abs().max() / 127
            exact = own * scale * ((weights / own).round() * (row / scale).round()).sum() + offset
            assert one.item() == pytest.approx(exact.item(), rel=1e-5, abs=1e-5)
            rounding = (weights.abs() * scale / 2 + row.abs() * own / 2 + own * scale / 4).sum()
            assert abs(one.item() - (weights @ row + offset).item()) <= rounding * 1.001 + 1e-6


def test_rows_of_zeros():
    layer = nn.Linear(4, 3)
    with torch.no_grad():
        layer.weight[1] = 0
    torch.testing.assert_close(quantise(layer)(torch.zeros(2, 4)), layer.bias.expand(2, 3))


def test_weights_are_rounded_once_and_again_when_they_change(monkeypatch):
    monkeypatch.setattr(quantised, "LEAST", 1)
    layer, quantiser = nn.Linear(4, 3), Quantiser()
    first = quantiser(layer)
    assert quantiser(copy.copy(layer)).whole.data_ptr() == first.whole.data_ptr() and quantiser(nn.Tanh()) is None
    with torch.no_grad():
        layer.weight.mul_(2)
    value = torch.randn(5, 4)
    torch.testing.assert_close(quantiser(layer)(value), layer(value), rtol=0.1, atol=0.05)
    layer.weight.data.mul_(2)  # as optimizers do
    quantiser.forget()
    torch.testing.assert_close(quantiser(layer)(value), layer(value), rtol=0.1, atol=0.05)
    del first, layer
    gc.collect()
    assert not len(quantiser.made)


def test_a_search_after_more_training_has_its_weights(sample, monkeypatch):
    """And one without rounds nothing again, nor does a copy of the model that was pickled."""
    monkeypatch.setattr(quantised, "LEAST", 1)
    model = build("dl4mt", scale=0.5, search_dtype="int8").eval()
    matrices = {parameter.data_ptr() for parameter in model.parameters()}
    times, once = [], quantised.rounded
    monkeypatch.setattr(quantised, "rounded", lambda rows: times.append(rows.data_ptr() in matrices) or once(rows))
    first = search(model, sample)
    counted = sum(times)
    search(model, sample)
    assert sum(times) == counted > 5
    model.train()
    for parameter in model.parameters():
        parameter.data.add_(0.3)
    model.eval()
    fresh = pickle.loads(pickle.dumps(model))
    scores = [[h[0]["positional_scores"] for h in search(one, sample)] for one in (model, fresh)]
    for one, other, before in zip(*scores, first):
        torch.testing.assert_close(one, other, rtol=0, atol=0)
        assert one.shape != before[0]["positional_scores"].shape or not one.allclose(before[0]["positional_scores"])


def search(model, sample):
    return SequenceGenerator([model], Task().target_dictionary, beam_size=3, max_len_b=9).generate([model], sample)


@pytest.mark.parametrize("name", [*VARIANTS, "heads", "local"])
def test_search_in_int8_gives_nearly_the_same(name, monkeypatch):
    """A step of a beam; forced decoding stays as it is."""
    monkeypatch.setattr(quantised, "LEAST", 1)
    source, lengths, previous = batch(target_lengths=(6, 6, 6))
    rows, found, products = torch.tensor([0, 0, 1, 1, 2, 2]), [], []
    count = torch._int_mm
    monkeypatch.setattr(torch, "_int_mm", lambda *factors: products.append(0) or count(*factors))
    for dtype in ("float32", "int8"):
        model = build(name, scale=1.0, search_dtype=dtype).eval()
        with torch.no_grad():
            full, _ = model(source, lengths, previous)
            assert not products
            output, extra = stepwise(model, source, lengths, previous, rows)
        found += [full, output]
    plain, searched, same, rounded = found
    assert products and same.equal(plain) and output.dtype == extra["attn"][0].dtype == torch.float32
    torch.testing.assert_close(searched, plain[rows])
    assert not rounded.equal(searched)
    with torch.no_grad():
        assert_rounded(rounded, searched, model(batch(seed=9)[0], lengths, previous)[0][rows])


def test_int8_with_a_shortlist(sample, monkeypatch):
    """The rows of the list are rounded by themselves, as among all words."""
    monkeypatch.setattr(quantised, "LEAST", 1)
    task = Task()
    model = build("dl4mt", task, scale=0.5, search_dtype="int8").eval()
    rows = [Row("w1", "v1", 1, 1.0)]
    shortlist = Shortlist(iter(rows), task.source_dictionary, task.target_dictionary, 1, 12)
    plain = SequenceGenerator([model], task.target_dictionary, beam_size=3, max_len_b=9)
    symbols = {h["tokens"].max().item() for s in ShortlistGenerator(plain, shortlist).generate([], sample) for h in s}
    assert max(symbols) < len(task.target_dictionary)
    layer = model.decoder.output_projection
    some, value = torch.tensor([3, 1, 9]), torch.randn(2, layer.in_features)
    part = nn.Linear(layer.in_features, 3)
    with torch.no_grad():
        part.weight.copy_(layer.weight[some]), part.bias.copy_(layer.bias[some])
    torch.testing.assert_close(quantise(part)(value), quantise(layer)(value)[:, some], rtol=0, atol=0)


def test_no_int8_here(sample, monkeypatch, caplog):
    def refuse(*_):
        raise RuntimeError("not implemented for CPU")

    expected = search(build("dl4mt", scale=0.5).eval(), sample)
    monkeypatch.setattr(torch, "_int_mm", refuse)
    found = search(build("dl4mt", scale=0.5, search_dtype="int8").eval(), sample)
    assert [h["tokens"].tolist() for h in found[0]] == [h["tokens"].tolist() for h in expected[0]]
    [message] = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert message.startswith("--search-dtype int8 cannot be had, and search is in float32: torch")


@pytest.mark.parametrize("dtype", ["int8", "bfloat16"])
def test_parameters_of_another_kind_are_decided_anew(dtype, sample, monkeypatch, caplog):
    monkeypatch.setattr(quantised, "LEAST", 1)
    model = build("dl4mt", scale=0.5, search_dtype=dtype).eval()
    search(model, sample)
    assert model.decoder.search_dtype.dtype == dtype
    found = search(model.half(), sample)
    expected = search(build("dl4mt", scale=0.5).eval().half(), sample)
    assert model.decoder.search_dtype.dtype == "float32"
    assert [h["tokens"].tolist() for h in found[0]] == [h["tokens"].tolist() for h in expected[0]]
    assert f"--search-dtype {dtype} cannot be had, and search is in float16" in caplog.text


def test_a_number_type_is_of_parameters_in_float32():
    with pytest.raises(ConfigurationError, match="--compute-dtype auto keeps float32 parameters"):
        build("dl4mt", compute_dtype="auto").half().train()(*batch())


@pytest.fixture
def timed(monkeypatch):
    """Says what timing finds."""

    def set_(float32, other):
        for name in ("time_training", "time_search", "time_layers"):
            monkeypatch.setattr(choice, name, lambda *_: Timing(float32, other))

    return set_


@pytest.mark.parametrize(
    "float32,other,chosen", [(3.0, 1.0, "bfloat16"), (1.0, 3.0, "float32"), (1.05, 1.0, "float32")]
)
def test_the_quicker_type_is_chosen(float32, other, chosen, timed, sample, caplog):
    timed(float32, other)
    caplog.set_level(logging.INFO)
    model = build("dl4mt", compute_dtype="auto", search_dtype="auto").train()
    output, _ = model(*batch())
    assert output.dtype == getattr(torch, chosen)
    search(model.eval(), sample)
    for option in ("--compute-dtype", "--search-dtype"):
        line = (
            f"{option} auto: {chosen}; products of this model's sizes take {other:.2f} ms in bfloat16 and {float32:.2f}"
        )
        assert sum(record.getMessage().startswith(line) for record in caplog.records) == 1
    assert model.decoder.search_dtype.dtype == chosen


def test_on_a_gpu_training_is_in_float32(timed, monkeypatch, caplog):
    """However quick its products are, once they are launched."""
    timed(3.0, 1.0)
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(choice, "on_gpu", lambda _: True)
    model = build("dl4mt", compute_dtype="auto").train()
    assert model(*batch())[0].dtype == torch.float32
    assert [record.getMessage().partition(";")[0] for record in caplog.records] == ["--compute-dtype auto: float32"]
    monkeypatch.setattr(choice, "on_gpu", lambda _: False)
    again = build("dl4mt", compute_dtype="auto").train()
    again.load_state_dict(model.state_dict())
    assert again(*batch())[0].dtype == torch.float32


@pytest.mark.parametrize("option,dtype", [
    ("compute_dtype", "bfloat16"), ("search_dtype", "bfloat16"), ("search_dtype", "int8")
])  # fmt: skip
def test_a_slower_type_by_hand_is_said(option, dtype, timed, sample, caplog):
    def messages():
        model = build("dl4mt", **{option: dtype}).train()
        for _ in range(2):
            model(*batch())
        search(model.eval(), sample)
        return [record.getMessage() for record in caplog.records]

    timed(3.0, 1.0)
    assert messages() == []
    timed(1.0, 3.0)
    flag = "--" + option.replace("_", "-")
    assert messages() == [
        f"{flag} {dtype} is slower than float32 here: products of this model's sizes take 3.00 ms in {dtype} and 1.00 "
        "in float32"
    ]


def test_timing_is_of_the_models_sizes_and_leaves_random_numbers_alone():
    """One of each size, the vocabulary's cut; what is trained afterwards is the same."""
    model, before = build("dl4mt", Task(dictionary(), dictionary(5000))), torch.get_rng_state()
    pairs = reduced.products(model.decoder)
    sizes = {tuple(part.weight.shape) for part in model.decoder.modules() if isinstance(part, nn.Linear)}
    assert {tuple(layer.weight.shape) for _, layer in pairs} == {(min(out, 4096), width) for out, width in sizes}
    assert all(rows.shape == (reduced.ROWS, layer.in_features) for rows, layer in pairs)
    for timing in (reduced.time_training(model), reduced.time_search(model)):
        assert min(timing) > 0
    assert torch.get_rng_state().equal(before)


def test_all_processes_compute_as_the_first_does(timed, monkeypatch):
    """Here bfloat16 would be quicker, and there it was not."""
    timed(3.0, 1.0)
    first = dict(is_available=lambda: True, is_initialized=lambda: True, broadcast=lambda value, _: value.fill_(1))
    monkeypatch.setattr(choice, "distributed", SimpleNamespace(**first))
    model = build("dl4mt", compute_dtype="auto").train()
    output, _ = model(*batch())
    assert output.dtype == torch.float32 and int(getattr(model, choice.CHOICE)) == 1


def test_the_choice_goes_with_the_checkpoint(timed, caplog):
    timed(3.0, 1.0)
    caplog.set_level(logging.INFO)
    first = build("dl4mt", compute_dtype="auto").train()
    first(*batch())
    state = first.state_dict()
    timed(1.0, 3.0)
    again = build("dl4mt", compute_dtype="auto").train()
    again.load_state_dict(dict(state))
    assert again(*batch())[0].dtype == torch.bfloat16
    messages = [record.getMessage() for record in caplog.records]
    assert messages[-1] == "--compute-dtype auto: bfloat16, as this training has computed so far"
    assert messages[-2].startswith("--compute-dtype bfloat16 is slower than float32 here")
    plain = build("dl4mt")
    plain.load_state_dict(dict(state))
    assert CHOICE not in plain.state_dict()
    before = build("dl4mt", compute_dtype="auto").train()
    before.load_state_dict(plain.state_dict())
    assert before(*batch())[0].dtype == torch.float32
    caplog.clear()
    goes_on = build("dl4mt", compute_dtype="auto").train()
    goes_on.load_state_dict(before.state_dict())
    assert goes_on(*batch())[0].dtype == torch.float32
    messages = [record.getMessage() for record in caplog.records]
    assert messages == ["--compute-dtype auto: float32, as this training has computed so far"]


def test_a_training_goes_on_as_it_began(runs, tmp_path):
    arguments = ["--max-update", "3", "--compute-dtype", "auto"]
    run("fairseq-train", *train_arguments(runs.data, tmp_path, *arguments))
    saved = torch.load(tmp_path / "checkpoint_last.pt", weights_only=True)["model"][CHOICE]
    assert saved in (1, 2)
    generate = [runs.data, "--user-dir", USER_DIR, "--path", tmp_path / "checkpoint_last.pt", "--cpu"]
    for dtype in ("auto", "int8"):
        result = run("fairseq-generate", *generate, "--model-overrides", f"{{'search_dtype': '{dtype}'}}")
        assert ("--search-dtype auto: " in result.stdout + result.stderr) == (dtype == "auto")
    again = run("fairseq-train", *train_arguments(runs.data, tmp_path, "--max-update", "5", *arguments[2:]))
    assert "as this training has computed so far" in again.stdout + again.stderr
