"""Examples of parts from outside the package: checked, trained, resumed and translated by ``--user-dir``."""

import ast
import importlib
import itertools
import re

import corpus
import pytest
import torch
from conftest import Task, batch, build, dictionary, outside, stepwise
from corpus import ROOT
from torch.utils.checkpoint import checkpoint

from fairseq_attnvariants.nn.attention import real_positions
from fairseq_attnvariants.nn.cells import AdaptiveGRUCell, GRUCell
from fairseq_attnvariants.nn.init import Scheme
from fairseq_attnvariants.nn.readout import Steps
from fairseq_attnvariants.nn.state import Encoded, Memory
from fairseq_attnvariants.registry import ConfigurationError

pytestmark = pytest.mark.docs

EXTEND = ROOT / "examples" / "extend"
COSINE, HARD, SHARP = EXTEND / "cosine_decay", EXTEND / "hard_attention", EXTEND / "sharp_attention"
DOUBLED = EXTEND / "doubled_gru"
HARD_ARCHS = "hard_attention", "hard_monotone"


@pytest.mark.parametrize("folder", [COSINE, SHARP], ids=lambda folder: folder.name)
def test_the_page_shows_the_whole_file(folder):
    code = (folder / "__init__.py").read_text()
    assert f"```python\n{code}```" in (ROOT / "docs" / "extend.md").read_text()
    assert len([line for line in code.splitlines() if line]) < 50


def test_what_the_examples_import_stays():
    """The page lists it, and all that it lists is there."""
    page = (ROOT / "docs" / "extend.md").read_text().partition("## What stays")[2]
    rows = re.findall(r"^\| `(fairseq_attnvariants[\w.]*)` \| (.*) \|$", page, re.MULTILINE)
    listed = {(module, name) for module, cell in rows for name in re.findall(r"`(\w+)`", cell)}
    assert all(hasattr(importlib.import_module(module), name) for module, name in listed)
    for file in EXTEND.glob("*/__init__.py"):
        nodes = [*ast.walk(ast.parse(file.read_text()))]
        imports = [node for node in nodes if isinstance(node, ast.ImportFrom) and node.module.startswith("fairseq_")]
        assert {(node.module, alias.name) for node in imports for alias in node.names} <= listed


@pytest.mark.parametrize("folder, arch", [(COSINE, "cosine_decay"), (HARD, "hard_attention"), (HARD, "hard_monotone")])
def test_check(folder, arch):
    done = corpus.run("fairseq-attnvariants", "check", "--user-dir", folder, "--arch", arch)
    assert done.stdout.endswith("all hold\n")


CONTROLS = "--encoder-cell", "doubled_gru", "--decoder-cell", "doubled_carry_gru"


def test_the_controls():
    """What is weighed starts doubled, with the same draws, and at g = 1/2 a step is the plain GRU's."""
    with outside(DOUBLED) as package:
        found = []
        for kind in (AdaptiveGRUCell, package.DoubledGRUCell, package.DoubledCarryGRUCell):
            torch.manual_seed(1)
            cell = kind({"x": 3}, 4)
            with torch.no_grad():
                cell.initialise(Scheme(gate_bias=1.0))
            found.append([parameter.clone() for parameter in cell.parameters()])
        for adaptive, doubled, carry in zip(*found):
            assert doubled.equal(carry) and doubled[:12].equal(2 * adaptive[:12]) and doubled[12:].equal(adaptive[12:])
        plain, control = GRUCell({"x": 3}, 4), package.DoubledCarryGRUCell({"x": 3}, 4)
        with torch.no_grad():
            for base, parameter in zip(plain.parameters(), control.parameters()):
                parameter.zero_()[: len(base)] = 2 * base.uniform_(-1, 1)
        x, h = torch.randn(2, 3), torch.randn(2, 4)
        torch.testing.assert_close(control(h, x=x), plain(h, x=x))
        for changed, options in (("layer-norm", dict(layer_norm="all")), ("context-gate", dict(context_gate="both"))):
            with pytest.raises(ConfigurationError, match=f"doubled_gru .* which --{changed} .*: leave one of them out"):
                build("dl4mt", decoder_cell="doubled_gru", **options)
        build("dl4mt", decoder_cell="doubled_gru", layer_norm="encoder")


def test_a_checkpoint_with_a_control_loads_with_its_folder(data, tmp_path):
    arguments = corpus.train_arguments(data, tmp_path, "--max-update", "1", *CONTROLS, arch="dl4mt")
    arguments[arguments.index("--user-dir") + 1] = str(DOUBLED)
    corpus.run("fairseq-train", *arguments)
    generate = [data, "--path", tmp_path / "checkpoint_last.pt", "--cpu", "--user-dir"]
    corpus.run("fairseq-generate", *generate, DOUBLED)
    done = corpus.run("fairseq-generate", *generate, corpus.USER_DIR, check=False)
    said = done.stderr.splitlines()[-1]
    assert done.returncode and "unknown cell 'doubled_gru'" in said and "a folder given as --user-dir" in said


def test_a_cost(data, tmp_path):
    """Attention that it costs to spread is sharper, and the cost is what the docstring says."""
    options = "--demand", "saved", "resumed", "--criterion", "sharp_attention"
    done = corpus.run("fairseq-attnvariants", "check", "--user-dir", SHARP, "--arch", "rnnsearch", *options)
    assert done.stdout.endswith("all hold\n")
    with outside(SHARP) as package:
        task, model = Task(), build("rnnsearch", scale=0.5).eval()
        source, lengths, previous = batch()
        sample = {"net_input": dict(src_tokens=source, src_lengths=lengths, prev_output_tokens=previous)}
        sample |= {"target": previous.roll(-1, 1), "ntokens": 1}
        losses = [package.SharpAttention(task, False, 0.1, 0, False, weight)(model, sample)[0] for weight in (0, 0.5)]
        weights = model(**sample["net_input"])[1]["attn"][0][sample["target"].ne(1)].double()
    entropy = -(weights * weights.clamp(min=1e-9).log()).sum()
    torch.testing.assert_close(losses[1] - losses[0], (0.5 * entropy).to(losses[0]), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("folder", sorted(EXTEND.glob("*/")), ids=lambda folder: folder.name)
def test_an_example_alone_brings_the_architectures(folder):
    """As the only ``--user-dir`` of stock fairseq, which has not imported the package before."""
    assert (
        "--attention-score" in corpus.run("fairseq-train", "--user-dir", folder, "--arch", "rnnsearch", "--help").stdout
    )


def test_the_loss_of_the_page_learns(tmp_path):
    """Its command as printed, on the quickstart's text, for three epochs: with a weight of 0.1 the loss is 2.9 then."""
    page = (ROOT / "docs" / "extend.md").read_text().replace("\\\n", "")
    [command] = re.findall(r"^fairseq-train (data-bin .*--criterion sharp_attention .*)$", page, re.MULTILINE)
    corpus.run("python", ROOT / "examples/laboratory/make_corpus.py", "quickstart", "toy", cwd=tmp_path)
    text = [f"--{name}pref=toy/{name}" for name in ("train", "valid", "test")]
    corpus.run("fairseq-preprocess", "-s", "src", "-t", "tgt", *text, "--destdir", "data-bin", cwd=tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    done = corpus.run("fairseq-train", *command.split(), "--max-epoch", 3, "--log-format", "simple", cwd=tmp_path)
    losses = [
        float(loss) for loss in re.findall(r"valid on 'valid' subset \| loss ([\d.]+)", done.stdout + done.stderr)
    ]
    assert len(losses) == 3 and losses[0] > losses[1] > losses[2] and losses[2] < 2.2


def test_train_resume_translate(data, tmp_path):
    """A resumed training ends in the same bits, with a rate that the checkpoint keeps."""

    def train(name, updates):
        arguments = corpus.train_arguments(data, tmp_path / name, "--max-update", updates, arch="cosine_decay")
        arguments[arguments.index("--user-dir") + 1] = str(COSINE)
        corpus.run("fairseq-train", *arguments, "--part-args", '{"decay": {"rate": 0.9}}', cwd=tmp_path)

    for name, updates in (("whole", 6), ("resumed", 3), ("resumed", 6)):
        train(name, updates)
    paths = [tmp_path / name / "checkpoint_last.pt" for name in ("whole", "resumed")]
    whole, resumed = (torch.load(path, weights_only=True) for path in paths)
    assert '"rate": 0.9' in whole["cfg"]["model"]["part_args"]
    assert all(value.equal(resumed["model"][name]) for name, value in whole["model"].items())
    output = corpus.run("fairseq-generate", data, "--user-dir", COSINE, "--path", paths[1], "--cpu").stdout
    assert "BLEU" in output and output.count("\nH-") == 12


@pytest.fixture(scope="module")
def hard():
    with outside(HARD) as package:
        yield package


def readout_of(model):
    return model.decoder.network.readout, model.decoder.output_projection


def seen_by_readout(model, *sentences):
    """Log-probabilities, attention, and what the readout reads: ``h_i``, ``y_{i-1}`` and ``s_j``."""
    readout, seen = model.decoder.network.readout, {}
    for name in ("hidden", "target", "context"):
        part = getattr(readout, name)
        part.register_forward_hook(lambda part, inputs, output, name=name: seen.update({name: inputs[0]}))
    logits, extra = model(*sentences)
    return logits, extra["attn"][0], *(seen[name] for name in ("hidden", "target", "context"))


@pytest.mark.parametrize("arch", HARD_ARCHS)
def test_marginals_are_sums_over_all_alignments(hard, arch):
    """Of a sentence's words, and of where each comes from, given the words before it."""
    model = build(arch, scale=1.0, **({"part_args": {arch: {"reach": 2}}} if arch == "hard_monotone" else {})).double()
    source, lengths, previous = batch((3, 1, 4), (3, 3, 3))
    with torch.no_grad():
        logs, attention, hidden, words, annotations = seen_by_readout(model.eval(), source, lengths, previous)
    readout, layer = readout_of(model)
    torch.testing.assert_close(logs.exp().sum(2), torch.ones(3, 4).double())

    def emission(row, i, j):
        total = readout.hidden(hidden[row, i]) + readout.target(words[row, i]) + readout.context(annotations[row, j])
        return layer(torch.tanh(total)).softmax(0)

    def transition(row, i, before, j, real):
        if arch == "hard_attention":
            return attention[row, i, j]  # of the plain score, which other tests hold to its equation
        energies = readout.jump(hidden[row, i]) + readout.jump_from(annotations[row, before])
        reached = [d for d in range(3) if before + d in real]
        return torch.softmax(energies[reached], 0)[reached.index(j - before)] if j - before in reached else 0.0

    with torch.no_grad():
        for row in range(3):
            real = [j for j in range(source.size(1)) if source[row, j] != 1]
            sums = torch.zeros(4, 1 + source.size(1)).double()  # P(y_1..y_i), and P(a_i = j, y_<i)
            for steps in range(1, 5):
                for alignment in itertools.product(real, repeat=steps):
                    probability, before = 1.0, real[0]
                    for i, j in enumerate(alignment):
                        probability = probability * transition(row, i, before, j, real)
                        before = j
                        if i == steps - 1:
                            sums[i, 1 + j] += probability
                        if i < 3:  # after the last word nothing is known
                            probability = probability * emission(row, i, j)[previous[row, i + 1]]
                    sums[steps - 1, 0] += probability
            given = torch.cat([torch.ones(1).double(), sums[:-1, 0]])  # P(y_1..y_{i-1})
            torch.testing.assert_close(attention[row], sums[:, 1:] / given.unsqueeze(1))
            followed = logs[row, :3].gather(1, previous[row, 1:].unsqueeze(1)).squeeze(1)
            torch.testing.assert_close(followed.cumsum(0).exp(), sums[:3, 0])


@pytest.mark.parametrize("arch", HARD_ARCHS)
def test_marginals_copy(hard, arch):
    """``--copying`` around a readout that predicts by itself: by the weights that it gives, step by step as at once."""
    model = build(arch, scale=1.0, copying=True).double().eval()
    plain = build(arch, scale=1.0).double().eval()
    plain.load_state_dict(
        {
            name.replace("readout.readout.", "readout."): value
            for name, value in model.state_dict().items()
            if not name.startswith(
                tuple(f"decoder.network.readout.{part}." for part in ("hidden", "target", "context"))
            )
        }
    )
    source, lengths, previous = batch((3, 1, 4), (3, 3, 3))
    with torch.no_grad():
        logs, extra = model(source, lengths, previous)
        generated, own = plain(source, lengths, previous)
        searched, _ = stepwise(model, source, lengths, previous, torch.arange(3))
    torch.testing.assert_close(extra["attn"][0], own["attn"][0])
    torch.testing.assert_close(searched, logs)
    copied = torch.zeros_like(logs).scatter_add(
        2, model.decoder.network.readout.symbols[source].unsqueeze(1).expand_as(own["attn"][0]), own["attn"][0]
    )
    apart = generated.log_softmax(2).exp() - copied  # P = copied + p (P_vocab - copied), with one p for all words
    p = (logs.exp() - copied) / apart
    sure = apart.abs() > 1e-3
    mean = (p * sure).sum(2) / sure.sum(2)
    torch.testing.assert_close(logs.exp(), copied + mean.unsqueeze(2) * apart, rtol=1e-6, atol=1e-9)
    assert mean.gt(0).all() and mean.lt(1).all()


def test_monotone_attention_never_goes_back(hard):
    """Nor further at once than it reaches: what it looks at moves by 0 to ``reach`` tokens a step."""
    model = build("hard_monotone", scale=1.0, part_args={"hard_monotone": {"reach": 1}}).eval()
    source, lengths, previous = batch((6, 2), (5, 5))
    with torch.no_grad():
        attention = model(source, lengths, previous)[1]["attn"][0]
    for row, length in enumerate(lengths):
        first = source.size(1) - length
        for i in range(6):
            seen = set(attention[row, i].nonzero().flatten().tolist())
            assert seen == set(range(first, min(first + i + 2, source.size(1))))


@pytest.mark.parametrize("arch", HARD_ARCHS)
def test_gradcheck(hard, arch):
    readout, layer = (part.double() for part in readout_of(build(arch, scale=0.5)))
    padding = torch.tensor([[True, False, False, False], [False] * 4])
    words, weights = torch.randint(4, 20, (2, 3)), torch.rand(2, 3, 4).double().masked_fill(padding.unsqueeze(1), 0)

    def predicted(hidden, target, annotations):
        known = readout.remember(Encoded(annotations, padding, annotations, annotations))
        memory = Memory(annotations, annotations, padding, real_positions(padding), annotations, readout=known)
        steps = Steps(words, weights, memory, readout.start(memory))
        return readout.predict(readout(hidden, target, annotations), layer, steps)[:2]

    inputs = [torch.randn(2, length, width).double().requires_grad_() for length, width in ((3, 7), (3, 5), (4, 16))]
    assert torch.autograd.gradcheck(predicted, inputs, fast_mode=True)


@pytest.mark.parametrize("arch", HARD_ARCHS)
def test_recomputed_emissions_are_the_same(hard, arch, monkeypatch):
    """Outputs and gradients are those of all that is in between kept, with dropout, too."""
    model = build(arch, dropout=0.3, init_std=0.3).double()
    sentences, found = batch((3, 1), (3, 2)), []
    for recompute in (checkpoint, lambda compute, *arguments, use_reentrant: compute(*arguments)):
        monkeypatch.setattr(hard, "checkpoint", recompute)
        torch.manual_seed(3)
        loss = model(*sentences)[0].square().mean()
        found.append([loss, *torch.autograd.grad(loss, list(model.parameters()))])
    torch.testing.assert_close(found[0], found[1])


@pytest.mark.parametrize("arch", HARD_ARCHS)
def test_training_keeps_no_emissions(hard, arch):
    """Nothing of the size of sentences x source x vocabulary is kept, not even of one step."""
    task, kept = Task(target=dictionary(1000)), []
    model, sentences = build(arch, task, decoder_out_embed_dim=6), batch((9, 5), (2, 2))
    with torch.autograd.graph.saved_tensors_hooks(lambda part: kept.append(part.numel()) or part, lambda part: part):
        logits, _ = model(*sentences)
    assert max(kept) <= logits.numel() == 2 * 3 * len(task.target_dictionary)  # the source has 10 tokens


def test_what_hard_attention_has_no_part_in(hard):
    with pytest.raises(ConfigurationError, match="--adaptive-output"):
        build("hard_attention", adaptive_output=True)
    with pytest.raises(ConfigurationError, match="--encoder-type convolutional has segments"):
        build("hard_attention", encoder_type="convolutional")(*batch())


def test_train_and_translate_hard_monotone(data, tmp_path):
    """Beam search finds the scores that the model gives to its translations, through copies of its checkpoint alone."""
    arguments = corpus.train_arguments(data, tmp_path, "--max-update", 20, arch="hard_monotone")
    arguments[arguments.index("--user-dir") + 1] = str(HARD)
    corpus.run("fairseq-train", *arguments, cwd=tmp_path)
    common = [data, "--user-dir", HARD, "--path", tmp_path / "checkpoint_last.pt", "--cpu"]
    output = corpus.run("fairseq-generate", *common, "--beam", 4, "--print-alignment").stdout
    assert "BLEU" in output and output.count("\nH-") == output.count("\nA-") == 12
