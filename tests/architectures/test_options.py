"""Options in all pairs: what is not refused by the name of an option trains, and computes as any architecture does."""

import argparse
import dataclasses
import enum
import itertools
import random
import typing

import pytest
import torch
from conftest import Task, batch, build, dictionary
from omegaconf import DictConfig

from fairseq_attnvariants.architectures.options import AttentionRNNConfig, described
from fairseq_attnvariants.nn.histories import HISTORIES
from fairseq_attnvariants.registry import ConfigurationError

DRAWN = 2_000  # compositions, of which one in eight fits together


def values():
    """What is tried of every option: a choice's values, a flag on and off, and of these numbers one and more."""
    tried = {
        "encoder_layers": [1, 2, 3],
        "decoder_layers": [1, 2],
        "residuals": [0, 2],
        "encoder_bidirectional_layers": [0, 1],
        "encoder_transition_depth": [1, 2],
        "decoder_transition_depth": [2, 1, 3],
        "decoder_hidden_size": [7, 14],  # the latter is an annotation's, too
        "attention_history": ["none", *HISTORIES],
        "attention_temperature": [1.0, 0.5],
    }
    tried["attention_history"].append("+".join(HISTORIES))
    for name, kind in typing.get_type_hints(AttentionRNNConfig).items():
        kinds = {kind, *typing.get_args(kind)}
        for one in kinds:
            if one is bool and not name.endswith("freeze_embed"):
                tried[name] = [False, True]
            elif isinstance(one, type) and issubclass(one, enum.Enum):
                tried[name] = [choice.value for choice in one]
    for name, table in described("names").items():
        tried.setdefault(name, [*table])
    for name in ("compile", "search_dtype"):  # slow, and not quite the same: they have tests of their own
        del tried[name]
    return tried


VALUES = values()


def compose(options):
    """A model, or the reason why there is none."""
    joined = dictionary()
    sizes = dict(encoder_embed_dim=5, encoder_hidden_size=7, decoder_embed_dim=5, decoder_hidden_size=7)
    sizes.update(encoder_char_hidden_size=4, attention_via_dim=3, attention_dim=9)
    if options.get("attention_score") == "multihead":
        sizes["attention_heads"] = 3
    if options.get("attention_window", "none") != "none":
        sizes["attention_window_width"] = 1
    sizes.update(encoder_filters="2-3", encoder_pooling=2, encoder_highway_layers=1)
    try:
        return build("rnnsearch", Task(joined, joined), scale=0.5, **{**sizes, **options})
    except ConfigurationError as error:
        return str(error)


def pairs(options):
    return {frozenset(pair) for pair in itertools.combinations(options.items(), 2)}


def fitting(drawn):
    """Pairs of which some composition made a model."""
    return set().union(*(pairs(options) for options, model in drawn if not isinstance(model, str)))


def named(refusal):
    """The options that a refusal names."""
    return {word.strip(":,;()").lstrip("-").replace("-", "_") for word in refusal.split() if word[:2] == "--"}


def mended(chance):
    """A composition, and what is left of it each time that an option which a refusal names is at what changes least."""
    options = {name: chance.choice(tried) for name, tried in VALUES.items()}
    while True:
        model = compose(options)
        yield options, model
        faults = named(model) if isinstance(model, str) else set()
        at_fault = sorted(name for name in faults & set(options) if options[name] != VALUES[name][0])
        if not at_fault:
            return
        name = chance.choice(at_fault)
        options = {**options, name: VALUES[name][0]}


@pytest.fixture(scope="module")
def drawn():
    """Compositions, with their model or their refusal: drawn ones, and alone the pairs that fit in none of them."""
    chance, drawn = random.Random(1), []
    while len(drawn) < DRAWN:
        drawn += mended(chance)
    fit = fitting(drawn)
    for one, other in itertools.combinations(VALUES, 2):
        alone = [dict(zip((one, other), pair)) for pair in itertools.product(VALUES[one], VALUES[other])]
        drawn += [(pair, compose(pair)) for pair in alone if not pairs(pair) <= fit]
    return drawn


def chosen(drawn):
    """Compositions with all pairs among them that are in any: each time the one with the most new pairs."""
    left = {index: pairs(options) for index, (options, model) in enumerate(drawn) if not isinstance(model, str)}
    wanted = fitting(drawn)
    while wanted:
        best = max(left, key=lambda index: len(left[index] & wanted))
        wanted -= left.pop(best)
        yield drawn[best]


@pytest.mark.slow
def test_refusals_name_options(drawn):
    for options, refusal in drawn:
        if isinstance(refusal, str):
            assert named(refusal) & set(options), refusal


# the criterion's alone; the same for every position; filters and candidates that relu turns off
UNTRAINED = "bridge.projection.weight", "key_norm.bias", ".convolutions.", ".candidate."


@pytest.mark.slow
def test_compositions_keep_the_contract(drawn):
    """They train, decode step by step as at once, and do not see padding."""
    source, lengths, previous = batch(target_lengths=(4, 2, 4))
    for options, model in chosen(drawn):
        context = str(options)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        output, _ = model.train()(source, lengths, previous)
        output.float().log_softmax(-1)[..., 4].mean().neg().backward()
        optimizer.step()
        assert all(parameter.isfinite().all() for parameter in model.parameters()), context
        stayed = [
            name for name, parameter in model.named_parameters() if parameter.grad is None or not parameter.grad.any()
        ]
        # a sparse normalizer that gives the first word all of the weight, or a window with one of few words, gives
        # attention no gradient, nor a recurrence that comes to that word first
        sharp = options.get("attention_normalizer", "softmax") != "softmax"
        few = options.get("attention_window", "none") != "none" and options.get("encoder_type") == "hierarchical"
        sparse = [".attention.", ".query_word.", ".weight_hh_l0", *[".words."] * few] if sharp or few else []
        assert all(any(part in name for part in (*UNTRAINED, *sparse)) for name in stayed), f"{context}: {stayed}"

        with torch.no_grad():
            output, extra = model.eval()(source, lengths, previous)
            encoder_out, state = model.encoder(source, lengths), {}
            order = torch.tensor([2, 0, 0])
            for step in range(previous.size(1)):
                rows = torch.arange(3) if step < 2 else order
                if step == 2:
                    model.decoder.reorder_incremental_state_scripting(state, order)
                    encoder_out = model.encoder.reorder_encoder_out(encoder_out, order)
                found, attention = model.decoder(previous[rows, : step + 1], encoder_out, incremental_state=state)
                close(found[:, 0], output[rows, step], context)
                close(attention["attn"][0][:, 0], extra["attn"][0][rows, step], context)
            for row, real in enumerate(source.ne(1)):
                steps = int(previous[row].ne(1).sum())
                alone, own = model(source[row : row + 1, real], lengths[row : row + 1], previous[row : row + 1, :steps])
                close(alone[0], output[row, :steps], context)
                close(own["attn"][0][0], extra["attn"][0][row, :steps][:, real], context)


def close(found, expected, context):
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5, msg=lambda text: f"{context}: {text}")


def test_no_option_is_called_as_a_method_of_the_configuration():
    """As `copy` would be: of a configuration of hydra's the method would be read, which is never false."""
    assert not {*typing.get_type_hints(AttentionRNNConfig)} & {*dir(DictConfig({})), *dir(argparse.Namespace())}


def test_every_option_has_a_help():
    """It is in the docstring, where nothing else misses it."""
    options = [field.name for field in dataclasses.fields(AttentionRNNConfig) if field.name != "_name"]
    without = [name for name in options if not AttentionRNNConfig()._get_help(name)]
    assert without == ["max_source_positions", "max_target_positions"]  # the task's
