"""``fairseq-attnvariants import-nematus``: a model that Nematus or Marian has trained, as a checkpoint."""

import argparse
import os
from dataclasses import dataclass

from ..options import option
from ..text.files import UserError, say
from ..text.folders import new_folder


def language(text: str) -> str:
    """Return the name of a language if it can be part of a file's name: an option's type."""
    if not text or not text.replace("-", "").replace("_", "").isalnum():
        raise argparse.ArgumentTypeError(f"{text!r} is not the name of a language, such as en")
    return text


@dataclass
class Options:
    """Turn a model of Nematus or Marian (--type nematus, amun, s2s) into a checkpoint, model.pt, with its dictionaries.
    fairseq-generate, fairseq-interactive and from_pretrained read the folder and give the same probabilities. A model
    with equations that this package lacks is refused by name.

    example: fairseq-attnvariants import-nematus model.npz --source-dict vocab.en.json --target-dict vocab.de.json
    --source-lang en --target-lang de --output en-de

    Args:
        model: the model, an .npz file
        source_dict: the source dictionary, .json, .yml or .yaml: words and their row numbers
        target_dict: the target dictionary, likewise
        source_lang: the source language
        target_lang: the target language
        config: Nematus's options (default: MODEL.json, if it exists); a Marian model contains them
        output: the new folder
    """

    model: str = option("MODEL", positional=True)
    source_dict: str = option(required=True)
    target_dict: str = option(required=True)
    source_lang: str = option("LANG", short=["-s"], required=True, type=language)
    target_lang: str = option("LANG", short=["-t"], required=True, type=language)
    config: str | None = option()
    output: str = option("DIR", required=True)


def run(options: Options) -> None:
    """Read the arrays and the dictionaries, find the network, write the folder."""
    if options.source_lang == options.target_lang:
        raise UserError(f"--source-lang and --target-lang are both {options.source_lang}: their dictionaries need two")
    from ..imported.archive import read_arrays, read_options
    from ..imported.checkpoint import MODEL, Side, write_folder
    from ..imported.nematus import read_network
    from ..imported.vocabulary import read_vocabulary

    with new_folder(options.output) as folder:
        arrays = read_arrays(options.model)
        given = read_options(options.model, arrays, options.config)
        if given.source == options.model:  # no file has options
            say(
                f"{options.model}.json is not there, so the arrays alone say what the network is: give --config if it "
                "was trained with dropout by a Nematus before 0.1"
            )
        words = [read_vocabulary(path) for path in (options.source_dict, options.target_dict)]
        shared = words[0].words == words[1].words
        network = read_network(options.model, arrays, given, shared)
        counts = network.source_words, network.target_words
        for vocabulary, count in zip(words, counts, strict=True):
            beyond = sum(row >= count for row in vocabulary.words)
            if beyond:
                say(f"{vocabulary.path}: {beyond} words have no row in the model, and are unknown to it")
            nameless = len({*range(count)} - {*vocabulary.words, vocabulary.end, vocabulary.unknown})
            if nameless:
                say(f"{vocabulary.path}: {nameless} of the model's {count} rows have no word: is it another model's?")
        languages = options.source_lang, options.target_lang
        source, target = map(Side, languages, words, counts)
        model = write_folder(folder, network, source, target)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    say(f"{os.path.join(options.output, MODEL)}: {parameters:,} parameters, {counts[0]:,} and {counts[1]:,} symbols")
