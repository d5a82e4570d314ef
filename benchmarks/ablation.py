"""The gain from each fast way of computing: updates and searches with it and, in turn, without it.

    OMP_NUM_THREADS=1 python benchmarks/ablation.py --cpu-time --rounds 5 --batches 1 --archs rnnsearch dl4mt
    OMP_NUM_THREADS=1 python benchmarks/ablation.py --cpu-time --rounds 5 --batches 1 --compute-dtype bfloat16

It takes most options of speed.py.  It prints the time without a fast way divided by the time with it: the median over
the rounds, the smallest and the largest.  Below 1 the fast way costs time, and its use is to save memory.
"""

import sys
from contextlib import ExitStack
from functools import partial
from types import SimpleNamespace
from unittest.mock import patch

import torch
from speed import Trainer, clock_of, generator_of, load, parse, timed
from spread import in_turns, spread
from tabulate import tabulate
from torch import nn
from torch.nn.utils.rnn import PackedSequence
from torch.utils.checkpoint import checkpoint

from fairseq_attnvariants.architectures.variants import VARIANTS
from fairseq_attnvariants.models import attention_rnn
from fairseq_attnvariants.nn import additive, layers
from fairseq_attnvariants.nn.attention import AdditiveAttention
from fairseq_attnvariants.nn.fast import deferred, energies
from fairseq_attnvariants.nn.state import reorder
from fairseq_attnvariants.nn.transition import Transition


def pytorchs(self, data, sizes, initial):
    """Compute PyTorch's layer, with the interface of ``FusedLayer.forward``."""
    parts = tuple(part.contiguous() for part in initial.chunk(self.kind.vectors, dim=-1))
    packed = PackedSequence(data, torch.tensor(sizes))
    outputs, final = self.kernels.forward(self, packed, parts if len(parts) > 1 else parts[0])
    return outputs.data, torch.cat(final, dim=-1) if len(parts) > 1 else final


def checkpointed(query, keys, vector, *features):
    """Additive energies that also keep only their arguments, by PyTorch's ``checkpoint``."""
    arguments = query, keys, vector, *zip(features[::2], features[1::2])
    return checkpoint(additive.additive_energies, *arguments, use_reentrant=False, preserve_rng_state=False)


TANH = [
    (additive, "tanh_product", lambda values, vector: values.tanh_() @ vector),
    (energies, "tanh_", torch.Tensor.tanh_),
]
# by name: the attributes to replace, and their replacements
UPDATES = {
    "gradients formed after the loop": [(deferred, "AVAILABLE", False)],
    "energies' own backward pass": [(energies, "_Energies", SimpleNamespace(apply=checkpointed))],
    "energies by blocks of sentences": [(energies, "BLOCK", 2**62)],
    "attention's tanh as a sigmoid": TANH,
    "sweeps over the source": [(layers.FusedLayer, "forward", pytorchs)],
    "all steps at once": [(Transition, "independent", False)],
}
SEARCHES = {
    "attention's tanh as a sigmoid, in search": TANH,
    "annotations projected once": [(attention_rnn, "for_hypotheses", lambda *same: same[:3])],  # the last is a width
    "memory shared by hypotheses": [(attention_rnn, "serve", lambda memory, _, order: reorder(memory, order))],
}


ADDITIVE = [name for name in (*UPDATES, *SEARCHES) if name.startswith(("energies", "attention's tanh"))]


def chosen(switches, kept):
    """The switches that apply to an architecture: those that ``kept`` does not exclude."""
    return {name: patches for name, patches in switches.items() if kept.get(name, True)}


def without(patches, run):
    """Call ``run`` with the patches."""
    with ExitStack() as patched:
        for target, attribute, value in patches:
            patched.enter_context(patch.object(target, attribute, value))
        return run()


def ratios(run, switches, rounds):
    """The time without each switch divided by the time with all, for each round."""
    times = in_turns({"all": run, **{name: partial(without, switches[name], run) for name in switches}}, rounds)
    return {name: [one / whole for one, whole in zip(times[name], times["all"])] for name in switches}


def main():
    arguments = parse(about=__doc__, without=["--reference", "--json"])
    clock = clock_of(arguments)
    task, samples = load(arguments)
    for arch in arguments.archs:
        if arch not in VARIANTS:
            message = f"ablation.py: --archs: {arch} is not of this package, and has no fast ways: leave it out"
            print(message, file=sys.stderr)
            sys.exit(2)
    rows = []
    for arch in arguments.archs:
        trainer = Trainer(arch, arguments, task)
        kept = {
            "sweeps over the source": any(isinstance(module, nn.RNNBase) for module in trainer.model.modules()),
            "all steps at once": trainer.model.decoder.network.transition.independent,
        }
        additive = any(isinstance(module, AdditiveAttention) for module in trainer.model.modules())
        kept |= dict.fromkeys(ADDITIVE, additive)
        found = ratios(partial(timed, trainer.update, samples, clock), chosen(UPDATES, kept), arguments.rounds)
        if not arguments.train_only:
            search = generator_of(trainer.model, task, arguments)
            run = partial(timed, search, [samples[len(samples) // 2]], clock)
            found.update(ratios(run, chosen(SEARCHES, kept), arguments.rounds))
        rows += [(arch, name, spread(values)) for name, values in found.items()]
    print(f"\n{arguments.embed}/{arguments.hidden}, {arguments.compute_dtype}, torch {torch.__version__}")
    print(tabulate(rows, ["architecture", "without", "takes so many times as long"], tablefmt="github"))


if __name__ == "__main__":
    main()
