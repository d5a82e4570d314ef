"""Users' parts and architectures do what those of the package do, or are refused by name."""

import argparse
import inspect
import json
import math
import re
import shutil
from pathlib import Path
from typing import Annotated

import pytest
import torch
from conftest import Task, batch, build, dictionary, outside, subject
from corpus import preprocess, run, train_arguments, write_corpus
from fairseq import checkpoint_utils
from fairseq.data import Dictionary
from omegaconf import OmegaConf

import fairseq_attnvariants
from fairseq_attnvariants.architectures import make_yaml as make
from fairseq_attnvariants.architectures.options import AttentionRNNConfig
from fairseq_attnvariants.architectures.variants import VARIANTS, fill, register_architecture, settings
from fairseq_attnvariants.models import AttentionRNNModel
from fairseq_attnvariants.nn import cells, histories
from fairseq_attnvariants.nn.attention import NORMALIZERS, SCORES, Softmax
from fairseq_attnvariants.nn.fast import deferred
from fairseq_attnvariants.nn.histories import HISTORIES
from fairseq_attnvariants.nn.readout import READOUTS, TanhReadout
from fairseq_attnvariants.nn.state import each
from fairseq_attnvariants.nn.windows import WINDOWS, Window
from fairseq_attnvariants.registry import ConfigurationError, Option, Registry, above
from fairseq_attnvariants_cli.checks import DEMANDS

MINE = Path(__file__).with_name("mine")
# options of each composition
COMPOSED = {
    "mine": {},
    "mine_slow": {},
    "mine_cells": {},
    "reader": dict(attention_history="reader+decay+coverage"),
    "normalizer": dict(attention_normalizer="uniform_mix"),
    "window": dict(attention_window="contextual"),
    "diagonal": dict(attention_window="diagonal"),
    "readout": dict(readout="gated"),
    "cell everywhere": dict(encoder_cell="minimal", decoder_cell="minimal", layer_norm="all", decoder_layers=2),
    "deep cell": dict(
        encoder_cell="minimal", decoder_cell="minimal", encoder_transition_depth=2, decoder_transition_depth=3
    ),
    "one direction": dict(encoder_cell="minimal", encoder_layers=3, encoder_bidirectional_layers=1, residuals=3),
    "stacked": dict(decoder_cell="minimal", decoder_layers=2, decoder_transition="stacked", context_to_layers=True),
    "gated": dict(decoder_cell="minimal", context_gate="both", decoder_condition=True),
    "two levels": dict(attention_score="cosine", attention_history="reader", attention_via=True, encoder_layers=2),
}


@pytest.fixture(scope="module", autouse=True)
def mine():
    """The parts of ``mine/``, which are removed from the tables after these tests."""
    with outside(MINE) as package:
        yield package


def base(name):
    return name if name.startswith("mine") else "dl4mt"


def composed(name, **more):
    return build(base(name), scale=0.5, **{**COMPOSED[name], **more})


@pytest.mark.slow
@pytest.mark.parametrize("demand", ["incremental", "reordering", "leaving", "beam", "padding"])
@pytest.mark.parametrize("name", COMPOSED)
def test_contract(name, demand):
    """Parts hold the demands of ``fairseq-attnvariants check``, by the same code."""
    found = DEMANDS[demand](subject(base(name), tuple(COMPOSED[name].items())))
    assert found.holds, found


@pytest.mark.slow
@pytest.mark.parametrize("name", COMPOSED)
def test_gradients_are_those_of_plain_pytorch(name, monkeypatch):
    model = composed(name).double().train()
    source, lengths, previous = batch(target_lengths=(5, 3, 5))

    def gradients():
        return torch.autograd.grad(model(source, lengths, previous)[0].square().sum(), list(model.parameters()))

    found = gradients()
    monkeypatch.setattr(deferred, "AVAILABLE", False)
    torch.testing.assert_close(found, gradients())


def test_own_options(mine):
    """Options have defaults, values of an architecture, or of the user; a model keeps all of its options."""
    for name, given, rate in (("mine", None, 0.5), ("mine_slow", None, 0.9), ("mine", {"decay": {"rate": 0.25}}, 0.25)):
        for as_text in (False, True):
            model = build(name, part_args=json.dumps(given) if as_text and given else given)
            history = model.decoder.network.transition.attention.histories["decay"]
            assert history.rate == rate
            assert json.loads(model.cfg.part_args) == {"decay": {"rate": rate}, "cosine": {"sharpness": 8.0}}
    assert build("dl4mt").cfg.part_args is None


@pytest.mark.parametrize("given, kept", [
    ({}, {"decay": {"rate": 0.9}, "cosine": {"sharpness": 4.0}}),
    (dict(part_args={"decay": {"rate": 0.25}}), {"decay": {"rate": 0.25}, "cosine": {"sharpness": 4.0}}),
    (dict(attention_history="none"), {"cosine": {"sharpness": 4.0}}),
    (dict(attention_history="none", attention_score="additive"), None),
])  # fmt: skip
def test_own_options_are_those_of_the_architecture_where_nothing_else_is_given(given, kept):
    """Each option is looked up separately, also in the architecture's bases, and only for parts of the model."""
    found = build("mine_sharp", **given).cfg.part_args
    assert (found and json.loads(found)) == kept


@pytest.mark.parametrize("overrides, kept", [
    ({}, {"decay": {"rate": 0.7}, "cosine": {"sharpness": 2.0}}),
    ({"part_args": {"decay": {"rate": 0.1}}}, {"decay": {"rate": 0.1}, "cosine": {"sharpness": 2.0}}),
    ({"part_args": '{"cosine": {"sharpness": 9.0}}'}, {"decay": {"rate": 0.7}, "cosine": {"sharpness": 9.0}}),
    ({"attention_history": "context"}, {"cosine": {"sharpness": 2.0}}),
])  # fmt: skip
def test_overrides_keep_the_trained_options(overrides, kept):
    trained = build("mine", part_args={"decay": {"rate": 0.7}, "cosine": {"sharpness": 2.0}}).cfg
    cfg = OmegaConf.create({"model": {**vars(trained), "_name": "mine"}})
    checkpoint_utils.overwrite_args_by_name(cfg, overrides)
    assert json.loads(cfg.model.part_args) == kept


@pytest.mark.parametrize("options, message", [
    (dict(attention_score="cosin"), r"--attention-score: unknown attention score 'cosin' \(did you mean cosine\?\)"),
    (dict(attention_history="context+deca"), "--attention-history.*'deca'.*mean decay.*--user-dir"),
    (dict(encoder_cell="minimall"), "--encoder-cell: unknown cell 'minimall'.*minimal"),
    (dict(part_args="[" * 50_000), "^--part-args: JSON such as .{,300}$"),
    (dict(part_args='{"a": ' * 50_000), "^--part-args: JSON such as .{,300}$"),
    (dict(part_args='{"dekay": {"rate": 0.9}}'), "--part-args: the model has no component 'dekay'.*decay"),
    (dict(part_args='{"decay": {"rat": 0.9}}'), "--part-args: decay has no option 'rat'.*rate"),
    (dict(part_args='{"decay": {"rate": 1.5}}'), r"--part-args: decay's rate must lie in \[0, 1\), not 1.5"),
    (dict(part_args='{"decay": {"rate": "much"}}'), "--part-args: decay's rate must be of type float"),
    (dict(part_args='{"decay": 0.9}'), "--part-args: JSON such as"),
    (dict(part_args="decay=0.9"), "--part-args: JSON such as"),
    (dict(part_args={"decay": {1: 0.9}}), "--part-args: JSON such as"),
    (dict(part_args={1: {}}), "--part-args: JSON such as"),
    (dict(part_args={"decay": {"rate": {0.9}}}), r"decay's rate must be of type float, not \"\{0.9\}\""),
    (dict(attention_window="diagonal", encoder_type="convolutional"), "--attention-window diagonal .* is segments"),
    (dict(attention_score="additive", part_args='{"cosine": {}}'), "the model has no component 'cosine'"),
])  # fmt: skip
def test_refuses(options, message):
    with pytest.raises(ConfigurationError, match=message):
        build("mine", **options)


def test_a_window_of_equal_units_is_refused_where_a_subword_has_several_characters():
    for window in ("monotone", "diagonal"):
        with pytest.raises(ConfigurationError, match=f"--attention-window {window} looks near .*--source-subwords"):
            build("mine", Task(Dictionary(), dictionary()), attention_window=window)
    build("mine", Task(Dictionary(), dictionary()), attention_window="predictive")


# letters that look like others, and words with a meaning in Python
NO_NAMES = ["one+two", "", "1st", "a b", "a\n", "dl4m\u0442", "\uff4f\uff4e\uff45", "größer", "__init__", "__main__"]
TAKEN_NAMES = ["null", "NULL", "true", "No", "off", "y", "nan", "None", "class", "lambda"]


def test_refuses_to_register():
    table = Registry("part", torch.nn.Module)
    table.register("one")(torch.nn.Linear)
    for name, part, message in (
        ("one", torch.nn.Bilinear, "the part 'one' is there already"),
        ("two", int, "part 'two' must be a class that extends torch.nn"),
        *((name, torch.nn.Linear, "letters from a to z, digits and underscores") for name in NO_NAMES),
        *((name, torch.nn.Linear, "Python or YAML has another meaning") for name in TAKEN_NAMES),
    ):
        with pytest.raises(ConfigurationError, match=message):
            table.register(name)(part)
    with pytest.raises(ConfigurationError, match="the architecture 'dl4mt' is there already"):
        register_architecture("dl4mt", base="rnnsearch")
    for _ in range(2):  # the first try leaves nothing behind
        with pytest.raises(ConfigurationError, match="architecture 'lstm': fairseq has another of this name"):
            register_architecture("lstm", base="rnnsearch")
    with pytest.raises(ConfigurationError, match=r"unknown architecture 'dl4m' \(did you mean dl4mt\?\)"):
        register_architecture("other", base="dl4m")
    with pytest.raises(ConfigurationError, match=r"no option 'atention_score' \(did you mean attention_score\?\)"):
        register_architecture("other", base="dl4mt", atention_score="dot")
    with pytest.raises(ConfigurationError, match="'search_dtype' belongs to training or search.* --search-dtype"):
        register_architecture("other", base="dl4mt", search_dtype="bfloat16")
    with pytest.raises(ConfigurationError, match="'dropout' is the command's: an architecture sets encoder_dropout_in"):
        register_architecture("other", base="dl4mt", dropout=0.3)
    for base in ("mine", "mine_slow"):
        with pytest.raises(ConfigurationError, match="architecture 'mine' cannot differ from itself"):
            register_architecture("mine", base=base)
    with pytest.raises(ConfigurationError, match="'keys': this name has another meaning"):
        histories.register_history("keys")(histories.CoverageHistory)
    with pytest.raises(ConfigurationError, match="'none': this name has another meaning"):
        histories.register_history("none")(histories.CoverageHistory)
    with pytest.raises(ConfigurationError, match="'none': this name has another meaning"):
        register_architecture("none", base="dl4mt")
    for name in (*NO_NAMES, *TAKEN_NAMES):
        for kind in ("cell", "history", "normalizer", "readout", "score", "window"):
            with pytest.raises(ConfigurationError, match="a name has|another meaning"):
                getattr(fairseq_attnvariants, f"register_{kind}")(name)
        with pytest.raises(ConfigurationError, match="a name has|another meaning"):
            register_architecture(name, base="dl4mt")
    with pytest.raises(ConfigurationError, match="the decorator of part 3 takes a name"):
        table.register(3)(torch.nn.Linear)
    with pytest.raises(ConfigurationError, match=r"the decorator of part <class .*> takes a name"):
        table.register(torch.nn.Linear)
    with pytest.raises(ConfigurationError, match="'decoder_hidden_size' cannot be '64', of another type"):
        register_architecture("other", base="dl4mt", decoder_hidden_size="64")
    with pytest.raises(ConfigurationError, match="'decoder_transition' cannot be 'condtional', of another type"):
        register_architecture("other", base="dl4mt", decoder_transition="condtional")
    with pytest.raises(ConfigurationError, match=r"part_args names 'decy' \(did you mean decay\?\)"):
        register_architecture("other", base="mine", part_args={"decy": {"rate": 0.5}})
    for declared, message in (
        (with_rate(), "its option 'rate' needs a type and a default"),
        (with_rate(default=[1]), "its option 'rate' needs a type and a default"),
        (with_rate(tuple[int, int], (1, 2)), "its option 'rate' needs a type and a default"),
        (with_rate(float, "much"), "its option 'rate' needs a type and a default"),
        (with_rate(Annotated[float, above(0)], -0.5), "the default of 'rate' must be above 0, not -0.5"),
        ({}, "defines none of query_term, key_features, energy_term"),
    ):
        with pytest.raises(ConfigurationError, match=f"attention history 'other'.* {message}"):
            histories.register_history("other")(type("Other", (histories.History,), declared))
    for declared in (dict(gates=2, normalised=2), dict(gates=2, normalised=(1,)), dict(gates=2)):
        with pytest.raises(ConfigurationError, match=r"cell 'other' must say gates, a number, and normalised, a tuple"):
            cells.register_cell("other")(type("Other", (cells.Cell,), declared))
    assert "other" not in {*histories.HISTORIES, *cells.CELLS, *VARIANTS}
    for option, value, message in (
        (Option(1.0, bound=above(0)), -1, "must be above 0"),
        (Option(1.0, bound=above(0)), math.inf, "must be a finite number"),
        (Option(1.0), math.nan, "must be a finite number"),
        (Option(1.0), 10**400, "must be of type float"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            option.read(value, "x")


def with_rate(hint=inspect.Parameter.empty, default=inspect.Parameter.empty):
    """Return the members of a class whose constructor has the option ``rate``."""

    def __init__(self, widths, *, rate):
        pass

    __init__.__annotations__ = {} if hint is inspect.Parameter.empty else {"rate": hint}
    __init__.__kwdefaults__ = None if default is inspect.Parameter.empty else {"rate": default}
    return {"__init__": __init__}


def test_options_are_read_off_constructors():
    """Options come from the class and the bases that it passes the rest to, with help, type and bound."""

    class Faster(HISTORIES["decay"]):
        """Another.

        Args:
            speed, haste: how fast ``v`` is,
                as a number.

        Returns:
            rate: nothing.
        """

        def __init__(self, *parts, speed: Annotated[float, above(1)] = 2, haste: bool = False, **more):
            super().__init__(*parts, **more)

    found = Faster.own_options()
    assert {name: (option.default, option.help) for name, option in found.items()} == {
        "speed": (2.0, "how fast v is, as a number"),
        "haste": (False, "how fast v is, as a number"),
        "rate": (0.5, "what remains of the sum at each step"),
    }
    assert type(found["speed"].default) is float and not found["speed"].bound.holds(1)
    assert {name: WINDOWS[name].own_options().keys() for name in ("none", "monotone")} == {
        "none": set(), "monotone": {"width"},
    }  # fmt: skip
    assert AttentionRNNConfig()._get_help("attention_window_width") == WINDOWS["monotone"].own_options()["width"].help


def test_a_notebook_cell_that_is_run_again_replaces_what_it_registered(monkeypatch):
    monkeypatch.setattr(VARIANTS, "entries", {**VARIANTS.entries})
    monkeypatch.setattr(VARIANTS, "followers", [])
    table, told = Registry("part", torch.nn.Module), []
    table.follow(told.append)
    for size in (1, 2):
        exec(f"class Cell(torch.nn.Module):\n    size = {size}", space := {"torch": torch, "__name__": "__main__"})
        table.register("again")(space["Cell"])
        assert table["again"].size == size
    assert told == ["again"]
    for history in ("decay", "coverage"):
        register_architecture("again", base="mine", attention_history=history)
        assert settings("again")["attention_history"] == history
    with pytest.raises(ConfigurationError, match="the architecture 'again' is there already"):
        exec('register("again", base="mine")', {"register": register_architecture, "__name__": "another"})


@pytest.mark.parametrize("former", ["options", "flags"])
def test_options_in_the_form_of_030_are_refused(former):
    """They would have no effect."""
    old = type("Old", (histories.CoverageHistory,), {former: {"rate": 0.5}})
    with pytest.raises(ConfigurationError, match=f"history 'old': a class with '{former}' .*: write keyword-only"):
        histories.register_history("old")(old)
    assert "old" not in HISTORIES


@pytest.mark.parametrize("base, table, name, meant", [
    (histories.CoverageHistory, HISTORIES, "initialize", "initialise"),
    (histories.CoverageHistory, HISTORIES, "starts", "start"),
    (Softmax, NORMALIZERS, "normalise", "normalize"),
    (cells.GRUCell, cells.CELLS, "steps", "step"),
    (TanhReadout, READOUTS, "finished", "finish"),
    (Window, WINDOWS, "looks", "look"),
])  # fmt: skip
def test_a_method_that_is_misspelled_warns_where_it_is_registered(base, table, name, meant, monkeypatch):
    """Nothing would call it, and the base's method would be used instead."""
    monkeypatch.setattr(table, "entries", dict(table.entries))

    def method(self):
        pass

    with pytest.warns(UserWarning, match=f"{table.noun} 'misspelled' defines {name}, .*: did you mean {meant}") as told:
        table.register("misspelled")(type("Misspelled", (base,), {name: method}))
    assert [each.filename for each in told] == [__file__]


def test_a_method_that_its_class_calls_or_has_beside_the_other_does_not_warn(monkeypatch, recwarn):
    monkeypatch.setattr(HISTORIES, "entries", dict(HISTORIES.entries))

    class Own(histories.CoverageHistory):
        def __init__(self, widths):
            super().__init__(widths)
            self.initialize()

        def initialize(self):
            pass

        def starts(self):
            pass

        def start(self, memory):
            return super().start(memory)

    HISTORIES.register("own")(Own)
    assert not recwarn.list


def test_a_parameter_that_no_option_sets_warns(monkeypatch):
    """The parameter would always have its default."""
    monkeypatch.setattr(HISTORIES, "entries", dict(HISTORIES.entries))

    class Slow(histories.CoverageHistory):
        def __init__(self, widths, rate=0.5, *, power: float = 1.0):
            super().__init__(widths)

    with pytest.warns(UserWarning, match=r"'slow' has a parameter rate, .*, as in \*, rate: float = 0.5$") as told:
        HISTORIES.register("slow")(Slow)
    assert [each.filename for each in told] == [__file__]


def test_a_parameter_that_others_give_does_not_warn(monkeypatch, recwarn):
    monkeypatch.setattr(READOUTS, "entries", dict(READOUTS.entries))

    class Own(TanhReadout):
        def __init__(self, widths, weighting=None, norm=False, *, power: float = 1.0):
            super().__init__(widths, weighting, norm)

    READOUTS.register("own")(Own)
    assert not recwarn.list


def test_a_name_is_known_by_every_table_that_shows_it():
    """A user's architecture is filled as the package's are, and help names its parts."""
    assert settings("mine")["attention_score"] == "cosine" and settings("mine")["readout"] == "tanh"
    cfg = AttentionRNNConfig()
    fill(cfg, "mine_slow")
    assert (cfg.init_std, cfg.share_all_embeddings, cfg.input_feed) == (0.05, False, False)
    for option, name in (("attention_score", "cosine"), ("attention_history", "decay"), ("decoder_cell", "minimal")):
        assert name in AttentionRNNConfig()._get_help(option)
    own = AttentionRNNConfig()._get_help("part_args")
    assert "decay: rate (0.5): what remains of the sum at each step" in own
    assert own.count("minimal: constant (1.0): in the gate's sum") == 1


@pytest.mark.commands
@pytest.mark.parametrize("given", [["--arch", "mine", "--help"], ["-h", "--arch=mine"], ["--help"]])
def test_help_has_the_options_of_models(given):
    """Help has the names and options of users' parts, for any position of ``--help`` and without data."""
    shown = run("fairseq-train", "data", "--user-dir", MINE, *given, environment={"COLUMNS": "2000"})
    options = shown.stdout.partition("\nModel-specific configuration:\n")[2]
    assert re.search(r"^  --attention-score .*\n.*multihead, level, cosine$", options, re.MULTILINE)
    assert re.search(r"^  --part-args .*\n.* decay: rate \(0.5\): what remains of the sum", options, re.MULTILINE)


@pytest.mark.commands
def test_help_of_an_unknown_architecture():
    mistyped = run("fairseq-train", "data", "--user-dir", MINE, "--arch", "min", "--help", check=False)
    assert mistyped.returncode == 2 and "did you mean mine?" in mistyped.stderr


def test_four_files_of_equations_call_what_is_fast():
    files = [*(make.PATH.parents[1] / "nn").glob("*.py")]
    assert len(files) > 15
    calling = {
        path.stem for path in files if re.search(r"^\s*(from|import) .*\bfast\b", path.read_text(), re.MULTILINE)
    }
    assert calling == {"attention", "cells", "decoder", "layers"}


def test_train_yaml_has_every_option():
    assert make.filled(make.PATH.read_text()) == make.PATH.read_text(), f"run python -m {make.__name__}"


def test_what_is_carried_is_walked_through():
    found = []
    each(found.append, {"a": (torch.zeros(1), None), "b": {"c": torch.ones(1)}})
    assert [one.item() for one in found] == [0, 1]
    with pytest.raises(TypeError, match="not list"):
        each(found.append, {"a": [torch.zeros(1)]})


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A corpus, and a model of ``mine`` trained on it by stock fairseq, from another folder."""
    folder = tmp_path_factory.mktemp("outside")
    write_corpus(folder)
    data = preprocess(folder)
    arguments = train_arguments(data, folder / "mine_model", "--max-update", "3", arch="mine")
    arguments[arguments.index("--user-dir") + 1] = str(MINE)
    run("fairseq-train", *arguments, "--part-args", '{"decay": {"rate": 0.9}}', cwd=folder)
    return data, folder / "mine_model" / "checkpoint_last.pt"


@pytest.mark.commands
def test_a_training_that_goes_on_with_other_options_of_parts_says_so(trained, tmp_path):
    data, path = trained
    arguments = train_arguments(data, tmp_path, "--max-update", "3", arch="mine")
    arguments[arguments.index("--user-dir") + 1] = str(MINE)
    for given, warned in (['{"decay": {"rate": 0.9}}', False], [None, True]):
        shutil.copy(path, tmp_path / "checkpoint_last.pt")
        done = run("fairseq-train", *arguments, *(["--part-args", given] if given else []))
        says = re.search(r"trained with --part-args '(.*)', and this training continues with '(.*)'", done.stdout)
        rates = [json.loads(one)["decay"]["rate"] for one in says.groups()] if says else []
        assert rates == ([0.9, 0.5] if warned else [])


@pytest.mark.commands
def test_from_pretrained_from_outside(trained):
    data, path = trained
    own = {"cosine": {"sharpness": 9.0}}
    hub = AttentionRNNModel.from_pretrained(path.parent, path.name, data, user_dir=str(MINE), part_args=own)
    assert json.loads(hub.models[0].cfg.part_args) == {"decay": {"rate": 0.9}, **own}
    assert hub.translate("a b")


@pytest.mark.commands
def test_commands_from_outside(trained, tmp_path):
    """Stock fairseq translates with it, and the subcommands read it; without ``--user-dir`` it is refused by name."""
    data, path = trained
    common = [data, "--path", path, "--cpu"]
    output = run("fairseq-generate", *common, "--user-dir", MINE, "--batch-size", "4").stdout
    assert "BLEU" in output
    refused = run("fairseq-generate", *common, "--user-dir", MINE.parents[1] / "fairseq_attnvariants", check=False)
    assert refused.returncode and "'mine'" in refused.stderr and "give the --user-dir" in refused.stderr
    output = run("fairseq-attnvariants", "align", *common, "--gen-subset", "test", "--user-dir", MINE).stdout
    assert output
    refused = run("fairseq-attnvariants", "align", *common, "--gen-subset", "test", check=False)
    assert refused.returncode == 2 and "'mine'" in refused.stderr and "--user-dir" in refused.stderr
    refused = run("fairseq-attnvariants", "align", *common, "--user-dir", tmp_path / "absent", check=False)
    assert refused.returncode == 2 and "there is no such folder" in refused.stderr
    state = torch.load(path, weights_only=True)
    state["cfg"]["model"]["_name"] = "rnnsearch"  # an architecture that exists, with a part that does not
    torch.save(state, tmp_path / "part.pt")
    refused = run("fairseq-attnvariants", "align", data, "--path", tmp_path / "part.pt", "--cpu", check=False)
    assert refused.returncode == 2 and "'decay'" in refused.stderr and "damaged" not in refused.stderr
    shutil.copy(path, tmp_path / "copy.pt")
    averaged = [path, tmp_path / "copy.pt", "--output", tmp_path / "mean.pt"]
    refused = run("fairseq-attnvariants", "average", *averaged, check=False)
    assert refused.returncode == 2 and "'mine'" in refused.stderr and "--user-dir" in refused.stderr
    run("fairseq-attnvariants", "average", *averaged, "--user-dir", MINE)


def test_two_parts_of_one_name_cannot_have_options(monkeypatch):
    """``--part-args`` names parts without their kind."""
    monkeypatch.setitem(SCORES.entries, "decay", SCORES["cosine"])
    with pytest.raises(ConfigurationError, match="--part-args: the model has several components 'decay': give one"):
        build("mine", attention_score="decay")


def test_help_of_a_part_may_have_a_percent_sign(monkeypatch):
    """Otherwise argparse would read it as a format, and fairseq-train --help would end in a traceback."""

    class Half(HISTORIES["decay"]):
        """Another.

        Args:
            rate: 50 % of the sum
        """

        def __init__(self, *parts, rate: float = 0.5):
            super().__init__(*parts, rate=rate)

    monkeypatch.setitem(HISTORIES.entries, "half", Half)
    parser = argparse.ArgumentParser()
    parser.add_argument("--part-args", help=AttentionRNNConfig()._get_help("part_args"))
    assert "half: rate (0.5): 50 % of the sum" in " ".join(parser.format_help().split())
