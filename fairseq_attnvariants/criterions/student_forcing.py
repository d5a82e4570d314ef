"""Student forcing: in training, the decoder reads its own predictions instead of the true previous symbols."""

from typing import Any

import torch
from fairseq.models import FairseqIncrementalDecoder
from torch import Tensor

from ..registry import ConfigurationError


@torch.no_grad()
def own_previous(model: Any, net_input: dict[str, Any], share: float, given: int = 1) -> Tensor:
    """Return previous symbols, a share of which the model predicted, ``B x T``.

    A greedy search without dropout predicts symbol after symbol.  Each previous symbol is its prediction with
    probability ``share``, and else the true one, and the search continues from it (Bengio et al. 2015).  The search
    ends where the target ends: it predicts neither EOS nor padding.

    Args:
        model: an encoder-decoder model that searches step by step.
        net_input: the model's inputs; ``prev_output_tokens``, ``B x T``, are the true previous symbols.
        share: probability of a prediction, from 0 to 1.
        given: number of first previous symbols that are always true: EOS, and a prefix that a search also gets.

    Raises:
        ConfigurationError: the model cannot search step by step, or cannot search during training.
    """
    decoder, option = getattr(model, "decoder", None), f"--student-forcing {share}"
    if not isinstance(decoder, FairseqIncrementalDecoder) or not hasattr(model, "encoder"):
        raise ConfigurationError(
            f"{option} needs a model with an encoder, and a decoder that searches step by step; leave it out"
        )
    if hasattr(model, "summon_full_params"):
        raise ConfigurationError(
            f"{option} searches between updates, when --ddp-backend fully_sharded has divided the parameters among the "
            "processes: use another --ddp-backend, or leave it out"
        )
    words, true = decoder.dictionary, net_input["prev_output_tokens"]
    own = (torch.rand(true.shape, device=true.device) < share) & true.ne(words.pad()) & true.ne(words.eos())
    own[:, :given] = False
    previous, state = true.clone(), {}  # type: ignore[var-annotated]
    model.eval()
    encoder_out = model.encoder.forward_torchscript(net_input)
    for step in range(1, true.size(1)):
        output, extra = decoder(previous[:, :step], encoder_out=encoder_out, incremental_state=state)
        logs = model.get_normalized_probs((output[:, -1:], extra), log_probs=True)[:, 0]
        logs[:, [words.pad(), words.eos()]] = -torch.inf
        previous[:, step] = torch.where(own[:, step], logs.argmax(1), true[:, step])
    model.train()
    torch.clear_autocast_cache()  # with --amp, older torch would train with the weights cast here, without gradients
    return previous
