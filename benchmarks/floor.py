"""The time of a training update against the least time for its matrix products and optimizer, on a CPU.

    python benchmarks/floor.py DATA                # a folder made by fairseq-preprocess, widths 256 and 512
    python benchmarks/floor.py --paper-size        # random text, widths 620 and 1000, vocabulary 30,000

It takes most options of speed.py. First it records the matrix products of updates (forward, backward, clipping, Adam):
their shapes, memory layouts and numbers. Then, in turns, it times the updates, and each kind of product alone on its
own tensors, repeatedly. The sum of the product times is the floor of the products. The optimizer has no products: its
floor is the time to read and write its numbers (for the gradient's norm, clipping, and Adam's four numbers per
parameter) at the rate at which the machine copies memory. The gap is the time of an update divided by the sum of both
floors. ``step`` is the time of PyTorch's clipping and Adam, ``loss`` that of fairseq's criterion, forward and backward,
on given logits. Neither is code of this package.
"""

import statistics
from collections import Counter

import torch
from speed import Trainer, clock_of, load, parse, timed
from spread import spread
from tabulate import tabulate
from torch.utils._python_dispatch import TorchDispatchMode
from tqdm import tqdm

CPU = torch.device("cpu")
aten = torch.ops.aten
PRODUCTS = {aten.mm, aten.addmm, aten.addmm_, aten.bmm, aten.baddbmm, aten.baddbmm_, aten.mv, aten.addmv_}
PASSES = 1 + 2 + 4 + 3  # read for the norm; read and write to clip; Adam reads four numbers and writes three


class Products(TorchDispatchMode):
    """Counts the matrix products inside its block, by operator and by type, shape and layout of the operands."""

    def __init__(self):
        super().__init__()
        self.seen = Counter()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function.overloadpacket in PRODUCTS:
            operands = tuple((value.dtype, value.shape, value.stride()) for value in args)
            self.seen[function, operands] += 1
        return function(*args, **(kwargs or {}))


def operations(operands):
    """The number of floating-point operations in a product of the last two operands."""
    *_, (_, left, _), (_, right, _) = operands
    return 2 * left.numel() * (right[-1] if len(right) > 1 else 1)


def seconds(function, clock, least=0.02):
    """The time of one call: the mean of enough calls to take more than ``least`` seconds."""
    count = 1
    while True:
        start = clock()
        for _ in range(count):
            function()
        passed = clock() - start
        if passed > least:
            return passed / count
        count *= 2


def alone(function, operands):
    """A function that computes the product on new tensors of the same layout."""
    tensors = []
    for dtype, shape, stride in operands:
        tensor = torch.empty_strided(shape, stride, dtype=dtype)
        tensors.append(torch.zeros(1, dtype=dtype).expand(shape) if 0 in stride else tensor.normal_(std=0.01))
    return lambda: function(*tensors)


def loss_alone(trainer, sample):
    """A function that computes the criterion, forward and backward, on the model's logits for a sample."""
    with torch.no_grad():
        logits, extra = trainer.model(**sample["net_input"])

    def run():
        leaf = logits.detach().requires_grad_()
        trainer.criterion.compute_loss(trainer.model, (leaf, extra), sample)[0].backward()

    return run


def main():
    arguments = parse(about=__doc__, without=["--reference", "--json", "--beam", "--train-only"])
    clock = clock_of(arguments)
    task, samples = load(arguments, CPU)
    here, there = torch.zeros(2, 2**25)
    rows = []
    for arch in arguments.archs:
        trainer = Trainer(arch, arguments, task, CPU)
        numbers = sum(p.numel() for p in trainer.model.parameters())
        trainer.update(samples[0])
        with Products() as products:
            for sample in samples:
                trainer.update(sample)
        runs = {key: alone(*key) for key in products.seen}
        losses = [loss_alone(trainer, sample) for sample in samples]
        rounds = []
        for _ in tqdm(range(arguments.rounds), arch, leave=False):
            update = timed(trainer.update, samples, clock) / len(samples)
            floor = sum(seconds(run, clock) * products.seen[key] for key, run in runs.items()) / len(samples)
            loss = sum(seconds(run, clock) for run in losses) / len(samples)
            step = seconds(trainer.step, clock)
            optimizer = PASSES * numbers * 4 / (2 * here.nbytes / seconds(lambda: there.copy_(here), clock))
            rounds.append((floor, optimizer, update, step, loss, update / (floor + optimizer)))
        floor, optimizer, update, step, loss, _ = map(statistics.median, zip(*rounds))
        gaps = [gap for *_, gap in rounds]
        work = sum(count * operations(operands) for (_, operands), count in products.seen.items()) / len(samples)
        calls = sum(products.seen.values()) / len(samples)
        times = (1e3 * value for value in (floor, optimizer, update, step, loss))
        rows.append((arch, numbers / 1e6, work / 1e9, calls, work / floor / 1e9, *times, spread(gaps)))
    print(f"{torch.get_num_threads()} threads, torch {torch.__version__}, {arguments.embed}/{arguments.hidden}")
    headers = ["", "M param.", "Gflop", "products", "Gflop/s", "products ms", "optimizer ms", "update ms"]
    headers += ["step ms", "loss ms"]
    formats = ("", ".1f", ".1f", ".0f", ".0f", ".0f", ".0f", ".0f", ".0f", ".0f")
    print(tabulate(rows, [*headers, "gap"], tablefmt="github", floatfmt=formats))


if __name__ == "__main__":
    main()
