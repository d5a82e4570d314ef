"""Found by hydra, which imports what is in ``hydra_plugins``: a resolver that ``config/sweep.yaml`` uses."""

import hashlib

from omegaconf import OmegaConf


def short_hash(text: str) -> str:
    """Six hexadecimal digits: a folder's name holds 255 characters, the overrides of a run may have more."""
    return hashlib.sha256(text.encode()).hexdigest()[:6]


if hasattr(OmegaConf, "register_new_resolver"):  # omegaconf 2.0, with fairseq's own pins, has other resolvers
    OmegaConf.register_new_resolver("attnvariants.hash", short_hash, replace=True)
