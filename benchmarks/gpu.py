"""Time training and search on a GPU, and write each measurement at once, as a line of JSON.

    python benchmarks/gpu.py gpu.jsonl --seconds 330   # gpu.sh does this after the tests
    python benchmarks/gpu.py gpu.jsonl --small         # tiny models, to try the program on a CPU
    python benchmarks/gpu_table.py gpu.jsonl           # the table of README.md

A way is an architecture, and after a colon its mode: ``graphs`` (``--cuda-graphs``) or ``compile``.  In each part all
ways take turns on the same batches.  A ratio compares with the stock ``lstm`` in the same round.  Batches for graphs
are padded as with ``--required-seq-len-multiple 4``.  The most important parts come first.  A part that needs more than
the remaining time is left out, and the output names it.
"""

import argparse
import contextlib
import gc
import json
import logging
import statistics
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

import speed
import torch
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.sequence_generator import SequenceGenerator
from fairseq.tasks.fairseq_task import FairseqTask
from fairseq_cli import preprocess, train
from spread import against
from torch.nn import functional as F

from fairseq_attnvariants.architectures.variants import VARIANTS
from fairseq_attnvariants.models.static_search import StaticSearch
from fairseq_attnvariants_cli.options import amount

DEVICE, CUDA = speed.DEVICE, speed.DEVICE.type == "cuda"
FLAGS = {"graphs": ["--cuda-graphs"], "compile": ["--compile"]}
DTYPES = {"float32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
SIZES = {
    "256/512": "--embed 256 --hidden 512 --length 15",
    "620/1000": "--paper-size --length 25",
    "characters": "--embed 256 --hidden 512 --characters --length 65",
    "GNMT v2": "--embed 1024 --hidden 1024 --vocabulary 32320 --length 27 --batch 128",
    "small": "--embed 16 --hidden 32 --vocabulary 60 --batch 6 --length 6",
    "small characters": "--embed 16 --hidden 32 --characters --batch 3 --length 9",
}
WORDS = ["rnnsearch", "dl4mt", "recatt"]
ROUNDS = 5


class Out:
    """The file of measurements, and the remaining time."""

    def __init__(self, path, seconds):
        self.path, self.end = Path(path), time.monotonic() + seconds
        self.path.write_text("")

    @property
    def left(self):
        return self.end - time.monotonic()

    def write(self, **row):
        with self.path.open("a") as lines:
            lines.write(json.dumps(row) + "\n")
        said = {key: round(value, 3) if isinstance(value, float) else value for key, value in row.items()}
        print(*(f"{key}={value}" for key, value in said.items()), flush=True)


def settings(size, *more):
    return speed.parse([*SIZES[size].split(), "--batches", "2", *map(str, more)])


def both_ways(*archs):
    """The reference, and each architecture without and with graphs."""
    return ["lstm", *(way for arch in archs for way in (arch, f"{arch}:graphs"))]


def padded(sample, multiple, pad):
    """Pad a batch as fairseq-train does with ``--required-seq-len-multiple``."""

    def more(tokens):
        return -tokens.size(1) % multiple

    def right(tokens):
        return F.pad(tokens, (0, more(tokens)), value=pad)

    source, previous = (sample["net_input"][name] for name in ("src_tokens", "prev_output_tokens"))
    net_input = dict(src_tokens=F.pad(source, (more(source), 0), value=pad), prev_output_tokens=right(previous))
    return {**sample, "target": right(sample["target"]), "net_input": {**sample["net_input"], **net_input}}


def reset_memory():
    """Free unused memory, reset the peak, and return the GiB that are still reserved."""
    gc.collect()
    if not CUDA:
        return 0.0
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    return torch.cuda.memory_reserved() / 2**30


def memory():
    """The peak of reserved GiB; what graphs reserve does not count as allocated between two runs of a graph."""
    return torch.cuda.max_memory_reserved() / 2**30 if CUDA else 0.0


def trainer_of(way, arguments, task, dtype):
    """A trainer; on a GPU, where kernel launches take time, with PyTorch's fused Adam."""
    how = way.partition(":")[2]
    arguments.more.setdefault(way, []).extend(FLAGS.get(how, []))
    trainer = speed.Trainer(way, arguments, task)
    trainer.model.to(DTYPES[dtype])
    trainer.optimizer = torch.optim.Adam(trainer.model.parameters(), lr=1e-4, fused=True if CUDA else None)
    return trainer


def prepare(out, ways, make, **row):
    """Call ``make`` for each way, and return the results; a failure is written like a measurement."""
    made = {}
    for way in ways:
        try:
            made[way] = make(way)
        except Exception as error:  # the other ways still run
            out.write(**row, way=way, error=f"{type(error).__name__}: {error}"[:300])
    return made


def take_turns(out, runs, samples, rounds, words, extra, **row):
    """Time the ways in turns, and write the measurements."""
    if not runs:
        return
    times = {way: [] for way in runs}
    for _ in range(rounds):
        for way, run in runs.items():
            times[way].append(speed.timed(run, samples[way], time.perf_counter))
    reference = next(iter(times))
    for way, ratios in against(times, reference).items():
        seconds = statistics.median(times[way])
        ms, rate = 1000 * seconds / len(samples[way]), words / seconds
        spread = dict(ratio=statistics.median(ratios), low=min(ratios), high=max(ratios)) if reference == "lstm" else {}
        out.write(**row, way=way, ms=ms, rate=rate, **spread, **extra[way])


def training(out, size, ways, dtype="float32", more=(), flags=(), rounds=ROUNDS):
    """Measure updates (forward, backward, clipping and Adam) and their peak memory."""
    arguments = settings(size, *more)
    arguments.more = {way: list(flags) for way in ways}
    task, samples = speed.load(arguments)
    fixed = [padded(sample, 4, task.target_dictionary.pad()) for sample in samples]
    own, extra = {}, {}

    def make(way):
        before = reset_memory()
        trainer = trainer_of(way, arguments, task, dtype)
        own[way] = fixed if way.endswith("graphs") else samples
        begin = time.perf_counter()
        for turn in range(3):  # a graph is captured when its shape occurs again
            if turn == 2:
                reset_memory()
            speed.timed(trainer.update, own[way], time.perf_counter)
        extra[way] = dict(gib=memory() - before, first_seconds=time.perf_counter() - begin)
        return trainer

    row = dict(part="training", size=size, batch=arguments.batch, dtype=dtype)
    trainers = prepare(out, ways, make, **row)
    words = sum(sample["ntokens"] for sample in samples)
    source = sum(int(sample["net_input"]["src_lengths"].sum()) for sample in samples)
    for way in trainers:
        extra[way]["tokens_a_word"] = (words + source) / words  # of both sides, as NVIDIA counts them
    runs = {way: trainer.update for way, trainer in trainers.items()}
    take_turns(out, runs, own, rounds, words, extra, **row)
    return trainers, own


def profile(out, size, ways, more=()):
    """Measure how long the GPU is busy in an update, and with how many kernels."""
    nowhere = SimpleNamespace(write=lambda **row: None)
    trainers, samples = training(nowhere, size, ways, more=more, rounds=3)
    for way, trainer in trainers.items():
        sample = samples[way][-1]
        ms = 1000 * statistics.median(speed.timed(trainer.update, [sample], time.perf_counter) for _ in range(5))
        with torch.profiler.profile(
            activities=[torch.profiler.ProfilerActivity.CUDA if CUDA else torch.profiler.ProfilerActivity.CPU]
        ) as found:
            speed.timed(trainer.update, [sample], time.perf_counter)
        kernels = [event for event in found.events() if not CUDA or event.device_type == torch.autograd.DeviceType.CUDA]
        busy = sum(event.time_range.elapsed_us() for event in kernels) / 1000 if CUDA else 0.0
        row = dict(ms=ms, busy_ms=busy, share=busy / ms, kernels=len(kernels))
        out.write(part="profile", size=size, way=way, **row)


def search(out, size, ways, batch, words=20, rounds=ROUNDS):
    """Measure fairseq's search and the static search, with beam 5 and hypotheses of ``words`` words."""
    count = 2 if batch > 1 else 8  # single sentences are of several lengths
    arguments = settings(size, "--batches", count, *(["--batch", 1] if batch == 1 else []))
    task, samples = speed.load(arguments)
    extra = {}

    def make(way):
        arch, _, how = way.partition(":")
        model = speed.build(arch, arguments, task)[0].to(DEVICE).eval()
        options = argparse.Namespace(beam=5, max_len_b=words, min_len=words)
        kind = StaticSearch if how == "graphs" else SequenceGenerator
        generator = FairseqTask.build_generator(
            SimpleNamespace(target_dictionary=task.target_dictionary), [model], options, kind
        )

        def run(sample):
            generator.generate([model], sample)

        before = reset_memory()
        first = speed.timed(run, samples, time.perf_counter)  # with captures
        second = speed.timed(run, samples, time.perf_counter)
        extra[way] = dict(search=type(generator).__name__, gib=memory() - before)
        extra[way].update(first_ms=1000 * first / count, second_ms=1000 * second / count)
        return run

    row = dict(part="search", size=size, batch=arguments.batch, dtype="float32")
    runs = prepare(out, ways, make, **row)
    sentences = sum(sample["nsentences"] for sample in samples)
    take_turns(out, runs, dict.fromkeys(runs, samples), rounds, sentences, extra, **row)


class Rates(logging.Handler):
    """Collects the updates and words per second that fairseq-train logs."""

    def __init__(self):
        super().__init__()
        self.found = []

    def emit(self, record):
        with contextlib.suppress(ValueError, AttributeError):
            values = json.loads(record.getMessage())
            if "ups" in values:
                self.found.append((float(values["ups"]), float(values["wps"])))


def binarised(folder, arguments):
    """Write random text, binarise it with fairseq-preprocess, and return the folder."""
    dictionary, *sides = speed.sample_text(arguments)
    for side, sentences in zip(("xx", "yy"), sides):
        lines = [" ".join(dictionary[token] for token in sentence[:-1].tolist()) + "\n" for sentence in sentences]
        (folder / f"train.{side}").write_text("".join(lines))
    text = folder / "train"
    line = ["-s", "xx", "-t", "yy", "--trainpref", text, "--validpref", text, "--destdir", folder / "bin"]
    line.append("--joined-dictionary")
    preprocess.main(options.get_preprocessing_parser().parse_args([*map(str, line)]))
    return folder / "bin"


# name: flags of fairseq-train; the words graphs and bf16 in a name set these options, too
TRAININGS = {
    "lstm": ["--encoder-bidirectional"],
    "rnnsearch": [],
    "rnnsearch:graphs": [],
    "rnnsearch:graphs, fused Adam": ["--optimizer", "fused_adam"],
    "lstm:fused Adam": ["--encoder-bidirectional", "--optimizer", "fused_adam"],
    "dl4mt:graphs": [],
    "rnnsearch:fused Adam": ["--optimizer", "fused_adam"],
    "lstm:fp16": ["--encoder-bidirectional", "--fp16"],
    "rnnsearch:fp16": ["--fp16"],
    "rnnsearch:graphs, fp16": ["--fp16"],
    "lstm:bf16": ["--encoder-bidirectional"],
    "rnnsearch:graphs, bf16": [],
    "rnnsearch:graphs, amp": ["--amp"],
    "rnnsearch:graphs, compute-dtype": ["--compute-dtype", "bfloat16"],
}


def fairseq_train(out, size, ways, batches=24, epochs=5):
    """Measure the loop of fairseq-train by the log of the last two epochs, when all graphs are captured."""
    arguments = settings(size, "--batches", batches)
    log = logging.getLogger("fairseq.logging.progress_bar")
    row = dict(part="fairseq-train", size=size, batch=arguments.batch)
    with tempfile.TemporaryDirectory() as folder:
        data = binarised(Path(folder), arguments)

        def make(way):
            arch, _, how = way.partition(":")
            graphs = "graphs" in how
            line = [data, "--user-dir", speed.USER_DIR, "--arch", arch, "--optimizer", "adam", "--lr", "1e-4"]
            for side in ("encoder", "decoder"):
                line += [f"--{side}-embed-dim", arguments.embed, f"--{side}-hidden-size", arguments.hidden]
            line += ["--decoder-out-embed-dim", arguments.embed] if arch == "lstm" else []
            line += ["--clip-norm", "1", "--dropout", "0.3", "--batch-size", arguments.batch, "--max-epoch", epochs]
            line += ["--criterion", "label_smoothed_cross_entropy", "--label-smoothing", "0.1", "--save-dir", folder]
            line += ["--no-save", "--disable-validation", "--log-format", "json", "--log-interval", batches // 2]
            line += ["--num-workers", "1", "--distributed-world-size", "1", *([] if CUDA else ["--cpu"])]
            line += ["--cuda-graphs", "--required-seq-len-multiple", "4"] if graphs else []
            parsed = options.parse_args_and_arch(options.get_training_parser(), [*map(str, line), *TRAININGS[way]])
            cfg = convert_namespace_to_omegaconf(parsed)
            cfg.common.bf16 = "bf16" in how
            rates = Rates()
            log.addHandler(rates)
            before = reset_memory()
            try:
                train.main(cfg)
            finally:
                log.removeHandler(rates)
            ups, wps = zip(*rates.found[batches // (batches // 2) * (epochs - 2) :])  # the last two epochs
            out.write(
                **row, way=way, ms=1000 / statistics.median(ups), rate=statistics.median(wps), gib=memory() - before
            )

        prepare(out, ways, make, **row)


def parts(small):
    """The name of each part, the most seconds that it needs, and its function; the most important part first."""
    if small:
        deep = ["--encoder-layers", "3", "--decoder-layers", "3"]
        few = ["lstm", "rnnsearch:graphs", "rnnsearch:fused Adam"]
        return [
            ("training", 0, lambda out: training(out, "small", both_ways(*WORDS), rounds=1)),
            ("training, bf16", 0, lambda out: training(out, "small", both_ways("rnnsearch"), "bf16", rounds=1)),
            ("characters", 0, lambda out: training(out, "small characters", both_ways("ava"), rounds=1)),
            ("search", 0, lambda out: search(out, "small", both_ways("rnnsearch"), 6, words=6, rounds=1)),
            ("search, one", 0, lambda out: search(out, "small", both_ways("rnnsearch"), 1, words=6, rounds=1)),
            ("fairseq-train", 0, lambda out: fairseq_train(out, "small", few, 4, 3)),
            ("profile", 0, lambda out: profile(out, "small", both_ways("rnnsearch"))),
            ("GNMT v2", 0, lambda out: training(out, "small", gnmt(), flags=deep, rounds=1)),
        ]  # fmt: skip
    paper, large = "620/1000", ["--batch", 320]
    deep = ["--encoder-layers", "4", "--decoder-layers", "4"]
    first, rest = [*TRAININGS][:6], [*TRAININGS][6:]
    return [
        ("training 256/512", 40, lambda out: training(out, "256/512", both_ways(*WORDS))),
        ("search 256/512, 80", 40, lambda out: search(out, "256/512", both_ways(*WORDS), 80)),
        ("search 256/512, 1", 30, lambda out: search(out, "256/512", both_ways("rnnsearch", "dl4mt"), 1)),
        ("training 620/1000, 80", 40, lambda out: training(out, paper, both_ways(*WORDS))),
        ("fairseq-train", 60, lambda out: fairseq_train(out, "256/512", first)),
        ("characters", 30, lambda out: training(out, "characters", both_ways("ava"), rounds=3)),
        ("training 256/512, fp16", 30, lambda out: training(out, "256/512", both_ways(*WORDS[:2]), "fp16", rounds=3)),
        ("training 620/1000, 320", 40, lambda out: training(out, paper, both_ways(*WORDS[:2]), more=large, rounds=3)),
        ("profile", 30, lambda out: profile(out, "256/512", both_ways(*WORDS[:2]))),
        ("GNMT v2", 30, lambda out: training(out, "GNMT v2", gnmt(), "fp16", flags=deep, rounds=3)),
        ("training 620/1000, fp16", 35, lambda out: training(out, paper, both_ways(*WORDS[:2]), "fp16", rounds=3)),
        ("fairseq-train, more", 80, lambda out: fairseq_train(out, "256/512", rest)),
        ("search 620/1000", 40, lambda out: search(out, paper, both_ways(*WORDS[:2]), 80, rounds=3)),
        ("training 256/512, bf16", 30, lambda out: training(out, "256/512", both_ways(*WORDS[:2]), "bf16", rounds=3)),
        ("training 620/1000, bf16", 35, lambda out: training(out, paper, both_ways(*WORDS[:2]), "bf16", rounds=3)),
        ("profile 620/1000", 40, lambda out: profile(out, paper, both_ways(*WORDS[:2]), large)),
        ("compile", 90, lambda out: training(out, "256/512", ["lstm", "rnnsearch:compile"], rounds=3)),
    ]  # fmt: skip


def gnmt():
    """The ways of GNMT, without the stock lstm, which has one layer at these sizes and not several."""
    return [way for name in VARIANTS if name.startswith("gnmt") for way in (name, f"{name}:graphs")]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", metavar="FILE")
    parser.add_argument("--seconds", type=amount, default=330, help="stop after these (default: %(default)s)")
    parser.add_argument("--small", action="store_true", help="tiny models, to try the program")
    own = parser.parse_args()
    StaticSearch.device_type = DEVICE.type
    try:
        out = Out(own.out, own.seconds)
    except OSError as error:
        parser.error(f"FILE {own.out}: {error.strerror}")
    device = torch.cuda.get_device_name() if CUDA else "CPU"
    out.write(part="machine", device=device, torch=torch.__version__, cuda=torch.version.cuda, small=own.small)
    for name, seconds, measure in parts(own.small):
        if out.left < seconds:
            out.write(part="left out", name=name, left=out.left, needs=seconds)
            continue
        begin = time.monotonic()
        try:
            measure(out)
        except Exception as error:  # the other parts still run
            out.write(part="failed", name=name, error=f"{type(error).__name__}: {error}"[:300])
        gc.collect()
        if CUDA:
            torch.cuda.empty_cache()
        out.write(part="took", name=name, seconds=time.monotonic() - begin, allowed=seconds)


if __name__ == "__main__":
    main()
