"""A fingerprint of a dictionary, kept in the checkpoint.

Two dictionaries of equal size load into each other's models without an error and translate nonsense.
"""

import hashlib
import struct

import torch
from torch import Tensor

from ..registry import ConfigurationError

FINGERPRINT = "dictionary_version"  # fairseq's --store-ema does not average buffers with "version" in their names


def fingerprint(dictionary) -> Tensor:
    """The :func:`digest` of a dictionary as eight int64 below 2^32.

    fairseq's ``average_checkpoints.py`` sums whole numbers and floor-divides the sum, which leaves these unchanged.
    """
    return torch.tensor(struct.unpack(">8I", digest(dictionary)))


def digest(dictionary) -> bytes:
    """SHA-256 of the dictionary's symbols in their order."""
    return hashlib.sha256("\n".join(dictionary.symbols).encode("utf-8", "surrogatepass")).digest()


def current(saved: Tensor) -> Tensor:
    """A saved fingerprint in the form of :func:`fingerprint`; version 0.1.0 wrote the digest as four int64."""
    if saved.shape != (4,) or saved.dtype != torch.int64:
        return saved
    return torch.stack([saved >> 32 & 0xFFFFFFFF, saved & 0xFFFFFFFF], dim=1).flatten()


def check_fingerprints(model, state_dict, prefix: str = "") -> None:
    """Refuse a state dict whose fingerprints are not the model's; replace fingerprints in the older form.

    Raises:
        ConfigurationError: a dictionary of the checkpoint has other words, or the same words in another order.
    """
    for part, side in (("encoder", "source"), ("decoder", "target")):
        name = f"{prefix}{part}.{FINGERPRINT}"
        if name not in state_dict:
            continue
        state_dict[name] = current(state_dict[name])
        if not torch.equal(state_dict[name].cpu(), getattr(getattr(model, part), FINGERPRINT).cpu()):
            raise ConfigurationError(
                f"this checkpoint was trained with another {side} dictionary than the one in the data folder: "
                "use the dictionaries it was trained with"
            )
