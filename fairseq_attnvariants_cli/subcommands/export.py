"""``fairseq-attnvariants export``: a folder that translates without fairseq and torch."""

import argparse
import importlib
import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Tuple

from ..options import DataOptions, OneModel, SearchOptions, option, switch
from ..text.files import UserError, read_lines, say

if TYPE_CHECKING:
    from fairseq_attnvariants.deploy.proof import Search

    from ..systems.model import System

SPLITS = "test", "valid"  # the first that there is proves the graph
PROVED, LONGEST = 16, 100  # sentences of a split, and symbols of a sentence
GENERATED, STEPS = 12, 30  # sentences that mean nothing, and symbols of a translation of one
BATCH = 4
ABOUT = "title", "license", "trained", "score"  # for the manifest


@dataclass
class Options(SearchOptions, DataOptions, OneModel):
    """Write a folder that translates without fairseq and torch, by ONNX Runtime: one graph with the source, the steps
    and fairseq's beam search, the dictionaries, and a manifest. Before it is written, its n-best lists, scores and
    attention are compared with those of fairseq's search, on sentences of DATA's test or validation set and on random
    ones; the manifest says how far they agree. --beam, --lenpen and --max-len-a and -b become its defaults.

    example: fairseq-attnvariants export data-bin --path checkpoint_best.pt --output package --bpe-codes codes

    Args:
        path: the model
        output: where it goes; must not be there yet
        bpe_codes: merges of subword-nmt by which the text was cut
        lowercase: the text was lowercased
        tokenizer: the text was cut into words by Moses' tokeniser
        moses_no_dash_splits: which left words with hyphens whole
        moses_no_escape: and wrote special characters as they are
        truecase: the source had the case of words by this model of Moses
        int8: weights of eight bits: a quarter as large; some translations differ
        page: add a page for any browser, with all that it needs inside
        title: what the model is called, for the manifest
        license: its licence, for the manifest
        trained: what it was trained on, for the manifest
        score: its score, for the manifest
    """

    output: str = option("FOLDER", required=True)
    bpe_codes: Optional[str] = option()
    lowercase: bool = switch()
    tokenizer: Optional[str] = option(None, choices=["moses"])
    moses_no_dash_splits: bool = switch()
    moses_no_escape: bool = switch()
    truecase: Optional[str] = option()
    int8: bool = switch()
    page: bool = switch()
    title: Optional[str] = option("TEXT")
    license: Optional[str] = option("TEXT")
    trained: Optional[str] = option("TEXT")
    score: Optional[str] = option("TEXT")


def check_system(system: "System") -> Any:
    """The one model, of this package, with a task that a package can do.

    Raises:
        UserError: it is another.
    """
    from fairseq.tasks.translation import TranslationTask

    from fairseq_attnvariants.models import AttentionRNNModel
    from fairseq_attnvariants.tasks import CharTranslationTask, ShortlistTranslationTask, StringTransductionTask

    model, task = system.model, system.task
    if not isinstance(model, AttentionRNNModel):
        raise UserError(f"{system.path} is a {type(model).__name__}, and not a model of this package")
    if getattr(task, "shortlist", None) is not None:
        raise UserError(f"{system.path} translates with --shortlist, which a package cannot hold: leave it out")
    if type(task) not in (TranslationTask, CharTranslationTask, ShortlistTranslationTask, StringTransductionTask):
        raise UserError(
            f"{system.path} is of --task {task.cfg._name}, and a package holds one pair of languages: --task "
            "translation, char_translation or string_transduction"
        )
    if getattr(task.source_dictionary, "first_feature", None) is not None:
        raise UserError(f"{system.path} reads features besides a source, for which a package has no place")
    for dictionary in (task.source_dictionary, task.target_dictionary):
        if getattr(dictionary, "units", "words") == "":
            raise UserError(
                f"{system.path} has symbols separated by {dictionary.separator!r}, and in a package they are separated "
                "by spaces, or not at all: train it on such a table"
            )
    return model


def check_subwords(task: Any, options: Options) -> None:
    """Refuse merges of what is not cut into words, and say it where the words look cut and there are no merges.

    Raises:
        UserError: the source is characters.
    """
    words = task.source_dictionary.symbols
    if options.bpe_codes and getattr(task.source_dictionary, "units", "words") != "words":
        raise UserError("--bpe-codes: the source is characters, which no merges cut: leave it out")
    if not options.bpe_codes and any(word.endswith("@@") for word in words):
        say("the dictionary has subwords (@@) and no --bpe-codes say how: the package translates text that is cut")


def search_of(system: "System", options: Options) -> "Search":
    """How the task translates, with these options."""
    from fairseq_attnvariants.deploy.proof import Search

    asked = argparse.Namespace(
        **{name: getattr(options, name) for name in ("beam", "lenpen", "max_len_a", "max_len_b")}
    )
    generator = system.task.build_generator(system.models, asked)
    return Search(
        beam=generator.beam_size,
        lenpen=generator.len_penalty,
        unkpen=generator.unk_penalty,
        min_len=generator.min_len,
        max_len_a=generator.max_len_a,
        max_len_b=generator.max_len_b,
        normalize=generator.normalize_scores,
        largest_target=generator.max_len,
    )


def sources(system: "System", data: str) -> List[Any]:
    """Sources of the first split that there is, short ones and long ones; none without a split."""
    from ..systems.model import read_subset

    splits = {name.partition(".")[0] for name in os.listdir(data)}
    for split in SPLITS:
        if split in splits:
            text = read_subset(split, system.task, reference=False)
            found = sorted((one.item["source"] for one in text.sentences), key=len)
            found = [source for source in found if len(source) <= LONGEST]
            count = min(len(found), PROVED)
            return [found[k * (len(found) - 1) // max(1, count - 1)] for k in range(count)]
    return []


def merges(path: str) -> bytes:
    """The merges of subword-nmt.

    Raises:
        UserError: the file cannot be read, or is no list of merges.
    """
    lines = list(read_lines(path))
    for number, line in enumerate(lines, start=1):
        if not (number == 1 and line.startswith("#version:")) and len(line.split()) != 2:
            raise UserError(f"--bpe-codes {path}, line {number}: not two subwords, as learn-bpe writes them")
    return "".join(f"{line}\n" for line in lines).encode()


def prepared(options: Options, source: str, target: str) -> Tuple[Dict[str, Any], Dict[str, bytes]]:
    """How lines of two languages become words, as FORMAT.md has it, and the files that this needs.

    Raises:
        UserError: a file cannot be read, or is not what it should be, or an option needs another.
        ConfigurationError: the tokeniser cannot be had.
    """
    text: Dict[str, Any] = dict(lowercase=options.lowercase, tokenizer=None, truecase=None, bpe=None)
    files: Dict[str, bytes] = {}
    if options.tokenizer or options.truecase:
        moses = importlib.import_module("fairseq_attnvariants.deploy.moses")
    if options.tokenizer:
        names = {side: f"moses.{language}.json" for side, language in (("source", source), ("target", target))}
        text["tokenizer"] = {
            "kind": "moses",
            "hyphens": not options.moses_no_dash_splits,
            "escape": not options.moses_no_escape,
            **names,
        }
        files.update({f"moses.{each}.json": json.dumps(moses.moses_tables(each)).encode() for each in (source, target)})
    elif options.moses_no_dash_splits or options.moses_no_escape:
        raise UserError("--moses-no-dash-splits and --moses-no-escape are of --tokenizer moses: add it")
    if options.truecase:
        text["truecase"] = {"source": f"truecase.{source}.json"}
        files[f"truecase.{source}.json"] = json.dumps(moses.truecase_table(options.truecase)).encode()
    if options.bpe_codes:
        files["codes"] = merges(options.bpe_codes)
        text["bpe"] = {"kind": "subword-nmt", "codes": "codes", "separator": "@@", "vocabulary": None}
    return text, files


def page_builder() -> Any:
    """What makes the page of a package.

    Raises:
        UserError: it is not there.
    """
    try:
        return importlib.import_module("fairseq_attnvariants.deploy.page").build_page
    except ImportError as error:
        raise UserError(f"--page: this installation makes no pages ({error}): leave it out") from error


def run(options: Options) -> None:
    """Export, prove, write."""
    import torch

    from fairseq_attnvariants.deploy import missing

    if why := missing():
        raise UserError(why)
    from fairseq_attnvariants.deploy import package
    from fairseq_attnvariants.deploy.loop import export
    from fairseq_attnvariants.deploy.proof import Batch, compared, proved, random_sources
    from fairseq_attnvariants.deploy.reduced import reduce
    from fairseq_attnvariants.registry import ConfigurationError

    from ..systems.model import load

    build_page, runtime = page_builder() if options.page else None, package.runtime()
    torch.set_num_threads(1)
    options.settle()
    try:
        package.check_new(options.output)
        if options.bpe_codes:
            merges(options.bpe_codes)  # before the model is read
        system = load(options.path, options.data, cpu=True)
        model, task = check_system(system), system.task
        text, files = prepared(options, *package.languages_of(task))
        check_subwords(task, options)
        search = search_of(system, options)
        if (options.beam or 0) > (largest := package.largest_beam(task.target_dictionary)):
            raise UserError(f"--beam {options.beam}: the target has few symbols, which allow at most --beam {largest}")
        short = search._replace(max_len_a=0.0, max_len_b=STEPS)
        real = sources(system, options.data)
        generated = random_sources(model, package.end(task.source_dictionary), GENERATED)
        batches = [Batch(real[k : k + BATCH], search) for k in range(0, len(real), BATCH)]
        batches += [Batch(generated[k::3], each) for each in (short, short._replace(beam=1)) for k in range(3)]
        graph = export(model)
        content, proof = proved(graph, model, batches)
        if options.int8:
            graph = reduce(graph)
            content, proof = compared(graph, model, batches[: -(-len(real) // BATCH)] or batches)
        about = {option: getattr(options, option) for option in ABOUT}
        manifest = package.manifest(task, model, graph, proof, search, text, about, options.int8)
        files["model.onnx"] = content
        files.update({"source.json": package.symbols(task.source_dictionary)})
        files.update({"target.json": package.symbols(task.target_dictionary)})
        with package.new_folder(options.output) as folder:
            package.write(folder, files, manifest)
            if runtime is not None:
                (folder / "translate.py").write_bytes(runtime.read_bytes())
            if build_page:
                build_page(folder)
    except ConfigurationError as error:
        raise UserError(str(error) if str(error).startswith("--") else f"{options.path}: {error}") from error
    size = sum(entry.stat().st_size for entry in os.scandir(options.output)) / 2**20
    if runtime is None:
        say("there is no translate.py in it, as fairseq_attnvariants_run is not installed")
    if options.int8:
        found = f"{proof.translations:.0%} of {proof.lists} translations are those of the model in float32"
    else:
        found = (
            f"{proof.equal} of {proof.lists} n-best lists are equal to fairseq's, scores within {proof.score:.1g}, "
            f"attention within {proof.attention:.1g}"
        )
    say(f"{options.output}: {size:.1f} MB; {found}")
