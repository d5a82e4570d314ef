"""A small model learns to reverse sequences: attention, recurrence, initial values and optimisation together."""

import pytest
import torch
from conftest import Task, build, dictionary
from torch.nn.functional import cross_entropy

WORDS = 8
EOS, PAD = 2, 1


def reversal_batch(count, generator):
    """Left-padded sources of 2 to 6 words, previous target words and targets."""
    lengths = torch.randint(2, 7, (count,), generator=generator)
    source = torch.full((count, 7), PAD)
    target = torch.full((count, 7), PAD)
    for row, length in enumerate(lengths.tolist()):
        words = torch.randint(4, 4 + WORDS, (length,), generator=generator)
        source[row, -length - 1 :] = torch.cat([words, torch.tensor([EOS])])
        target[row, : length + 1] = torch.cat([words.flip(0), torch.tensor([EOS])])
    previous = torch.cat([torch.full((count, 1), EOS), target[:, :-1]], dim=1)
    return source, lengths + 1, previous, target


@pytest.mark.parametrize("name", ["rnnsearch", "dl4mt", "conddec_rnnatt"])
def test_learns_to_reverse(name):
    words = dictionary(WORDS)
    sizes = dict(encoder_embed_dim=16, decoder_embed_dim=16, encoder_hidden_size=32, decoder_hidden_size=32)
    model = build(name, Task(words, words), seed=1, init_std=0.1, **sizes)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    generator = torch.Generator().manual_seed(1)
    for _ in range(500):
        source, lengths, previous, target = reversal_batch(32, generator)
        output, _ = model(source, lengths, previous)
        optimizer.zero_grad()
        cross_entropy(output.flatten(0, 1), target.flatten(), ignore_index=PAD).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    source, lengths, previous, target = reversal_batch(200, generator)
    output, extra = model.eval()(source, lengths, previous)
    real = target.ne(PAD)
    accuracy = output.argmax(-1)[real].eq(target[real]).float().mean()
    assert accuracy > 0.9  # chance is 1 in 8
    if name == "rnnsearch":  # word i of the target looks at its own word in the source, or at the one just beside it
        looks = extra["attn"][0].argmax(-1)
        columns = torch.arange(7).unsqueeze(0).expand_as(looks)
        mirrored = 5 - columns  # the last word of a left-padded source stands before EOS
        inner = real & target.ne(EOS)
        assert (looks - mirrored).abs()[inner].le(1).float().mean() > 0.7
