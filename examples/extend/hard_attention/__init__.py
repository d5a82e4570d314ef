"""Exact hard attention: a word is made from one source position, and its probability sums over all that this may be."""

import torch
from torch import nn
from torch.nn.functional import pad
from torch.utils.checkpoint import checkpoint

from fairseq_attnvariants import register_architecture, register_readout, register_score
from fairseq_attnvariants.nn.attention import Attention
from fairseq_attnvariants.nn.layer_norm import at_least_float32
from fairseq_attnvariants.nn.readout import Prediction, TanhReadout
from fairseq_attnvariants.nn.state import grouped
from fairseq_attnvariants.registry import ConfigurationError, Option, at_least

NEVER = -1e30  # the logarithm of a probability of 0; finite, so that no gradient becomes NaN


@register_readout("hard_attention")
class HardAttention(TanhReadout):
    """``P(y_i) = Σ_j w_ij P(y_i | j)`` (Wu, Shapiro and Cotterell 2018): attention is what is expected of ``a_i``.

    ``P(y_i | j) = softmax(W tanh(U h_i + V y_{i-1} + C s_j + b))``, the readout of each source position.
    """

    order = 0  # of how many earlier positions the next one depends on

    def __init__(self, widths, weighting=None, norm=False):
        if weighting is not None:
            raise ConfigurationError("--adaptive-output weighs the context, which hard attention has none of")
        super().__init__(widths._replace(context=widths.annotation), norm=norm)

    def context_readers(self):
        return []

    def remember(self, encoded):
        if encoded.shares is not None:
            raise ConfigurationError("hard attention reads tokens, and --encoder-type convolutional has segments")
        return {"source": self.context_norm(self.context(encoded.annotations))}  # B x S x f

    def forward(self, hidden, target, context):
        return self.hidden_norm(self.hidden(hidden)) + self.target_norm(self.target(target))  # N x T x f

    def predict(self, features, project, steps):
        outputs, priors, carried = [], [], steps.carried
        for now, weights, words in zip(features.unbind(1), steps.weights.unbind(1), steps.words.unbind(1)):
            prior = self.prior(now, weights, words, steps.memory, carried)
            arguments = now, prior, steps.memory.readout["source"], project
            if torch.is_grad_enabled():  # N x S x V of one step alone is kept
                output, emissions = checkpoint(self.mixed, *arguments, use_reentrant=False)
            else:
                output, emissions = self.mixed(*arguments)
            outputs, priors, carried = [*outputs, output], [*priors, prior], (prior, emissions)
        weights = torch.stack(priors, dim=1).exp()
        return Prediction(torch.stack(outputs, dim=1), weights, carried if self.order else None)

    def mixed(self, features, prior, source, project):
        """``log P(y_i)``, ``N x V``, and ``log P(y_i | j)``, ``N x S x V``."""
        features = grouped(features[:, : source.size(2)], source).unsqueeze(2)  # B x k x 1 x f
        emissions = project(self.finish(features + source.unsqueeze(1)))  # B x k x S x V
        emissions = at_least_float32(emissions).log_softmax(3).flatten(0, 1)
        return torch.logsumexp(prior.unsqueeze(2) + emissions, 1), emissions

    def prior(self, features, weights, words, memory, carried):
        """``log P(a_i = j)`` before ``y_i`` is known, ``N x S``."""
        none = weights == 0
        return weights.masked_fill(none, 1).log().masked_fill(none, NEVER)


@register_readout("hard_monotone")
class HardMonotone(HardAttention):
    """First order and monotone (Wu and Cotterell 2019): ``a_i`` is ``a_{i-1} = k`` or one of the ``D`` after it.

    ``P(a_i = k + d | a_{i-1} = k) = softmax_d(J h_i + K s_k + b)``, of tokens that are there; ``a_0`` is the first.
    ``P(a_i = j | y_{<i}) = Σ_k P(a_i = j | a_{i-1} = k) P(a_{i-1} = k | y_{<i})``, where the last factor needs
    ``y_{i-1}``: what a step would give each word at each position is carried to the next, which knows the word.
    """

    options = {"reach": Option(5, "D, how far the alignment may go on at once", at_least(1))}
    order = 1

    def __init__(self, widths, *parts, reach, **more):
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

    def prior(self, features, weights, words, memory, carried):
        before, emissions = carried  # log P(a_{i-1} = k), N x S, and with the word that came known now
        if emissions is not None:
            came = emissions.gather(2, words.view(-1, 1, 1).expand(-1, before.size(1), 1))  # N x S x 1
            before = (before + came.squeeze(2)).log_softmax(1)
        source, reach = memory.readout["jumps"], self.jump.out_features
        jumps = grouped(features[:, -reach:], source).unsqueeze(2) + source.unsqueeze(1)  # B x k x S x (D+1)
        nowhere = pad(memory.padding_mask, (0, reach - 1), value=True).unfold(1, reach, 1)  # B x S x (D+1)
        jumps = at_least_float32(jumps).masked_fill(nowhere.unsqueeze(1), NEVER).log_softmax(3).flatten(0, 1)
        joint = (before.unsqueeze(2) + jumps).unbind(2)  # D+1 times N x S, of the positions that are left
        reached = [pad(part, (d, 0), value=NEVER)[:, : part.size(1)] for d, part in enumerate(joint)]
        return torch.stack(reached).logsumexp(0)


@register_score("level")
class Level(Attention):
    """Every position alike, without parameters: attention in the decoder's steps, where only the readout aligns."""

    projects_keys = projects_query = True

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
