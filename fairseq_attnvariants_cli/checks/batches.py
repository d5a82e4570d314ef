"""Demands on batches: outputs of a sentence do not depend on other sentences, on padding, or on later words."""

from typing import Any

import torch
from torch import Tensor

from fairseq_attnvariants.nn.attention import adds_up

from .demand import SHIFTED, agree, close, demand, finite, shifted
from .outcome import Broken, NotApplicable, quiet
from .subject import SOURCES, TARGETS, Output, Pairs, Subject


@demand
def same(subject: Subject) -> None:
    """Compute a batch twice, in evaluation.

    Demand: what is computed twice is the same
    Otherwise: a translation differs from one time to the next: something is drawn at random that training alone should
        draw
    """
    first, second = (subject.evaluated(subject.pairs()) for _ in range(2))
    agree(second, first)


@demand
def padding(subject: Subject) -> None:
    """Compare log-probabilities, and the attention on real tokens.

    Demand: sources padded on the left, on the right or more than needed give the same
    Otherwise: scores or alignments depend on which sentences come in a batch, and on --left-pad-source
    """
    plain = subject.pairs()
    expected = subject.evaluated(plain)
    for sides in (dict(left=False), dict(left=True, wider=2), dict(left=False, wider=2)):
        pairs = subject.pairs(**sides)
        found, real = subject.evaluated(pairs), subject.real(plain.previous)
        close(found.scores[real], expected.scores[real], "log-probabilities")
        for row in range(len(plain.source)):
            weights = on_tokens(subject, found, pairs, row), on_tokens(subject, expected, plain, row)
            try:
                close(*weights, "weights of attention, in the columns of the same tokens,")
            except Broken as how:
                raise Broken(f"{how}{shift(subject, plain, expected)}") from None


def on_tokens(subject: Subject, output: Output, pairs: Pairs, row: int) -> Tensor | None:
    """Return the attention of a row, without padding, or None if the model returns none."""
    if output.attention is None:
        return None
    return output.attention[row, subject.real(pairs.previous[row])][:, subject.real(pairs.source[row])]


def shift(subject: Subject, pairs: Pairs, output: Output) -> str:
    """Return a hint if a batch's attention weights are those of each sentence alone, but in other columns."""
    for row, (source, target) in enumerate(zip(SOURCES, TARGETS, strict=True)):
        own = subject.evaluated(subject.pairs([source], [target])).attention
        if own is None or output.attention is None:
            return ""
        weights = output.attention[row, : own.size(1)]
        if not shifted(weights, subject.real(pairs.source[row]), own[0]):
            return ""
    return SHIFTED


@demand
def alone(subject: Subject) -> None:
    """Compare each sentence alone with a batch that is padded on the right, because the side is another demand.

    In training, dropout depends on the batch. So two batches are compared there that differ in one sentence, not in its
    length.

    Demand: a sentence alone gives what it gives in a batch
    Otherwise: scores change with --batch-size and with what else is translated
    """
    batch = subject.pairs(left=False)
    together = subject.evaluated(batch)
    for row, (source, target) in enumerate(zip(SOURCES, TARGETS, strict=True)):
        pairs = subject.pairs([source], [target])
        own = subject.evaluated(pairs)
        steps, width = pairs.previous.size(1), pairs.source.size(1)
        close(together.scores[row, :steps], own.scores[0], "log-probabilities")
        if own.attention is not None and together.attention is not None:
            close(together.attention[row, :steps, :width], own.attention[0], "weights of attention")
    others = [SOURCES[0], "jag if hag", SOURCES[2]], [TARGETS[0], "TON SUN ROT NO ON US", TARGETS[2]]
    first, second = (trained(subject, pairs).scores for pairs in (batch, subject.pairs(*others, left=False)))
    close(second[::2], first[::2], "log-probabilities in training, with other sentences,")


@demand
def future(subject: Subject) -> None:
    """Compare the steps before a change of the previous target words, in evaluation and in training.

    Demand: no step reads a later target word
    Otherwise: training is a game with open cards: the loss is low, and translation is not what was trained
    """
    first, second = (subject.pairs(targets=[line] * len(SOURCES)) for line in ("NO POP QUA ROT", "SUN TON US VOW"))
    for run, when in ((Subject.evaluated, ""), (trained, " in training")):
        expected = run(subject, first)
        for step in range(1, first.previous.size(1)):
            changed = torch.cat([first.previous[:, :step], second.previous[:, step:]], dim=1)
            found = run(subject, first._replace(previous=changed))
            agree(found.before(step), expected.before(step), f" before a word that was changed{when}")


@torch.no_grad()
def trained(subject: Subject, pairs: Pairs) -> Output:
    """Return a model's output for a batch in training, with the same dropout for every batch of the same shape."""
    model = subject.model().train()
    torch.manual_seed(1)
    return subject.forward(model, pairs)


@demand
def attention(subject: Subject) -> None:
    """Test a batch that is padded on the left, as fairseq pads sources.

    Demand: weights of attention add up to 1, where the normalizer says so, and lie on real tokens alone
    Otherwise: --print-alignment, --replace-unk, align, aer and attention show links to the wrong words
    """
    pairs = subject.pairs()
    output = subject.evaluated(pairs)
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
        raise Broken(largest + shift(subject, pairs, output))
    if adds_up(subject.shared):
        close(weights.sum(2)[steps], torch.ones(int(steps.sum())), "sums of the weights of attention, and 1,")


@demand
def short(subject: Subject) -> None:
    """Check that log-probabilities are finite, and the same alone and in a batch, and that gradients are finite.

    Demand: empty sources and sources of one word work, alone and with longer ones
    Otherwise: an empty line stops fairseq-interactive, or spoils what else is in its batch
    """
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


@demand
def loss(subject: Subject) -> None:
    """Compare the criterion's loss and its sample size, without dropout.

    Demand: more padding of sources or targets does not change the loss
    Otherwise: a term of the loss counts padding, and so depends on which sentences come in a batch
    """
    with quiet():
        criterion = subject.task.build_criterion(subject.cfg.criterion).eval()
    expected, size = lost(subject, criterion, subject.pairs())
    for where, wider in (("sources", subject.pairs(wider=2)), ("targets", subject.pairs(wider_target=2))):
        try:
            subject.evaluated(wider)
        except Exception:  # the stock lstm stops at a column of padding alone, which is no fault of the criterion
            continue
        found, other = lost(subject, criterion, wider)
        try:
            close(found, expected, f"losses with more padding of {where}")
            close(other, size, f"sample sizes with more padding of {where}")
        except Broken as how:
            raise Broken(f"{how}: multiply terms by {MASKS[where]}") from None


MASKS = {  # what is True at real tokens, in a criterion
    "sources": "sample['net_input']['src_tokens'].ne(self.padding_idx)",
    "targets": "sample['target'].ne(self.padding_idx)",
}


@torch.no_grad()
def lost(subject: Subject, criterion: Any, pairs: Pairs) -> tuple[Tensor, Tensor]:
    """Return a criterion's loss and its sample size for a batch."""
    value, size, _ = criterion(subject.shared, pairs.sample)
    return torch.as_tensor(value), torch.as_tensor(size)
