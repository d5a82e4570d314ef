"""Demands on batches: no sentence knows of another one, of padding, or of what comes later."""

from typing import Optional

import torch
from torch import Tensor

from fairseq_attnvariants.nn.attention import adds_up

from .demand import SHIFTED, close, demand, finite, shifted
from .outcome import Broken, NotApplicable
from .subject import SOURCES, TARGETS, Output, Pairs, Subject


@demand(
    "what is computed twice is the same",
    "a translation differs from one time to the next: something is drawn at random that training alone should draw",
)
def same(subject: Subject) -> None:
    """A batch, in evaluation."""
    with torch.no_grad():
        first, second = (subject.forward(subject.shared, subject.pairs()) for _ in range(2))
    close(second.scores, first.scores, "log-probabilities")
    close(second.attention, first.attention, "weights of attention")


@demand(
    "sources padded on the left, on the right or more than needed give the same",
    "scores or alignments depend on which sentences come in a batch, and on --left-pad-source",
)
def padding(subject: Subject) -> None:
    """Log-probabilities, and the attention on real tokens."""
    model = subject.shared
    plain = subject.pairs()
    with torch.no_grad():
        expected = subject.forward(model, plain)
        for sides in (dict(left=False), dict(left=True, wider=2), dict(left=False, wider=2)):
            pairs = subject.pairs(**sides)
            found = subject.forward(model, pairs)
            for row in range(len(plain.source)):
                steps = subject.real(plain.previous[row])
                close(found.scores[row, steps], expected.scores[row, steps], "log-probabilities")
            for row in range(len(plain.source)):
                steps = subject.real(plain.previous[row])
                weights = on_tokens(subject, found, pairs, row), on_tokens(subject, expected, plain, row)
                try:
                    close(weights[0], weights[1], "weights of attention, in the columns of the same tokens,")
                except Broken as how:
                    raise Broken(f"{how}{shift(subject, plain, expected)}") from None


def on_tokens(subject: Subject, output: Output, pairs: Pairs, row: int) -> Optional[Tensor]:
    """The attention of a row, without padding, if there is any."""
    if output.attention is None:
        return None
    return output.attention[row, subject.real(pairs.previous[row])][:, subject.real(pairs.source[row])]


def shift(subject: Subject, pairs: Pairs, output: Output) -> str:
    """What to add of a batch whose weights of attention are those of each sentence alone, but in other columns."""
    for row, (source, target) in enumerate(zip(SOURCES, TARGETS, strict=True)):
        own = subject.forward(subject.shared, subject.pairs([source], [target])).attention
        if own is None or output.attention is None:
            return ""
        weights = output.attention[row, : own.size(1)]
        if not shifted(weights, subject.real(pairs.source[row]), own[0]):
            return ""
    return SHIFTED


@demand(
    "a sentence alone gives what it gives in a batch",
    "scores change with --batch-size and with what else is translated",
)
def alone(subject: Subject) -> None:
    """Each sentence of a batch that is padded on the right, as no demand on the side is meant.

    In training, where dropout draws for a whole batch, beside other sentences of the same lengths.
    """
    model = subject.shared
    batch = subject.pairs(left=False)
    with torch.no_grad():
        together = subject.forward(model, batch)
        for row, (source, target) in enumerate(zip(SOURCES, TARGETS, strict=True)):
            pairs = subject.pairs([source], [target])
            own = subject.forward(model, pairs)
            steps, width = pairs.previous.size(1), pairs.source.size(1)
            close(together.scores[row, :steps], own.scores[0], "log-probabilities")
            if own.attention is not None and together.attention is not None:
                close(together.attention[row, :steps, :width], own.attention[0], "weights of attention")
        others = [SOURCES[0], "jag if hag", SOURCES[2]], [TARGETS[0], "TON SUN ROT NO ON US", TARGETS[2]]
        first, second = (trained(subject, pairs).scores for pairs in (batch, subject.pairs(*others, left=False)))
        close(second[::2], first[::2], "log-probabilities in training, beside other sentences,")


@demand(
    "no step reads a later target word",
    "training is a game with open cards: the loss is low, and translation is not what was trained",
)
def future(subject: Subject) -> None:
    """Steps before a change of the previous target words, in evaluation and in training."""
    first, second = (subject.pairs(targets=[line] * len(SOURCES)) for line in ("NO POP QUA ROT", "SUN TON US VOW"))
    for run, when in ((evaluated, ""), (trained, " in training")):
        with torch.no_grad():
            expected = run(subject, first)
            for step in range(1, first.previous.size(1)):
                changed = torch.cat([first.previous[:, :step], second.previous[:, step:]], dim=1)
                found = run(subject, first._replace(previous=changed))
                what = f"before a word that was changed{when}"
                close(found.scores[:, :step], expected.scores[:, :step], f"log-probabilities {what}")
                close(
                    found.attention if found.attention is None else found.attention[:, :step],
                    expected.attention if expected.attention is None else expected.attention[:, :step],
                    f"weights of attention {what}",
                )


def evaluated(subject: Subject, pairs: Pairs) -> Output:
    """What a model makes of a batch in evaluation."""
    return subject.forward(subject.shared, pairs)


def trained(subject: Subject, pairs: Pairs) -> Output:
    """What a model makes of a batch in training, with the same dropout for every batch of the same shape."""
    model = subject.model().train()
    torch.manual_seed(1)
    return subject.forward(model, pairs)


@demand(
    "weights of attention add up to 1, where the normalizer says so, and lie on real tokens alone",
    "--print-alignment, --replace-unk, align, aer and attention show links to the wrong words",
)
def attention(subject: Subject) -> None:
    """Try a batch that is padded on the left, as fairseq pads sources."""
    pairs = subject.pairs()
    with torch.no_grad():
        output = subject.forward(subject.shared, pairs)
    weights = output.attention
    if weights is None:
        raise NotApplicable("the model returns no attention")
    wanted = (*pairs.previous.shape, pairs.source.size(1))
    if weights.shape != wanted:
        raise Broken(f"attention has the shape {tuple(weights.shape)}, not batch x target x source, {wanted}")
    finite(weights, "weights of attention")
    if weights.min() < 0:
        raise Broken(f"a weight of attention is {weights.min():.2g}")
    steps = subject.real(pairs.previous)
    beside = weights.masked_fill(subject.real(pairs.source).unsqueeze(1), 0)[steps]
    if beside.any():
        largest = f"weights of attention on tokens of padding are up to {beside.max():.2g}"
        with torch.no_grad():
            raise Broken(largest + shift(subject, pairs, output))
    if adds_up(subject.shared):
        close(weights.sum(2)[steps], torch.ones(int(steps.sum())), "sums of the weights of attention, and 1,")


@demand(
    "empty sources and sources of one word work, alone and beside longer ones",
    "an empty line stops fairseq-interactive, or spoils what else is in its batch",
)
def short(subject: Subject) -> None:
    """Log-probabilities and gradients are finite, and the same alone and together."""
    model, targets = subject.model(), ["NO POP", "QUA", ""]
    together = subject.forward(model, subject.pairs([SOURCES[0], "a", ""], targets, left=False))
    finite(together.scores, "log-probabilities")
    for row, source in ((1, "a"), (2, "")):
        pairs = subject.pairs([source], [targets[row]])
        own = subject.forward(model, pairs)
        close(together.scores[row, : pairs.previous.size(1)], own.scores[0], "log-probabilities")
    together.scores[:, 0].sum().backward()
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            finite(parameter.grad, f"gradients of {name}")
