"""Fingerprints of dictionaries: averaging of weights leaves them unchanged, and they distinguish dictionaries."""

import copy
import hashlib

import pytest
import torch
from conftest import Task, average, build, dictionary

from fairseq_attnvariants.architectures.variants import VARIANTS
from fairseq_attnvariants.models.fingerprint import FINGERPRINT

SIDES = {"encoder": "source", "decoder": "target"}


def as_in_010(words):
    """Return the fingerprint that version 0.1.0 wrote: the digest as four signed int64."""
    digest = hashlib.sha256("\n".join(words.symbols).encode()).digest()
    return torch.tensor([int.from_bytes(digest[i : i + 8], "big", signed=True) for i in range(0, 32, 8)])


def tasks(count):
    """Return tasks with dictionaries of equal sizes and other words: faults may depend on the digest."""
    return [Task(dictionary(20, f"w{k}_"), dictionary(17, f"v{k}_")) for k in range(count)]


@pytest.mark.slow
@pytest.mark.parametrize("name", VARIANTS)
def test_fairseqs_averaging_of_checkpoints_leaves_them(name):
    for task in tasks(4):
        models = [build(name, task, seed) for seed in range(3)]
        expected = [sum(parameters) / 3 for parameters in zip(*(model.parameters() for model in models))]
        models[0].load_state_dict(average([model.state_dict() for model in models]), strict=True)
        for parameter, mean in zip(models[0].parameters(), expected):
            torch.testing.assert_close(parameter, mean)


@pytest.mark.parametrize("side", SIDES)
def test_another_dictionary_is_refused_after_averaging(side):
    ours, other = tasks(2)
    mean = average([build("rnnsearch", ours, seed).state_dict() for seed in range(3)])
    setattr(ours, f"{SIDES[side]}_dictionary", getattr(other, f"{SIDES[side]}_dictionary"))
    with pytest.raises(ValueError, match=f"another {SIDES[side]} dictionary"):
        build("rnnsearch", ours).load_state_dict(mean)


@pytest.mark.parametrize("side", SIDES)
def test_the_form_of_010_is_read(side):
    for task in tasks(8):
        model = build("rnnsearch", task)
        state = model.state_dict()
        state[f"{side}.{FINGERPRINT}"] = as_in_010(getattr(task, f"{SIDES[side]}_dictionary"))
        model.load_state_dict(copy.copy(state), strict=True)
        state[f"{side}.{FINGERPRINT}"][1] += 1
        with pytest.raises(ValueError, match=f"another {SIDES[side]} dictionary"):
            model.load_state_dict(state)
