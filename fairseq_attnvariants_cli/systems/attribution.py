"""Attributions: what each source token adds to the log-probability of each target token, under forced decoding.

Both methods read source embeddings ``x``, ``S x m``, without added terms such as positions. Input times
gradient (Denil et al. 2014) is ``a_ij = x_j · ∂ log p(y_i) / ∂ x_j``. Integrated gradients (Sundararajan et al. 2017,
eq. 1) takes the mean gradient along the line from the baseline 0 to ``x`` instead. It is complete: the sum over the
source is ``log p(y_i)`` minus its value with all source embeddings 0.
"""

import contextlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from fairseq_attnvariants.criterions.costs import output_named
from fairseq_attnvariants.nn.layer_norm import at_least_float32

from ..options import BatchOptions
from ..text.files import UserError
from .model import System, Text, run_batches

Nodes = list[tuple[float, float]]  # the place between the baseline, 0, and the input, 1, and the gradient's weight

INPUT_X_GRADIENT: Nodes = [(1.0, 1.0)]


def integrated(steps: int) -> Nodes:
    """Return the nodes of Gauss-Legendre quadrature on the line from 0 to 1."""
    nodes, weights = np.polynomial.legendre.leggauss(steps)
    return [(float(node), float(weight)) for node, weight in zip((nodes + 1) / 2, weights / 2, strict=True)]


class Attribution(NamedTuple):
    """The attributions of target tokens to source tokens; the tokens are those of :class:`~.model.Pair`."""

    number: int
    source: list[str]
    target: list[str]
    values: np.ndarray  # T x S
    attention: np.ndarray | None  # T x S, if the model returns it
    difference: np.ndarray  # T: the log-probabilities minus those with all source embeddings 0


class Scaled(nn.Module):
    """Replaces an embedding. Its output can be scaled row by row, and has a gradient."""

    def __init__(self, embedding: nn.Module):
        super().__init__()
        self.embedding = embedding
        self.scale: Tensor | None = None  # B
        self.given = torch.empty(0)  # B x S x m

    def forward(self, tokens: Tensor) -> Tensor:
        """Embed ``B x S`` tokens."""
        embedded = self.embedding(tokens).detach()
        if self.scale is not None:
            embedded = embedded * self.scale.to(embedded.dtype)[:, None, None]
        self.given = embedded.requires_grad_(torch.is_grad_enabled())
        return self.given


@contextlib.contextmanager
def source_embeddings(model: Any, path: str) -> Iterator[Scaled]:
    """Replace the model's source embeddings by :class:`Scaled` in the block, where parameters have no gradients.

    Raises:
        UserError: the encoder has no source embeddings, or the decoder gives no logits; the message names ``path``.
    """
    encoder: Any = getattr(model, "encoder", None)
    original = getattr(encoder, "embed_tokens", None)
    if not isinstance(original, nn.Module):
        raise UserError(f"{path}: the model has no source embeddings (encoder.embed_tokens)")
    if getattr(model.decoder, "adaptive_softmax", None) is not None:
        raise UserError(f"{path}: the model has an adaptive softmax, and so no logits of all words")
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    # layers of fairseq's Transformer, whose shortcut in evaluation has no gradient
    short = [layer for layer in model.modules() if getattr(layer, "can_use_fastpath", False)]
    encoder.embed_tokens = standing_in = Scaled(original)
    for layer in short:
        layer.can_use_fastpath = False
    for parameter in trained:
        parameter.requires_grad_(False)
    try:
        with torch.backends.cudnn.flags(enabled=False):  # its recurrent layers have gradients in training only
            yield standing_in
    finally:
        encoder.embed_tokens = original
        for layer in short:
            layer.can_use_fastpath = True
        for parameter in trained:
            parameter.requires_grad_(True)


def log_probabilities(logits: Tensor, target: Tensor) -> Tensor:
    """Return log-probabilities of target tokens ``B x T``, in float32 at least."""
    return at_least_float32(logits).log_softmax(-1).gather(-1, target[..., None])[..., 0]


def attribute(
    model: Any, embeddings: Scaled, sample: dict[str, Any], nodes: Nodes, pad: int, limits: BatchOptions
) -> Tensor:
    """Return the attributions of a batch, ``B x T x S``, 0 at padding.

    Sources may have padding only if the model keeps it in its columns, which the stock ``lstm`` does not.

    Each pair of a target token and a node is one row of a new batch, so that one backward pass serves many pairs. A
    batch is decoded up to the last target token of its pairs.
    """
    net_input, target = sample["net_input"], sample["target"]
    source = net_input["src_tokens"]
    places, scales = torch.tensor(nodes, dtype=torch.float64, device=source.device).T
    real = target.ne(pad).T.nonzero().flip(1)  # sentence and position of each target token, sorted by position
    with torch.no_grad():
        embedded = embeddings.embedding(source)
    values = embedded.new_zeros(*target.shape, source.size(1))
    size = max(1, min(limits.batch_size, limits.max_tokens // max(source.size(1), target.size(1))))
    for rows in torch.arange(len(real) * len(nodes), device=source.device).split(size):
        pair, node = rows // len(nodes), rows % len(nodes)
        sentence, position = real[pair].T
        last = int(position.max()) + 1
        embeddings.scale = places[node]
        with torch.enable_grad():
            logits = model(**_select(net_input, sentence, last))[0]
            found = log_probabilities(logits, target[sentence, :last])
            asked = found.gather(1, position[:, None]).sum()
            (gradient,) = torch.autograd.grad(asked, embeddings.given)
        shares = (gradient * embedded[sentence]).sum(-1) * scales[node, None].to(embedded.dtype)
        values.index_put_((sentence, position), shares, accumulate=True)
    embeddings.scale = None
    return values.masked_fill(source.eq(pad)[:, None], 0)


def _select(net_input: dict[str, Any], rows: Tensor, last: int) -> dict[str, Any]:
    chosen = {name: value[rows] if torch.is_tensor(value) else value for name, value in net_input.items()}
    return {**chosen, "prev_output_tokens": chosen["prev_output_tokens"][:, :last]}


def attributions(system: System, text: Text, nodes: Nodes, limits: BatchOptions) -> Iterator[Attribution]:
    """Yield attributions sentence by sentence, in the order of :func:`~.model.run_batches`.

    Raises:
        UserError: the system is an ensemble, or its model has no source embeddings.
    """
    model, pad = system.model, system.task.target_dictionary.pad()
    with source_embeddings(model, system.path) as embeddings:
        for sample, [(logits, extra)], pairs in run_batches(system, text, limits):
            target = sample["target"]
            with torch.no_grad():
                embeddings.scale = torch.zeros(len(target), device=target.device)
                baseline = model(**sample["net_input"])[0]
                difference = log_probabilities(logits, target) - log_probabilities(baseline, target)
                embeddings.scale = None
            values = attribute(model, embeddings, sample, nodes, pad, limits).cpu().numpy()
            weights = output_named(extra, "attn")
            for row, pair in enumerate(pairs):
                steps = len(pair.target)
                yield Attribution(
                    *pair,
                    values[row, :steps],
                    None if weights is None else weights[row, :steps].detach().float().cpu().numpy(),
                    difference[row, :steps].cpu().numpy(),
                )
