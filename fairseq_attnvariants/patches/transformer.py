"""Stock Transformers on a current torch."""

import torch

from .replaced import replaces

MASKS = 18  # the number of arguments before the mask

if hasattr(torch, "_transformer_encoder_layer_fwd"):

    @replaces(torch, "_transformer_encoder_layer_fwd")
    def allow_padding_masks(fused, *args, **options):
        """Let torch's fused encoder layer take a mask whose kind is not named for a padding mask.

        Since torch 1.13 the kind has to be named, which fairseq's Transformer does not do: with padded sources, as
        ``fairseq-generate`` has them in a batch, it dies of ``Mask Type should be defined`` (fairseq issues 4858 and
        4899).  What fairseq gives there is always a padding mask.
        """
        if len(args) == MASKS + 1 and args[MASKS] is not None and "mask_type" not in options:
            options["mask_type"] = 1  # torch's number for a padding mask, batch x source
        return fused(*args, **options)
