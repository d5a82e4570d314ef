"""``fairseq-attnvariants check`` finds the faults that tests make on purpose, and no others."""

import argparse
import inspect
import json
import re
import shutil
import sys
from pathlib import Path

import pytest
import torch
from conftest import TABLES, TORCH
from fairseq import models, utils
from fairseq.criterions.cross_entropy import CrossEntropyCriterion
from fairseq.sequence_generator import EnsembleModel
from torch import nn

import fairseq_attnvariants_cli
from fairseq_attnvariants import deploy
from fairseq_attnvariants.models import attention_rnn
from fairseq_attnvariants.models.attention_rnn import AttentionRNNModel, Encoder, IncrementalDecoder
from fairseq_attnvariants.nn.attention import Normalizer, Softmax
from fairseq_attnvariants.nn.fast import projected
from fairseq_attnvariants.nn.histories import HISTORIES, CoverageHistory
from fairseq_attnvariants_cli.checks import DEMANDS, FIRST, Broken, Subject, training
from fairseq_attnvariants_cli.checks.demand import close
from fairseq_attnvariants_cli.main import main


def wrap(patch, owner, name, after):
    """Replace the result of a method by ``after(result, self, *arguments)``."""
    method = getattr(owner, name)
    patch.setattr(owner, name, lambda self, *args, **more: after(method(self, *args, **more), self, *args))


def changed(patch, change):
    """Replace the decoder's output by ``change(output, self, tokens)``."""

    def after(made, self, tokens, encoder_out=None, incremental_state=None, *rest):
        return change(made[0], self, tokens), made[1]

    wrap(patch, IncrementalDecoder, "forward", after)


def added(patch, make):
    """Call ``make(model)`` on each model that is built."""
    build = AttentionRNNModel.build_model.__func__

    def build_model(kind, *arguments):
        model = build(kind, *arguments)
        make(model)
        return model

    patch.setattr(AttentionRNNModel, "build_model", classmethod(build_model))


def reads_padding(patch):
    """Attention ignores its mask of padding."""
    forward = Normalizer.forward
    patch.setattr(
        Normalizer, "forward", lambda self, energies, hidden, *more: forward(self, energies, hidden & False, *more)
    )


def counts_columns(patch):
    """The encoder scales by the width of the batch."""
    wrap(
        patch,
        Encoder,
        "forward",
        lambda made, self, tokens, *_: {**made, "annotations": [made["annotations"][0] * tokens.size(1)]},
    )


def with_attention(patch, change):
    """Replace the model's attention by ``change(attention)``."""
    wrap(
        patch,
        AttentionRNNModel,
        "forward",
        lambda made, *_: (made[0], {**made[1], "attn": [change(made[1]["attn"][0])]}),
    )


def moves_attention(patch):
    """Attention is shifted by a column, as if the batch were padded on the other side."""
    with_attention(patch, lambda weights: weights.roll(1, dims=2))


def forgets_to_reorder(patch):
    """States are not reordered with their hypotheses."""
    reorder = IncrementalDecoder.reorder_incremental_state

    def kept(self, incremental_state, order):
        rows = len(self.kept(incremental_state).state.hidden)
        reorder(self, incremental_state, torch.arange(rows) if len(order) == rows else order)

    patch.setattr(IncrementalDecoder, "reorder_incremental_state", kept)


def history_stays(patch):
    """All states are reordered except the previous context, which RecAtt reads."""
    reorder = attention_rnn.reorder

    def reordered(entries, order):
        new = reorder(entries, order)
        if type(entries) is not tuple or len(entries[0].context) != len(order):
            return new
        return new[0]._replace(context=entries[0].context), new[1]

    patch.setattr(attention_rnn, "reorder", reordered)


def forgets_who_left(patch):
    """When a sentence is finished, the last rows are dropped instead of its rows."""
    reorder = IncrementalDecoder.reorder_incremental_state

    def dropped(self, incremental_state, order):
        rows = len(self.kept(incremental_state).state.hidden)
        reorder(self, incremental_state, order if len(order) == rows else torch.arange(len(order)))

    patch.setattr(IncrementalDecoder, "reorder_incremental_state", dropped)


def has_a_parameter_too_many(patch):
    """Nothing reads the parameter."""
    added(patch, lambda model: model.register_parameter("idle", nn.Parameter(torch.zeros(3))))


def has_a_dead_parameter(patch):
    """The parameter is read, and multiplied by zero."""
    added(patch, lambda model: model.decoder.register_parameter("dead", nn.Parameter(torch.zeros(1))))
    changed(patch, lambda output, self, tokens: output + 0 * self.dead)


def peeks(patch):
    """The output depends on the next target token."""

    def peek(output, self, tokens):
        following = tokens.roll(-1, dims=1) if tokens.size(1) == output.size(1) else tokens[:, -1:]
        return output + self.output_projection.weight[following].sum(-1, keepdim=True).sin() * torch.arange(
            output.size(2)
        ).to(output)

    changed(patch, peek)


def overflows(patch):
    """Intermediate values are large, which float32 can hold and float16 cannot."""
    changed(patch, lambda output, *_: output.add(1).mul(1e6).div(1e6))


class Scaled(torch.autograd.Function):
    """Return the value as it is, and multiply its gradient by ``factor``."""

    @staticmethod
    def forward(context, value, factor):
        context.factor = factor
        return value.clone()

    @staticmethod
    def backward(context, gradient):
        return gradient * context.factor, None


def learns_something_else(patch):
    """A term of the output passes back half of its gradient."""
    changed(patch, lambda output, *_: output + Scaled.apply(output.tanh(), 0.5))


def learns_something_else_of_attention(patch):
    """Attention weights pass back half of the gradient of a cost."""
    with_attention(patch, lambda weights: Scaled.apply(weights, 0.5))


def weighs_by_the_batch(patch):
    """Attention weights grow with the number of sentences."""
    with_attention(patch, lambda weights: weights * len(weights))


def counts_calls(patch):
    """Training depends on a number that no checkpoint has."""
    added(patch, lambda model: setattr(model.decoder, "calls", 0))

    def count(output, self, tokens):
        self.calls += self.training
        return output * (1 + self.calls / 10 * self.training)

    changed(patch, count)


def keeps_a_secret(patch):
    """The model reads a buffer that is not saved and differs between models."""
    added(patch, lambda model: model.decoder.register_buffer("secret", torch.rand(1) + next(RANDOM), persistent=False))
    changed(patch, lambda output, self, tokens: output * self.secret.to(output))


RANDOM = iter(range(1000))


def remembers_the_first_model(patch):
    """The encoder returns what another model computed for the same sentence."""
    made = {}

    def first(found, self, tokens, *_, **__):
        if self.training:
            return found
        key = (tokens.shape, *tokens.flatten().tolist())
        return (
            made.setdefault(key, found) if torch.is_inference_mode_enabled() or not torch.is_grad_enabled() else found
        )

    wrap(patch, Encoder, "forward", first)


def searches_otherwise(patch):
    """Outputs are sharper in a search than at once."""

    def after(made, self, tokens, encoder_out=None, incremental_state=None, *rest):
        return made if incremental_state is None else (made[0] * 1.2, made[1])

    method = IncrementalDecoder.forward
    patch.setattr(
        IncrementalDecoder,
        "forward",
        lambda self, tokens, encoder_out=None, incremental_state=None, **more: after(
            method(self, tokens, encoder_out, incremental_state, **more), self, tokens, encoder_out, incremental_state
        ),
    )


def divides_by_what_is_left(patch):
    """The encoder divides by the number of words without EOS, which is 0 for an empty source."""

    def divide(made, self, tokens, *_, **__):
        words = tokens.ne(self.dictionary.pad()).sum(1) - 1
        return {**made, "annotations": [made["annotations"][0] / words.view(-1, 1, 1)]}

    wrap(patch, Encoder, "forward", divide)


def draws_in_evaluation(patch):
    """Dropout is on in evaluation, too."""
    changed(patch, lambda output, *_: nn.functional.dropout(output, 0.5))


def normalises_the_batch(patch):
    """Batch normalisation, in training, over rows, steps and padding."""
    added(
        patch,
        lambda model: setattr(model.decoder, "norm", nn.BatchNorm1d(model.decoder.output_projection.out_features)),
    )
    changed(patch, lambda output, self, tokens: self.norm(output.flatten(0, 1)).view_as(output))


def hides_a_parameter(patch):
    """A tensor gets gradients, but is no parameter, so the optimizer does not train it."""
    added(patch, lambda model: model.decoder.__dict__.update(hidden=torch.ones(1, requires_grad=True)))
    changed(patch, lambda output, self, tokens: output * self.hidden.to(output))


def misses_what_reads_contexts(patch):
    """Search takes the readout's map for the only one that reads contexts."""
    patch.setattr(projected, "context_readers", lambda decoder, *_: [decoder.readout.context])


def compares_all_steps(patch):
    """Every step's output is compared with all others."""

    def compare(output, self, tokens):
        return output + 0.01 * (output.unsqueeze(1) - output.unsqueeze(2)).tanh().mean(1)

    changed(patch, compare)


def adds_in_place(patch):
    """Coverage is added in place to a tensor that other hypotheses of an earlier step still read."""
    patch.setattr(CoverageHistory, "next", lambda self, past, weights, hidden: past.carried.add_(weights))


def makes_a_tensor_on_the_cpu(patch):
    """A tensor is on the CPU, for a model on any device."""
    changed(patch, lambda output, *_: output + torch.zeros(output.size(-1)))


def learns_from_long_targets_alone(patch):
    """A parameter is read only for targets with words before EOS."""
    added(patch, lambda model: model.decoder.register_parameter("late", nn.Parameter(torch.ones(1))))
    changed(patch, lambda output, self, tokens: output * self.late if output.size(1) > 1 else output)


def takes_the_root_of_nothing(patch):
    """For an empty source, the encoder takes the root of 0, whose slope is infinite."""

    def root(made, self, tokens, *_, **__):
        words = tokens.ne(self.dictionary.pad()).sum(1) - 1
        annotations = made["annotations"][0]
        roots = (words.view(-1, 1, 1) * annotations.sum(1, keepdim=True) ** 2).sqrt()
        return {**made, "annotations": [annotations + 0.01 * roots]}

    wrap(patch, Encoder, "forward", root)


def compares_all_words(patch):
    """Every annotation is compared with all others."""

    def compare(made, *_, **__):
        [annotations] = made["annotations"]
        differences = (annotations.unsqueeze(1) - annotations.unsqueeze(2)).tanh()
        return {**made, "annotations": [annotations + 0.01 * differences.mean(1)]}

    wrap(patch, Encoder, "forward", compare)


def keeps_all_steps(patch):
    """Search keeps more numbers at every step, in proportion to the steps so far."""
    forward = IncrementalDecoder.forward

    def kept(self, tokens, encoder_out=None, incremental_state=None, **more):
        if incremental_state is not None:
            incremental_state.setdefault("kept", []).append(torch.zeros(1000 * tokens.size(1)))
        return forward(self, tokens, encoder_out, incremental_state, **more)

    patch.setattr(IncrementalDecoder, "forward", kept)


def reads_a_number(patch):
    """The normalizer reads a number from a tensor, which an exporter cannot follow."""
    normalize = Softmax.normalize
    patch.setattr(Softmax, "normalize", lambda self, energies: normalize(self, energies + 0 * int(energies.argmax())))


def counts_padding_in_its_loss(patch):
    """A term of the loss is summed over all target positions."""
    wrap(
        patch,
        CrossEntropyCriterion,
        "compute_loss",
        lambda made, self, model, output, *_: (made[0] + output[0].logsumexp(-1).sum(), made[1]),
    )


def counts_source_columns_in_its_loss(patch):
    """A term of the loss is a mean over all source positions."""
    wrap(
        patch,
        CrossEntropyCriterion,
        "compute_loss",
        lambda made, self, model, output, *_: (made[0] + output[1]["attn"][0].mean(2)[:, 0].sum(), made[1]),
    )


# for each fault: the architecture, the demands that fail, and some that hold
MUTATIONS = {
    reads_padding: ("rnnsearch", "padding alone attention short", "future incremental"),
    counts_columns: ("rnnsearch", "padding alone short", "attention incremental"),
    moves_attention: ("dl4mt", "padding attention incremental", "future parameters"),
    forgets_to_reorder: ("dl4mt", "reordering leaving beam", "incremental padding"),
    history_stays: ("recatt", "reordering beam", "incremental padding"),
    forgets_who_left: ("dl4mt", "leaving", "incremental reordering"),
    has_a_parameter_too_many: ("rnnsearch", "parameters", "saved"),
    has_a_dead_parameter: ("rnnsearch", "parameters", "saved"),
    peeks: ("rnnsearch", "future incremental", "padding parameters"),
    overflows: ("rnnsearch", "half", "padding"),
    learns_something_else: ("rnnsearch", "gradients", "parameters"),
    learns_something_else_of_attention: ("rnnsearch", "gradients", "parameters same"),
    weighs_by_the_batch: ("rnnsearch", "alone attention", "padding same"),
    counts_calls: ("rnnsearch", "resumed", "saved padding"),
    keeps_a_secret: ("rnnsearch", "saved", "padding incremental"),
    remembers_the_first_model: ("rnnsearch", "ensemble", "padding parameters"),
    searches_otherwise: ("rnnsearch", "incremental reordering beam", "padding alone"),
    divides_by_what_is_left: ("rnnsearch", "short", "padding alone"),
    draws_in_evaluation: ("rnnsearch", "same padding", "parameters half"),
    normalises_the_batch: ("rnnsearch", "alone future", "same padding incremental"),
    hides_a_parameter: ("rnnsearch", "parameters", "same gradients"),
    misses_what_reads_contexts: ("recatt", "contexts incremental beam", "padding future"),
    compares_all_steps: ("rnnsearch", "time memory", "parameters"),
    compares_all_words: ("rnnsearch", "time memory", "parameters"),
    keeps_all_steps: ("rnnsearch", "time memory", "parameters same"),
    learns_from_long_targets_alone: ("rnnsearch", "parameters", "saved"),
    takes_the_root_of_nothing: ("rnnsearch", "short", "same"),
    adds_in_place: ("coverage", "in-place gradients", "widths padding"),
    makes_a_tensor_on_the_cpu: ("rnnsearch", "device", "same in-place"),
    counts_padding_in_its_loss: ("rnnsearch", "loss", "padding alone saved"),
    counts_source_columns_in_its_loss: ("rnnsearch", "loss", "padding alone saved"),
    reads_a_number: ("rnnsearch", "exported", "beam same"),
}


@pytest.fixture(autouse=True)
def without_exporting(request, monkeypatch):
    """Skip the export, which takes 20 seconds and is in tests/deploy, except for the fault that only it finds."""
    if reads_a_number.__name__ not in request.node.name:
        monkeypatch.setattr(deploy, "NEEDED", ("what_is_not_installed",))


@pytest.mark.slow
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda function: function.__name__)
def test_what_is_broken_is_found(mutation, monkeypatch):
    architecture, *names = MUTATIONS[mutation]
    mutation(monkeypatch)
    broken = Subject(architecture)
    fails, holds = ({name: DEMANDS[name](broken) for name in several.split()} for several in names)
    assert {name: finding.holds for name, finding in fails.items()} == dict.fromkeys(fails, False), fails
    assert {name: finding.holds for name, finding in holds.items()} == dict.fromkeys(holds, True), holds
    assert all(finding.found for finding in fails.values())


@pytest.mark.parametrize("change, message", [
    (lambda weights: weights / 2, "sums of the weights of attention, and 1, differ by up to 0.5"),
    (lambda weights: -weights, "a weight of attention is -"),
    (lambda weights: weights * torch.nan, "weights of attention are not finite"),
    (lambda weights: weights[..., 1:], "attention has the shape"),
])  # fmt: skip
def test_weights_that_are_none_are_told(change, message, monkeypatch):
    with_attention(monkeypatch, change)
    holds, found = DEMANDS["attention"](Subject("rnnsearch"))
    assert holds is False and found.startswith(message)


@pytest.mark.parametrize("change, message", [
    (lambda output: output.double(), "in bfloat16 the model returns float64"),
    (lambda output: Scaled.apply(output, torch.inf), r"gradients of [\w.]+ in bfloat16 are not finite"),
    (lambda output: output + 0 * torch.where(output.new_tensor(1) + 0.002 > 1, 0, torch.inf), "outputs in bfloat16"),
])  # fmt: skip
def test_numbers_of_half_the_width_are_told(change, message, monkeypatch):
    """The last change gives infinity where 1.002 rounds to 1, as in bfloat16 alone."""
    changed(monkeypatch, lambda output, *_: change(output))
    holds, found = DEMANDS["half"](Subject("rnnsearch"))
    assert holds is False and re.match(message, found)


def test_where_an_ensemble_looks_does_not_depend_on_its_order(monkeypatch):
    def first(made, self, *_):
        return made[0], made[1] * next(self.models[0].parameters()).flatten()[0]

    wrap(monkeypatch, EnsembleModel, "forward_decoder", first)
    holds, found = DEMANDS["ensemble"](Subject("rnnsearch"))
    assert holds is False and found.startswith("weights of attention by the order of the models differ")


def test_what_is_no_number_is_not_the_same():
    nothing, one = torch.tensor([torch.nan]), torch.ones(1)
    for first, second, message in (
        (nothing, nothing, "sums are not finite"),
        (None, one, "sums are returned in one pass and missing in the other"),
        (one.expand(2), one, r"sums have the shape \(2,\), not \(1,\)"),
        (one + 1e-4, one, "sums differ by up to 0.0001"),
    ):
        with pytest.raises(Broken, match=message):
            close(first, second, "sums")
    close(None, None, "sums")
    close(one + 3e-5, one, "sums")


def test_what_exporting_needs_is_said():
    holds, found = DEMANDS["exported"](Subject("rnnsearch"))
    assert holds is None and found.startswith("what_is_not_installed missing: pip install")


def test_nothing_holds_where_no_demand_applies(capsys):
    assert main(["check", "--arch", "rnnsearch", "--demand", "exported"]) == 0
    assert capsys.readouterr().out.endswith("\nnone is applicable\n")
    assert main(["check", "--arch", "rnnsearch", "--demand", "exported", "attention"]) == 0
    assert capsys.readouterr().out.endswith("\nall hold\n")


def test_every_demand_is_broken_by_something():
    found = set().union(*(fails.split() for _, fails, _ in MUTATIONS.values()))
    assert found | {demand for demand, *_ in FAULTS.values()} == set(DEMANDS)


@pytest.mark.slow
def test_the_stock_lstm_shifts_attention_under_padding(capsys):
    assert main(["check", "--arch", "lstm", "--json"]) == 1
    found = {row["name"]: row for row in json.loads(capsys.readouterr().out)["demands"]}
    failed = {name: row["found"] for name, row in found.items() if row["holds"] is False}
    assert failed.keys() == {"padding", "attention", "beam"}
    assert all(text.endswith(": they are shifted by the padding") for text in failed.values())
    assert "links to the wrong words" in found["attention"]["means"]


def test_a_shift_by_something_else_is_not_said_to_be_the_paddings(monkeypatch):
    moves_attention(monkeypatch)
    broken = Subject("dl4mt")
    for name in "padding", "attention":
        assert not (finding := DEMANDS[name](broken)).holds and "shifted" not in finding.found


@pytest.mark.slow
def test_the_stock_transformer_has_no_part_in_some(capsys):
    assert main(["check", "--arch", "transformer", "--encoder-layers", "2", "--decoder-layers", "2"]) == 0
    printed = capsys.readouterr().out
    assert printed.count("\nholds ") == len(DEMANDS) - 6 and printed.endswith("\nall hold\n")
    assert printed.count("\nnot applicable  ") == 6 and "self-attention" in printed


@pytest.mark.slow
def test_sizes_are_named_and_the_users_win(capsys):
    arguments = ["check", "--arch", "rnnsearch", "--decoder-hidden-size", "12", "--demand", "attention"]
    assert main(arguments) == 0
    assert "--encoder-hidden-size 8" in (printed := capsys.readouterr().out) and "--decoder-hidden-size 12" in printed
    assert main([*arguments, "--attention-score", "dot", "--encoder-hidden-size", "6"]) == 0
    assert "--encoder-hidden-size 6" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("arguments,message", [
    ("--arch rnnserch", "--arch rnnserch: there is no such architecture here (did you mean rnnsearch?); if it is"),
    (f"--arch mine --user-dir {__file__}", "test_check.py: this is a file, give its folder"),
    ("--arch dl4mt --nosuch 3", "unrecognized arguments: --nosuch 3"),
    ("--arch dl4mt --demand padding everything", "--demand everything: choose from in-place, widths, same, future"),
    ("--arch transformer_lm", "no autoregressive encoder-decoder"),
    ("--arch nonautoregressive_transformer", "no autoregressive encoder-decoder"),
    ("--arch ava", "use --task char_translation"),
    ("--arch rnnsearch --attention-history foo", "--attention-history"),
    ("--arch rnnsearch --task denoising", "--task denoising"),
    ("--arch mine --user-dir nowhere", "--user-dir nowhere: there is no such folder"),
])  # fmt: skip
def test_refuses(arguments, message, refusal, monkeypatch):
    monkeypatch.setattr(utils.import_user_module, "memo", set(), raising=False)  # folders of earlier tests
    assert message in refusal(["check", *arguments.split()])


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """A function that writes a folder for ``--user-dir`` and returns its path; afterwards the tables are restored."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(utils.import_user_module, "memo", set(), raising=False)
    for table in TABLES:
        monkeypatch.setattr(table, "entries", dict(table.entries))

    def write(**files):
        (folder := tmp_path / "mine").mkdir()
        for name, text in files.items():
            (folder / f"{name}.py").write_text(text)
        return str(folder)

    yield write
    for names in (sys.modules, models.ARCH_MODEL_REGISTRY, models.ARCH_CONFIG_REGISTRY):
        for name in [name for name in names if name.partition(".")[0] == "mine"]:
            del names[name]


@pytest.fixture
def demands(mine, capsys):
    """A function that checks the architecture ``mine`` of a module, and returns the rows of some demands."""

    def check(text, *names):
        done = main(["check", "--user-dir", mine(__init__=text), "--arch", "mine", "--json", "--demand", *names])
        rows = json.loads(capsys.readouterr().out)["demands"]
        assert done == any(row["holds"] is False for row in rows)
        return rows

    return check


PART = """from fairseq_attnvariants import register_architecture, register_history
from fairseq_attnvariants.nn.histories import ContextHistory
from torch import nn
import torch


@register_history("mine")
class Mine(ContextHistory):
    def __init__(self, widths):
        super().__init__(widths)
        INIT

    def query_term(self, past):
        TERM
        return super().query_term(past)


register_architecture("mine", base="rnnsearch", attention_history="mine")
"""


@pytest.mark.slow
@pytest.mark.parametrize("init,term,message", [
    ("torch.bmn", "", "built: module 'torch' has no attribute 'bmn' (mine/__init__.py, line 11)"),
    ("", "torch.ones(3) + torch.ones(7)", "at non-singleton dimension 0 (mine/__init__.py, line 14)"),
    ("", "raise NotImplementedError", "built: NotImplementedError (mine/__init__.py, line 14)"),
])  # fmt: skip
def test_errors_of_ones_own_have_a_place(init, term, message, mine, refusal):
    folder = mine(__init__=PART.replace("INIT", init).replace("TERM", term))
    error = refusal(["check", "--user-dir", folder, "--arch", "mine"])
    assert "check: --arch mine: no model can be " in error and error.endswith(f"{message}\n")


@pytest.mark.parametrize("files,message", [
    (dict(__init__="\nundefined_name\n"), "name 'undefined_name' is not defined (mine/__init__.py, line 2)"),
    (dict(__init__="from . import parts", parts="import nosuch"), "No module named 'nosuch' (mine/parts.py, line 1)"),
    (dict(__init__="from . import parts", parts="x = ("), "'(' was never closed (parts.py, line 1)"),
    (dict(__init__="open('/nosuch')"), "/nosuch: No such file or directory (mine/__init__.py, line 1)"),
])  # fmt: skip
def test_errors_of_an_import_have_a_place(files, message, mine, refusal):
    folder = mine(**files)
    error = refusal(["check", "--user-dir", folder, "--arch", "mine"])
    assert error.startswith(f"fairseq-attnvariants check: --user-dir {folder}: ") and error.endswith(f"{message}\n")


def test_an_unknown_architecture_after_a_folder(mine, refusal):
    folder = mine(__init__=PART.replace("INIT", "").replace("TERM", ""))
    message = "here (did you mean mine?); the --user-dir mine registers none of this name"
    error = refusal(["check", "--user-dir", folder, "--arch", "mein"])
    assert f"--arch mein: there is no such architecture {message}" in error


def test_a_folder_without_init_enters_nothing(mine, refusal):
    folder = mine(parts=PART)
    error = refusal(["check", "--user-dir", folder, "--arch", "mine"])
    assert f"--user-dir {folder} registers nothing: it has no __init__.py" in error


def test_help_lists_the_demands(capsys):
    with pytest.raises(SystemExit):
        main(["check", "--help"])
    assert f"run only these: {', '.join(DEMANDS)} (default" in " ".join(capsys.readouterr().out.split())


@pytest.mark.slow
@pytest.mark.parametrize("there", [True, False])
def test_a_training_that_fails_leaves_nothing(there, mine, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = mine(__init__=PART.replace("INIT", "").replace("TERM", "assert not self.training"))
    if there:
        (tmp_path / "checkpoints").mkdir()
    assert main(["check", "--user-dir", folder, "--arch", "mine", "--demand", "saved", "resumed"]) == 1
    assert capsys.readouterr().out.count("\n                  AssertionError (mine/__init__.py, line 14)\n") == 2
    assert {path.name for path in tmp_path.rglob("*.pt")} == set()


LACKING = """from fairseq_attnvariants import register_architecture, register_KIND
from fairseq_attnvariants.nn import attention, cells, readout


@register_KIND("mine")
class Mine(BASE):
    pieces = gates = 1
    normalised = (1,)


register_architecture("mine", base="rnnsearch", OPTION="mine")
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind,base,option,method", [
    ("score", "attention.Attention", "attention_score", "energies(query, keys, *features)"),
    ("normalizer", "attention.Normalizer", "attention_normalizer", "normalize(energies)"),
    ("readout", "readout.Readout", "readout", "finish(total) or forward(hidden, target, context)"),
    ("cell", "cells.Cell", "encoder_cell", "step(inputs, recurrent, previous)"),
])  # fmt: skip
def test_a_part_that_lacks_a_method_is_told_which(kind, base, option, method, mine, refusal):
    folder = mine(__init__=LACKING.replace("KIND", kind).replace("BASE", base).replace("OPTION", option))
    error = refusal(["check", "--user-dir", folder, "--arch", "mine"])
    assert f"no model can be built: a {kind} defines {method}, and Mine does not" in error


OWN = """import torch
from torch import nn
from fairseq_attnvariants import register_architecture, register_KIND
from fairseq_attnvariants.nn.attention import AdditiveAttention, Attention, Normalizer
from fairseq_attnvariants.nn.cells import GRUCell
from fairseq_attnvariants.nn.histories import CoverageHistory, History
from fairseq_attnvariants.nn.readout import Prediction, TanhReadout
from fairseq_attnvariants.nn.windows import Window


@register_KIND("mine")
class Mine(BASE):
    def METHOD:
        return RETURNED


register_architecture("mine", base="rnnsearch", OPTION="mine")
"""
WRONG = [  # the base class, the method, what it returns, and the message
    ("Attention", "energies(self, query, keys)", "query @ keys.mT", None),
    ("Attention", "energies(self, query, keys)", "keys @ query.mT", "returns 3 x 6 x 1, where B x k x S, 3 x 1 x 6,"),
    ("Attention", "energies(self, query, keys)", "None", "returns None, where B x k x S, 3 x 1 x 6, is wanted"),
    ("Attention", "energies(self, query, keys)", "torch.stack([query @ keys.mT] * 3)",
        "returns 3 x 3 x 1 x 6, the energies of 3 heads, whose contexts only Mine can put together: define read("),
    ("AdditiveAttention", "read(self, weights, memory)", "super().read(weights, memory)[:2]",
        "returns a tuple, where an Attended is wanted"),
    ("AdditiveAttention", "read(self, weights, memory)",
        "super().read(weights, memory)._replace(terms={'most': weights.amax()})",
        "returns a number, where of the terms N rows, 3, are wanted"),
    ("History", "query_term(self, past)", "past.memory.keys[:, :1]",
        "returns 3 x 1 x 9, where N x A, 3 x 9, is wanted"),
    ("History", "energy_term(self, past)", "past.memory.positions",
        "returns 3 x 6, where B x k x S, 3 x 1 x 6, is wanted"),
    ("History", "energy_term(self, past)", "past.carried.sum()",
        "past.carried (start returns nothing), past.known (remember"),
    ("History", "key_features(self, past)", "past.memory.keys",
        "returns 3 x 6 x 9, where features and a matrix are wanted"),
    ("History", "key_features(self, past)", "past.memory.positions, past.memory.keys",
        "returns 3 x 6, where of the features B x k x S x f, 3 x 1 x 6 x any, is wanted"),
    ("History", "key_features(self, past)", "past.memory.positions[:, None, :, None].float(), torch.ones(2, 1)",
        "returns 2 x 1, where of the matrix A x f, 9 x 1, is wanted"),
    ("CoverageHistory", "start(self, memory)", "0", "returns a int: carry tensors of B rows"),
    ("CoverageHistory", "start(self, memory)", "{'n': (0,)}", "returns a dict with a int in it: carry tensors of B"),
    ("CoverageHistory", "next(self, past, weights, hidden)", "None",
        "returns None, so that later steps have nothing of what start returned: return the next step's"),
    ("CoverageHistory", "next(self, past, weights, hidden)", "weights.t()",
        "returns 6 x 3, where N rows, 3, are wanted"),
    ("Normalizer", "normalize(self, energies)", "energies.softmax(-1)[..., 0]",
        "returns 3 x 1, where as the energies, 3 x 1 x 6,"),
    ("Window", "forward(self, query, memory, state)", "memory.padding_mask", "returns 3 x 6, where two are wanted"),
    ("Window", "forward(self, query, memory, state)", "memory.padding_mask.unsqueeze(1), memory.positions",
        "returns 3 x 6, where B x k x S, 3 x 1 x 6, is wanted"),
    ("GRUCell", "step(self, inputs, recurrent, previous)", "inputs",
        "returns 3 x 24, where as the state, 3 x 8, is wanted"),
    ("TanhReadout", "finish(self, total)", "total[..., :1]",
        "returns 3 x 7 x 1, where N x T x f, 3 x 7 x 12, is wanted"),
    ("TanhReadout", "predict(self, features, project, steps)", "project(features)", "where a Prediction is wanted"),
    (
        "TanhReadout",
        "predict(self, features, project, steps)",
        "Prediction(project(features).softmax(-1))",
        "returns a Prediction whose output is 3 x 7 x 13 probabilities, of which softmax is taken again: return logits",
    ),
    ("TanhReadout", "predict(self, features, project, steps)", "Prediction(project(features).log_softmax(-1))", None),
    ("Attention", "energies(self, query, keys)", "(query @ keys.mT).softmax(-1)",
        "returns 3 x 1 x 6 probabilities, of which softmax is taken again: return energies, and leave softmax to"),
]  # fmt: skip
KINDS = {
    "Attention": ("score", "attention_score"),
    "AdditiveAttention": ("score", "attention_score"),
    "Normalizer": ("normalizer", "attention_normalizer"),
    "Window": ("window", "attention_window"),
    "GRUCell": ("cell", "encoder_cell"),
    "TanhReadout": ("readout", "readout"),
}


@pytest.mark.slow
@pytest.mark.parametrize("base,method,returned,message", WRONG)
def test_a_part_that_returns_something_else_is_told_what_is_wanted(base, method, returned, message, mine, capsys):
    text = OWN
    kind, option = KINDS.get(base, ("history", "attention_history"))
    for name, value in dict(KIND=kind, BASE=base, METHOD=method, RETURNED=returned, OPTION=option).items():
        text = text.replace(name, value)
    done = main(["check", "--user-dir", mine(__init__=text), "--arch", "mine", "--demand", "same", "incremental"])
    error = capsys.readouterr().err
    assert done == (2 if message else 0) and (message or "") in error
    assert not message or f": Mine.{method.partition('(')[0]} (mine/__init__.py, line 13)" in error


HISTORY = """import torch
from torch import nn
from fairseq_attnvariants import register_architecture, register_history
from fairseq_attnvariants.nn.histories import History
from fairseq_attnvariants.registry import ConfigurationError


@register_history("mine")
class Mine(History):
    def __init__(self, widths):
        super().__init__(widths)
        INIT

    def remember(self, annotations):
        return {"scale": annotations.new_ones(len(annotations), 1)}

    def start(self, memory):
        return {"sum": memory.positions * 0}

    def energy_term(self, past):
        return past.carried["sum"].view(len(past.memory.positions), -1, past.memory.positions.size(1))

    def query_term(self, past):
        TERM

    def next(self, past, weights, hidden):
        NEXT


register_architecture("mine", base="rnnsearch", attention_history="mine")
"""


def history(**parts):
    """Return the code of a correct history, except the given parts, each in one line."""
    text = HISTORY
    sound = dict(INIT="pass", TERM="return None", NEXT='return {"sum": past.carried["sum"] + weights}')
    for name, value in {**sound, **parts}.items():
        text = text.replace(name, value)
    return text


WORDS = "self.words = nn.Linear(widths.target, widths.attention, bias=False)"
# faults of a user's part: the demand that fails first, its message, and the faulty lines, the reported one first
FAULTS = {
    "a sum that grows": ("in-place", "changes past.carried['sum'] in place",
        dict(NEXT='past.carried["sum"] += weights; return past.carried')),
    "a dictionary that changes": ("in-place", "changes past.carried['sum'] in place",
        dict(NEXT='past.carried["sum"] = past.carried["sum"] + weights; return past.carried')),
    "weights that others read": ("in-place", "changes weights in place",
        dict(NEXT="weights.mul_(2); return past.carried")),
    "weights of several hypotheses": ("in-place", "changes weights in place",
        dict(NEXT="len(weights) > len(past.memory.positions) and weights.mul_(1); return past.carried")),
    "the mask of the sentences": ("in-place", "changes past.memory.padding_mask in place",
        dict(TERM="past.memory.padding_mask.logical_and_(past.memory.padding_mask)")),
    "what is known of the sentences": ("in-place", "changes past.known['scale'] in place",
        dict(TERM='past.known["scale"].mul_(1)')),
    "what the backward pass reads": (
        "in-place",
        "the backward pass reads a tensor",
        dict(
            TERM="term = self.context(past.state.context).tanh(); term.mul_(2); return term",
            INIT="self.context = nn.Linear(widths.context, widths.attention)",
        ),
    ),
    "one width for another": ("widths", "mat1 and mat2 shapes cannot be multiplied",
        dict(TERM="return self.words(past.state.hidden)", INIT=WORDS)),
    "a tensor on the CPU": ("device", "tensors of two devices meet",
        dict(NEXT='return {"sum": past.carried["sum"] + weights.cumsum(1) * torch.ones(weights.size(1))}')),
    "a constant that stays on the CPU": (
        "device",
        "tensors of two devices meet",
        dict(
            TERM="return past.state.context.mean(1, keepdim=True) * self.slope",
            INIT="self.slope = torch.ones(widths.attention)",
        ),
    ),
    "a convolution over the source": (
        "compiled",
        "a convolution over the source is compiled for each length",
        dict(
            TERM='return self.filters(past.carried["sum"].unsqueeze(1)).sum(2)',
            INIT="self.filters = nn.Conv1d(1, widths.attention, 3, padding=1)",
        ),
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    "fault", [pytest.param(name, marks=pytest.mark.slow if FAULTS[name][0] == "compiled" else ()) for name in FAULTS]
)
def test_a_fault_of_a_part_is_reported_first_with_its_place(fault, demands):
    """The first message is that of the fault, with its line, and with the tensor or the size."""
    demand, message, parts = FAULTS[fault]
    if demand == "compiled" and TORCH < (2, 3):
        pytest.skip("--compile needs torch 2.3")
    earlier = [name for name in ("in-place", "widths", "same", "future", "device", "compiled") if name in DEMANDS]
    rows = demands(history(**parts), *earlier[: earlier.index(demand) + 1])
    first = next(row for row in rows if row["holds"] is False)
    code = next(iter(parts.values()))
    line = 1 + next(number for number, line in enumerate(history(**parts).splitlines()) if line.strip() == code)
    assert first["name"] == demand and message in first["found"]
    in_arguments = message.startswith("changes")  # which names the method
    assert f"(mine/__init__.py, line {line - in_arguments})" in first["found"]


KEPT = {  # what a history keeps on self: its lines
    "a tensor": dict(
        INIT="self.kept = nn.Linear(1, 1).bias.detach()", TERM="self.kept = past.state.context.mean() + self.kept / 2"
    ),
    "a number": dict(INIT="self.kept = 0", TERM="self.kept += 1"),
    "a list": dict(INIT="self.kept = []", TERM="self.kept.append(1)"),
    "a buffer": dict(INIT="self.register_buffer('kept', nn.Linear(1, 1).bias.detach())", TERM="self.kept += 1"),
}
READS = {"a list": "len(self.kept)"}


@pytest.mark.parametrize("how", KEPT)
def test_what_a_part_keeps_on_itself_is_named_with_its_place_once(how, demands):
    """Only the first demand that fails names it, since the others fail for the same reason."""
    term = f"{KEPT[how]['TERM']}; return past.memory.keys[:, 0] * {READS.get(how, 'self.kept')}"
    first, second = demands(history(INIT=KEPT[how]["INIT"], TERM=term), "same", "alone")
    line = 1 + next(number for number, line in enumerate(history().splitlines()) if "def query_term" in line)
    said = f"Mine.query_term (mine/__init__.py, line {line}) changes self.kept, which a beam does not reorder"
    assert first["holds"] is second["holds"] is False and f"; {said}" in first["found"]
    assert "self.kept" not in second["found"]


def test_what_a_part_keeps_on_itself_may_be_harmless(demands):
    """A part may keep values for a notebook to read."""
    sound = 'self.kept = past.carried["sum"] + weights; return {"sum": self.kept}'
    assert all(row["holds"] for row in demands(history(NEXT=sound), "in-place", "same", "reordering"))


FORGETS = """from fairseq_attnvariants import register_architecture, register_readout
from fairseq_attnvariants.nn.readout import Prediction, TanhReadout


@register_readout("mine")
class Mine(TanhReadout):
    def start(self, memory):
        return memory.positions[:, :1] * 0

    def predict(self, features, project, steps):
        return Prediction(project(features) + steps.carried.unsqueeze(2))


register_architecture("mine", base="rnnsearch", readout="mine")
"""


def test_a_readout_that_forgets_its_state_is_told(mine, refusal):
    """In training all steps come at once, so that only search would fail."""
    said = "Mine.predict (mine/__init__.py, line 10) returns a Prediction whose carried is None, so that later steps"
    assert said in refusal(["check", "--user-dir", mine(__init__=FORGETS), "--arch", "mine"])


def test_a_part_that_reads_values_is_left_to_a_gpu(demands):
    """The demand runs on the device meta, which has no values."""
    [row] = demands(history(TERM="return None if past.state.context.sum() > 0 else None"), "device")
    said = r"values are read \(mine/__init__.py, line \d+\), and meta has none"
    assert row["holds"] is None and re.search(said, row["found"])


@pytest.mark.slow
def test_a_part_that_is_sound_keeps_the_same_demands(demands):
    assert all(row["holds"] for row in demands(history(), "in-place", "widths", "device", "compiled"))


def test_equal_widths_are_for_a_part_to_declare(mine, capsys):
    refusal = 'if widths.target != widths.hidden: raise ConfigurationError("mine needs --decoder-embed-dim 16")'
    text = history(INIT=f"{refusal}\n        {WORDS}", TERM="return self.words(past.state.hidden)")
    assert main(["check", "--user-dir", mine(__init__=text), "--arch", "mine", "--demand", "widths"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    reason = "some have to be equal: mine needs --decoder-embed-dim 16 (mine/__init__.py, line 12)"
    assert "; widths that all differ are refused, see the demand widths" in printed
    assert "not applicable widths: " in printed and reason in printed


@pytest.mark.skipif(TORCH < (2, 3), reason="--compile needs torch 2.3")
@pytest.mark.slow
@pytest.mark.more
def test_what_is_compiled_for_each_length_is_counted(demands):
    """A loop over the source is compiled for each length."""
    term = "return sum(past.carried['sum'][:, j : j + 1] for j in range(past.memory.keys.size(1))).expand(-1, 9)"
    [row] = demands(history(TERM=term), "compiled")
    assert re.search(r"3 batches of other sizes compile it \d times more: .* size mismatch at index 1", row["found"])


@pytest.mark.slow
@pytest.mark.skipif(TORCH < (2, 3), reason="--compile needs torch 2.3")
def test_without_a_compiler_the_demand_says_so(monkeypatch, capsys):
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert main(["check", "--arch", "rnnsearch", "--compile", "--demand", "compiled"]) == 0
    assert "not applicable compiled: " in (printed := " ".join(capsys.readouterr().out.split()))
    assert "--compile needs a C++ compiler" in printed


LEAKS = """from fairseq_attnvariants import register_architecture, register_readout
from fairseq_attnvariants.nn.readout import TanhReadout


@register_readout("mine")
class Mine(TanhReadout):
    def forward(self, hidden, target, context):
        return super().forward(hidden, READ, context)


register_architecture("mine", base="rnnsearch", readout="mine")
"""


@pytest.mark.parametrize("read", ["target.mean(1, keepdim=True).expand_as(target)", "target.roll(-1, dims=1)"])
def test_what_reads_later_words_is_reported_so_first(read, demands):
    """The component also reads padding and so depends on the batch, but that is reported later."""
    rows = demands(LEAKS.replace("READ", read), *FIRST, "alone")
    failed = [row for row in rows if row["holds"] is False]
    assert failed[0]["name"] == "future" and "before a word that was changed differ" in failed[0]["found"]
    assert {"alone"} <= {row["name"] for row in failed}


SCORE = """from fairseq_attnvariants import register_architecture, register_score
from fairseq_attnvariants.nn.attention import Attention
from fairseq_attnvariants.nn.layer_norm import at_least_float32


@register_score("mine")
class Mine(Attention):
    def energies(self, query, keys):
        energies = query @ keys.transpose(1, 2)
        return RETURNED


register_architecture("mine", base="rnnsearch", attention_score="mine")
"""


@pytest.mark.slow
@pytest.mark.parametrize("returned, holds, message", [
    ("energies.float()", None, "which is rounded to float32 (mine/__init__.py, line 10): write at_least_float32"),
    ("at_least_float32(energies)", True, ""),
    ("(2 * energies - energies.detach()).float()", False, "the gradient of "),
])  # fmt: skip
def test_gradients_that_rounding_hides_are_not_said_to_be_wrong(returned, holds, message, demands, monkeypatch):
    """Rounding exceeds the agreement set here. A gradient that is twice what it should be is wrong all the same."""
    monkeypatch.setattr(training, "AGREEMENT", 1e-5)
    [row] = demands(SCORE.replace("RETURNED", returned), "gradients")
    assert row["holds"] is holds and message in row["found"]


def test_a_rounding_is_named_however_many_frames_torch_puts_between(mine):
    """Older versions of torch call a mode directly, and newer ones by functions of their own."""
    folder = mine(__init__="def rounded(dispatch, *given):\n    return dispatch(*given)\n")
    utils.import_user_module(argparse.Namespace(user_dir=folder))
    rounding, to_float32 = training.Rounding(), torch.ops.aten._to_copy.default
    dispatch = inspect.unwrap(training.Rounding.__torch_dispatch__)
    given = (torch.ones(2, dtype=torch.float64),), {"dtype": torch.float32}
    sys.modules["mine"].rounded(dispatch, rounding, to_float32, (), *given)
    assert rounding.places == [" (mine/__init__.py, line 2)"]


def test_what_returns_no_finite_number_is_named(demands):
    for row in demands(SCORE.replace("RETURNED", "energies.sqrt()"), "same", "gradients"):
        assert row["holds"] is False
        assert "are not finite; Mine.energies (mine/__init__.py, line 8) returns NaN" in row["found"]


def test_classes_stay_as_they_are(mine):
    """The check observes the parts of its models, and does not change the user's classes."""
    utils.import_user_module(argparse.Namespace(user_dir=mine(__init__=history())))
    kind = HISTORIES["mine"]
    before = {name: value for name, value in vars(kind).items() if callable(value)}
    assert isinstance(Subject("mine").shared.decoder.network.transition.attention.histories["mine"], kind)
    assert {name: value for name, value in vars(kind).items() if callable(value)} == before


def test_what_is_installed_needs_nothing_that_is_for_tests():
    root = Path(fairseq_attnvariants_cli.__file__).parent.parent
    sources = [*root.glob("fairseq_attnvariants*/**/*.py"), *root.glob("hydra_plugins/*.py")]
    assert sources and not [
        path for path in sources if re.search(r"import (unittest|pytest)|from (unittest|pytest)", path.read_text())
    ]


def test_errors_of_a_demand_have_a_place(mine, capsys):
    folder = mine(__init__=PART.replace("INIT", "").replace("TERM", "assert not self.training"))
    assert main(["check", "--user-dir", folder, "--arch", "mine", "--demand", "half"]) == 1
    assert "\n                  AssertionError (mine/__init__.py, line 14)\n" in capsys.readouterr().out


def test_no_wrong_option_passes_another_subcommand(refusal):
    assert "unrecognized arguments: --nosuch" in refusal(["user-dir", "--nosuch"])
