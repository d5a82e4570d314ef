"""Encoders for sources with padding on the right, without packing, which an exporter cannot follow.

Shapes as in :mod:`..nn.state`; ``d`` is the number of directions of a layer.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch._higher_order_ops.scan import scan

from ..nn.cells import with_residual
from ..nn.convolutional import ConvolutionalEncoder
from ..nn.encoder import BidirectionalEncoder, HierarchicalEncoder
from ..nn.layers import FusedLayer, Layer, Layers

# ONNX's order of gates, as positions in PyTorch's matrices
GATES = {"GRU": [1, 0, 2], "LSTM": [0, 3, 1, 2]}


class Operator(nn.Module):
    """A layer as ONNX's operator, which takes the length of each sequence."""

    inputs: Tensor
    recurrent: Tensor
    bias: Tensor

    def __init__(self, layer: FusedLayer):
        super().__init__()
        self.kind = layer.mode
        self.width = layer.hidden_size
        self.kept = layer.kept
        weights = [torch.stack(parts).detach() for parts in zip(*layer.all_weights)]  # of d directions, as biases
        inputs, recurrent, *biases = (self._ordered(part) for part in weights)
        self.register_buffer("inputs", inputs)
        self.register_buffer("recurrent", recurrent)
        self.register_buffer("bias", torch.cat(biases, dim=1))

    def _ordered(self, weights: Tensor) -> Tensor:
        """Return ``d x gates·n ...`` with the gates in ONNX's order."""
        gates = weights.unflatten(1, (-1, self.width))
        return gates[:, GATES[self.kind]].flatten(1, 2).contiguous()

    def forward(self, data: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Return outputs ``B x S x d·n``, zero at padding, and last outputs ``d x B x n``, of ``B x S x ...``."""
        batch, length, _ = data.shape
        directions = self.inputs.size(0)
        options: Any = {"hidden_size": self.width, "direction": "bidirectional" if directions > 1 else "forward"}
        if self.kind == "GRU":
            options["linear_before_reset"] = 1
        shapes: Any = [(length, directions, batch, self.width), *[(directions, batch, self.width)] * 2]
        many = 3 if self.kind == "LSTM" else 2
        outputs, final, *_ = torch.onnx.ops.symbolic_multi_out(
            self.kind,
            [data.transpose(0, 1), self.inputs, self.recurrent, self.bias, lengths.int()],
            options,
            dtypes=[data.dtype] * many,
            shapes=shapes[:many],
        )
        return outputs.permute(2, 0, 1, 3).flatten(2), final


class Scanned(nn.Module):
    """A layer of any cells, as a loop over the steps."""

    def __init__(self, layer: Layer):
        super().__init__()
        self.cells, self.inputs, self.kept = layer.cells, layer.inputs, layer.kept

    def forward(self, data: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Return outputs and last outputs, as :meth:`Operator.forward` does."""
        there = torch.arange(data.size(1)).unsqueeze(1) < lengths  # S x B
        swept = [
            self.sweep(cell, read, there.unsqueeze(2), number == 1)
            for number, (cell, read) in enumerate(zip(self.cells, self.inputs(data)))
        ]
        outputs, finals = zip(*swept)
        return torch.cat(outputs, dim=2), torch.stack(finals)

    @staticmethod
    def sweep(cell: Any, data: Tensor, there: Tensor, reverse: bool) -> tuple[Tensor, Tensor]:
        """Return the outputs ``B x S x n`` and last outputs ``B x n`` of one direction."""

        def step(state: Tensor, now: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
            inputs, real = now
            following = torch.where(real, cell(state, inputs), state)
            return following, torch.where(real, cell.output(following), 0.0)

        start = data.new_zeros(data.size(0), cell.state_dim)
        final, outputs = scan(step, start, (cell.project("input", data).transpose(0, 1), there), reverse=reverse)
        return outputs.transpose(0, 1), cell.output(final)


def run(rnn: Layers, inputs: Tensor, padding_mask: Tensor, hidden_dropout: float) -> tuple[Tensor, Tensor]:
    """Do what :func:`..nn.encoder.run` does, for layers from :func:`pad_encoder` and padding on the right."""
    data, final, lengths = inputs, inputs, (~padding_mask).sum(1)
    for number, layer in enumerate(rnn.layers, start=1):
        outputs, final = layer(data, lengths)
        data = with_residual(rnn.residuals, number, outputs, layer.kept(data))
    return data.masked_fill(padding_mask.unsqueeze(2), 0.0), final.transpose(0, 1).flatten(1)


def pack_left(states: Tensor, chosen: Tensor) -> tuple[Tensor, Tensor]:
    """Do what :func:`..nn.encoder.pack_left` does, and keep the number of columns."""
    length = chosen.size(1)
    places = torch.arange(length) + torch.where(chosen, 0, length)  # B x S, chosen ones first
    order = places.topk(length, dim=1, largest=False).indices
    there = torch.arange(length) < chosen.sum(1, keepdim=True)  # B x S
    packed = states.gather(1, order.unsqueeze(2).expand_as(states))
    return packed.masked_fill(~there.unsqueeze(2), 0.0), ~there


def pad_encoder(encoder: nn.Module) -> None:
    """Replace the layers and functions of an encoder by the ones in this module, in place."""
    for part in encoder.modules():
        if isinstance(part, Layers):
            layers: list[nn.Module] = [
                Operator(layer) if isinstance(layer, FusedLayer) else Scanned(layer) for layer in part.layers
            ]
            part.layers = nn.ModuleList(layers)
        if isinstance(part, (BidirectionalEncoder, HierarchicalEncoder)):
            part.run = run
        if isinstance(part, (HierarchicalEncoder, ConvolutionalEncoder)):
            part.pack_left = pack_left
