"""All pairs of options: a combination is refused with the name of an option, or it trains and decodes correctly."""

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
    """Return the values to try per option: all choices, flags on and off, and a few numbers."""
    tried = {
        "encoder_layers": [1, 2, 3],
        "decoder_layers": [1, 2],
        "residuals": [0, 2],
        "encoder_bidirectional_layers": [0, 1],
        "encoder_transition_depth": [1, 2],
        "decoder_transition_depth": [2, 1, 3],
        "decoder_hidden_size": [7, 14],  # 14 is the width of an annotation, too
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
    for name in ("compile", "search_dtype"):  # slow, and less exact: they have separate tests
        del tried[name]
    return tried


VALUES = values()


def compose(options):
    """Return the model of these options, or the message that refuses them."""
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
    """Return the pairs of options that some composition with a model contains."""
    return set().union(*(pairs(options) for options, model in drawn if not isinstance(model, str)))


def named(refusal):
    """Return the options that a refusal names."""
    return {word.strip(":,;()").lstrip("-").replace("-", "_") for word in refusal.split() if word[:2] == "--"}


def mended(chance):
    """Yield a random composition; as long as it is refused, reset an option that the refusal names, and yield again."""
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
    """Compositions with their model or refusal: random ones, and alone each pair that none of them could train."""
    chance, drawn = random.Random(1), []
    while len(drawn) < DRAWN:
        drawn += mended(chance)
    fit = fitting(drawn)
    for one, other in itertools.combinations(VALUES, 2):
        alone = [dict(zip((one, other), pair)) for pair in itertools.product(VALUES[one], VALUES[other])]
        drawn += [(pair, compose(pair)) for pair in alone if not pairs(pair) <= fit]
    return drawn


def chosen(drawn):
    """Yield few compositions that cover all pairs with a model: each time the one with the most new pairs."""
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


# the first belongs to the criterion, the second is the same for every position, relu may turn off the others
UNTRAINED = "bridge.projection.weight", "key_norm.bias", ".convolutions.", ".candidate."


@pytest.mark.slow
def test_compositions_keep_the_contract(drawn):
    """Compositions train, decode step by step as at once, and ignore padding."""
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
        # attention has no gradient if a sparse normalizer gives the first word all of the weight, or if a window has
        # one of few words; nor has a recurrence that reads that word first
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
    """An option called `copy`, for example, would read the method of hydra's configuration, which is never false."""
    assert not {*typing.get_type_hints(AttentionRNNConfig)} & {*dir(DictConfig({})), *dir(argparse.Namespace())}


def test_every_option_has_a_help():
    """The help is in the docstring, and no other test fails if it is missing."""
    options = [field.name for field in dataclasses.fields(AttentionRNNConfig) if field.name != "_name"]
    without = [name for name in options if not AttentionRNNConfig()._get_help(name)]
    assert without == ["max_source_positions", "max_target_positions"]  # the task's
