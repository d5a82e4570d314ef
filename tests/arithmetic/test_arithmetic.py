"""Number types of matrix products: the choice by timing, and int8, which was removed."""

import copy
import logging
from argparse import Namespace
from types import SimpleNamespace

import pytest
import torch
from conftest import TORCH, Task, batch, build, dictionary
from corpus import USER_DIR, run, train_arguments
from fairseq import checkpoint_utils
from fairseq.sequence_generator import SequenceGenerator
from torch import nn

from fairseq_attnvariants.arithmetic import choice, reduced
from fairseq_attnvariants.arithmetic.choice import CHOICE
from fairseq_attnvariants.arithmetic.reduced import Timing
from fairseq_attnvariants.registry import ConfigurationError


def search(model, sample):
    return SequenceGenerator([model], Task().target_dictionary, beam_size=3, max_len_b=9).generate([model], sample)


@pytest.mark.skipif(TORCH < (2, 2), reason="a CPU has no products of float16 before torch 2.2")
@pytest.mark.parametrize("dtype", ["bfloat16"])
def test_parameters_of_another_kind_are_decided_anew(dtype, sample, caplog):
    model = build("dl4mt", scale=0.5, search_dtype=dtype).eval()
    search(model, sample)
    assert model.decoder.search_dtype.dtype == dtype
    found = search(model.half(), sample)
    expected = search(build("dl4mt", scale=0.5).eval().half(), sample)
    assert model.decoder.search_dtype.dtype == "float32"
    assert [h["tokens"].tolist() for h in found[0]] == [h["tokens"].tolist() for h in expected[0]]
    assert f"--search-dtype {dtype} is not available: search is in float16" in caplog.text


def test_a_number_type_is_of_parameters_in_float32():
    with pytest.raises(ConfigurationError, match="--compute-dtype auto keeps float32 parameters"):
        build("dl4mt", compute_dtype="auto").half().train()(*batch())


@pytest.fixture
def timed(monkeypatch):
    """A function that sets the times that timing finds, in ms."""

    def set_(float32, other):
        for name in ("time_training", "time_search"):
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
    """A step waits there for launches of small products, so quicker products do not help."""
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


@pytest.mark.parametrize("option,dtype", [("compute_dtype", "bfloat16"), ("search_dtype", "bfloat16")])
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
    """Timing has one product of each size, the vocabulary's cut to 4096 words, and does not change the training."""
    model, before = build("dl4mt", Task(dictionary(), dictionary(5000))), torch.get_rng_state()
    pairs = reduced.products(model.decoder)
    sizes = {tuple(part.weight.shape) for part in model.decoder.modules() if isinstance(part, nn.Linear)}
    assert {tuple(weight.shape) for _, weight in pairs} == {(min(out, 4096), width) for out, width in sizes}
    assert all(rows.shape == (reduced.ROWS, weight.size(1)) for rows, weight in pairs)
    for timing in (reduced.time_training(model), reduced.time_search(model)):
        assert min(timing) > 0
    assert torch.get_rng_state().equal(before)


@pytest.mark.parametrize("rank", [0, 1])
def test_all_processes_compute_as_the_first_does(timed, monkeypatch, caplog, rank):
    """Rank 1 uses float32, as the first process chose, though bfloat16 is quicker here; only the first one logs."""
    timed(3.0, 1.0)
    caplog.set_level(logging.INFO)
    told = dict(is_available=lambda: True, is_initialized=lambda: True, get_rank=lambda: rank)
    monkeypatch.setattr(
        choice, "distributed", SimpleNamespace(**told, broadcast=lambda value, _: value.fill_(1 if rank else value))
    )
    model = build("dl4mt", compute_dtype="auto").train()
    output, _ = model(*batch())
    assert output.dtype == (torch.float32 if rank else torch.bfloat16)
    assert int(getattr(model, choice.CHOICE)) == (1 if rank else 2)
    assert any("auto" in message for message in caplog.messages) == (rank == 0)


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
    result = run("fairseq-generate", *generate, "--model-overrides", "{'search_dtype': 'auto'}")
    assert "--search-dtype auto: " in result.stdout + result.stderr
    again = run("fairseq-train", *train_arguments(runs.data, tmp_path, "--max-update", "5", *arguments[2:]))
    assert "as this training has computed so far" in again.stdout + again.stderr


SAID = "--search-dtype int8 was removed: use float32 or bfloat16"


def test_int8_is_refused(runs):
    """A configuration, a search and a training by flags refuse it in one sentence."""
    with pytest.raises(ConfigurationError, match=SAID):
        build("rnnsearch", search_dtype="int8")
    generate = [runs.data, "--user-dir", USER_DIR, "--path", runs.rnnsearch / "checkpoint_last.pt", "--cpu"]
    result = run("fairseq-generate", *generate, "--model-overrides", "{'search_dtype': 'int8'}", check=False)
    assert result.returncode and result.stderr.splitlines()[-1].endswith(f": {SAID}")
    result = run(
        "fairseq-train", *train_arguments(runs.data, runs.text / "int8", "--search-dtype", "int8"), check=False
    )
    assert "argument --search-dtype: invalid choice: 'int8' (choose from" in result.stderr
    assert result.returncode and not (runs.text / "int8").exists()


@pytest.mark.parametrize("form", [dict, Namespace])
def test_a_checkpoint_that_is_to_be_searched_in_int8_is_searched_as_by_auto(form, runs, tmp_path):
    state = torch.load(runs.rnnsearch / "checkpoint_last.pt", weights_only=False)
    model = vars(state["cfg"]["model"]) if isinstance(state["cfg"]["model"], Namespace) else state["cfg"]["model"]
    model["search_dtype"] = "int8"
    state["cfg"]["model"] = form(**model)  # by flags, and by hydra
    path = tmp_path / "old.pt"
    torch.save(state, path)
    generate = [runs.data, "--user-dir", USER_DIR, "--path", path, "--cpu"]
    result = run("fairseq-generate", *generate)
    said = result.stdout + result.stderr
    assert "--search-dtype auto: " in said
    assert f"{path} asks for a search in int8, which was removed: auto is used instead" in said
    (loaded,), _ = checkpoint_utils.load_model_ensemble([str(path)], {"data": str(runs.data)})
    assert str(loaded.cfg.search_dtype) == "auto"


def test_what_is_timed_is_what_will_be_computed(monkeypatch):
    """Training times bfloat16 factors, search times float32 factors at reduced precision, both time plain float32."""
    linear, seen = reduced.F.linear, []

    def noted(rows, weight, *bias):
        seen.append((rows.dtype, weight.dtype, torch.get_float32_matmul_precision()))
        return linear(rows, weight, *bias)

    monkeypatch.setattr(reduced.F, "linear", noted)
    monkeypatch.setattr(reduced, "compare", lambda *ways: [way() for way in ways])
    model, plain = build("dl4mt"), (torch.float32, torch.float32, torch.get_float32_matmul_precision())
    for time, other in (
        (reduced.time_training, (torch.bfloat16, torch.bfloat16, plain[2])),
        (reduced.time_search, (torch.float32, torch.float32, "medium")),
    ):
        seen.clear()
        time(model)
        half = len(seen) // 2
        assert half and {*seen[:half]} == {plain} and {*seen[half:]} == {other}


def test_a_copy_of_a_model_decides_anew(timed, sample):
    """The copy may be on another machine."""
    timed(3.0, 1.0)
    model = build("dl4mt", search_dtype="auto").eval()
    search(model, sample)
    copied = copy.deepcopy(model)
    assert model.decoder.search_dtype.dtype == "bfloat16"
    timed(1.0, 3.0)
    search(copied, sample)
    assert copied.decoder.search_dtype.dtype == "float32"
