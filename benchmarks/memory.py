"""Peak memory of training steps on a CPU, parameters and Adam included, and how it grows with the length.

    python benchmarks/memory.py                                    # ava at its paper's sizes, 100 sentences a batch
    python benchmarks/memory.py --archs ava lstm --lengths 75 150 300

Every model and length has a process of its own, which trains for two updates and tells the largest amount of memory
that it ever held, less what it held before the model was built.
"""

import argparse
import multiprocessing
import resource
import sys


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--archs", nargs="+", default=["ava"])
    parser.add_argument("--lengths", nargs="+", type=int, default=[75, 150, 300], help="characters a side")
    parser.add_argument("--batch", type=int, default=100, help="sentences a batch")
    parser.add_argument("--embed", type=int, default=256)
    parser.add_argument("--hidden", type=int, default=1024)
    return parser.parse_args()


def resident():
    """The largest resident set of this process so far, in GiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def measure(arch, length, arguments, answer):
    """Train for two updates; puts the peak, and the peak of everything before, on a queue."""
    sys.argv = ["speed.py", "--characters", "--batches", "1", "--batch", str(arguments.batch), "--length", str(length)]
    sys.argv += ["--embed", str(arguments.embed), "--hidden", str(arguments.hidden), "--spread", "0"]
    sys.argv += ["--more", f"{arch}=--dropout 0"]
    import torch
    from speed import Trainer, load
    from speed import parse as parse_speed

    options = parse_speed()
    task, (sample,) = load(options)
    before = resident()
    trainer = Trainer(arch, options, task, torch.device("cpu"))
    for _ in range(2):
        trainer.update(sample)
    answer.put((resident() - before, sum(p.numel() for p in trainer.model.parameters()) / 1e6))


def main():
    arguments = parse()
    context = multiprocessing.get_context("spawn")
    for arch in arguments.archs:
        for length in arguments.lengths:
            answer = context.Queue()
            process = context.Process(target=measure, args=(arch, length, arguments, answer))
            process.start()
            process.join()
            if process.exitcode:
                raise SystemExit(f"{arch} with {length} characters ended with exit status {process.exitcode}")
            peak, millions = answer.get()
            print(f"{arch:12s} {millions:6.1f} M parameters, {arguments.batch} x {length} characters: {peak:.2f} GiB")


if __name__ == "__main__":
    main()
