"""Search in int8: matrix products of whole numbers of 8 bits, with a scale for each row on either side.

``W x ≈ s_W s_x (W_q x_q)`` with ``W_q = round(W / s_W)`` and ``s_W = max |W| / 127`` of each row of ``W``, once, and
the same of each row ``x`` at every product.  Sums are exact, in int32; what a product gives is float32.
"""

from typing import Optional, Tuple

import torch
from torch import Tensor, nn
from torch.utils.weak import WeakIdKeyDictionary

from ..nn.twins import plain_linear

LEAST = 2**14  # numbers in a matrix: the rounding of its inputs costs more than a smaller one saves
LARGEST = 127


def rounded(rows: Tensor) -> Tuple[Tensor, Tensor]:
    """Whole numbers of 8 bits, of the shape of ``rows``, ``N x k``, and their scales, ``N x 1``."""
    scales = rows.abs().amax(1, keepdim=True).clamp_(min=torch.finfo(rows.dtype).tiny * LARGEST) / LARGEST
    return (rows / scales).round_().to(torch.int8), scales


class QuantisedLinear(nn.Module):
    """``W x + b`` in int8, for an ``nn.Linear`` whose parameters it shares.

    Args:
        layer: the map.
        weight: its matrix, as :func:`rounded` gives it.
    """

    def __init__(self, layer: nn.Linear, weight: Tuple[Tensor, Tensor]):
        super().__init__()
        self.weight = layer.weight  # of parts that read it by itself
        self.bias = layer.bias
        whole, scales = weight
        self.whole = whole.t()  # in x out
        self.scales = scales.t()  # 1 x out

    def forward(self, value: Tensor) -> Tensor:
        """``... x out``, of ``... x in``, float32."""
        whole, scales = rounded(value.reshape(-1, value.size(-1)))
        product = torch._int_mm(whole, self.whole).to(scales.dtype).mul_(scales).mul_(self.scales)
        if self.bias is not None:
            product += self.bias
        return product.view(*value.shape[:-1], -1)


class Quantiser:
    """Gives each linear map its stand-in; a matrix is rounded once for as long as it stays as it is.

    What optimizers do to ``weight.data`` cannot be seen: after a training :meth:`forget` what was rounded.
    """

    def __init__(self) -> None:
        self.made = WeakIdKeyDictionary()  # of matrices, which copies of a map share

    def forget(self) -> None:
        """Round every matrix anew."""
        self.made.clear()

    def __call__(self, part: nn.Module) -> Optional[nn.Module]:
        """A stand-in for a part; None where there is none, or where it would bring nothing."""
        if not (isinstance(part, nn.Linear) and plain_linear(part)) or part.weight.numel() < LEAST:
            return None
        version, kept = (part.weight.data_ptr(), part.weight._version), self.made.get(part.weight)
        if kept is None or kept[0] != version:
            kept = self.made[part.weight] = version, rounded(part.weight.detach())
        return QuantisedLinear(part, kept[1])


def reason_against(layer: nn.Linear, dtype: str = "int8") -> Optional[str]:
    """Why a linear map cannot be computed in a reduced number type here, int8 or another; None where it can."""
    if layer.weight.dtype != torch.float32:
        return f"the parameters are {str(layer.weight.dtype).removeprefix('torch.')}, and not float32"
    if dtype != "int8":
        return None
    try:
        with torch.no_grad():
            QuantisedLinear(layer, rounded(layer.weight))(layer.weight[:1])
    except (RuntimeError, AttributeError, NotImplementedError) as error:
        return f"torch {torch.__version__} has no such product here ({str(error).splitlines()[0]})"
    return None
