"""The bidirectional encoder.

Shapes: ``B`` batch, ``S`` source length, ``m`` embedding width, ``n`` hidden width.
"""

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from .layers import recurrent_layers
from .state import Encoded


class BidirectionalEncoder(nn.Module):
    """Annotations ``s_j = [→s_j; ←s_j]`` (001 §3.2), or ``[→s_j; ←s_j; x_j]`` (003 §2.1).

    Args:
        kind: ``gru``, ``adaptive_gru`` or ``lstm``.
        input_dim: embedding width ``m``.
        hidden: width ``n`` of each direction.
        layers: number of bidirectional layers; each reads both directions of the one below.
        dropout: between layers.
        bridge: whether annotations carry the embeddings (source-side bridging).
    """

    def __init__(self, kind: str, input_dim: int, hidden: int, layers: int, dropout: float = 0.0, bridge: bool = False):
        super().__init__()
        self.bridge = bridge
        self.rnn = recurrent_layers(kind, input_dim, hidden, layers, dropout, bidirectional=True)

    def forward(self, embedded: Tensor, padding_mask: Tensor) -> Encoded:
        """Encode a batch.

        Args:
            embedded: ``B x S x m``.
            padding_mask: True at padding, ``B x S``; padding may stand left or right.
        """
        length = embedded.size(1)
        lengths = (~padding_mask).sum(1)
        leading = (~padding_mask).int().argmax(1)
        packed = pack_padded_sequence(
            _roll(embedded, leading), lengths.clamp(min=1).cpu(), batch_first=True, enforce_sorted=False
        )
        outputs, final = self.rnn(packed)
        states, _ = pad_packed_sequence(outputs, batch_first=True, total_length=length)
        hidden = final[0] if isinstance(final, tuple) else final  # layers·2 x B x n
        annotations = _roll(states, -leading)
        embedded = embedded.masked_fill(padding_mask.unsqueeze(-1), 0)
        if self.bridge:
            annotations = torch.cat([annotations, embedded], dim=-1)
        return Encoded(annotations, padding_mask, torch.cat([hidden[-2], hidden[-1]], dim=1), embedded)


def _roll(rows: Tensor, shift: Tensor) -> Tensor:
    """Roll row ``b`` of ``B x S x d`` left by ``shift[b]`` places, so that left padding turns into right padding."""
    batch, length, width = rows.shape
    columns = (torch.arange(length, device=rows.device) + shift.unsqueeze(1)) % length
    flat = columns + length * torch.arange(batch, device=rows.device).unsqueeze(1)
    return rows.reshape(-1, width).index_select(0, flat.view(-1)).view(batch, length, width)
