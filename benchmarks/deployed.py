"""The speed of exported models against the stock ``lstm`` in fairseq's search, in turns, in one run.

    OMP_NUM_THREADS=1 python benchmarks/deployed.py
    OMP_NUM_THREADS=1 python benchmarks/deployed.py --same PACKAGE INT8_PACKAGE TEXT # only how many translations agree

Weights and text are random.  fairseq's ``SequenceGenerator`` and the graphs write exactly ``--words`` words for every
sentence, because ``min_len`` and ``max_len`` are set.  A shortlist has ``--listed`` words for many sentences and fewer
for one, as shortlists of Multi30k do.  The time of an exported model is that of the runtime, from symbols to n-best
lists.  The output is how many times as fast as the ``lstm`` each way is: the ratio of processor times in the same
round, as the median with the smallest and the largest.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import speed
import torch
from fairseq.data import data_utils
from fairseq.sequence_generator import SequenceGenerator
from spread import against, in_turns, spread

from fairseq_attnvariants.deploy import loop, package
from fairseq_attnvariants.deploy.int8 import reduce
from fairseq_attnvariants.deploy.proof import Proof, Search
from fairseq_attnvariants.tasks.shortlist import SPECIALS, Candidate, Shortlist
from fairseq_attnvariants_cli.installed import runtime
from fairseq_attnvariants_cli.options import positive
from fairseq_attnvariants_cli.subcommands.translate import load
from fairseq_attnvariants_cli.text.files import UserError, read_lines

SIZES = (128, 256), (256, 512)
ARCHS = "rnnsearch", "dl4mt"
WAYS = "float32", "int8", "list"
UNPROVED = Proof(0, 0, 0, 0.0, 0.0, 0.0, "")


def random_list(task, listed):
    """A shortlist of at most fifty words for each source symbol, all from the same ``listed`` target words."""
    source, target = task.source_dictionary, task.target_dictionary
    random = torch.Generator().manual_seed(1)
    pool = torch.randperm(len(target) - SPECIALS, generator=random)[:listed] + SPECIALS
    rows = (
        Candidate(source[i], target[int(j)], 1, 0.5)
        for i in range(SPECIALS, len(source))
        for j in pool[torch.randint(len(pool), (50,), generator=random)].unique()
    )
    return Shortlist(rows, source, target, 50, 100)


def write(folder, task, model, graph, asked, int8, shortlist):
    """Write a package whose translations all have ``--words`` words, and return its folder."""
    search = Search(beam=asked.beam, min_len=asked.words, max_len_b=asked.words)
    text = dict(lowercase=False, tokenizer=None, truecase=None, bpe=None)
    about = package.manifest(task, model, graph, UNPROVED, search, text, {}, int8, shortlist)
    symbols = package.symbols(task.source_dictionary)
    files = {"model.onnx": loop.ir.to_proto(graph).SerializeToString(), "source.json": symbols, "target.json": symbols}
    folder.mkdir()
    package.write(folder, files, about)
    (folder / "translate.py").write_bytes(runtime().read_bytes())
    return folder


def exported(folder, task, model, asked):
    """Export a model in each way, and return the packages by way."""
    shortlist = random_list(task, asked.listed) if "list" in asked.ways else None
    whole = loop.export(model) if {"float32", "int8"} & {*asked.ways} else None
    graphs = {
        "float32": lambda: (whole, False, None),
        "int8": lambda: (reduce(whole), True, None),
        "list": lambda: (loop.export(model, shortlist), False, shortlist),
    }
    folder.mkdir()
    made = {}
    for way in asked.ways:
        graph, int8, own = graphs[way]()
        made[way] = write(folder / way, task, model, graph, asked, int8, own)
    return made


MEASURED = """if True:
    import resource, subprocess, sys
    subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)
"""


def start(folder, line):
    """Processor seconds and MiB of a process that translates one line.

    A small process starts it, because the peak includes the memory of the process that starts it.
    """
    command = [sys.executable, "-c", MEASURED, sys.executable, str(folder / "translate.py")]
    done = subprocess.run(command, input=line + "\n", capture_output=True, text=True, check=True)
    return tuple(map(float, done.stdout.split()))


def widths(text):
    """Return the widths of embeddings and hidden layers of ``EMBED/HIDDEN``."""
    embed, hidden = map(positive, text.split("/"))
    return embed, hidden


def measure(size, asked, task, sources):
    """Print the table for one pair of widths."""
    embed, hidden = size
    arguments = speed.parse(["--embed", str(embed), "--hidden", str(hidden)])
    pad, dictionary = task.source_dictionary.pad(), task.source_dictionary
    lines = [[dictionary[int(symbol)] for symbol in source[:-1]] for source in sources]
    torch.manual_seed(1)
    stock = speed.build("lstm", arguments, task)[0].eval()
    options = dict(beam_size=asked.beam, max_len_b=asked.words, min_len=asked.words)
    generator = SequenceGenerator([stock], task.target_dictionary, **options)

    def by_fairseq(numbers):
        some = [sources[k] for k in numbers]
        given = dict(
            src_tokens=data_utils.collate_tokens(some, pad, left_pad=True), src_lengths=torch.tensor([*map(len, some)])
        )
        return generator.generate([stock], {"net_input": given})

    def by_package(translator):
        def translate(numbers):
            found = translator.search_all([lines[k] for k in numbers], asked.beam, 1, True, len(numbers), False)
            assert all(len(one.n_best[0].symbols) == asked.words + 1 for one in found)

        return translate

    ways, starts = {"lstm": by_fairseq}, {}
    with tempfile.TemporaryDirectory() as scratch:
        for arch in asked.archs:
            model = speed.build(arch, arguments, task)[0].eval()
            for way, folder in exported(Path(scratch) / arch, task, model, asked).items():
                ways[f"{arch} {way}"] = by_package(load().Translator(folder))
                starts[f"{arch} {way}"] = [start(folder, " ".join(lines[0])) for _ in range(asked.rounds)]
    singles = range(0, len(sources), max(1, len(sources) // asked.sentences))[: asked.sentences]
    shapes = {"single": [[k] for k in singles], f"batches of {asked.batch}": [range(asked.batch)]}
    runs = {
        (shape, way): partial(speed.timed, ways[way], shapes[shape], time.process_time)
        for shape in shapes
        for way in ways
    }
    times = in_turns(runs, asked.rounds)
    ratios = {shape: against({way: times[shape, way] for way in ways}, "lstm") for shape in shapes}
    print(f"\n| {embed}/{hidden} | {' | '.join(shapes)} | start: s, MiB |\n|---|{'---|' * len(shapes)}---|")
    for way in ways:
        row = []
        for shape in shapes:
            ms = 1000 * statistics.median(times[shape, way]) / sum(map(len, shapes[shape]))
            row.append(f"1 ({ms:.1f} ms)" if way == "lstm" else spread(ratios[shape][way]))
        seconds, memory = zip(*starts[way]) if way in starts else ((), ())
        row.append(f"{statistics.median(seconds):.2f}, {statistics.median(memory):.0f}" if seconds else "")
        print(f"| {way} | {' | '.join(row)} |", flush=True)


def same(first, second, text):
    """Print the share of lines whose translations are the same in two packages."""
    lines = [line for line in read_lines(text) if line.strip()]
    if not lines:
        raise UserError(f"{text} has no sentence: give one with some")
    program = load()
    try:
        translators = [program.Translator(folder) for folder in (first, second)]
        one, other = ([found.text for found in each.translate(lines, attention=False)] for each in translators)
    except (program.PackageError, program.SentenceError) as error:
        raise UserError(str(error)) from error
    print(f"{sum(map(str.__eq__, one, other)) / len(lines):.1%} of {len(lines)} translations are the same")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", type=widths, default=SIZES, metavar="EMBED/HIDDEN")
    parser.add_argument("--archs", nargs="+", default=ARCHS)
    parser.add_argument("--ways", nargs="+", default=WAYS, choices=WAYS)
    parser.add_argument("--vocabulary", type=speed.vocabulary, default=10_000)
    parser.add_argument("--listed", type=positive, default=2_600, help="words of the shortlist of many sentences")
    parser.add_argument("--words", type=positive, default=16, help="of every translation")
    parser.add_argument("--beam", type=positive, default=5)
    parser.add_argument("--sentences", type=positive, default=8, help="that are translated one at a time")
    parser.add_argument("--batch", type=positive, default=40)
    parser.add_argument("--rounds", type=positive, default=5)
    parser.add_argument("--same", nargs=3, metavar=("PACKAGE", "INT8_PACKAGE", "TEXT"))
    asked = parser.parse_args()
    if asked.same:
        if vars(asked) != {**vars(parser.parse_args([])), "same": asked.same}:
            parser.error("--same compares translations alone: leave the other options out")
        try:
            same(*asked.same)
        except UserError as error:
            parser.error(f"--same: {error}")
        return
    torch.set_num_threads(1)
    count = max(asked.batch, asked.sentences)
    given = ["--vocabulary", asked.vocabulary, "--batch", count, "--batches", 1, "--length", 16, "--spread", 0.15]
    dictionary, sources, _ = speed.sample_text(speed.parse([*map(str, given)]))
    sources.sort(key=len, reverse=True)  # the stock lstm needs this order
    task = speed.Task(dictionary, dictionary)
    task.cfg = argparse.Namespace(source_lang="xx", target_lang="yy")
    print(f"{len(dictionary)} types, beam {asked.beam}, {asked.words} words, sources of {min(map(len, sources))} to "
          f"{max(map(len, sources))} symbols, medians of {asked.rounds} rounds, ratios to the stock lstm")  # fmt: skip
    for size in asked.sizes:
        measure(size, asked, task, sources)


if __name__ == "__main__":
    main()
