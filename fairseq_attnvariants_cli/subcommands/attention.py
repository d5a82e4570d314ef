"""``fairseq-attnvariants attention``: heat maps of the attention on one sentence."""

from dataclasses import dataclass

from ..options import (
    DarkOption,
    SeveralModels,
    SubwordOptions,
    TargetOptions,
    length,
    numeric,
    option,
    positive,
    switch,
)
from ..shown.heatmaps import WIDTH, Panel, draw, panels
from ..shown.pictures import picture


@dataclass
class Options(DarkOption, SubwordOptions, TargetOptions, SeveralModels):
    """Draw heat maps of the attention on one sentence, side by side for several models. Source words are above, target
    words at the left; white is 0 and black is 1 (--dark inverts this). The target is the reference, if you give one, or
    each model's own translation. A model with two levels of attention gets two heat maps. Words of more than 60
    characters are cut.

    example: fairseq-attnvariants attention data-bin --path base.pt --path ours.pt --name base --name ours --source
    bpe.test.en --line 17 --remove-bpe --output attention.pdf

    Args:
        line: line of the text, from 1
        output: the picture: .png, .svg or .pdf
        width: start a new row of heat maps beyond this width
        scale_rows: scale each target word's weights to the largest
    """

    line: int = numeric(1, type=positive)
    output: str = option(required=True)
    width: float = numeric(WIDTH, "INCHES", length)
    scale_rows: bool = switch()


def run(options: Options) -> None:
    """Decode one sentence with each model, and draw the attention."""
    given, systems = options.given(), options.names(options.path)
    with picture(options.output, options.dark) as save:
        from ..systems.model import check_probabilities, decoded, force

        heat_maps: list[Panel] = []
        for name, (system, text) in zip(systems, decoded(options, given, options.line), strict=True):
            if not options.scale_rows:
                check_probabilities(system, "attention without --scale-rows")
            for pair in force(system, text, options, welcome=("word_attn",)):
                heat_maps += panels(name, pair, options.remove_bpe)
        save(draw(heat_maps, options.width, options.scale_rows))
