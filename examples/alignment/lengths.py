"""Print the mean squared length of target embeddings: ``lengths.py DATA CHECKPOINT``.

The mean is over the target words of the validation split, so frequent words count often.  The direct bridge's loss,
``‖W x - y‖²``, has this value if the map gives 0.
"""

import argparse
import sys

from fairseq_attnvariants_cli.systems.model import load, read_subset
from fairseq_attnvariants_cli.text.files import UserError


def main() -> None:
    """Print the mean."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", metavar="DATA", help="folder of fairseq-preprocess")
    parser.add_argument("checkpoint", metavar="CHECKPOINT")
    options = parser.parse_args()
    system = load(options.checkpoint, options.data)
    text = read_subset("valid", system.task)
    squares = system.model.decoder.embed_tokens.weight.float().square().sum(dim=1)  # V
    words = [word for sentence in text.sentences for word in sentence.item["target"].tolist()]
    print(f"mean squared length {squares[words].mean():.2f}")


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        sys.exit(f"lengths.py: {error}")
