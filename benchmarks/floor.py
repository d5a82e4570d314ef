"""How far a training update is from the time that its matrix products take alone.

    python benchmarks/floor.py DATA                # a folder made by fairseq-preprocess, widths 256 and 512
    python benchmarks/floor.py --paper-size        # random text, widths 620 and 1000, vocabulary 30,000

takes the options of speed.py.  One update (forward, backward, clipping, Adam) is watched for its matrix products:
which shapes, laid out how, how often.  Then, in turns, the update is timed, and every kind of product alone on numbers
of its own, over and over; the sum of these times is what the machine needs for the products at these shapes.  The
optimizer has no products: its floor is what it must read and write (gradients twice for clipping and once for Adam,
parameters and two moments read and written) at the rate at which the machine copies memory.  The gap is the update
over the sum of both.
"""

import statistics
import sys
import time
from collections import Counter

import torch
from speed import Trainer, load, parse
from tabulate import tabulate
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten
PRODUCTS = {aten.mm, aten.addmm, aten.addmm_, aten.bmm, aten.baddbmm, aten.baddbmm_, aten.mv}
PASSES = 9  # of the optimizer over as many numbers as the parameters are


class Products(TorchDispatchMode):
    """Counts the matrix products of what is run inside, by operator and by the layout of their operands."""

    def __init__(self):
        super().__init__()
        self.seen = Counter()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function.overloadpacket in PRODUCTS:
            operands = tuple((value.dtype, value.shape, value.stride()) for value in args)
            self.seen[function, operands] += 1
        return function(*args, **(kwargs or {}))


def multiply_adds(operands):
    *_, (_, left, _), (_, right, _) = operands
    return left.numel() * (right[-1] if len(right) > 1 else 1)


def seconds(function, clock, least=0.02):
    """Of one call: the mean of as many as take a while."""
    count = 1
    while True:
        start = clock()
        for _ in range(count):
            function()
        passed = clock() - start
        if passed > least:
            return passed / count
        count *= 2 if passed <= 0 else max(2, int(1.2 * least / passed))


def alone(function, operands):
    """The product on numbers of its own."""
    tensors = []
    for dtype, shape, stride in operands:
        tensor = torch.empty_strided(shape, stride, dtype=dtype)
        tensors.append(tensor.normal_(std=0.01) if 0 not in stride else torch.zeros(1, dtype=dtype).expand(shape))
    return lambda: function(*tensors)


def main():
    arguments = parse()
    clock = time.process_time if arguments.cpu_time else time.perf_counter
    task, samples = load(arguments)
    samples = samples[: arguments.batches]
    print(f"{torch.get_num_threads()} threads, torch {torch.__version__}, {arguments.embed}/{arguments.hidden}")
    copied = torch.empty(2**26)
    rows = []
    for arch in arguments.archs:
        trainer = Trainer(arch, arguments, task, torch.device("cpu"))
        numbers = sum(p.numel() for p in trainer.model.parameters())
        trainer.update(samples[0])
        with Products() as products:
            for sample in samples:
                trainer.update(sample)
        runs = {key: alone(*key) for key in products.seen}
        work = 2 * sum(count * multiply_adds(operands) for (_, operands), count in products.seen.items())
        rounds = []
        for turn in range(arguments.rounds):
            start = clock()
            for sample in samples:
                trainer.update(sample)
            update = (clock() - start) / len(samples)
            floor = sum(seconds(run, clock) * products.seen[key] for key, run in runs.items()) / len(samples)
            rate = copied.nbytes * 2 / seconds(copied.clone, clock)
            optimizer = PASSES * numbers * 4 / rate
            rounds.append((update, floor, optimizer, update / (floor + optimizer)))
            print(f"\r{arch}: round {turn + 1} of {arguments.rounds}", end="", file=sys.stderr, flush=True)
        print(file=sys.stderr)
        update, floor, optimizer, gap = map(statistics.median, zip(*rounds))
        gaps = [gap for *_, gap in rounds]
        work /= len(samples)
        calls = sum(products.seen.values()) / len(samples)
        rows.append(
            (arch, numbers / 1e6, work / 1e9, calls, work / floor / 1e9, floor * 1e3, optimizer * 1e3, update * 1e3)
            + (f"{gap:.2f} ({min(gaps):.2f} to {max(gaps):.2f})",)
        )
    headers = ["arch", "M param.", "Gflop", "products", "Gflop/s", "products ms", "optimizer ms", "update ms", "gap"]
    print(tabulate(rows, headers, floatfmt=(None, ".1f", ".1f", ".0f", ".1f", ".0f", ".0f", ".0f")))


if __name__ == "__main__":
    main()
