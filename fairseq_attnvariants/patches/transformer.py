"""Stock Transformers on a current torch."""

import functools

import torch


def allow_padding_masks() -> None:
    """Let torch's fused encoder layer take a mask whose kind is not named for a padding mask.

    Since torch 1.13 the kind has to be named, which fairseq's Transformer does not do: with padded sources, as
    ``fairseq-generate`` has them in a batch, it dies of ``Mask Type should be defined`` (fairseq issues 4858 and 4899).
    What fairseq gives there is always a padding mask.
    """
    fused, masks = getattr(torch, "_transformer_encoder_layer_fwd", None), 18  # how many arguments stand before it
    if fused is None or hasattr(fused, "allows_padding_masks"):
        return

    @functools.wraps(fused)
    def fused_layer(*args, **options):
        if len(args) == masks + 1 and args[masks] is not None and "mask_type" not in options:
            options["mask_type"] = 1  # torch's number for a padding mask, batch x source
        return fused(*args, **options)

    fused_layer.allows_padding_masks = True  # type: ignore[attr-defined]
    torch._transformer_encoder_layer_fwd = fused_layer
