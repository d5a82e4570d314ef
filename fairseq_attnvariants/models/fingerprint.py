"""A fingerprint of a dictionary, kept in the checkpoint.

Two dictionaries of equal size load into each other's models without an error and translate nonsense.
"""

import hashlib

import torch
from torch import Tensor

NAME = "dictionary_version"  # fairseq's moving averages (--store-ema) leave buffers with "version" in their name alone


def fingerprint(dictionary) -> Tensor:
    """SHA-256 of the dictionary's symbols in their order, as four int64."""
    digest = hashlib.sha256("\n".join(dictionary.symbols).encode("utf-8", "surrogatepass")).digest()
    return torch.tensor([int.from_bytes(digest[i : i + 8], "big", signed=True) for i in range(0, 32, 8)])


def check_fingerprint(module, state_dict, prefix: str, side: str) -> None:
    """Refuse a state dict whose fingerprint is another one.

    Raises:
        ValueError: the checkpoint's dictionary has other words, or the same in another order.
    """
    saved = state_dict.get(f"{prefix}.{NAME}")
    if saved is not None and not torch.equal(saved.cpu(), getattr(module, NAME).cpu()):
        raise ValueError(
            f"this checkpoint was trained with another {side} dictionary than the one in the data folder: "
            "use the dictionaries it was trained with"
        )
