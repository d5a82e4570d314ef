"""Examples of parts outside of the package: what they compute, and what they need from the package."""

import contextlib
import json

import corpus
import pytest
import torch
from conftest import Task, batch, build, outside, stepwise
from corpus import ROOT

from fairseq_attnvariants import (
    register_architecture,
    register_cell,
    register_history,
    register_normalizer,
    register_readout,
    register_score,
    register_window,
)
from fairseq_attnvariants.architectures.variants import default_criterion
from fairseq_attnvariants.nn.attention import Attention, BilinearAttention, Normalizer
from fairseq_attnvariants.nn.cells import Cell
from fairseq_attnvariants.nn.histories import History
from fairseq_attnvariants.nn.readout import Prediction, Steps, TanhReadout
from fairseq_attnvariants.nn.state import grouped
from fairseq_attnvariants.nn.windows import Window
from fairseq_attnvariants.registry import ConfigurationError
from fairseq_attnvariants_cli.checks import DEMANDS, Subject
from fairseq_attnvariants_cli.checks.batches import attention
from fairseq_attnvariants_cli.checks.demand import Broken
from fairseq_attnvariants_cli.systems.gated import cell_gates
from fairseq_attnvariants_cli.text.files import UserError

pytestmark = pytest.mark.commands

EXTEND = ROOT / "examples" / "extend"
GUESTS = "mixture_attention", "sru", "mixture_of_softmaxes"


@pytest.fixture(scope="module")
def guests():
    """The packages of all examples, by name; fairseq registers a criterion only once."""
    with contextlib.ExitStack() as stack:
        yield {name: stack.enter_context(outside(EXTEND / name)) for name in GUESTS}


@pytest.fixture(scope="module")
def trained(data, tmp_path_factory):
    """A function that trains an example for three updates, once, and returns the checkpoint."""
    folder = tmp_path_factory.mktemp("guests")

    def train(name, *options):
        save = folder / "-".join((name, *options))
        if not save.exists():
            arguments = corpus.train_arguments(data, save, "--max-update", "3", *options, arch=name)
            arguments[arguments.index("--user-dir") + 1] = str(EXTEND / name)
            corpus.run("fairseq-train", *arguments)
        return save / "checkpoint_last.pt"

    return train


SLOWEST = pytest.param(["exported"], id="exported", marks=pytest.mark.exhaustive)  # ten seconds a model
OTHERS = pytest.param([name for name in DEMANDS if name != "exported"], id="others")


@pytest.mark.more
@pytest.mark.parametrize("demands", [SLOWEST, OTHERS])
@pytest.mark.parametrize("name", GUESTS)
def test_check(name, demands):
    assert len([line for line in (EXTEND / name / "__init__.py").read_text().splitlines() if line]) <= 60
    demands = ["--demand", *demands]
    done = corpus.run("fairseq-attnvariants", "check", "--user-dir", EXTEND / name, "--arch", name, *demands)
    assert done.stdout.endswith("all hold\n")


@pytest.mark.parametrize("name", GUESTS)
def test_train_and_translate(name, data, trained):
    done = corpus.run("fairseq-generate", data, "--user-dir", EXTEND / name, "--path", trained(name), "--cpu")
    assert done.stdout.count("\nH-") == 12


def test_mixture_attention(guests):
    """Weights equal loops over steps, positions and bells; attention reads this step's state, after the first cell."""
    model = build("mixture_attention", scale=0.5).eval()
    transition = model.decoder.network.transition
    history, queries = transition.attention.histories["mixture"], []
    transition.before.register_forward_hook(lambda cell, given, state: queries.append(cell.output(state)))
    source, lengths, previous = batch()
    with torch.no_grad():
        weights = model(source, lengths, previous)[1]["attn"][0]
    real = source.ne(1)
    for row in range(len(source)):
        centres = [0.0] * 5
        for step, query in enumerate(queries):
            with torch.no_grad():
                height, width, move = history.projection(query[row]).exp().double().chunk(3)
            centres = [centre + float(by) for centre, by in zip(centres, move)]
            for j, weight in enumerate(weights[row, step, real[row]], start=1):
                bells = zip(height.tolist(), width.tolist(), centres)
                expected = sum(a * torch.tensor(-b * (centre - j) ** 2).exp() for a, b, centre in bells)
                torch.testing.assert_close(weight, torch.as_tensor(expected).float(), rtol=1e-4, atol=1e-6)
    assert not weights[~real.unsqueeze(1).expand_as(weights)].any() and weights.sum(2).max() > 1.1


def test_sru(guests):
    """States equal loops over steps and units."""
    torch.manual_seed(1)
    cell = guests["sru"].SRU({"x": 3}, 4)
    for parameter in cell.parameters():
        torch.nn.init.uniform_(parameter, -1, 1)
    state, sigmoid = torch.zeros(2, 8), torch.sigmoid
    memory = [[torch.zeros(()) for _ in range(4)] for _ in range(2)]
    maps, (v_f, v_r) = cell.inputs["x"], cell.peephole.chunk(2)
    with torch.no_grad():
        for x in torch.randn(3, 2, 3):
            state = cell(state, x=x)
            for row in range(2):
                sums = (maps.weight @ x[row] + maps.bias).view(4, 4)
                for unit in range(4):
                    candidate, forget, reset, passed = sums[:, unit]
                    before = memory[row][unit]
                    f, r = sigmoid(forget + v_f[unit] * before), sigmoid(reset + v_r[unit] * before)
                    memory[row][unit] = f * before + (1 - f) * candidate
                    torch.testing.assert_close(state[row, 4 + unit], memory[row][unit])
                    torch.testing.assert_close(state[row, unit], r * memory[row][unit] + (1 - r) * passed)
    assert cell.recurrent is None and not any("recurrent" in name for name, _ in cell.named_parameters())


def test_mixture_of_softmaxes(guests):
    """Predictions equal loops over words and softmaxes; the criterion subtracts the entropy of the mixture."""
    package = guests["mixture_of_softmaxes"]
    model = build("mixture_of_softmaxes", scale=0.5).eval()
    readout, vocabulary = model.decoder.network.readout, model.decoder.output_projection
    features = torch.randn(2, 3, vocabulary.in_features)
    with torch.no_grad():
        found = readout.predict(features, vocabulary, Steps(None, None, None, None)).output
        for row in range(2):
            for step in range(3):
                g = features[row, step]
                priors, expected = (readout.prior.weight @ g).softmax(0), 0
                for prior, block, bias in zip(priors, readout.latent.weight.chunk(3), readout.latent.bias.chunk(3)):
                    expected = expected + prior * vocabulary(torch.tanh(block @ g + bias)).softmax(0)
                torch.testing.assert_close(found[row, step].exp(), expected)
        source, lengths, previous = batch()
        sample = {"net_input": dict(src_tokens=source, src_lengths=lengths, prev_output_tokens=previous)}
        sample |= {"target": previous.roll(-1, 1), "ntokens": 1}
        losses = [package.EvenMixture(Task(), False, 0.1, 0, False, weight)(model, sample)[0] for weight in (0, 0.5)]
        priors = model(**sample["net_input"])[1]["log_priors"][0][sample["target"].ne(1)].exp()
    torch.testing.assert_close(losses[0] - losses[1], 0.5 * -(priors * priors.log()).sum(), rtol=1e-4, atol=1e-5)


def test_what_cells_without_a_recurrent_product_are_refused_for(guests):
    for options, said in (
        (dict(context_gate="both", decoder_cell="mgu"), "MGU has no recurrent product, so .* leave out --context-gate"),
        (dict(encoder_transition_depth=2, encoder_cell="mgu"), "MGU has .* leave out .*--encoder-transition-depth"),
        (dict(decoder_transition_depth=3, decoder_cell="mgu"), "MGU has .* leave out .*--decoder-transition-depth"),
        (dict(encoder_dropout_hidden=0.1, encoder_cell="mgu"), "--encoder-dropout-hidden .* --encoder-cell mgu"),
        (dict(decoder_dropout_hidden=0.1, decoder_cell="mgu"), "--decoder-dropout-hidden .* --decoder-cell mgu"),
    ):
        with outside(EXTEND / "sru"):

            @register_cell("mgu")
            class MGU(Cell):
                gates, normalised, recalls = 1, (1,), False

                def step(self, inputs, recurrent, previous):
                    assert recurrent is None
                    return torch.lerp(previous, inputs, 0.5)

            with pytest.raises(ConfigurationError, match=said):
                build("dl4mt", **options)
            build("conddec", decoder_cell="mgu", encoder_cell="mgu", encoder_layers=2, layer_norm="all")(*batch())


def test_weights_that_do_not_add_up(guests, data, trained, tmp_path):
    """Links and scaled pictures work; subcommands that read probabilities name the normalizer that gives none."""
    with pytest.raises(
        ConfigurationError, match="--copying needs attention weights .* --attention-normalizer exponential"
    ):
        build("mixture_attention", copying=True)
    options = [data, "--user-dir", EXTEND / "mixture_attention", "--path", trained("mixture_attention"), "--cpu"]
    corpus.run("fairseq-attnvariants", "align", *options, "--output", tmp_path / "links")
    assert len((tmp_path / "links").read_text().splitlines()) == 12
    corpus.run("fairseq-attnvariants", "attention", *options, "--scale-rows", "--output", tmp_path / "picture.svg")
    for command, *more in (
        ("align", "--output", tmp_path / "hard", "--soft", tmp_path / "soft"),
        ("attention", "--output", tmp_path / "other.svg"),
    ):
        done = corpus.run("fairseq-attnvariants", command, *options, *more, check=False)
        assert done.returncode and "those of --attention-normalizer exponential do not" in done.stderr.splitlines()[-1]
    assert {path.name for path in tmp_path.iterdir()} == {"links", "picture.svg"}


def test_check_asks_for_what_is_declared(guests, monkeypatch):
    subject = Subject("mixture_attention")
    attention(subject)
    monkeypatch.setattr(guests["mixture_attention"].Exponential, "adds_up", True)
    with pytest.raises(Broken, match="sums of the weights of attention, and 1"):
        attention(subject)


def test_a_factor_leaves_weights_as_they_are(guests):
    normalizer = guests["mixture_attention"].Exponential()
    energies, hidden = torch.zeros(1, 1, 3), torch.tensor([[[False, False, True]]])
    assert normalizer(energies, hidden, torch.tensor([[[0.5, 2.0, 1.0]]])).tolist() == [[[0.5, 2.0, 0.0]]]


def test_gates_that_a_cell_shows(data, trained):
    done = corpus.run(
        "fairseq-attnvariants", "gates", data, "--user-dir", EXTEND / "sru", "--path", trained("sru"), "--cpu", "--json"
    )
    for place in ("forget forward", "reset backward", "forget before attention", "reset after attention"):
        assert f"{place} %" in done.stdout


def test_a_gate_that_is_not_there():
    with outside(EXTEND / "sru") as package:
        package.SRU.shown = ("forgotten",)
        with pytest.raises(UserError, match="the cell SRU shows 'forgotten', and has no module of this name"):
            next(cell_gates("target", [{"after attention": package.SRU({"x": 3}, 4)}]))


SEEN = []


def test_what_a_history_and_a_window_read(guests):
    """A history reads this step's query and, in next, its state; a window may carry tensors, which a beam reorders."""
    with outside(EXTEND / "sru"):

        @register_history("looking")
        class Looking(History):
            def energy_term(self, past):
                SEEN.append((past.query, past.hidden))

            def next(self, past, weights, hidden):
                SEEN.append((past.query, past.hidden, hidden))

        @register_window("walking")
        class Walking(Window):
            """Shows at most one position beyond the last one with the highest weight so far."""

            def start(self, memory):
                return {"reached": memory.positions[:, 0] * 0}  # B

            def look(self, past):
                beyond = grouped(past.carried["reached"], past.memory.positions).unsqueeze(2) + self.width
                positions = past.memory.positions.unsqueeze(1)
                return past.memory.padding_mask.unsqueeze(1) | (positions > beyond), None

            def next(self, past, weights, hidden):
                assert past.hidden.shape == hidden.shape == past.query.shape
                positions = past.memory.positions
                there = grouped(weights, positions).argmax(2)
                return {"reached": past.carried["reached"].maximum(positions.gather(1, there).flatten())}

        options = dict(attention_history="looking", attention_window="walking", attention_window_width=1)
        for name, more in (("dl4mt", {}), ("ava", dict(encoder_type="bidirectional", encoder_layers=2))):
            model = build(name, scale=0.5, **options, **more).eval()
            SEEN.clear()
            source, lengths, previous = batch(left=False)
            with torch.no_grad():
                weights = model(source, lengths, previous)[1]["attn"][0]
            (query, none), (again, hidden, before) = SEEN[:2]
            assert none is None and query.equal(again) and not hidden.equal(before)
            assert SEEN[3][2].equal(hidden)  # the next step finds the state that this step leaves
            assert hidden.equal(query) == (name == "ava") and not query.equal(before)
            reached = torch.zeros(len(source))
            for step in weights.unbind(1):
                positions = torch.arange(1, source.size(1) + 1)
                assert not step[positions > reached.unsqueeze(1) + 1].any()
                reached = reached.maximum(step.argmax(1) + 1)
            stepped, _ = stepwise(model, source, lengths, previous, torch.arange(3))
            torch.testing.assert_close(stepped, model(source, lengths, previous)[0], rtol=1e-4, atol=1e-5)


def test_attention_that_reads_earlier_steps_is_stepped(guests):
    """This decoder attends in all steps at once, but not if a window has a state, or if a score reads one."""
    with outside(EXTEND / "sru"):

        @register_window("once")
        class Once(Window):
            """Shows the positions that had the highest weight in no earlier step."""

            def start(self, memory):
                return memory.padding_mask & False  # B x S

            def look(self, past):
                seen = grouped(past.carried, past.memory.padding_mask)
                hidden = past.memory.padding_mask.unsqueeze(1)
                left = ~(seen | hidden).all(2, keepdim=True)  # the full sentence if all was seen
                return hidden | (seen & left), None

            def next(self, past, weights, hidden):
                return past.carried | weights.eq(weights.max(1, keepdim=True).values)

        @register_score("fading")
        class Fading(BilinearAttention):
            def forward(self, query, memory, state, added=None):
                attended = super().forward(query, memory, state, added)
                return attended._replace(context=attended.context * (1 - state.weights[:, -1:]))

        source, lengths, previous = batch()
        for option in (dict(attention_window="once"), dict(attention_score="fading")):
            model = build("gnmt_v2", scale=0.5, decoder_layers=2, residuals=0, **option).eval()
            stepped, _ = stepwise(model, source, lengths, previous, torch.arange(3))
            torch.testing.assert_close(model(source, lengths, previous)[0], stepped)


def test_terms_of_attention(guests):
    """Terms are of all steps, also recomputed ones, and of both levels; a name that exists is refused."""
    with outside(EXTEND / "sru"):

        @register_score("telling")
        class Telling(BilinearAttention):
            name = "largest"

            def read(self, weights, memory):
                attended = super().read(weights, memory)
                return attended._replace(terms={self.name: attended.weights.max(1).values})

        source, lengths, previous = batch()
        plain = build("dl4mt", attention_score="telling", scale=0.5)
        made = plain(source, lengths, previous)[1]
        assert made["largest"][0].equal(made["attn"][0].max(2).values)
        again = build("dl4mt", attention_score="telling", recompute_steps=2, scale=0.5).train()
        assert again(source, lengths, previous)[1]["largest"][0].equal(made["largest"][0])
        two = build("dl4mt", attention_score="telling", attention_via=True, encoder_layers=2, scale=0.5)
        made = two(source, lengths, previous)[1]
        assert made["word_largest"][0].equal(made["word_attn"][0].max(2).values) and "largest" in made
        Telling.name = "attn"
        with pytest.raises(ConfigurationError, match="a component's term 'attn' has the name of something else"):
            plain(source, lengths, previous)
        Telling.name = "log_priors"
        with pytest.raises(ConfigurationError, match="a component's term 'log_priors' has the name of something else"):
            build("mixture_of_softmaxes", attention_score="telling")(source, lengths, previous)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_weights_are_float32_whatever_a_score_returns(dtype, guests):
    """The page says so; histories that add weights up would otherwise round."""
    with outside(EXTEND / "sru"):

        @register_score("rounded")
        class Rounded(Attention):
            def energies(self, query, keys):
                return query @ keys.mT

        model = build("rnnsearch", attention_score="rounded").to(dtype)
        assert model(*batch())[1]["attn"][0].dtype == torch.float32


@pytest.mark.parametrize("operation, holds", [("*", True), ("/", False)])
def test_a_normalizer_multiplies_by_a_learned_number(operation, holds, guests):
    """The page says so: a quotient of the lowest number overflows, and its gradient is NaN."""
    with outside(EXTEND / "sru"):

        @register_normalizer("learned")
        class Learned(Normalizer):
            def __init__(self, *parts, **more):
                super().__init__(*parts, **more)
                self.sharpness = torch.nn.Parameter(torch.tensor(0.9))

            def normalize(self, energies):
                learned = self.sharpness.abs()
                return (energies * learned if operation == "*" else energies / learned).softmax(-1)

        register_architecture("learned", base="rnnsearch", attention_normalizer="learned")
        assert DEMANDS["short"](Subject("learned")).holds is holds


def test_what_only_a_term_reads_gets_a_gradient(guests):
    """The gradient is zero if the loss does not read the term: several processes wait for every gradient.

    An infinite term, such as the logarithm of a probability of 0, changes nothing else.
    """
    with outside(EXTEND / "sru"):

        @register_readout("telling")
        class Telling(TanhReadout):
            def __init__(self, widths, *parts, **more):
                super().__init__(widths, *parts, **more)
                self.told = torch.nn.Linear(widths.features, 2)

            def predict(self, features, project, steps):
                return Prediction(project(features), terms={"told": self.told(features) - torch.inf})

        model = build("dl4mt", readout="telling").train()
        logits, _ = model(*batch())
        logits.sum().backward()
        assert logits.isfinite().all() and not model.decoder.network.readout.told.weight.grad.any()


def test_a_criterion_of_its_own(guests, data, trained, tmp_path):
    """The command line and hydra's file take it, unless they name another one; an unknown one is refused at once."""

    def criterion(path):
        return torch.load(path, weights_only=True)["cfg"]["criterion"]["_name"]

    assert default_criterion("mixture_of_softmaxes") == "even_mixture" and default_criterion("dl4mt") == ""
    assert criterion(trained("mixture_of_softmaxes")) == "even_mixture"
    assert criterion(trained("mixture_of_softmaxes", "--prior-weight", "0.2")) == "even_mixture"
    assert criterion(trained("mixture_of_softmaxes", "--criterion", "cross_entropy")) == "cross_entropy"
    register_architecture("mixture_slow", base="mixture_of_softmaxes", init_std=0.05)
    assert default_criterion("mixture_slow") == "even_mixture"
    with pytest.raises(
        ConfigurationError, match="architecture 'mixture_slower': criterion must be the name of a criterion, not 5"
    ):
        register_architecture("mixture_slower", base="mixture_of_softmaxes", criterion=5)
    (folder := tmp_path / "nowhere").mkdir()
    (folder / "__init__.py").write_text(
        "from fairseq_attnvariants import register_architecture\n"
        "register_architecture('nowhere', base='dl4mt', criterion='even_mixtures')\n"
    )
    arguments = corpus.train_arguments(data, tmp_path / "run", "--max-update", "1", arch="nowhere")
    arguments[arguments.index("--user-dir") + 1] = str(folder)
    done = corpus.run("fairseq-train", *arguments, check=False)
    assert "architecture 'nowhere' is trained by the criterion 'even_mixtures'" in done.stderr.splitlines()[-1]
    assert done.returncode and not (tmp_path / "run").exists()


def by_hydra(data, folder, arch, *more):
    """Train an architecture of ``examples/extend``, and return the configuration of its checkpoint."""
    more = [*more, "optimization.max_update=1"]
    arguments = corpus.hydra_arguments(data, folder, *more, arch=arch, user_dir=EXTEND / arch)
    corpus.run("fairseq-hydra-train", *arguments, cwd=folder)
    return torch.load(folder / "checkpoint_last.pt", weights_only=True)["cfg"]


@pytest.mark.parametrize("given, expected", [
    ("model._name=mixture_of_softmaxes", "even_mixture"),
    ("criterion._name=label_smoothed_cross_entropy", "label_smoothed_cross_entropy"),
    ("model._name=dl4mt", "label_smoothed_cross_entropy"),
])  # fmt: skip
def test_a_criterion_of_its_own_by_hydra(given, expected, data, tmp_path):
    """Options of the file's criterion are taken if this criterion has them."""
    kept = by_hydra(data, tmp_path, "mixture_of_softmaxes", given, "criterion.label_smoothing=0.2")["criterion"]
    assert kept["_name"] == expected and kept["label_smoothing"] == 0.2


def test_options_of_a_component_by_hydra(data, tmp_path):
    kept = by_hydra(data, tmp_path, "cosine_decay", "+model.part_args.decay.rate=0.9")["model"]
    assert json.loads(kept["part_args"])["decay"] == {"rate": 0.9}
