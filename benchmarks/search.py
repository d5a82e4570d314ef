"""The speed of several ways of search against the first (by default the stock ``lstm``), interleaved in one run.

    python benchmarks/search.py DATA --shortlist TABLE   # a folder made by fairseq-preprocess, a table made by lexicon
    python benchmarks/search.py --paper-size --length 25 # random text and lists of 1,500 random words of 30,000

A way is an architecture, and after plus signs ``list`` for shortlists and a value of ``--search-dtype``.  Weights are
not trained: every hypothesis has ``--words`` words.  In each round every way gets the same batch.  The output is how
many times as fast as the first way each way is: the ratio of times in the same round, as the median with the smallest
and the largest.
"""

import argparse
import statistics
from functools import partial

import speed
import torch
from fairseq.tasks.fairseq_task import FairseqTask
from spread import against, in_turns, spread

from fairseq_attnvariants.registry import ConfigurationError
from fairseq_attnvariants.tasks.shortlist import SPECIALS, Shortlist, ShortlistGenerator, read_candidates
from fairseq_attnvariants_cli.options import positive

WAYS = ["lstm", "dl4mt", "dl4mt+list", "dl4mt+bfloat16+list", "rnnsearch+list", "lstm+list"]


class RandomLists:
    """Shortlists of random words, as long as real ones."""

    def __init__(self, vocabulary, words=1500):
        drawn = torch.randperm(vocabulary - SPECIALS, generator=torch.Generator().manual_seed(1))[: words - SPECIALS]
        self.list = torch.cat([torch.arange(SPECIALS), drawn + SPECIALS]).sort().values.to(speed.DEVICE)

    def symbols(self, *_, **__):
        return self.list


def main():
    own = argparse.ArgumentParser(add_help=False)
    own.add_argument("--shortlist", metavar="TABLE")
    own.add_argument("--ways", nargs="+", default=WAYS)
    own.add_argument("--words", type=positive, default=20, help="of every hypothesis")
    without = ["--archs", "--reference", "--batches", "--train-only", "--json", "--compute-dtype"]
    arguments = speed.parse(about=__doc__, without=without, own=[own])
    if arguments.shortlist and not any("list" in way.split("+")[1:] for way in arguments.ways):
        own.error("--shortlist is of ways with +list, and --ways has none: leave it out")
    arguments.batches, arguments.compute_dtype, more = 1, "float32", arguments.more
    task, [sample] = speed.load(arguments)
    source, target = task.source_dictionary, task.target_dictionary
    lists = RandomLists(len(target))
    if arguments.shortlist:
        try:
            lists = Shortlist(read_candidates(arguments.shortlist), source, target, 50, 100)
        except ConfigurationError as error:
            own.error(str(error))
    clock = speed.clock_of(arguments)
    models, runs = {}, {}
    for way in arguments.ways:
        arch, *changes = way.split("+")
        dtypes = [change for change in changes if change != "list"]
        key = (arch, *dtypes)
        if key not in models:
            torch.manual_seed(1)
            dtype = ["--search-dtype", *dtypes] if dtypes else []
            arguments.more = {**more, arch: [*more.get(arch, []), *dtype]}
            models[key] = speed.build(arch, arguments, task)[0].eval().to(speed.DEVICE)
        options = argparse.Namespace(beam=arguments.beam, max_len_b=arguments.words, min_len=arguments.words)
        generator = FairseqTask.build_generator(argparse.Namespace(target_dictionary=target), [models[key]], options)
        generator = ShortlistGenerator(generator, lists) if "list" in changes else generator
        runs[way] = partial(speed.timed, partial(generator.generate, []), [sample], clock)
    times = in_turns(runs, arguments.rounds)
    words = len(lists.symbols(sample["net_input"]["src_tokens"]))
    print(f"{arguments.embed}/{arguments.hidden}, {len(target)} types, lists of {words}, beam {arguments.beam}")
    for way, found in against(times, arguments.ways[0]).items():
        rate = sample["nsentences"] / statistics.median(times[way])
        print(f"{way:24s} {rate:8.1f} sentences/s   x{spread(found)}")


if __name__ == "__main__":
    main()
