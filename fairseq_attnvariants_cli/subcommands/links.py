"""``fairseq-attnvariants links``: text and word links from the output of ``fairseq-generate --print-alignment``."""

from dataclasses import dataclass

import numpy as np

from ..options import SubwordOptions, option
from ..text.alignments import format_links, hard_links
from ..text.files import UserError, optional, read_lines, write_whole
from ..text.generated import best_in_words, read_generated

Pair = tuple[list[str], list[str], np.ndarray]  # a sentence and its best hypothesis, in words, and weights without EOS

SKIPPED: Pair = [], [], np.zeros((0, 0))


@dataclass
class Options(SubwordOptions):
    """Write the word links of the best hypotheses in the output of fairseq-generate --print-alignment (hard or soft).
    Each source line gives one line of i-j pairs (source-target, from 0), in the order of the source text, up to the
    last printed sentence; a skipped sentence gives an empty line. --save-source and --save-target also write the
    sentences, for a tagger. Links to the source EOS are excluded, as in align. --remove-bpe joins subwords to words; do
    not give it to fairseq-generate.

    example: fairseq-generate data-bin --user-dir "$(fairseq-attnvariants user-dir)" --path checkpoint_best.pt
    --print-alignment soft > generated.txt && fairseq-attnvariants links generated.txt --remove-bpe --output out.align
    --save-source out.en --save-target out.de

    Args:
        generated: output of fairseq-generate (-: standard input)
        output: file for the pairs (default: standard output)
        save_source: also write the source words
        save_target: also write the words of the hypotheses
    """

    generated: str = option("GENERATED", positional=True)
    output: str | None = option()
    save_source: str | None = option()
    save_target: str | None = option()


def read_pairs(path: str, style: str | None = None) -> dict[int, Pair]:
    """Read each sentence of fairseq-generate's output, by its number from 0; ``style`` joins subwords.

    Raises:
        UserError: there are no sentences, or one has no alignment of its tokens.
    """
    pairs = {}
    for number, sentence in read_generated(read_lines(path), path, aligned=True).items():
        source, target, attention = best_in_words(sentence, style)
        if attention is None:
            raise UserError(
                f"{sentence.hypotheses[0].place}: the A- line of H-{number} is not about its tokens: run "
                "fairseq-generate without --remove-bpe; or, if that was so, train the model for longer: its "
                "translation holds a <s>, which fairseq does not print"
            )
        pairs[number] = source, target, attention
    return pairs


def run(options: Options) -> None:
    """Read the output, and write a line for each sentence, in the order of the source text."""
    with (
        write_whole(options.output) as output,
        optional(write_whole, options.save_source) as source,
        optional(write_whole, options.save_target) as target,
    ):
        pairs = read_pairs(options.generated, options.remove_bpe)
        for number in range(max(pairs) + 1):
            *sides, weights = pairs.get(number, SKIPPED)
            output.write(format_links(hard_links(weights)) + "\n")
            for stream, words in zip((source, target), sides, strict=True):
                if stream:
                    stream.write(" ".join(words) + "\n")
