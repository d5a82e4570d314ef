"""Exact hard attention, of zeroth and first order, by sums over all alignments."""

import itertools

import corpus
import pytest
import torch
from conftest import Task, batch, build, dictionary, stepwise

from fairseq_attnvariants.nn import hard_attention
from fairseq_attnvariants.nn.attention import real_positions
from fairseq_attnvariants.nn.readout import Steps
from fairseq_attnvariants.nn.state import Encoded, Memory
from fairseq_attnvariants.registry import ConfigurationError

ARCHS = "hard_attention", "hard_monotone"


def readout_of(model):
    return model.decoder.network.readout, model.decoder.output_projection


def seen_by_readout(model, *sentences):
    """Return log-probabilities, attention, and what the readout reads: ``h_i``, ``y_{i-1}`` and ``s_j``."""
    readout, seen = model.decoder.network.readout, {}
    for name in ("hidden", "target", "context"):
        part = getattr(readout, name)
        part.register_forward_hook(lambda part, inputs, output, name=name: seen.update({name: inputs[0]}))
    logits, extra = model(*sentences)
    return logits, extra["attn"][0], *(seen[name] for name in ("hidden", "target", "context"))


@pytest.mark.slow
@pytest.mark.parametrize("arch", ARCHS)
def test_marginals_are_sums_over_all_alignments(arch):
    """Marginals are those of a sentence's words, and of each word's source position, given the words before it."""
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
            return attention[row, i, j]  # other tests compare the plain score with its equation
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
            if arch == "hard_monotone":  # the other one's attention is part of the sums
                torch.testing.assert_close(attention[row], sums[:, 1:] / given.unsqueeze(1))
            followed = logs[row, :3].gather(1, previous[row, 1:].unsqueeze(1)).squeeze(1)
            torch.testing.assert_close(followed.cumsum(0).exp(), sums[:3, 0])


@pytest.mark.parametrize("arch", ARCHS)
def test_marginals_copy(arch):
    """``--copying`` uses the marginal weights that such a readout returns, step by step and at once."""
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


def test_monotone_attention_never_goes_back():
    """Monotone attention moves by 0 to ``reach`` tokens per step."""
    model = build("hard_monotone", scale=1.0, part_args={"hard_monotone": {"reach": 1}}).eval()
    source, lengths, previous = batch((6, 2), (5, 5))
    with torch.no_grad():
        attention = model(source, lengths, previous)[1]["attn"][0]
    for row, length in enumerate(lengths):
        first = source.size(1) - length
        for i in range(6):
            seen = set(attention[row, i].nonzero().flatten().tolist())
            assert seen == set(range(first, min(first + i + 2, source.size(1))))


@pytest.mark.parametrize("arch", ARCHS)
def test_gradcheck(arch):
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


def test_the_gradient_of_hardly_any_weight_is_finite():
    """A softmax also gives weights so small that 1 / w is infinite."""
    readout, _ = readout_of(build("hard_attention"))
    energies = torch.tensor([[[0.0, -80.0, -100.0]]], requires_grad=True)
    weights, emissions = energies.softmax(2), torch.tensor([-200.0, -200.0, 0.0])
    priors, _ = readout.align(None, weights, None, None, None)
    (priors + emissions).logsumexp(2).sum().backward()
    assert weights.gt(0).all() and energies.grad.isfinite().all()
    assert readout.align(None, torch.tensor([[[1.0, 0.0]]]), None, None, None)[0].exp().tolist() == [[[1.0, 0.0]]]


@pytest.mark.parametrize("arch", ARCHS)
def test_recomputed_emissions_are_the_same(arch, monkeypatch):
    """Outputs and gradients do not depend on how many steps are computed at once."""
    model = build(arch, scale=0.5).double()
    sentences, found = batch((3, 1), (3, 2)), []
    for block in (1, 2 * 4 * 20 * 2, hard_attention.BLOCK):
        monkeypatch.setattr(hard_attention, "BLOCK", block)
        loss = model(*sentences)[0].square().mean()
        found.append([loss, *torch.autograd.grad(loss, list(model.parameters()))])
    torch.testing.assert_close(found[0], found[2])
    torch.testing.assert_close(found[1], found[2])


@pytest.mark.parametrize("arch", ARCHS)
def test_recomputed_emissions_drop_out_the_same(arch, monkeypatch):
    model, found = build(arch, scale=0.5, decoder_dropout_out=0.5).double().train(), []
    monkeypatch.setattr(hard_attention, "BLOCK", 1)
    for way in (hard_attention.checkpoint, lambda function, *given, **_: function(*given)):
        monkeypatch.setattr(hard_attention, "checkpoint", way)
        torch.manual_seed(3)
        loss = model(*batch((3, 1), (3, 2)))[0].square().mean()
        found.append([loss, *torch.autograd.grad(loss, list(model.parameters()))])
    torch.testing.assert_close(*found)


@pytest.mark.parametrize("arch", ARCHS)
def test_training_keeps_no_emissions_of_many_words(arch, monkeypatch):
    """No tensor of the size sentences x source x vocabulary is kept, not even for one step."""
    monkeypatch.setattr(hard_attention, "BLOCK", 1)
    task, kept = Task(target=dictionary(1000)), []
    model, sentences = build(arch, task, decoder_out_embed_dim=6), batch((9, 5), (2, 2))
    with torch.autograd.graph.saved_tensors_hooks(lambda part: kept.append(part.numel()) or part, lambda part: part):
        logits, _ = model(*sentences)
    assert max(kept) <= logits.numel() == 2 * 3 * len(task.target_dictionary)  # the source has 10 tokens


def test_what_hard_attention_has_no_part_in():
    with pytest.raises(ConfigurationError, match="--adaptive-output"):
        build("hard_attention", adaptive_output=True)
    for arch, options, said in (
        ("hard_monotone", dict(input_feed=True), "--attention-score level gives every position the same score"),
        ("hard_monotone", dict(attention_score="additive"), "--attention-score additive would learn nothing"),
        ("hard_attention", dict(attention_score="multihead", attention_heads=2), "multihead would learn nothing"),
    ):
        with pytest.raises(ConfigurationError, match=said):
            build(arch, **options)
    build("hard_monotone", attention_score="additive", input_feed=True, layer_norm="all")(*batch())
    build("hard_monotone", layer_norm="all")(*batch())


def test_parameters_are_called_as_before_they_were_the_package_s():
    """The models were in an example before, whose checkpoints still load."""
    readout = build("hard_monotone", part_args={"hard_monotone": {"reach": 2}}).decoder.network.readout
    names = {name.partition(".")[0] for name, _ in readout.named_parameters()}
    assert names == {"hidden", "target", "context", "jump", "jump_from"} and len(readout.jump.bias) == 3


@pytest.mark.commands
def test_train_and_translate_hard_monotone(data, tmp_path):
    """A training ends, and beam search translates with alignments."""
    corpus.run("fairseq-train", *corpus.train_arguments(data, tmp_path, "--max-update", 20, arch="hard_monotone"))
    common = [data, "--user-dir", corpus.USER_DIR, "--path", tmp_path / "checkpoint_last.pt", "--cpu"]
    output = corpus.run("fairseq-generate", *common, "--beam", 4, "--print-alignment").stdout
    assert "BLEU" in output and output.count("\nH-") == output.count("\nA-") == 12
