"""Copying (See et al. 2017) equals a naive sum over the vocabulary, and works in search and in real commands."""

import random
import re

import pytest
import torch
from conftest import Task, batch, build
from corpus import USER_DIR, run, train_arguments, train_here
from fairseq.data import Dictionary
from fairseq.sequence_generator import SequenceGenerator

from fairseq_attnvariants.models import AttentionRNNModel
from fairseq_attnvariants.nn.copying import Copies
from fairseq_attnvariants.nn.readout import Steps
from fairseq_attnvariants.nn.state import Memory
from fairseq_attnvariants.registry import ConfigurationError
from fairseq_attnvariants.tasks.shortlist import Candidate, Shortlist, ShortlistGenerator

UNK, EOS, PAD = 3, 2, 1


def test_what_source_symbols_are_copied_as(caplog):
    """A symbol is copied as the same symbol, with its target number, or as <unk>; EOS is copied as EOS."""
    task = Task()
    caplog.set_level("INFO", logger="fairseq_attnvariants")
    model = build("pointer_generator", task)
    assert "--copying: 7 of 20 source words are in the target dictionary" in caplog.text
    copying = model.decoder.network.readout
    for number, symbol in enumerate(task.source_dictionary.symbols):
        other = task.target_dictionary[copying.symbols[number]]
        assert other == (symbol if symbol in task.target_dictionary.indices else "<unk>")
    assert copying.symbols[[EOS, PAD, UNK]].tolist() == [EOS, PAD, UNK]
    assert task.source_dictionary.index("w3") != copying.symbols[task.source_dictionary.index("w3")]
    assert not any("symbols" in name for name in model.state_dict())  # loading makes them from dictionaries


def mixture(copying, features, weights, symbols):
    """Compute eq. 9 literally, with the full vocabulary for every source token."""
    chance = torch.sigmoid(features[..., -1:])
    total = chance * features[..., :-1].softmax(2)
    for j in range(weights.size(2)):
        words = torch.nn.functional.one_hot(symbols[:, j], total.size(2)).unsqueeze(1)
        total = total + (1 - chance) * weights[:, :, j : j + 1] * words
    return total.log()


@pytest.mark.parametrize("beam", [1, 3])
def test_probabilities_and_their_gradients_are_those_of_the_plain_sum(beam):
    copying = build("pointer_generator").double().decoder.network.readout
    symbols = torch.tensor([[5, 3, 5, 3, 2], [1, 6, 6, 6, 2]])
    copies = Copies(symbols, torch.tensor([[0, 1, 0, 1, 4], [0, 1, 1, 1, 4]]), None)
    memory = Memory(*[None] * 5, readout=copies)
    rows = 2 * beam
    features = torch.randn(rows, 3, 9 + 1).double().requires_grad_()
    energies = torch.randn(rows, 3, 5).double().requires_grad_()
    steps = energies.masked_fill(symbols.repeat_interleave(beam, 0).eq(PAD).unsqueeze(1), -torch.inf)
    weights = steps.softmax(2)
    found = copying.predict(features, lambda logits: logits, Steps(None, weights, memory, None)).output
    expected = mixture(copying, features, weights, symbols.repeat_interleave(beam, 0))
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(found.exp().sum(2), torch.ones(rows, 3).double())
    factors = torch.randn_like(found)
    read = features, energies
    gradients = [torch.autograd.grad(made, read, factors, retain_graph=True) for made in (found, expected)]
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("chooses", [-60.0, 0.0, 60.0])
def test_what_has_hardly_any_probability_is_finite(chooses):
    """The vocabulary layer excludes words, weights are zero, or the choice to copy is nearly 0 or 1."""
    model = build("pointer_generator", scale=0.5, attention_normalizer="sparsemax", attention_temperature=0.01).eval()
    with torch.no_grad():
        model.decoder.network.readout.hidden.bias.fill_(chooses)
        model.decoder.output_projection.bias[::2] = -1e4
    source, lengths, previous = batch()
    output, extra = model(source, lengths, previous)
    assert extra["attn"][0].eq(0).any() and output.isfinite().all() and output.dtype == torch.float32
    torch.testing.assert_close(output.logsumexp(2), torch.zeros(previous.shape))
    output[..., 4:].sum().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


def test_a_model_that_copies_alone_writes_nothing_but_the_source():
    """Padding has no weight, so it is never written."""
    task = Task()
    model = build("pointer_generator", task, scale=0.5).eval()
    with torch.no_grad():
        model.decoder.network.readout.hidden.bias.fill_(-80.0)
    source, lengths, previous = batch()
    probabilities = model(source, lengths, previous)[0].exp()
    for row in range(len(source)):
        real = source[row][source[row].ne(PAD)]
        can = {task.target_dictionary.index(task.source_dictionary[token]) for token in real}
        others = [k for k in range(len(task.target_dictionary)) if k not in can]
        assert PAD in others and probabilities[row][:, others].lt(1e-12).all()
        assert probabilities[row][:, sorted(can)].gt(1e-4).all()


def models(count, **options):
    made = [build("pointer_generator", seed=seed, scale=0.8, **options).eval() for seed in range(count)]
    for model in made:
        torch.nn.init.normal_(model.decoder.output_projection.bias)
    return made


@pytest.mark.parametrize("search_dtype", ["float32", "bfloat16"])
def test_ensembles_and_beams(search_dtype, sample):
    """Scores of a beam are those of given targets, by the mean of the models' probabilities."""
    ensemble, task = models(2, search_dtype=search_dtype), Task()
    found = SequenceGenerator(ensemble, task.target_dictionary, beam_size=4, max_len_b=8).generate(ensemble, sample)
    source, lengths, _ = batch()
    close = dict(rtol=0.03, atol=0.03) if search_dtype == "bfloat16" else {}
    for row, hypotheses in enumerate(found):
        for tokens in (hypothesis["tokens"] for hypothesis in hypotheses):
            previous = torch.cat([tokens[-1:], tokens[:-1]]).unsqueeze(0)
            real = source[row][source[row].ne(PAD)].unsqueeze(0)
            outputs = torch.stack([model(real, lengths[row : row + 1], previous)[0][0] for model in ensemble])
            expected = outputs.softmax(2).mean(0).log().gather(1, tokens.unsqueeze(1)).squeeze(1)
            scores = next(h["positional_scores"] for h in hypotheses if h["tokens"].equal(tokens))
            torch.testing.assert_close(scores, expected, **close)


def test_a_shortlist_holds_what_can_be_copied(sample):
    """Results equal those of models whose vocabulary has the listed words alone; copied words are always listed."""
    task, words = Task(), batch()[0]
    rows = [Candidate("w1", "v1", 1, 1.0)]
    shortlist = Shortlist(iter(rows), task.source_dictionary, task.target_dictionary, 1, 0)
    found = {}
    for kind in ("short", "whole"):
        ensemble = models(2)
        generator = SequenceGenerator(ensemble, task.target_dictionary, beam_size=3, max_len_b=8)
        if kind == "short":
            generator = ShortlistGenerator(generator, shortlist)
        else:
            copied = {task.target_dictionary.index(task.source_dictionary[token]) for token in words.flatten()}
            listed = copied | {*shortlist.symbols(words, least=6).tolist()}
            assert copied - {*shortlist.symbols(words, least=6).tolist()}
            absent = [k for k in range(len(task.target_dictionary)) if k not in listed]
            assert absent
            for model in ensemble:
                model.decoder.output_projection.bias.data[absent] = -1e9
        found[kind] = generator.generate(ensemble, sample)
    for one, other in zip(found["short"], found["whole"], strict=True):
        assert [h["tokens"].tolist() for h in one] == [h["tokens"].tolist() for h in other]
        torch.testing.assert_close([h["positional_scores"] for h in one], [h["positional_scores"] for h in other])
        torch.testing.assert_close([h["attention"] for h in one], [h["attention"] for h in other])


def test_subwords_are_no_characters():
    with pytest.raises(ConfigurationError, match="--copying .*--source-subwords"):
        build("bpe2char", Task(source=Dictionary()), copying=True)


def test_words_have_no_characters():
    with pytest.raises(ConfigurationError, match="--encoder-type hierarchical .*--task char_translation"):
        build("ava", Task(Dictionary(), Dictionary()))


@pytest.fixture(scope="module")
def named(tmp_path_factory):
    """A corpus with one name per sentence, separate dictionaries that lack most of the names, and a training."""
    folder, generator = tmp_path_factory.mktemp("named"), random.Random(1)
    for split, count in (("train", 120), ("valid", 12), ("test", 12)):
        sentences = []
        for _ in range(count):
            one, other, name = *generator.choices("abcd", k=2), f"N{generator.randrange(200)}"
            sentences.append((f"{one} {name} {other}", f"{other} {one} {name}"))
        for language, lines in zip(("xx", "yy"), zip(*sentences)):
            (folder / f"{split}.{language}").write_text("".join(line + "\n" for line in lines))
    pieces = [f"--{split}pref={folder / split}" for split in ("train", "valid", "test")]
    words = ["--thresholdsrc", "2", "--thresholdtgt", "3", "--destdir", folder / "bin"]
    run("fairseq-preprocess", "-s", "xx", "-t", "yy", *pieces, *words)
    costs = ["--criterion", "label_smoothed_cross_entropy_with_costs", "--label-smoothing", "0.1"]
    more = [*costs, "--coverage-weight", "1", "--max-epoch", "15", "--init-std", "0.1", "--no-epoch-checkpoints"]
    train_here(*train_arguments(folder / "bin", folder / "run", *more, arch="pointer_generator"))
    return folder


@pytest.mark.commands
def test_words_of_an_open_vocabulary(named):
    """An ensemble with different dictionaries translates, and replace-unk finds the copied word for each UNK."""
    text = (named / "bin" / "dict.xx.txt").read_text(), (named / "bin" / "dict.yy.txt").read_text()
    assert text[0] != text[1]
    paths = ":".join(str(named / "run" / f"checkpoint_{which}.pt") for which in ("best", "last"))
    options = ["--user-dir", USER_DIR, "--path", paths, "--cpu", "--print-alignment", "soft", "--beam", "3"]
    generated = run("fairseq-generate", named / "bin", *options, "--model-overrides", "{'search_dtype': 'bfloat16'}")
    (named / "generated").write_text(generated.stdout)
    replace = ["replace-unk", named / "generated", "--source", named / "test.xx"]
    written = run("fairseq-attnvariants", *replace, "--copied", named / "bin" / "dict.yy.txt").stdout.splitlines()
    expected = (named / "test.yy").read_text().splitlines()
    unks = re.findall(r"^H-[0-9]+\t[^\t]*\t(.*)$", generated.stdout, flags=re.MULTILINE)
    assert sum(line.count("<unk>") for line in unks) > 6
    pairs = [pair for one, other in zip(written, expected) for pair in zip(one.split(), other.split())]
    assert sum(one == other for one, other in pairs) > 0.9 * len(pairs), (written, expected)


@pytest.mark.commands
def test_a_checkpoint_in_another_task_and_from_python(named):
    """The map of symbols is made from the dictionaries, in Python, with a shortlist, and with another task."""
    hub = AttentionRNNModel.from_pretrained(named / "run", "checkpoint_best.pt", str(named / "bin"))
    sentences = (named / "test.xx").read_text().splitlines()
    whole = hub.translate(sentences, beam=2)
    filled = " ".join(hub.translate(sentences, beam=2, replace_unk=True)).split()
    copied = [word for word in filled if word not in hub.tgt_dict.indices]
    assert len(copied) >= " ".join(whole).count("<unk>") > 3 and {*copied} <= {*" ".join(sentences).split()}
    assert hub.models[0].decoder.network.readout.symbols.ne(UNK).any()
    assert [*hub._places(torch.tensor([UNK]), torch.tensor([[0.7, 0.3]]), ["a", "N999"])] == [1]
    (named / "table").write_text("a\ta\t3\t1.0\n")
    task = {"_name": "shortlist_translation", "shortlist": str(named / "table"), "shortlist_frequent": 1000}
    short = AttentionRNNModel.from_pretrained(named / "run", "checkpoint_best.pt", str(named / "bin"), task=task)
    assert short.translate(sentences, beam=2) == whole


def test_copying_is_a_reader_of_the_context():
    """So attention learns, although this readout and this decoder do not read the context."""
    build("hard_monotone", copying=True, attention_score="additive", attention_history="coverage")
    with pytest.raises(ConfigurationError, match="reads no context"):
        build("hard_monotone", attention_score="additive")
