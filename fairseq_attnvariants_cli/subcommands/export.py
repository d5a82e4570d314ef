"""``fairseq-attnvariants export``: a folder that translates without fairseq and torch, or one without pickle."""

import json
import os
import shutil
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..installed import runtime
from ..options import DataOptions, OneModel, SearchOptions, flag, numeric, option, switch, utf8
from ..text.files import UserError, read_lines, say
from ..text.folders import check_new, new_folder

if TYPE_CHECKING:
    from fairseq_attnvariants.deploy.proof import Search

    from ..systems.model import System

SPLITS = "test", "valid"  # the graph is compared with fairseq on the first split that exists
PROVED, LONGEST = 16, 100  # most sentences of a split, and most symbols of a sentence
GENERATED, STEPS = 12, 30  # random sentences, and most symbols of their translations
BATCH = 4
ABOUT = "title", "license", "trained", "score"  # for the manifest
OF_BOTH = "data", "path", "output", "safetensors", "cpu", "user_dir"  # options of both kinds of folders


@dataclass
class Options(SearchOptions, DataOptions, OneModel):
    """Write a folder that translates without fairseq and torch, by ONNX Runtime. It has one graph with the encoder, the
    decoder steps and fairseq's beam search, the dictionaries, and a manifest. The command first compares n-best lists,
    scores and attention with fairseq's search, on sentences of DATA's test or validation set and on random ones. The
    manifest says how far they agree. --beam, --lenpen, --max-len-a and --max-len-b become the folder's defaults. With
    --safetensors, the command instead writes a folder for fairseq without pickle, which from_pretrained and every
    --path read.

    example: fairseq-attnvariants export data-bin --path checkpoint_best.pt --output package --bpe-codes codes

    Args:
        path: the model
        output: the new folder; it must not exist
        bpe_codes: subword-nmt merges of the training text
        bpe_vocabulary: the source's subwords and counts, from learn-joint-bpe-and-vocab or get-vocab, if apply-bpe had
            --vocabulary
        bpe_vocabulary_threshold: the --vocabulary-threshold of apply-bpe
        lowercase: the training text was lowercased
        tokenizer: the training text was tokenised by Moses
        moses_no_dash_splits: Moses kept words with hyphens whole
        moses_no_escape: Moses did not escape special characters
        truecase: Moses' truecasing model of the source
        shortlist: table of candidate translations, from lexicon --candidates; search uses only the candidates of the
            source's words
        shortlist_size: candidates per source word (default: 50)
        shortlist_frequent: most frequent target words, which every list has (default: 100)
        int8: weights of eight bits: a quarter as large; some translations differ
        page: add a web page that works alone in any browser
        safetensors: write only the weights as safetensors, the configuration as JSON and the dictionaries as text, for
            fairseq and PyTorch
        title: name of the model, for the manifest
        license: licence of the model, for the manifest
        trained: training data, for the manifest
        score: score of the model, for the manifest
        cpu: changes nothing: the command never uses CUDA
    """

    output: str = option("FOLDER", required=True)
    bpe_codes: str | None = option()
    bpe_vocabulary: str | None = option()
    bpe_vocabulary_threshold: int | None = numeric()
    lowercase: bool = switch()
    tokenizer: str | None = option(None, choices=["moses"])
    moses_no_dash_splits: bool = switch()
    moses_no_escape: bool = switch()
    truecase: str | None = option()
    shortlist: str | None = option("TABLE")
    shortlist_size: int | None = numeric()
    shortlist_frequent: int | None = numeric()
    int8: bool = switch()
    page: bool = switch()
    safetensors: bool = switch()
    title: str | None = option("TEXT", type=utf8)
    license: str | None = option("TEXT", type=utf8)
    trained: str | None = option("TEXT", type=utf8)
    score: str | None = option("TEXT", type=utf8)


def check_system(system: "System") -> Any:
    """Return the one model of a system that can be exported.

    Raises:
        UserError: the model is not from this package, or its task or its symbols cannot be exported.
    """
    from fairseq.tasks.translation import TranslationTask

    from fairseq_attnvariants.models import AttentionRNNModel
    from fairseq_attnvariants.tasks import CharTranslationTask, ShortlistTranslationTask, StringTransductionTask

    model, task = system.model, system.task
    if not isinstance(model, AttentionRNNModel):
        raise UserError(f"{system.path} is a {type(model).__name__}, and not a model of this package")
    if type(task) not in (TranslationTask, CharTranslationTask, ShortlistTranslationTask, StringTransductionTask):
        raise UserError(
            f"{system.path} is of the task {type(task).__name__}, and a package holds one pair of languages: --task "
            "translation, char_translation or string_transduction"
        )
    for dictionary in (task.source_dictionary, task.target_dictionary):
        if getattr(dictionary, "units", "words") == "":
            raise UserError(
                f"{system.path} has symbols separated by {dictionary.separator!r}, and in a package they are separated "
                "by spaces, or not at all: train it on such a table"
            )
    return model


def shortlist_of(task: Any, options: Options) -> Any:
    """Return the shortlist of the options, or else of the checkpoint's task, or None.

    Raises:
        ConfigurationError: the file is not a table of words of these dictionaries, or an option has no effect.
    """
    from fairseq_attnvariants.tasks.shortlist_translation import read_shortlist

    given = read_shortlist(options, task.source_dictionary, task.target_dictionary)
    return getattr(task, "shortlist", None) if given is None else given


def check_subwords(task: Any, options: Options) -> None:
    """Refuse merges for characters, and report a dictionary of subwords without merges.

    Raises:
        UserError: there are merges, and the source is characters.
    """
    words = task.source_dictionary.symbols
    if options.bpe_codes and getattr(task.source_dictionary, "units", "words") not in ("words", "spaced"):
        raise UserError("--bpe-codes: the source is characters, which merges do not split: leave it out")
    if not options.bpe_codes and any(word.endswith("@@") for word in words):
        say("the dictionary has subwords (@@) without --bpe-codes: the package translates text split into subwords")


def search_of(system: "System", options: Options) -> "Search":
    """Return the settings of the task's search with these options."""
    from fairseq_attnvariants.deploy.proof import Search

    from ..systems.model import build_generator

    generator = build_generator(system, options)
    generator = getattr(generator, "generator", generator)  # of a generator with a shortlist
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


def files_of(split: str, task: Any) -> tuple[str, ...]:
    """Return the beginnings of the names that the files of a split may have."""
    from fairseq_attnvariants.tasks import StringTransductionTask
    from fairseq_attnvariants.tasks.tsv import split_names

    if isinstance(task, StringTransductionTask):
        return tuple(split_names(split))
    source, target = task.cfg.source_lang, task.cfg.target_lang
    return f"{split}.{source}-{target}.{source}", f"{split}.{target}-{source}.{source}"


def sources(system: "System", data: str) -> list[Any]:
    """Return short and long sources of the first split that exists, or none without a split."""
    from ..systems.model import read_subset

    there = os.listdir(data.split(os.pathsep)[0])
    for split in SPLITS:
        if any(name.startswith(files_of(split, system.task)) for name in there):
            text = read_subset(split, system.task, reference=False)
            found = sorted((one.item["source"] for one in text.sentences), key=len)
            longest = min(LONGEST, system.model.encoder.max_source_positions)
            found = [source for source in found if len(source) <= longest]
            count = min(len(found), PROVED)
            return [found[k * (len(found) - 1) // max(1, count - 1)] for k in range(count)]
    return []


def merges(path: str) -> bytes:
    """Read and check the merges of subword-nmt.

    Raises:
        UserError: the file cannot be read, or is not a list of merges.
    """
    lines = list(read_lines(path))
    while len(lines) > 1 and not lines[-1]:
        lines.pop()
    versions = [line for line in lines[:1] if line.startswith("#version:")]
    if any(line.split()[-1] not in ("0.1", "0.2") for line in versions):
        raise UserError(f"--bpe-codes {path}: {versions[0]}, and only 0.1 and 0.2 are known: run learn-bpe again")
    if not lines:
        raise UserError(f"--bpe-codes {path} is empty: give what learn-bpe wrote")
    for number, line in enumerate(lines[len(versions) :], start=1 + len(versions)):
        if len(line.strip("\r\n ").split(" ")) != 2:
            raise UserError(f"--bpe-codes {path}, line {number}: not two subwords, as learn-bpe writes them")
    return "".join(f"{line}\n" for line in lines).encode()


def frequent_subwords(path: str, threshold: int) -> list[str]:
    """Read the subwords that subword-nmt's vocabulary counts at least ``threshold`` times.

    Raises:
        UserError: the file cannot be read, is not a vocabulary, or has no such subword.
    """
    found = []
    for number, line in enumerate(read_lines(path), start=1):
        subword, _, count = line.strip("\r\n ").rpartition(" ")
        if not subword or not count.isdecimal() or len(count) > 18:
            raise UserError(
                f"--bpe-vocabulary {path}, line {number}: not a subword and its count, as get-vocab writes them"
            )
        if int(count) >= threshold:
            found.append(subword)
    if not found:
        raise UserError(f"--bpe-vocabulary {path} has no subword that was counted {threshold} times")
    return found


def prepared(
    options: Options, codes: bytes | None, source: str, target: str
) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Return the preprocessing of both languages, as in FORMAT.md, and the files that it needs.

    ``codes`` are the merges of subwords that :func:`merges` has read, or None.

    Raises:
        UserError: a file cannot be read or is of another kind, or an option needs another option.
        ConfigurationError: the tokeniser is not available.
    """
    text: dict[str, Any] = dict(lowercase=options.lowercase, tokenizer=None, truecase=None, bpe=None)
    files: dict[str, bytes] = {}
    if options.tokenizer or options.truecase:
        from fairseq_attnvariants.deploy import moses
    if options.tokenizer:
        tables = {"moses.source.json": moses.moses_tables(source), "moses.target.json": moses.moses_tables(target)}
        text["tokenizer"] = {
            "kind": "moses",
            "hyphens": not options.moses_no_dash_splits,
            "escape": not options.moses_no_escape,
            **dict(zip(("source", "target"), tables)),
        }
        files.update({name: json.dumps(table).encode() for name, table in tables.items()})
    elif options.moses_no_dash_splits or options.moses_no_escape:
        raise UserError("--moses-no-dash-splits and --moses-no-escape need --tokenizer moses: add it")
    if options.truecase:
        table = moses.truecase_table(f"--truecase {options.truecase}", read_lines(options.truecase))
        text["truecase"] = {"source": "truecase.source.json"}
        files["truecase.source.json"] = json.dumps(table).encode()
    for name, needed in (("bpe_vocabulary", "bpe_codes"), ("bpe_vocabulary_threshold", "bpe_vocabulary")):
        if getattr(options, name) is not None and not getattr(options, needed):
            raise UserError(f"{flag(name)} is of {flag(needed)}, which is not given: add it")
    if codes is not None:
        files["codes"] = codes
        text["bpe"] = {"kind": "subword-nmt", "codes": "codes", "separator": "@@", "vocabulary": None}
    if options.bpe_vocabulary:
        allowed = frequent_subwords(options.bpe_vocabulary, options.bpe_vocabulary_threshold or 0)
        files["vocabulary.json"] = json.dumps(allowed).encode()
        text["bpe"]["vocabulary"] = "vocabulary.json"
    return text, files


def check_page() -> None:
    """Refuse a page that cannot be built.

    Raises:
        UserError: ONNX Runtime Web, which the page needs, is missing.
    """
    from fairseq_attnvariants.deploy.page import find_onnxruntime_web
    from fairseq_attnvariants.registry import ConfigurationError

    try:
        find_onnxruntime_web()
    except ConfigurationError as error:
        raise UserError(f"--page: {error}") from error


def write_safetensors(options: Options) -> None:
    """Write a folder that fairseq reads without pickle.

    Raises:
        UserError: an option belongs to the other kind of folder, or a file cannot be read or written.
    """
    for name in (one.name for one in fields(options) if one.name not in OF_BOTH):
        if getattr(options, name) is not None and getattr(options, name) is not False:
            raise UserError(
                f"{flag(name)} is of a folder that translates by itself, and --safetensors writes the weights alone, "
                "for fairseq: leave one of the two out"
            )
    with new_folder(options.output) as folder:
        from fairseq_attnvariants.patches.loading.plain import MODEL, save
        from fairseq_attnvariants.registry import ConfigurationError

        from ..systems.model import load, read_checkpoint

        try:
            save(folder, read_checkpoint(options.path), options.data.split(os.pathsep)[0])
        except ConfigurationError as error:
            raise UserError(f"{options.path}: {error}") from error
        load(options.path, options.data, cpu=True)  # refuses other dictionaries than the model's
    say(f"{os.path.join(options.output, MODEL)}, with its configuration and dictionaries")


def write_package(options: Options) -> None:
    """Export the model, compare it with fairseq, and write the folder.

    Raises:
        UserError: a file cannot be read or written, or the model cannot be exported.
    """
    import torch

    from fairseq_attnvariants.deploy import missing

    if why := missing():
        raise UserError(why)
    from fairseq_attnvariants.deploy import package
    from fairseq_attnvariants.deploy.int8 import reduce
    from fairseq_attnvariants.deploy.loop import export
    from fairseq_attnvariants.deploy.page import build_page
    from fairseq_attnvariants.deploy.proof import Batch, compared, proved, random_sources
    from fairseq_attnvariants.registry import ConfigurationError

    from ..systems.model import load

    torch.set_num_threads(1)
    options.settle()
    try:
        check_new(options.output)
        codes = merges(options.bpe_codes) if options.bpe_codes else None
        if options.page:
            check_page()
        system = load(options.path, options.data, cpu=True)
        model, task = check_system(system), system.task
        text, files = prepared(options, codes, *package.languages_of(task))
        check_subwords(task, options)
        search = search_of(system, options)
        if (options.beam or 0) > (largest := package.largest_beam(task.target_dictionary)):
            raise UserError(f"--beam {options.beam}: the target has few symbols, which allow at most --beam {largest}")
        short = search._replace(max_len_a=0.0, max_len_b=STEPS)
        real = sources(system, options.data)
        generated = random_sources(model, package.end(task.source_dictionary), GENERATED)
        of_split = [Batch(real[k : k + BATCH], search) for k in range(0, len(real), BATCH)]
        random = [Batch(generated[k::3], each) for each in (short, short._replace(beam=1)) for k in range(3)]
        shortlist = shortlist_of(task, options)
        graph = export(model, shortlist)
        content, proof = proved(graph, model, of_split + random, shortlist)
        if options.int8:
            graph = reduce(graph)
            content, proof = compared(graph, model, of_split or random, shortlist)
        about = {option: getattr(options, option) for option in ABOUT}
        manifest = package.manifest(task, model, graph, proof, search, text, about, options.int8, shortlist)
        files["model.onnx"] = content
        files["source.json"] = package.symbols(task.source_dictionary)
        files["target.json"] = package.symbols(task.target_dictionary)
        with new_folder(options.output) as folder:
            package.write(Path(folder), files, manifest)
            shutil.copyfile(runtime(), os.path.join(folder, "translate.py"))
            if options.page:
                build_page(folder)
    except ConfigurationError as error:
        raise UserError(str(error) if str(error).startswith("--") else f"{options.path}: {error}") from error
    size = sum(entry.stat().st_size for entry in os.scandir(options.output)) / 2**20
    if options.int8:
        found = f"{proof.translations:.0%} of {proof.lists} translations are those of the model in float32"
    else:
        found = (
            f"{proof.equal} of {proof.lists} n-best lists are equal to fairseq's, scores within {proof.score:.1g}, "
            f"attention within {proof.attention:.1g}"
        )
    say(f"{options.output}: {size:.1f} MB; {found}")


def run(options: Options) -> None:
    """Write one of the two kinds of folders."""
    (write_safetensors if options.safetensors else write_package)(options)
