"""Training and generation speed of the architectures against the stock ``lstm``, interleaved in one run.

    python benchmarks/speed.py DATA                      # a folder made by fairseq-preprocess
    python benchmarks/speed.py --paper-size --train-only # random text, the papers' widths
    python benchmarks/speed.py DATA --compute-dtype bfloat16 --archs dl4mt
    python benchmarks/speed.py --characters --archs ava --more "lstm=--encoder-hidden-size 700"

In each round every model gets the same batches, one model after the other.  The output is the ratio to the reference
*in the same round*, as the median over the rounds with the smallest and the largest.  It also has the ratio of the
multiply-adds, counted by PyTorch's flop counter on one of these batches.
"""

import argparse
import json
import os
import shlex
import statistics
import time
from functools import partial

import torch
from fairseq import options, tasks, utils
from fairseq.criterions import build_criterion
from fairseq.data import Dictionary, LanguagePairDataset
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.models import build_model
from spread import against, in_turns
from torch.utils.flop_counter import FlopCounterMode

import fairseq_attnvariants
from fairseq_attnvariants.registry import ConfigurationError
from fairseq_attnvariants.tasks import CharacterDictionary
from fairseq_attnvariants_cli.options import amount, at_least, positive
from fairseq_attnvariants_cli.text.files import UserError, optional, write_whole

USER_DIR = os.path.dirname(fairseq_attnvariants.__file__)
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
vocabulary = at_least(6)  # the symbols before the words, and a word


def parse(line=None, about=__doc__, without=(), own=()):
    """Parse the options of this program's command line, or of a list of words.

    Args:
        line: the words.
        about: the description in ``--help``.
        without: options to leave out, because they would have no effect.
        own: parsers with more options.
    """
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=about, formatter_class=form, parents=own, allow_abbrev=False)

    def add(name, **described):
        if name not in without:
            parser.add_argument(name, **described)

    add("data", nargs="?", help="folder made by fairseq-preprocess; without it, random text")
    add("--archs", nargs="+", default=["rnnsearch", "dl4mt", "rnnsearch_star"])
    add("--reference", default="lstm", help="what the ratios are to (default: the stock lstm)")
    add("--embed", type=positive, default=256)
    add("--hidden", type=positive, default=512)
    add("--paper-size", action="store_true", help="widths 620 and 1000, vocabulary 30,000")
    add("--characters", action="store_true", help="random text of characters, 304 symbols")
    add(
        "--more",
        metavar="ARCH=FLAGS",
        action="append",
        default=[],
        help="more fairseq-train flags for one architecture; rnnsearch:other is a second one of rnnsearch",
    )
    add("--batch", type=positive, default=80, help="sentences a batch")
    add("--length", type=positive, default=14, help="mean length of the random text")
    add("--target-length", type=positive, help="of the target side, where it is another")
    add("--spread", type=amount, default=0.25, help="deviation of the length, as a share of its mean")
    add("--vocabulary", type=vocabulary, default=8000, help="of the random text")
    add("--batches", type=positive, default=4, help="batches a model trains on in each round")
    add("--rounds", type=positive, default=7)
    add(
        "--cpu-time",
        action="store_true",
        help="measure the time that the process spent computing instead of the wall's: for a CPU that others use too",
    )
    add("--compute-dtype", default="float32", help="of this package's models")
    add("--train-only", action="store_true")
    add("--beam", type=positive, default=5)
    add("--json", metavar="FILE", help="also write the figures here")
    arguments = parser.parse_args(line)
    if arguments.paper_size:
        arguments.embed, arguments.hidden, arguments.vocabulary = 620, 1000, 30000
    if arguments.characters:
        arguments.vocabulary = 304
    more: dict = {}
    for arch, found, flags in (one.partition("=") for one in arguments.more):
        try:
            more.setdefault(arch, []).extend(shlex.split(flags))
        except ValueError as error:
            parser.error(f"--more {arch}={flags}: {error}")
        if not found:
            parser.error(f"--more {arch}: write ARCH=FLAGS")
    arguments.more = more
    asked = "archs" if hasattr(arguments, "archs") else "ways"
    measured = {*(name.partition("+")[0] for name in getattr(arguments, asked)), getattr(arguments, "reference", "")}
    if line is None and (other := sorted(more.keys() - measured)):
        parser.error(f"--more: {other[0]} is none of --{asked}: leave it out")
    return arguments


def clock_of(arguments):
    """The clock that ``--cpu-time`` chooses."""
    return time.process_time if arguments.cpu_time else time.perf_counter


def sample_text(arguments):
    """A dictionary, source sentences and target sentences: random words, with lengths as in captions."""
    dictionary = CharacterDictionary() if arguments.characters else Dictionary()
    for word in range(arguments.vocabulary - len(dictionary)):
        dictionary.add_symbol(f"w{word}")
    random = torch.Generator().manual_seed(1)
    count = arguments.batch * arguments.batches
    deviations = torch.randn(count, generator=random)  # for both sides: long sentences have long translations

    def sentence(length):
        symbols = torch.randint(5, arguments.vocabulary, (length,), generator=random)
        if arguments.characters:
            symbols[5::6] = dictionary.space()  # words of five letters
        return torch.cat([symbols, torch.tensor([dictionary.eos()])])

    def side(mean):
        lengths = (mean + mean * arguments.spread * deviations).clamp(min=4).long()
        return [sentence(length) for length in lengths.tolist()]

    return dictionary, side(arguments.length), side(arguments.target_length or arguments.length)


class Task:
    """The part of a translation task that models and generators need."""

    def __init__(self, source, target):
        self.source_dictionary, self.target_dictionary = source, target


def load(arguments, device=DEVICE):
    """A task and its training batches."""
    if arguments.data:
        parser = options.get_training_parser()
        namespace = options.parse_args_and_arch(
            parser, [arguments.data, "--arch", "lstm", "--batch-size", str(arguments.batch)]
        )
        try:
            task = tasks.setup_task(convert_namespace_to_omegaconf(namespace).task)
            task.load_dataset("train")
        except ConfigurationError as error:
            raise SystemExit(str(error)) from error
        dataset = task.dataset("train")
    else:
        dictionary, source, target = sample_text(arguments)
        task = Task(dictionary, dictionary)
        dataset = LanguagePairDataset(
            source, [len(s) for s in source], dictionary, target, [len(s) for s in target], dictionary
        )
    order = torch.randperm(len(dataset), generator=torch.Generator().manual_seed(1)).tolist()
    pool = sorted(order[: arguments.batch * arguments.batches], key=dataset.num_tokens)
    groups = [pool[i : i + arguments.batch] for i in range(0, len(pool), arguments.batch)]
    samples = [dataset.collater([dataset[i] for i in group]) for group in groups]
    return task, [utils.move_to_cuda(sample, device) if device.type == "cuda" else sample for sample in samples]


def build(arch, arguments, task):
    """Build a model with the given widths, and its criterion, from flags, as fairseq-train does."""
    flags, widths = arguments.more.get(arch, []), []
    arch = arch.partition(":")[0]
    for side in ("encoder", "decoder"):
        widths += [f"--{side}-embed-dim", str(arguments.embed), f"--{side}-hidden-size", str(arguments.hidden)]
    if arch == "lstm":
        widths += ["--encoder-bidirectional", "--decoder-out-embed-dim", str(arguments.embed)]
    else:
        widths += ["--compute-dtype", arguments.compute_dtype]
    loss = ["--criterion", "label_smoothed_cross_entropy", "--label-smoothing", "0.1"]
    parser = options.get_training_parser()
    flags = ["--user-dir", USER_DIR, "--arch", arch, "--dropout", "0.3", *widths, *loss, *flags]
    namespace = options.parse_args_and_arch(parser, ["none", *flags])
    cfg = convert_namespace_to_omegaconf(namespace)
    criterion = build_criterion(cfg.criterion, task)
    if arch == "lstm":
        from fairseq.models.lstm import LSTMModel

        return LSTMModel.build_model(namespace, task), criterion
    cfg.model.max_source_positions = cfg.model.max_target_positions = 1024
    return build_model(cfg.model, task), criterion


class Trainer:
    """One model with its optimizer and criterion."""

    def __init__(self, arch, arguments, task, device=DEVICE):
        torch.manual_seed(1)
        model, self.criterion = build(arch, arguments, task)
        self.model = model.to(device).train()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-4)

    def forward(self, sample):
        loss, _, _ = self.criterion(self.model, sample)
        return loss / sample["ntokens"]

    def update(self, sample):
        self.optimizer.zero_grad()
        self.forward(sample).backward()
        self.step()

    def step(self):
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()

    def multiply_adds(self, sample):
        """Multiply-adds of the forward pass; matrix products in fused layers are counted through their unfused form."""
        unfused = torch.backends.cudnn.flags(enabled=False)  # the counter does not see the layers of cuDNN
        with unfused, FlopCounterMode(display=False) as counter, torch.no_grad():
            self.forward(sample)
        return counter.get_total_flops() / 2


def timed(function, samples, clock):
    """The seconds of a function over all samples, until a GPU has finished its work."""
    start = clock()
    for sample in samples:
        function(sample)
    if DEVICE.type == "cuda":
        torch.cuda.synchronize()
    return clock() - start


def peak_on_gpu(trainer, sample):
    """The peak GiB of an update, without what is allocated before it, such as parameters and Adam's state."""
    trainer.update(sample)
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    trainer.update(sample)
    return (torch.cuda.max_memory_allocated() - before) / 2**30


def generator_of(model, task, arguments):
    from fairseq.sequence_generator import SequenceGenerator

    generator = SequenceGenerator([model], task.target_dictionary, beam_size=arguments.beam, max_len_b=20, min_len=20)

    def run(sample):
        model.eval()
        with torch.no_grad():
            generator.generate([model], sample)
        model.train()

    return run


def report(title, unit, work, times, reference, extra):
    print(f"\n{title}: {unit} per second, and the ratio to {reference} of the same round")
    rows = {}
    for arch, ratios in against(times, reference).items():
        rate = work / statistics.median(times[arch])
        row = rows[arch] = dict(
            rate=rate,
            ratio=statistics.median(ratios),
            lowest=min(ratios),
            highest=max(ratios),
            rounds=ratios,
            **extra.get(arch, {}),
        )
        more = "".join(f"  {name} {value:.3f}" for name, value in extra.get(arch, {}).items())
        print(
            f"  {arch:16s} {rate:10.1f}   x{row['ratio']:.3f}  ({row['lowest']:.3f} to {row['highest']:.3f}){more}",
            flush=True,
        )
    return rows


def main():
    arguments = parse()
    try:
        with optional(write_whole, arguments.json) as out:
            measure(arguments, out)
    except UserError as error:
        raise SystemExit(f"--json: {error}") from error


def measure(arguments, out):
    """Print the figures, and write them to a stream, if given."""
    clock = clock_of(arguments)
    task, samples = load(arguments)
    names = list(dict.fromkeys([arguments.reference, *arguments.archs]))
    trainers = {name: Trainer(name, arguments, task) for name in names}
    middle = samples[len(samples) // 2]
    extra = {}
    for name, trainer in trainers.items():
        size = sum(p.numel() for p in trainer.model.parameters()) / 1e6
        extra[name] = {"Mparams": size, "Mmadd/word": trainer.multiply_adds(middle) / middle["ntokens"] / 1e6}
        if DEVICE.type == "cuda":
            extra[name]["peak GiB"] = peak_on_gpu(trainer, middle)
    base = extra[arguments.reference]["Mmadd/word"]
    for row in extra.values():
        row["madd ratio"] = row["Mmadd/word"] / base
    device_name = torch.cuda.get_device_name() if DEVICE.type == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    print(f"{device_name}, torch {torch.__version__}, {arguments.embed}/{arguments.hidden}, {arguments.compute_dtype}")

    words = sum(sample["ntokens"] for sample in samples)
    runs = {name: partial(timed, trainer.update, samples, clock) for name, trainer in trainers.items()}
    training = in_turns(runs, arguments.rounds)
    unit = "target characters" if arguments.characters else "target words"
    figures = {"training": report("training", unit, words, training, arguments.reference, extra)}

    if not arguments.train_only:
        searches = {name: generator_of(trainer.model, task, arguments) for name, trainer in trainers.items()}
        runs = {name: partial(timed, search, [middle], clock) for name, search in searches.items()}
        generation = in_turns(runs, arguments.rounds)
        sentences = middle["nsentences"]
        title = f"generation, beam {arguments.beam}, 20 words a sentence"
        figures["generation"] = report(title, "sentences", sentences, generation, arguments.reference, {})
    if out:
        json.dump({"device": device_name, "arguments": vars(arguments), **figures}, out, indent=1)


if __name__ == "__main__":
    main()
