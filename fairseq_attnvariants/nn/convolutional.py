"""The encoder of char2char: convolutions turn characters into short segments (Lee et al. 2017, section 4).

Shapes as in :mod:`.state`; here ``S`` counts characters, ``G = ⌈S / pooling⌉`` counts segments, and ``k`` is the number
of filters of all widths.  Annotations belong to segments, and attention computes with segments.  The weights that leave
the decoder are shared among a segment's characters (:attr:`~.state.Encoded.shares`).
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .encoder import BidirectionalEncoder, even_shares, pack_left
from .init import Scheme
from .state import Encoded


class Convolution(nn.Conv1d):
    """``relu(W [x_{j-⌊w/2⌋}; ...; x_{j+⌈w/2⌉-1}] + b)`` for every character, with zeros around the sentence."""

    def initialise(self, scheme: Scheme) -> None:
        """Fill with the authors' values: weights within ±1 / √(inputs of a unit), biases within ±0.5."""
        bound = self.weight[0].numel() ** -0.5
        nn.init.uniform_(self.weight, -bound, bound)
        nn.init.uniform_(self.bias, -0.5, 0.5)  # type: ignore[arg-type]

    def forward(self, inputs: Tensor) -> Tensor:
        """``B x filters x S``, from ``B x m x S``."""
        (width,) = self.kernel_size
        return torch.relu(super().forward(F.pad(inputs, (width // 2, (width - 1) // 2))))


class Highway(nn.Module):
    """``t ∘ relu(W x + b) + (1 - t) ∘ x``, where ``t = σ(W_t x + b_t)`` (Lee et al. 2017 §4.1).

    ``b_t`` starts at -2, as in their code.
    """

    def __init__(self, width: int):
        super().__init__()
        self.candidate = nn.Linear(width, width)
        self.transform = nn.Linear(width, width)

    def initialise(self, scheme: Scheme) -> None:
        """Fill the bias of the gate, so that it first keeps most of the input."""
        nn.init.constant_(self.transform.bias, -2.0)

    def forward(self, inputs: Tensor) -> Tensor:
        """``... x width`` to the same shape."""
        return torch.lerp(inputs, torch.relu(self.candidate(inputs)), torch.sigmoid(self.transform(inputs)))


class ConvolutionalEncoder(nn.Module):
    """Annotations of segments of characters (Lee et al. 2017, section 4).

    Filters of widths 1, 2, 3, ... go over the characters.  A segment is the maximum of each filter over its characters.
    Highway layers and an encoder of segments follow.  Segments start at the first real character and contain only real
    characters, so padding changes nothing.  (In the authors' code the maximum of an incomplete last segment also covers
    filters centred after the sentence.)

    Args:
        input_dim: width ``m`` of the characters' embeddings.
        filters: numbers of filters of width 1, 2, 3, ...
        pooling: number of characters in a segment.
        highways: number of highway layers.
        above: the encoder of segments, whose input is as wide as all filters together.
    """

    def __init__(
        self, input_dim: int, filters: Sequence[int], pooling: int, highways: int, above: BidirectionalEncoder
    ):
        super().__init__()
        self.pooling = pooling
        numbered = enumerate(filters, start=1)
        self.convolutions = nn.ModuleList(Convolution(input_dim, many, width) for width, many in numbered if many)
        self.highways = nn.Sequential(*(Highway(sum(filters)) for _ in range(highways)))
        self.above = above
        self.pack_left = pack_left

    def forward(self, embedded: Tensor, padding_mask: Tensor) -> Encoded:
        """Encode a batch.

        Args:
            embedded: ``B x S x m``; zero at padding.
            padding_mask: True at padding, ``B x S``.
        """
        characters, beyond = self.pack_left(embedded, ~padding_mask)  # B x S' x m, B x S', from the first character on
        found = [convolution(characters.transpose(1, 2)) for convolution in self.convolutions]
        whole = torch.cat(found, dim=1).masked_fill(beyond.unsqueeze(1), 0)  # B x k x S'; nothing is below zero
        whole = F.pad(whole, (0, -whole.size(2) % self.pooling)).unflatten(2, (-1, self.pooling))  # B x k x G x pooling
        segments = whole.max(3).values.transpose(1, 2)  # B x G x k
        segment = (torch.cumsum(~padding_mask, dim=1) - 1).div(self.pooling, rounding_mode="floor")  # B x S
        shares = even_shares(segment.masked_fill(padding_mask, -1), segments.size(1))
        encoded: Encoded = self.above(self.highways(segments).to(embedded.dtype), shares.sum(2).eq(0))
        return encoded._replace(embeddings=embedded, shares=shares)
