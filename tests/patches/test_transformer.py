"""Stock Transformers work with this package."""

import pytest
import torch
from conftest import batch, dictionary
from fairseq.models.transformer import TransformerConfig, TransformerEncoder
from torch import nn

import fairseq_attnvariants  # noqa: F401


@pytest.fixture
def encoder():
    """A Transformer's encoder that has loaded a checkpoint: only then torch's fused layer is used."""
    cfg, words = TransformerConfig(), dictionary()
    cfg.encoder.embed_dim, cfg.encoder.ffn_embed_dim, cfg.encoder.layers, cfg.encoder.attention_heads = 8, 16, 2, 2
    torch.manual_seed(0)
    made = TransformerEncoder(cfg, words, nn.Embedding(len(words), 8, padding_idx=words.pad()))
    made.load_state_dict(made.state_dict())
    return made.eval()


@pytest.mark.parametrize("left", [True, False])
def test_a_padded_batch(encoder, left):
    """Sources of a batch are encoded as each one alone; without the patch, torch refuses the type of the mask."""
    source, lengths, _ = batch(lengths=(5, 3, 4))
    if not left:
        source = torch.stack([row.roll(int(n) - row.numel()) for row, n in zip(source, lengths)])
    with torch.no_grad():
        assert encoder.layers[0].can_use_fastpath and encoder.layers[0].load_to_BT
        together = encoder(source, lengths)["encoder_out"][0]  # S x B x C
        for k, n in enumerate(lengths.tolist()):
            real = slice(-n, None) if left else slice(n)
            alone = encoder(source[k : k + 1, real], lengths[k : k + 1])["encoder_out"][0]
            torch.testing.assert_close(together[real, k], alone[:, 0], rtol=1e-4, atol=1e-5)
