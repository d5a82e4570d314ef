"""Support for stock Transformers on current versions of torch."""

import torch

from .replaced import replaces

MASKS = 18  # the number of arguments before the mask

if hasattr(torch, "_transformer_encoder_layer_fwd"):

    @replaces(torch, "_transformer_encoder_layer_fwd")
    def allow_padding_masks(fused, *args, **options):
        """Make torch's fused encoder layer treat a mask without a type as a padding mask.

        Since torch 1.13 a mask needs a type, which fairseq's Transformer does not give.  With padded sources, as in
        batches of ``fairseq-generate``, it fails with ``Mask Type should be defined`` (fairseq issues 4858 and 4899).
        fairseq's mask there is always a padding mask.
        """
        if len(args) == MASKS + 1 and args[MASKS] is not None and "mask_type" not in options:
            options["mask_type"] = 1  # torch's number for a padding mask, batch x source
        return fused(*args, **options)
