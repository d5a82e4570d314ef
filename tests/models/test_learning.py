"""Small models learn to reverse and to spell, with attention, recurrence, initial values and optimisation together."""

from functools import partial

import pytest
import torch
from conftest import SPACE, Task, build, dictionary
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss, one_hot
from torch.nn.utils.rnn import pad_sequence

from fairseq_attnvariants.nn.attention import MultiHeadAttention
from fairseq_attnvariants.nn.state import Encoded
from fairseq_attnvariants.registry import Widths

pytestmark = pytest.mark.slow

WORDS = 8
EOS, PAD = 2, 1
of_each_seed = pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.exhaustive)])


def batch_of(pairs):
    """Return left-padded sources, their lengths, previous target words and targets, from pairs without EOS."""
    sources, targets = ([torch.cat([row, torch.tensor([EOS])]) for row in side] for side in zip(*pairs))
    source = pad_sequence([row.flip(0) for row in sources], batch_first=True, padding_value=PAD).flip(1)
    target = pad_sequence(targets, batch_first=True, padding_value=PAD)
    previous = torch.cat([torch.full((len(target), 1), EOS), target[:, :-1]], dim=1)
    return source, source.ne(PAD).sum(1), previous, target


def reversal_batch(count, generator):
    """Return sources of 2 to 6 words, and their reversals as targets."""
    lengths = torch.randint(2, 7, (count,), generator=generator).tolist()
    sources = [torch.randint(4, 4 + WORDS, (length,), generator=generator) for length in lengths]
    return batch_of((source, source.flip(0)) for source in sources)


def learn(model, batch, updates, others=None):
    """Train on batches of 32 pairs, with a falling learning rate; return 200 more, or other, pairs with outputs."""
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda done: 1 - done / updates)
    generator = torch.Generator().manual_seed(1)
    for _ in range(updates):
        source, lengths, previous, target = batch(32, generator)
        output, _ = model(source, lengths, previous)
        optimizer.zero_grad()
        cross_entropy(output.flatten(0, 1), target.flatten(), ignore_index=PAD).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    source, lengths, previous, target = (others or batch)(200, generator)
    output, extra = model.eval()(source, lengths, previous)
    return source, target, output, extra


@of_each_seed
@pytest.mark.parametrize("name", ["rnnsearch", "dl4mt", "conddec_rnnatt"])
def test_learns_to_reverse(name, seed):
    words = dictionary(WORDS)
    sizes = dict(encoder_embed_dim=16, decoder_embed_dim=16, encoder_hidden_size=32, decoder_hidden_size=32)
    model = build(name, Task(words, words), seed=seed, init_std=0.1, **sizes)
    source, target, output, extra = learn(model, reversal_batch, 200)
    real = target.ne(PAD)
    accuracy = output.argmax(-1)[real].eq(target[real]).float().mean()
    assert accuracy > 0.9  # chance is 1 in 8
    if name == "rnnsearch":  # word i of the target attends to its source word, or to a neighbour
        looks = extra["attn"][0].argmax(-1)
        columns = torch.arange(looks.size(1)).expand_as(looks)
        mirrored = source.size(1) - 2 - columns  # EOS comes after the last word of a left-padded source
        inner = real & target.ne(EOS)
        assert (looks - mirrored).abs()[inner].le(1).float().mean() > 0.7


def spell(letters):
    """Return another character for each letter."""
    return SPACE + 1 + (letters - SPACE) % WORDS


def spelling_batch(count, generator):
    """Return sources of 1 or 2 words, each with a space after it, and targets in reverse order, in other characters."""
    pairs, space = [], torch.tensor([SPACE])
    for row, lengths in enumerate(torch.randint(1, 5, (count, 2), generator=generator).tolist()):
        words = [torch.randint(SPACE + 1, SPACE + 1 + WORDS, (n,), generator=generator) for n in lengths[row % 2 :]]
        read = torch.cat([part for word in words for part in (word, space)])
        written = torch.cat([part for word in reversed(words) for part in (space, spell(word))][1:])
        pairs.append((read, written))
    return batch_of(pairs)


@pytest.mark.more
@of_each_seed
def test_attention_via_attention_learns_to_spell(seed):
    """Attention to characters finds the right ones, for any word that the upper attention selects."""
    characters = dictionary(SPACE + 1 + WORDS - 4)
    sizes = dict(encoder_embed_dim=16, encoder_char_hidden_size=24, encoder_hidden_size=24, attention_via_dim=16)
    sizes |= dict(decoder_embed_dim=16, decoder_hidden_size=32, attention_dim=16, decoder_out_embed_dim=24)
    model = build("ava", Task(characters, characters), seed=seed, **sizes)
    source, target, output, extra = learn(model, spelling_batch, 450)
    real, letters = target.ne(PAD), target.gt(SPACE)
    accuracy = output.argmax(-1)[real].eq(target[real]).float().mean()
    assert accuracy > 0.9  # always the right length and a guess at each letter: less than 0.4
    attended = source.gather(1, extra["attn"][0].argmax(-1))
    assert spell(attended)[letters].eq(target[letters]).float().mean() > 0.9  # chance is 1 in 8


def transliteration_batch(count, generator, lengths=(2, 7)):
    """Return sources of 2 to 6 letters, and targets with other letters."""
    counts = torch.randint(*lengths, (count,), generator=generator).tolist()
    sources = [torch.randint(4, 4 + WORDS, (length,), generator=generator) for length in counts]
    return batch_of((source, 4 + (source - 1) % WORDS) for source in sources)


@of_each_seed
def test_monotone_windows_transliterate_what_is_longer_than_what_they_were_trained_on(seed):
    """Words have twice the length; without a window, attention fails there."""
    letters, accuracies = dictionary(WORDS), []
    sizes = dict(encoder_embed_dim=16, decoder_embed_dim=16, encoder_hidden_size=32, decoder_hidden_size=32)
    for window in (dict(attention_window="monotone", attention_window_width=1), {}):
        model = build("rnnsearch", Task(letters, letters), seed=seed, init_std=0.1, **sizes, **window)
        longer = partial(transliteration_batch, lengths=(12, 16))
        _, target, output, _ = learn(model, transliteration_batch, 150, longer)
        real = target.ne(PAD)
        accuracies.append(output.argmax(-1)[real].eq(target[real]).float().mean())
    assert accuracies[0] > 0.85 and accuracies[1] < 0.6


LETTERS, MOST = 4, 3


def counted_batch(count, generator, least=1, groups=4):
    """Return sources such as "3 a 2 b", of up to four groups, and targets such as "a a a b b"."""
    pairs = []
    for length in torch.randint(least, groups + 1, (count,), generator=generator):
        times = torch.randint(1, MOST + 1, (length,), generator=generator)
        letters = 4 + torch.randint(LETTERS, (length,), generator=generator)
        read = torch.stack([3 + LETTERS + times, letters], dim=1).flatten()
        pairs.append((read, letters.repeat_interleave(times)))
    return batch_of(pairs)


@pytest.mark.more
@of_each_seed
def test_coverage_and_fertility_learn_to_copy_a_number_of_times(seed):
    """A decoder of six units cannot count for long; attention history counts for five groups, one more than in
    training."""
    words = dictionary(LETTERS + MOST)
    sizes = dict(encoder_embed_dim=16, decoder_embed_dim=16, encoder_hidden_size=16, decoder_hidden_size=6)
    sizes |= dict(attention_dim=16, decoder_out_embed_dim=8)
    copied = {}
    for name in ("rnnsearch", "coverage", "fertility"):
        model = build(name, Task(words, words), seed=seed, init_std=0.1, **sizes)
        longer = partial(counted_batch, least=5, groups=5)
        _, target, output, _ = learn(model, counted_batch, 250, longer)
        copied[name] = (output.argmax(-1).eq(target) | target.eq(PAD)).all(1).float().mean()
    assert min(copied["coverage"], copied["fertility"]) > copied["rnnsearch"], copied


SEEN, UNSEEN = 40, 20


def greeting_batch(count, generator, first=0, names=SEEN):
    """Return sources of a verb and up to three names, and targets in reverse order."""
    pairs = []
    for length in torch.randint(1, 4, (count,), generator=generator):
        verb = torch.randint(4, 8, (1,), generator=generator)
        who = 8 + first + torch.randint(names, (length,), generator=generator)
        pairs.append((torch.cat([verb, who]), torch.cat([who.flip(0), 4 + (verb + 1) % 4])))
    return batch_of(pairs)


@of_each_seed
@pytest.mark.parametrize("name,copy", [("pointer_generator", True), ("rnnsearch", True), ("rnnsearch", False)])
def test_copies_names_that_were_never_seen(name, copy, seed):
    """The vocabulary layer alone cannot write such names, since it has learned that they are unlikely."""
    words = dictionary(4 + SEEN + UNSEEN)
    sizes = dict(encoder_embed_dim=16, decoder_embed_dim=16, encoder_hidden_size=32, decoder_hidden_size=32)
    model = build(name, Task(words, words), seed=seed, init_std=0.1, copying=copy, **sizes)
    others = partial(greeting_batch, first=SEEN, names=UNSEEN)
    _, target, output, _ = learn(model, greeting_batch, 200, others)
    names = target.ge(8)
    right = output.argmax(-1)[names].eq(target[names]).float().mean()
    assert (right >= 0.95) if copy else (right < 0.05)


def two_looks_batch(count, generator):
    """Return annotations, each a name and a number; queries, each two names in order; and the two numbers."""
    names = torch.rand(count, WORDS, generator=generator).argsort(1)
    numbers = torch.randn(count, WORDS, 1, generator=generator)
    annotations = torch.cat([one_hot(names, WORDS).float(), numbers], dim=2)
    return annotations, annotations[:, :2, :WORDS].flatten(1), numbers[:, :2, 0]


@of_each_seed
@pytest.mark.parametrize("heads", [1, 2])
def test_two_heads_look_at_two_places_at_once(heads, seed):
    """One head's context has one average of the two numbers, so a linear layer can recover half of them."""
    torch.manual_seed(seed)
    model = MultiHeadAttention(Widths(hidden=2 * WORDS, annotation=WORDS + 1, attention=2 * WORDS), heads=heads)
    numbers = nn.Linear(WORDS + 1, 2)
    optimizer = torch.optim.Adam([*model.parameters(), *numbers.parameters()], lr=1e-2)
    generator = torch.Generator().manual_seed(1)
    for _ in range(400):
        annotations, queries, wanted = two_looks_batch(64, generator)
        nothing = torch.zeros(annotations.shape[:2], dtype=torch.bool)
        memory = model.memory(Encoded(annotations, nothing, annotations[:, 0], annotations))
        loss = mse_loss(numbers(model(queries, memory, None).context), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert (loss < 0.1) if heads == 2 else (loss > 0.4)
