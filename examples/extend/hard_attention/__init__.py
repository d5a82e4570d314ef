"""Exact hard attention: a word is made from one source position, and its probability sums over all that this may be."""

from functools import partial
from typing import Annotated

import torch
from torch import nn
from torch.nn.functional import pad
from torch.utils.checkpoint import checkpoint

from fairseq_attnvariants import register_architecture, register_readout, register_score
from fairseq_attnvariants.nn.attention import Attention
from fairseq_attnvariants.nn.layer_norm import at_least_float32
from fairseq_attnvariants.nn.readout import Prediction, TanhReadout
from fairseq_attnvariants.nn.state import grouped
from fairseq_attnvariants.registry import ConfigurationError, at_least

NEVER = -1e30  # the logarithm of a probability of 0; finite, so that no gradient becomes NaN


@register_readout("hard_attention")
class HardAttention(TanhReadout):
    """``P(y_i) = Σ_j P(a_i = j) P(y_i | a_i = j)``, of zeroth order (Wu, Shapiro and Cotterell 2018).

    ``P(a_i = j)`` is attention's ``w_ij``, and ``P(y_i | a_i = j) = softmax(W tanh(U h_i + V y_{i-1} + C s_j + b))``.
    """

    order = 0  # on how many positions before it a_i depends

    def __init__(self, widths, weighting=None, norm=False):
        if weighting is not None:
            raise ConfigurationError("--adaptive-output weighs the context, which hard attention has none of")
        super().__init__(widths._replace(context=widths.annotation), norm=norm)

    def remember(self, encoded):
        if encoded.shares is not None:
            raise ConfigurationError("hard attention reads tokens, and --encoder-type convolutional has segments")
        return {"source": self.context_norm(self.context(encoded.annotations))}  # B x S x f

    def forward(self, hidden, target, context):
        return self.hidden_norm(self.hidden(hidden)) + self.target_norm(self.target(target))  # N x T x f

    def predict(self, features, project, steps):
        before = self.posterior(*steps.carried, steps.words[:, 0]) if self.order else None
        # N x S x V is computed again in the backward pass, and kept of no step
        compute = partial(checkpoint, self.step, use_reentrant=False) if torch.is_grad_enabled() else self.step
        outputs, priors, following = [], [], [*steps.words.unbind(1)[1:], None]
        for now, weights, word in zip(features.unbind(1), steps.weights.unbind(1), following):
            priors.append(self.prior(now, weights, before, steps.memory))
            output, before, emissions = compute(now, priors[-1], steps.memory.readout["source"], project, word)
            outputs.append(output)
        weights = torch.stack(priors, dim=1).exp()
        return Prediction(torch.stack(outputs, dim=1), weights, (priors[-1], emissions) if self.order else None)

    def step(self, features, prior, source, project, word):
        """``log P(y_i)``, ``N x V``, and what the next step needs: with ``y_i``, or without for every word."""
        features = grouped(features[:, : source.size(2)], source).unsqueeze(2)  # B x k x 1 x f
        emissions = project(self.finish(features + source.unsqueeze(1)))  # B x k x S x V
        emissions = at_least_float32(emissions).log_softmax(3).flatten(0, 1)  # log P(y_i | a_i = j), N x S x V
        output = torch.logsumexp(prior.unsqueeze(2) + emissions, 1)
        if word is None:
            return output, None, emissions
        return output, self.posterior(prior, emissions, word) if self.order else None, None

    def prior(self, features, weights, before, memory):
        """``log P(a_i = j)`` before ``y_i`` is known, ``N x S``."""
        none = weights == 0
        return weights.masked_fill(none, 1).log().masked_fill(none, NEVER)

    def posterior(self, prior, emissions, words):
        """``log P(a_i = j)`` once ``y_i``, ``N``, is known, ``N x S``."""
        if emissions is None:  # there is no word yet
            return prior
        words = words.view(-1, 1, 1).expand(-1, prior.size(1), 1)  # N x S x 1
        return (prior + emissions.gather(2, words).squeeze(2)).log_softmax(1)


@register_readout("hard_monotone")
class HardMonotone(HardAttention):
    """First order and monotone (Wu and Cotterell 2019): ``a_i`` is ``a_{i-1} = k`` or one of the ``D`` after it.

    ``P(a_i = k + d | a_{i-1} = k) = softmax_d(J h_i + K s_k + b)``, of tokens that are there; ``a_0`` is the first.
    In the place of attention stands ``P(a_i = j | y_{<i}) = Σ_k P(a_i = j | a_{i-1} = k) P(a_{i-1} = k | y_{<i})``.
    The last factor is ``P(a_{i-1} = k | y_{<i-1}) P(y_{i-1} | a_{i-1} = k)``, scaled to add up to 1.  In search a step
    hands on these two, the second for every word: only the next step knows which came.

    Args:
        reach: D, how far the alignment may move in one step.
    """

    order = 1

    def __init__(self, widths, *parts, reach: Annotated[int, at_least(1)] = 5, **more):
        super().__init__(widths, *parts, **more)
        self.jump = nn.Linear(widths.hidden, reach + 1)
        self.jump_from = nn.Linear(widths.annotation, reach + 1, bias=False)

    def remember(self, encoded):
        return {**super().remember(encoded), "jumps": self.jump_from(encoded.annotations)}  # B x S x (D+1)

    def start(self, memory):
        first = memory.positions.eq(1) & ~memory.padding_mask  # B x S
        return torch.zeros_like(memory.positions).masked_fill(~first, NEVER), None

    def forward(self, hidden, target, context):
        return torch.cat([super().forward(hidden, target, context), self.jump(hidden)], dim=2)  # N x T x (f+D+1)

    def prior(self, features, weights, before, memory):
        source, reach = memory.readout["jumps"], self.jump.out_features
        jumps = grouped(features[:, -reach:], source).unsqueeze(2) + source.unsqueeze(1)  # B x k x S x (D+1)
        nowhere = pad(memory.padding_mask, (0, reach - 1), value=True).unfold(1, reach, 1)  # B x S x (D+1)
        jumps = at_least_float32(jumps).masked_fill(nowhere.unsqueeze(1), NEVER).log_softmax(3).flatten(0, 1)
        joint = (before.unsqueeze(2) + jumps).unbind(2)  # D+1 times N x S, of the positions that are left
        reached = [pad(part, (d, 0), value=NEVER)[:, : part.size(1)] for d, part in enumerate(joint)]
        return torch.stack(reached).logsumexp(0)


@register_score("level")
class Level(Attention):
    """Every position alike, without parameters: for decoders whose steps read no context, since the readout aligns."""

    def __init__(self, *parts, **more):
        super().__init__(*parts, **more)
        self.query = self.key = nn.Identity()

    def energies(self, query, keys, *features):
        return at_least_float32(keys.new_zeros(*query.shape[:2], keys.size(1)))


def both(cfg):
    """The width of a state and an annotation."""
    return cfg.decoder_hidden_size + 2 * cfg.encoder_hidden_size


register_architecture(
    "hard_attention",
    base="rnnsearch",
    paper="Wu, Shapiro and Cotterell 2018",
    encoder_cell="lstm",
    encoder_layers=2,
    encoder_embed_dim=200,
    encoder_hidden_size=400,
    decoder_cell="lstm",
    decoder_transition="late",  # the state has read y_{i-1}, and no context
    decoder_embed_dim=200,
    decoder_hidden_size=400,
    decoder_out_embed_dim=both,
    attention_score="bilinear",
    readout="hard_attention",
    init="uniform",
    encoder_dropout_in=0.4,
    encoder_dropout_out=0.4,
    decoder_dropout_in=0.4,
    decoder_dropout_out=0.0,
)
register_architecture(
    "hard_monotone",
    base="hard_attention",
    paper="Wu and Cotterell 2019, first order",
    attention_score="level",
    readout="hard_monotone",
)
