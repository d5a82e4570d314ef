"""Peak memory of training steps on a CPU, parameters and Adam included, and how it grows with the length.

    python benchmarks/memory.py                                    # ava at its paper's sizes, 100 sentences a batch
    python benchmarks/memory.py --archs ava lstm --lengths 75 150 300

Every model and length has a separate process, which trains for two updates.  The result is the peak memory of the
process, less the peak before the model was built, when all libraries were loaded.
"""

import argparse
import multiprocessing
import resource
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

import torch
import torch._dynamo  # optimizers import it; once here is faster than in every process
from speed import Trainer, load
from speed import parse as parse_speed

from fairseq_attnvariants_cli.options import positive

CPU = torch.device("cpu")


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--archs", nargs="+", default=["ava"])
    parser.add_argument("--lengths", nargs="+", type=positive, default=[75, 150, 300], help="characters of each side")
    parser.add_argument("--batch", type=positive, default=100, help="sentences a batch")
    parser.add_argument("--embed", type=positive, default=256)
    parser.add_argument("--hidden", type=positive, default=1024)
    parser.add_argument("--flags", default="", help='more options of the model: --flags="--recompute-steps 32"')
    return parser.parse_args()


def resident():
    """The largest resident set of this process so far, in bytes."""
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def peak(arch, line):
    """The bytes that two updates take, and the number of parameters; ``line`` has options of speed.py."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as process:
        try:
            return process.submit(measure, arch, line).result()
        except BrokenProcessPool as error:
            what = " ".join([arch, *line])
            raise SystemExit(f"{what}: the process was killed, perhaps for lack of memory") from error


def measure(arch, line):
    """Measure the results of :func:`peak`, in a process that has trained nothing yet."""
    tiny = ["--hidden", "16", "--embed", "16", "--batch", "2", "--length", "5", "--target-length", "5"]
    train("rnnsearch", [*line, *tiny])  # loads libraries, tens of megabytes that do not belong to the model
    before = resident()
    trainer = train(arch, line)
    return resident() - before, sum(parameter.numel() for parameter in trainer.model.parameters())


def train(arch, line):
    """A trainer after two updates."""
    options = parse_speed([*line, "--batches", "1"])
    task, (sample,) = load(options, CPU)
    trainer = Trainer(arch, options, task, CPU)
    for _ in range(2):
        trainer.update(sample)
    return trainer


def main():
    arguments = parse()
    for arch in arguments.archs:
        for length in arguments.lengths:
            line = ["--characters", "--batch", str(arguments.batch), "--length", str(length)]
            line += ["--embed", str(arguments.embed), "--hidden", str(arguments.hidden)]
            line += ["--spread", "0", "--more", f"{arch}=--dropout 0 {arguments.flags}"]
            taken, size = peak(arch, line)
            print(
                f"{arch:12s} {size / 1e6:6.1f} M parameters, {arguments.batch} x {length} characters: "
                f"{taken / 2**30:.2f} GiB",
                flush=True,
            )


if __name__ == "__main__":
    main()
