"""Demands on search: a beam computes step by step what the model computes at once."""

from collections.abc import Sequence
from typing import Any

import torch
from fairseq.models import FairseqIncrementalDecoder
from fairseq.sequence_generator import SequenceGenerator
from torch import Tensor

from fairseq_attnvariants.nn.decoder import Decoder

from .demand import SHIFTED, close, demand, shifted
from .outcome import Broken, NotApplicable
from .subject import SOURCES, Output, Pairs, Subject, attention

Hypotheses = list[list[dict[str, Any]]]  # of each sentence, as fairseq's search returns them

# two hypotheses for each sentence, equally long in words and in letters
LINES = ["NO POP QUA ROT SUN", "TON US VOW OX NO", "OX NO VOW POP US", "US POP SUN ROT ON", "ON SUN US QUA POP"]
LINES.append("POP ROT NO US TON")
# the old row of each new row, after each step, as in fairseq's search: within sentences
REORDERED = [[1, 0, 3, 2, 5, 4], [0, 0, 3, 2, 4, 4], [1, 0, 2, 2, 5, 4], [0, 1, 3, 3, 5, 4]]
# the same, while sentences leave: the first one, then the last one
LEAVING = [[0, 1, 2, 3, 4, 5], [3, 2, 5, 4], [1, 0], [0, 0]]


def step_by_step(subject: Subject, changes: Sequence[Sequence[int]], what: str, model: Any | None = None) -> None:
    """Decode known targets step by step like a beam, and compare every step with the run at once.

    Args:
        changes: the old row of each new row, after each of the first steps.
        what: text for the message.
        model: the model to run; by default the shared one.

    Raises:
        Broken: a step gives another result.
        NotApplicable: the decoder has no incremental state.
    """
    model = model or subject.shared
    if not isinstance(model.decoder, FairseqIncrementalDecoder):
        raise NotApplicable("its decoder recomputes all steps, without incremental state")
    twice = torch.arange(len(SOURCES)).repeat_interleave(2)
    sentences, pairs = subject.pairs(), subject.pairs([line for line in SOURCES for _ in range(2)], LINES)
    with torch.no_grad():
        full = subject.forward(model, pairs)
        state: dict[str, Any] = {}
        rows = torch.arange(len(LINES))
        encoder_out = model.encoder(sentences.source, src_lengths=sentences.lengths)
        encoder_out = model.encoder.reorder_encoder_out(encoder_out, twice)
        for step in range(pairs.previous.size(1)):
            made = model.decoder(pairs.previous[rows, : step + 1], encoder_out, incremental_state=state)
            scores, weights = model.get_normalized_probs(made, log_probs=True), attention(made)
            close(scores[:, -1], full.scores[rows, step], f"log-probabilities {what}")
            if weights is not None and full.attention is not None:
                close(weights[:, -1], full.attention[rows, step], f"weights of attention {what}")
            if step < len(changes):
                change = torch.tensor(changes[step])
                rows = rows[change]
                model.decoder.reorder_incremental_state_scripting(state, change)
                encoder_out = model.encoder.reorder_encoder_out(encoder_out, change)


@demand
def contexts(subject: Subject) -> None:
    """Decode step by step with and without projected annotations; only an error with them breaks this demand.

    Demand: search that projects annotations gives what projections of contexts give
    Otherwise: a component reads the context in another way after the first two steps of a search: translations are not
        of the model that was trained
    """
    if not isinstance(getattr(subject.shared.decoder, "network", None), Decoder):
        raise NotApplicable("its decoder is none of this package")
    plain = subject.model()
    plain.decoder.projects_annotations = False
    try:
        step_by_step(subject, REORDERED, "", plain)
    except Exception:  # a custom component can raise any error; later demands report it
        raise NotApplicable("it searches wrongly without projecting annotations, too") from None
    step_by_step(subject, REORDERED, "with annotations projected and without it")


@demand
def incremental(subject: Subject) -> None:
    """Decode step by step without moving rows.

    Demand: step by step, the model gives what it gives at once
    Otherwise: translations are not those of the model that was trained
    """
    step_by_step(subject, [], "step by step and at once")


@demand
def reordering(subject: Subject) -> None:
    """Move rows after every step, and replace some by copies of others.

    Demand: a beam may reorder its hypotheses
    Otherwise: with --beam above 1, hypotheses go on from each other's states: translations get worse as the beam gets
        wider
    """
    step_by_step(subject, REORDERED, "after a reordering and without it")


@demand
def leaving(subject: Subject) -> None:
    """Decode three sentences, of which two leave before the end.

    Demand: sentences may leave the beam before others do
    Otherwise: as soon as one sentence of a batch is finished, the others go on from the wrong states
    """
    step_by_step(subject, LEAVING, "after a sentence left the beam and without it")


def search(subject: Subject, models: Sequence[Any], pairs: Pairs) -> Hypotheses:
    """Return the hypotheses of fairseq's beam search, for every sentence."""
    dictionary = subject.task.target_dictionary
    generator = SequenceGenerator(list(models), dictionary, beam_size=4, max_len_b=8, normalize_scores=False)
    return generator.generate(models, {"net_input": {"src_tokens": pairs.source, "src_lengths": pairs.lengths}})


def rescored(subject: Subject, models: Sequence[Any], pairs: Pairs, row: int, tokens: Tensor) -> Output:
    """Return log-probabilities of a hypothesis, ``T``, by the models' mean probabilities, and their mean attention."""
    real = subject.real(pairs.source[row])
    previous = torch.cat([tokens[-1:], tokens[:-1]]).unsqueeze(0)
    alone = pairs._replace(source=pairs.source[row : row + 1, real], lengths=real.sum().view(1), previous=previous)
    with torch.no_grad():
        outputs = [subject.forward(model, alone) for model in models]
    probabilities = torch.stack([output.scores[0].exp() for output in outputs]).mean(0)
    weights = [output.attention[0] for output in outputs if output.attention is not None]
    scores = probabilities.gather(1, tokens[:, None])[:, 0].log()
    return Output(scores, torch.stack(weights).mean(0) if weights else None)


@demand
def beam(subject: Subject) -> None:
    """Rescore all hypotheses of a beam of four.

    Demand: scores of beam search are those of the model, rescored
    Otherwise: fairseq-generate prints scores, and alignments, that --score-reference does not find again
    """
    compare_with_rescored(subject, [subject.shared])


def compare_with_rescored(subject: Subject, models: Sequence[Any], with_attention: bool = True) -> Hypotheses:
    """Search, refuse scores and attention that differ from those of the models at once, and return the hypotheses."""
    pairs = subject.pairs()
    hypotheses = search(subject, models, pairs)
    for row, found in enumerate(hypotheses):
        if not found:
            raise Broken("a sentence has no hypothesis")
        for hypothesis in found:
            again = rescored(subject, models, pairs, row, hypothesis["tokens"])
            close(hypothesis["positional_scores"], again.scores, "log-probabilities in search and rescored", atol=1e-4)
            if with_attention and again.attention is not None and hypothesis["attention"] is not None:
                real, weights = subject.real(pairs.source[row]), hypothesis["attention"].t()
                whole = weights.size(1) == len(real)  # fairseq keeps the columns of padding, too
                own = weights[:, real] if whole else weights
                try:
                    close(own, again.attention, "weights of attention in search and rescored")
                except Broken as how:
                    raise Broken(f"{how}{SHIFTED * (whole and shifted(weights, real, again.attention))}") from None
    return hypotheses


@demand
def ensemble(subject: Subject) -> None:
    """Search with two models that differ by their seeds. Only ``beam`` compares attention with the rescored one.

    Demand: an ensemble gives the mean of its models, in whatever order
    Otherwise: scores of a.pt:b.pt are not the mean of both models, or b.pt:a.pt translates differently
    """
    models = [subject.shared, subject.model(seed=2)]
    both = [compare_with_rescored(subject, order, with_attention=False) for order in (models, models[::-1])]
    for one, other in zip(*both, strict=True):
        for first, second in zip(one, other, strict=True):
            if first["tokens"].tolist() != second["tokens"].tolist():
                raise Broken("another order of the models gives other translations")
            close(first["positional_scores"], second["positional_scores"], "scores by the order of the models")
            close(first["attention"], second["attention"], "weights of attention by the order of the models")
