"""Every architecture trains, resumes, translates and works in ensembles, as fairseq's tests check their models."""

from functools import cache

import corpus
import pytest
import torch
from conftest import CHARACTERS, TORCH, batch, build
from fairseq import checkpoint_utils
from fairseq.dataclass.configs import GenerationConfig
from fairseq.token_generation_constraints import pack_constraints
from torch.nn.utils.rnn import pad_sequence

from fairseq_attnvariants.architectures.variants import VARIANTS, settings

ALL = list(VARIANTS)
EPOCH = 5  # updates
OPTIMIZERS = {
    "adam": "adam --lr 0.01 --lr-scheduler inverse_sqrt --warmup-updates 3",
    "accumulating": "adam --lr 0.01 --update-freq 2",
    "adagrad": "adagrad --lr 0.05",
    "adadelta": "adadelta --lr 1 --lr-scheduler reduce_lr_on_plateau --lr-patience 0",
    "adafactor": "adafactor --lr 0.01",
    "adamax": "adamax --lr 0.01 --weight-decay 1e-3",
    "nag": "nag --lr 0.25 --lr-scheduler fixed --lr-shrink 0.5 --force-anneal 2",
    "sgd": "sgd --lr 0.5 --momentum 0.9 --lr-scheduler reduce_lr_on_plateau",
}
# every optimizer, each with another family; check's demand "resumed" covers every architecture
FAMILIES = ["rnnsearch", "conddec_rnnatt", "coverage_gru", "adaptive_both", "bridge_direct", "gnmt", "ava", "char2char"]


def on_characters(arch):
    return settings(arch)["encoder_type"] == "hierarchical"


def train(arch, data, folder, *options):
    """Train a small model by ``fairseq-train``, with dropout."""
    sizes = [f"--{side}-{width}={8}" for side in ("encoder", "decoder") for width in ("embed-dim", "hidden-size")]
    sizes += ["--encoder-filters=3-2-4", "--encoder-pooling=2", "--encoder-highway-layers=1"]
    if on_characters(arch):
        sizes += ["--task=char_translation", *(f"--{name.replace('_', '-')}={n}" for name, n in CHARACTERS.items())]
    common = (
        "--clip-norm 1 --init-std 0.1 --dropout 0.2 --batch-size 8 --seed 5 --cpu --num-workers 0 --log-format none"
    )
    kind = "characters" if on_characters(arch) else "words"
    corpus.train_here(data / kind, "--arch", arch, "--save-dir", folder, *sizes, *common.split(), *options)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """The corpus as words and as characters."""
    folder = tmp_path_factory.mktemp("corpus")
    corpus.write_corpus(folder, train=8 * EPOCH)
    prefixes = [f"--{split}pref={folder / split}" for split in ("train", "valid", "test")]
    for kind, task in (("words", []), ("characters", ["--task", "char_translation"])):
        corpus.preprocess_here("-s", "xx", "-t", "yy", *prefixes, "--destdir", folder / kind, *task)
    return folder


@pytest.fixture(scope="module")
def trained(data, tmp_path_factory):
    """A function that trains an architecture; it returns the last checkpoint and that of the first epoch."""

    @cache
    def checkpoints(arch):
        folder = tmp_path_factory.mktemp(arch)
        train(arch, data, folder, "--optimizer", "adam", "--lr", "0.02", "--disable-validation", "--max-update", "10")
        return [str(folder / f"checkpoint{name}.pt") for name in ("_last", "1")]

    return checkpoints


@pytest.mark.commands
@pytest.mark.parametrize("arch,optimizer", zip(FAMILIES, OPTIMIZERS, strict=True))
def test_an_interruption_changes_nothing(arch, optimizer, data, tmp_path):
    """A training that stops in the middle of an epoch and resumes ends in the same bits."""
    options = ["--optimizer", *OPTIMIZERS[optimizer].split()]
    updates = (7, 12) if "--update-freq" not in options else (4, 8)
    train(arch, data, tmp_path / "whole", *options, "--max-update", updates[1])
    for update in updates:
        train(arch, data, tmp_path / "resumed", *options, "--max-update", update)
    whole, resumed = (
        checkpoint_utils.load_checkpoint_to_cpu(str(tmp_path / name / "checkpoint_last.pt"))
        for name in ("whole", "resumed")
    )
    assert whole["optimizer_history"][-1] == resumed["optimizer_history"][-1]
    for name, value in whole["model"].items():
        assert value.isfinite().all() and torch.equal(value, resumed["model"][name]), name


class Systems:
    """Models and a test batch, to search and to score without a search."""

    def __init__(self, paths, data):
        self.models, _, self.task = checkpoint_utils.load_model_ensemble_and_task(paths)
        self.task.load_dataset("test")
        pairs = self.task.dataset("test")
        self.batch = pairs.collater([pairs[i] for i in range(len(pairs))])
        self.targets = [self.batch["target"][row, :n] for row, n in enumerate(self.batch["target"].ne(1).sum(1))]
        for model in self.models:
            model.eval()

    def search(self, prefix=None, packed=None, **options):
        """The hypotheses of every sentence."""
        generation = GenerationConfig(**{"beam": 4, "max_len_a": 1, "max_len_b": 3, **options})
        generator = self.task.build_generator(self.models, generation)
        return self.task.inference_step(generator, self.models, self.batch, prefix, packed)

    def forced(self, rows, targets):
        """Yield, per target, the logs of the models' mean probabilities and their mean attention, without a search."""
        sentences = {name: value[rows] for name, value in self.batch["net_input"].items()}
        previous = [torch.cat([tokens[-1:], tokens[:-1]]) for tokens in targets]
        sentences["prev_output_tokens"] = pad_sequence(previous, batch_first=True, padding_value=1)
        with torch.no_grad():
            outputs = [model(**sentences) for model in self.models]
        probabilities = torch.stack([logits.softmax(-1) for logits, _ in outputs]).mean(0)
        attention = torch.stack([extra["attn"][0] for _, extra in outputs]).mean(0)
        for tokens, of_words, looks in zip(targets, probabilities, attention):
            n = len(tokens)
            yield of_words[:n].gather(1, tokens[:, None])[:, 0].log(), looks[:n].t()

    def check(self, found):
        """Assert that hypotheses have the scores and the attention of the models."""
        every = [(row, hypothesis) for row, hypotheses in enumerate(found) for hypothesis in hypotheses]
        rows, targets = zip(*((row, hypothesis["tokens"]) for row, hypothesis in every))
        for (_, hypothesis), (scores, attention) in zip(every, self.forced(list(rows), targets)):
            close(hypothesis["positional_scores"], scores)
            close(hypothesis["attention"], attention)


def close(found, expected):
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


@pytest.fixture(scope="module")
def systems(trained, data):
    """A function that returns the :class:`Systems` of an architecture's last checkpoint."""
    return cache(lambda arch: Systems(trained(arch)[:1], data))


@pytest.mark.commands
@pytest.mark.parametrize("arch", ALL)
class TestSearch:
    """Every kind of search obeys its options, with the scores of the model."""

    def test_beam(self, arch, systems):
        system = systems(arch)
        found = system.search()
        system.check(found)
        for hypotheses in found:
            scores = [hypothesis["score"] for hypothesis in hypotheses]
            assert len(hypotheses) == 4 and scores == sorted(scores, reverse=True)

    @pytest.mark.parametrize("kind", [dict(sampling_topk=3), dict(sampling_topp=0.8), {}], ids=str)
    def test_sampling(self, arch, systems, kind):
        system = systems(arch)
        found = system.search(sampling=True, **kind)
        system.check(found)
        assert len({tuple(h["tokens"].tolist()) for hypotheses in found for h in hypotheses}) > len(found)

    def test_diverse_beams(self, arch, systems):
        kind = dict(diverse_beam_groups=4, diverse_beam_strength=1e4)
        for hypotheses in systems(arch).search(**kind, min_len=3, max_len_a=0, max_len_b=3):
            assert len({hypothesis["tokens"][0].item() for hypothesis in hypotheses}) == 4

    def test_prefixes(self, arch, systems):
        system = systems(arch)
        found = system.search(prefix=system.batch["target"][:, :2])
        # where a translation ends in its prefix, fairseq copies tokens and scores between hypotheses, not attention
        system.check([[h for h in hypotheses if len(h["tokens"]) > 2] for hypotheses in found])
        for target, hypotheses in zip(system.targets, found):
            assert all(hypothesis["tokens"][:2].equal(target[:2]) for hypothesis in hypotheses)

    def test_constraints(self, arch, systems):
        system = systems(arch)
        words = [target[:-1][-1:] for target in system.targets]
        found = system.search(packed=pack_constraints([[word] for word in words]), constraints="ordered", beam=6)
        for word, hypotheses in zip(words, found):
            assert word in hypotheses[0]["tokens"]

    def test_limits(self, arch, systems):
        system = systems(arch)
        for least, most in ((1, 2), (6, 8)):
            found = system.search(min_len=least, max_len_a=0, max_len_b=most)
            system.check(found)
            assert {least <= len(h["tokens"]) - 1 <= most for hypotheses in found for h in hypotheses} == {True}

    def test_scores_of_references(self, arch, systems):
        system = systems(arch)
        for row, [reference] in enumerate(system.search(score_reference=True)):
            assert reference["tokens"].equal(system.targets[row])
            [(scores, attention)] = system.forced([row], [reference["tokens"]])
            close(reference["positional_scores"], scores)
            close(reference["attention"][: len(scores)], attention.t())


@pytest.mark.commands
@pytest.mark.parametrize("arch", ALL)
def test_ensemble(arch, trained, data):
    """Scores are those of the models' mean, in any order of the models."""
    both = [Systems(paths, data) for paths in (trained(arch), trained(arch)[::-1])]
    found = [system.search() for system in both]
    for system, hypotheses in zip(both, found):
        system.check(hypotheses)
    for one, other in zip(*found):
        assert [h["tokens"].tolist() for h in one] == [h["tokens"].tolist() for h in other]


@pytest.mark.skipif(TORCH < (2, 2), reason="a CPU has no products of float16 before torch 2.2")
@pytest.mark.parametrize("arch", ["rnnatt", "conddec_rnnatt", "bridge_direct"])
def test_what_is_not_read_does_not_overflow(arch):
    """A step in float16 stays finite, though sums of states over the batch, or of parameters, would leave its range."""
    sentences, hidden = 1200, 64
    model = build(arch, decoder_hidden_size=hidden, scale=0.1).half().train()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "bias" in name:
                parameter.fill_(3)  # states near 1
            if "bridge" in name:
                parameter.fill_(3000)
    source, lengths, previous = batch(lengths=(2,) * sentences, target_lengths=(0,) * sentences)
    output, _ = model(source, lengths, previous)
    assert output.isfinite().all()


def test_two_levels_have_a_normalizer_each():
    """A user's normalizer may have parameters, which the levels must not share."""
    attention = build("ava").decoder.network.transition.attention
    assert attention.upper.normalizer is not attention.lower.normalizer
