"""The encoders: bidirectional over tokens, and hierarchical over characters and words.

Shapes as in :mod:`.state`; padding may be on the left or on the right.
"""

import torch
from torch import Tensor, nn

from .dropout import drop_hidden
from .layers import Layers
from .state import Encoded


class BidirectionalEncoder(nn.Module):
    """Annotations ``s_j = [→s_j; ←s_j]`` (Feng et al. 2016 §3.2), or ``[→s_j; ←s_j; x_j]`` (Kuang et al. 2018 §2.1).

    If the top layers have one direction, annotations are ``s_j = →s_j`` (Wu et al. 2016).

    Args:
        rnn: the layers.
        dropout: is applied to the annotations.
        upper: layers above them, whose annotations are the upper level (Zhao and Zhang 2018 §3).
        bridge: whether annotations carry the embeddings (source-side bridging).
        hidden_dropout: share of states that :func:`~.dropout.drop_hidden` drops, in all layers.
    """

    def __init__(
        self,
        rnn: Layers,
        dropout: nn.Module,
        upper: Layers | None = None,
        bridge: bool = False,
        hidden_dropout: float = 0.0,
    ):
        super().__init__()
        self.rnn = rnn
        self.dropout = dropout
        self.upper = upper
        self.bridge = bridge
        self.hidden_dropout = hidden_dropout
        self.run = run

    def forward(self, embedded: Tensor, padding_mask: Tensor) -> Encoded:
        """Encode a batch.

        Args:
            embedded: ``B x S x m``; zero at padding.
            padding_mask: True at padding, ``B x S``.
        """
        states, final = self.run(self.rnn, embedded, padding_mask, self.hidden_dropout)  # B x S x 2n
        annotations, upper = self.dropout(states), None
        if self.upper is not None:
            upper, final = self.run(self.upper, states, padding_mask, self.hidden_dropout)
            upper = self.dropout(upper)
        if self.bridge:
            annotations = torch.cat([annotations, embedded], dim=-1)  # B x S x (2n + m)
        return Encoded(annotations, padding_mask, final, embedded, upper, None if upper is None else padding_mask)


class HierarchicalEncoder(nn.Module):
    """Reads characters from left to right, and words above them in both directions (Zhao and Zhang 2018 §3).

    Annotations ``h^c_j`` are the states of the character RNN, and ``h^w_j = [→h_j; ←h_j]`` are the states of the word
    RNN.  The word RNN reads the character state at the end of each word.

    Args:
        characters: the character RNN, of one direction.
        words: the word RNN.
        dropout: is applied to both annotations.
        words_alone: hide the characters' states from the decoder; a word's weight is shared among its characters.
        hidden_dropout: share of states that :func:`~.dropout.drop_hidden` drops, in both RNNs.
    """

    def __init__(
        self,
        characters: Layers,
        words: Layers,
        dropout: nn.Module,
        words_alone: bool = False,
        hidden_dropout: float = 0.0,
    ):
        super().__init__()
        self.characters = characters
        self.words = words
        self.dropout = dropout
        self.words_alone = words_alone
        self.hidden_dropout = hidden_dropout
        self.run, self.pack_left = run, pack_left

    def forward(self, embedded: Tensor, padding_mask: Tensor, word_ends: Tensor) -> Encoded:
        """Encode a batch.

        Args:
            embedded: ``B x S x m``; zero at padding.
            padding_mask: True at padding, ``B x S``.
            word_ends: True where a word ends, ``B x S``: at spaces and at EOS.
        """
        states, _ = self.run(self.characters, embedded, padding_mask, self.hidden_dropout)  # B x S x a
        words, words_mask = self.pack_left(states, word_ends)
        upper, final = self.run(self.words, words, words_mask, self.hidden_dropout)  # B x W x 2n
        if self.words_alone:
            word = word_ends.cumsum(1) - word_ends.long()  # B x S; a word includes its end
            shares = even_shares(word.masked_fill(padding_mask, -1), words.size(1))
            return Encoded(self.dropout(upper), words_mask, final, embedded, shares=shares)
        return Encoded(self.dropout(states), padding_mask, final, embedded, self.dropout(upper), words_mask)


def run(rnn: Layers, inputs: Tensor, padding_mask: Tensor, hidden_dropout: float) -> tuple[Tensor, Tensor]:
    """Run layers over a padded batch, in training with :func:`~.dropout.drop_hidden`.

    Returns outputs of the top layer ``B x S x width``, zero at padding, and its last outputs ``[→s_S; ←s_1]``,
    ``B x width``.
    """
    rnn = drop_hidden(rnn, inputs, hidden_dropout)
    states, final = packed(rnn, inputs, padding_mask)
    top = rnn.cell.output(final[-rnn.directions[-1] :])  # directions x B x n
    return states, torch.cat(tuple(top), dim=1)


def packed(rnn: Layers, inputs: Tensor, padding_mask: Tensor) -> tuple[Tensor, Tensor]:
    """Run layers over the real tokens only; the host waits once, for the numbers of tokens.

    Returns outputs ``B x S x width``, zero at padding, and last states ``d x B x state width``.
    """
    batch, length = padding_mask.shape
    real = ~padding_mask.cpu()
    lengths, order = real.sum(1).clamp(min=1).sort(descending=True, stable=True)
    columns = real.int().argsort(dim=1, descending=True, stable=True)[order]  # the real tokens first
    begun = torch.arange(length).unsqueeze(1) < lengths  # steps x sentences, in the order of their lengths
    places = (order * length + columns.T)[begun].to(inputs.device, non_blocking=True)
    sizes = begun.sum(1)[: int(lengths[0])].tolist()
    rows = inputs.flatten(0, 1).index_select(0, places)
    outputs, final = rnn(rows, sizes, rnn.start(rows, batch))
    states = outputs.new_zeros(batch * length, outputs.size(1)).index_copy(0, places, outputs)
    own = order.argsort().to(inputs.device, non_blocking=True)
    return states.view(batch, length, -1), final.index_select(1, own)


def even_shares(segment: Tensor, count: int) -> Tensor:
    """Return each token's even share of its segment's weight, ``B x G x S``, float32.

    The arguments are each token's segment, ``B x S``, -1 at padding, and the number ``G`` of segments.
    """
    within = segment.unsqueeze(1).eq(torch.arange(count, device=segment.device).view(1, -1, 1))  # B x G x S
    return within / within.sum(2, keepdim=True).clamp(min=1)


def pack_left(states: Tensor, chosen: Tensor) -> tuple[Tensor, Tensor]:
    """Pack the chosen columns of each row of ``B x S x width`` to the left; ``chosen`` is ``B x S``.

    Returns the columns ``B x W x width``, where ``W`` is the largest number of chosen columns, and a mask ``B x W``,
    True at padding.
    """
    counts = chosen.sum(1, keepdim=True)
    most = max(1, int(counts.max()))
    there = torch.arange(most, device=states.device) < counts  # B x W
    columns = (~chosen).long().argsort(dim=1, stable=True)[:, :most]  # the chosen columns first, in their order
    packed_left = states.gather(1, columns.unsqueeze(2).expand(-1, -1, states.size(2)))
    return packed_left.masked_fill(~there.unsqueeze(2), 0), ~there
