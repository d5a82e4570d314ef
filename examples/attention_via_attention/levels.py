"""Measure how much a model uses each level of attention: ``levels.py DATA CHECKPOINT [--gen-subset NAME]``.

The script prints the perplexity of the references three times: with the unchanged model, with equal weights of all
words, and with equal weights of all characters. It also prints the share of the characters' weight on the word with the
largest weight.
"""

import argparse
import math
import sys

import numpy as np
import torch
from torch.nn import functional as F

from fairseq_attnvariants.nn.attention import Attention, AttentionViaAttention, Softmax
from fairseq_attnvariants_cli.options import BatchOptions
from fairseq_attnvariants_cli.subcommands.similarity import check
from fairseq_attnvariants_cli.systems.model import System, Text, force, load, read_text, run_batches
from fairseq_attnvariants_cli.text.files import UserError
from fairseq_attnvariants_cli.text.subwords import SPACE

LIMITS = BatchOptions(batch_size=64, max_tokens=6000)


def main() -> None:
    """Print the perplexities and the share."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="folder of fairseq-preprocess")
    parser.add_argument("checkpoint", help="of a model that reads characters with attention via attention")
    parser.add_argument("--gen-subset", default="valid", help="split in it (default: %(default)s)")
    parser.set_defaults(source=None, reference=None)
    options = parser.parse_args()
    system = load(options.checkpoint, options.data)
    check(system)
    text = read_text(options, system)
    model = system.model
    (attention,) = (part for part in model.modules() if isinstance(part, AttentionViaAttention))
    print(f"perplexity {perplexity(system, text):.3f}")
    for name, level in (("words", attention.upper), ("characters", attention.lower)):
        print(f"perplexity, weights of {name} even {even(level, system, text):.3f}")
    print(f"characters' weight on the word with the largest weight {share(system, text):.1%}")


def perplexity(system: System, text: Text) -> float:
    """Return the perplexity of the references per character."""
    padding = system.task.target_dictionary.pad()
    losses: list[torch.Tensor] = []
    for sample, ((logits, _),), _ in run_batches(system, text, LIMITS):
        target = sample["target"]
        losses.append(F.cross_entropy(logits.float().transpose(1, 2), target, reduction="none")[target != padding])
    return math.exp(torch.cat(losses).mean())


def even(level: Attention, system: System, text: Text) -> float:
    """Return the perplexity with equal weights at this level, which an infinite temperature gives."""
    normalizer, level.normalizer = level.normalizer, Softmax(temperature=math.inf)
    try:
        return perplexity(system, text)
    finally:
        level.normalizer = normalizer


def share(system: System, text: Text) -> float:
    """Return the characters' weight on the word with the largest weight and the space after it, a mean over steps."""
    shares = []
    for pair in force(system, text, LIMITS, ("word_attn", "attn")):
        after = np.array([character == SPACE for character in pair.source])
        words = np.cumsum(after) - after  # the number of each character's word
        chosen = pair.extra["word_attn"].argmax(axis=1)  # T
        shares.append((pair.extra["attn"] * (words == chosen[:, None])).sum(axis=1))
    return float(np.concatenate(shares).mean())


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        sys.exit(f"levels.py: {error}")
