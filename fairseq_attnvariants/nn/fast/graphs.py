"""The decoder's steps and their gradients as a pair of CUDA graphs, with one launch each.

A graph replays kernels that were launched once, for the same shapes and at the same addresses.  So there is a pair
for each set of shapes.  All pairs share memory.  The inputs of a pair are copied there, and its outputs are copied out
before another pair runs.  The equations are those of :mod:`..decoder`.
"""

import logging
import traceback
import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from ..state import each, filled, tensors
from ..twins import shallow
from . import compiling, transforming
from .capture import RECORDERS
from .deferred import AVAILABLE

logger = logging.getLogger(__name__)

MOST = 64  # the largest number of pairs that are kept
ALIGNED = 512  # bytes; tensors of a block begin at multiples of it


class Region:
    """Tensors with given shapes and types, one after the other in a block of memory."""

    def __init__(self, block: Tensor, like: Iterable[Tensor]):
        self.block = block
        self.tensors: list[Tensor] = []
        start = block.storage_offset()
        for one in like:
            own: Any = torch.empty(0, dtype=one.dtype, device=block.device)
            strides = torch.empty(one.shape, device="meta").stride()
            # not views of the block: views share one version, by which autograd detects overwriting
            self.tensors.append(own.set_(block.untyped_storage(), start // one.element_size(), one.shape, strides))
            start += room(one)

    def fill(self, values: Iterable[Tensor | None]) -> None:
        """Copy values into the tensors, and zeros for a value of None."""
        for own, value in zip(self.tensors, values):
            own.zero_() if value is None else own.copy_(value)

    def copies(self) -> list[Tensor]:
        """Return copies of the tensors in separate memory, by one copy of the block."""
        return Region(self.block.clone(), self.tensors).tensors


class Pair:
    """The graphs of one set of shapes, forward and backward, with their inputs and outputs.

    Raises:
        Exception: the graphs cannot be captured.
    """

    def __init__(self, graphs: "Graphs", entries: Any):
        recorder, given = graphs.recorder, tensors(entries)
        # the parameters would sum up gradients by hooks and on streams outside the graph
        aliases = {own: nn.Parameter(own.detach(), own.requires_grad) for own in graphs.parameters}
        self.network, self.parameters = aliased(graphs.network, aliases), [*aliases.values()]
        self.entries = each(lambda one: one.detach().requires_grad_(one.requires_grad), entries)
        self.wanted = [place for place, one in enumerate(self.read) if one.requires_grad]
        with torch.random.fork_rng(recorder.devices):  # dropout here does not advance the generators
            with recorder.trial():
                like = self.tried(recorder)
            self.inputs, self.outputs, self.seeds, *self.found = graphs.regions(like)
            self.inputs.fill(map(torch.detach, given))
            for own, one in zip(self.inputs.tensors, given):
                own.requires_grad_(one.requires_grad)
            self.entries = filled(self.entries, self.inputs.tensors)
            self.ahead = recorder.capture(self.launch)
            self.made = filled(self.decoded, self.outputs.tensors)
            self.back = recorder.capture(self.launch_back)

    @property
    def read(self) -> list[Tensor]:
        """The leaves of the computation: the inputs and the parameters."""
        return [*tensors(self.entries), *self.parameters]

    def tried(self, recorder: Any) -> list[list[Tensor]]:
        """Run once; return inputs, outputs, differentiable outputs, and gradients of inputs and of parameters.

        The returned tensors have no values.
        """
        before, made, given = recorder.random_state(), self.forward(), tensors(self.entries)
        if self.network.recompute_steps and not torch.equal(before, recorder.random_state()):
            raise RuntimeError("--recompute-steps would recompute steps with other dropout than they had")
        if {*leaves(made)} - {*self.read}:
            raise RuntimeError("something is trained that is no parameter of the decoder's")
        self.differentiable = [one.requires_grad for one in made]
        seeded = [one for one in made if one.requires_grad]
        found = dict(zip(self.wanted, self.backward([*map(torch.zeros_like, seeded)])))
        self.wanted = [place for place in self.wanted if found[place] is not None]
        gradients: tuple[list[Tensor], list[Tensor]] = [], []  # separate: gradients of parameters live longer
        for place in self.wanted:
            gradients[place >= len(given)].append(found[place])
        return [[torch.empty_like(one, device="meta") for one in kind] for kind in (given, made, seeded, *gradients)]

    def forward(self) -> list[Tensor]:
        """Run the steps."""
        with torch.enable_grad():
            # views: autocast would cast a leaf once for all steps, and sum its gradients in few bits
            decoded = self.network(*each(lambda one: one.view_as(one), self.entries))
        several = self.entries[0].size(1) > 1  # then training does not read the last state
        self.decoded = decoded._replace(state=each(torch.detach, decoded.state)) if several else decoded
        return tensors(self.decoded)

    def backward(self, seeds: Sequence[Tensor]) -> Sequence[Any]:
        """Return the wanted gradients from the gradients of the outputs, and drop the steps."""
        made, read = [one for one in tensors(self.decoded) if one.requires_grad], self.read
        self.decoded = None
        with torch.autocast(made[0].device.type, enabled=False):  # an update runs the backward pass outside autocast
            return torch.autograd.grad(made, [read[place] for place in self.wanted], seeds, allow_unused=True)

    def launch(self) -> None:
        """Launch the kernels of the forward graph."""
        with torch.no_grad():
            self.outputs.fill(self.forward())

    def launch_back(self) -> None:
        """Launch the kernels of the backward graph."""
        found = iter(self.backward(self.seeds.tensors))
        for region in self.found:
            region.fill([next(found) for _ in region.tensors])


class Replay(Function):
    """The decoder's steps, by a pair of graphs."""

    @staticmethod
    def forward(ctx: Any, graphs: "Graphs", pair: Pair, *read: Tensor) -> Any:
        ctx.set_materialize_grads(False)
        ctx.graphs, ctx.pair, ctx.count = graphs, pair, len(read)
        graphs.waiting.add(ctx)
        pair.inputs.fill(read)
        pair.ahead.replay()
        made = pair.outputs.copies()
        ctx.mark_non_differentiable(*(one for one, seeded in zip(made, pair.differentiable) if not seeded))
        return tuple(made)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor | None) -> Any:
        graphs, pair = ctx.graphs, ctx.pair
        if ctx not in graphs.waiting:
            raise RuntimeError("with --cuda-graphs a pass forward has one backward pass: leave it out for a second one")
        pair.seeds.fill(one for one, seeded in zip(gradients, pair.differentiable) if seeded)
        pair.back.replay()
        graphs.waiting.discard(ctx)
        found = dict(zip(pair.wanted, [one for region in pair.found for one in region.copies()]))
        return (None, None, *(found.get(place) for place in range(ctx.count)))


class Graphs:
    """Runs a decoder in training: normally, or by graphs when the same shapes come again.

    It runs normally for shapes that come for the first time, for shapes beyond the :data:`MOST` captured ones, for new
    shapes after a failed capture, and for a forward pass before the backward pass of another one.
    """

    def __init__(self, network: nn.Module, recorder: Any):
        self.network, self.recorder = network, recorder
        self.parameters: list[nn.Parameter] = []
        self.addresses: list[Any] = []
        self.seen: set[str] = set()
        self.pairs: dict[str, Pair] = {}
        self.failed = False
        self.waiting: Any = weakref.WeakSet()
        """the forward pass whose backward pass is still to come; until then it owns the shared memory"""
        self.block: Tensor | None = None

    def __reduce__(self) -> Any:
        """Copy a model without its graphs."""
        return type(None), ()

    def __call__(self, *entries: Any) -> Any:
        """Run the decoder, as :meth:`~..decoder.Decoder.forward` does."""
        training = self.network.training and torch.is_grad_enabled() and not compiling() and not transforming()
        pair = self.pair(entries) if training and not self.waiting else None
        if pair is None:
            return self.network(*entries)
        made: Any = Replay.apply(self, pair, *tensors(entries), *self.parameters)  # type: ignore[no-untyped-call]
        return filled(pair.made, made)

    def pair(self, entries: Any) -> Pair | None:
        """Return the graphs for these inputs, captured when their shapes come for the second time, or None."""
        parameters = [*self.network.parameters()]
        addresses = [(one.data_ptr(), one.dtype, one.requires_grad) for one in parameters]
        if addresses != self.addresses:
            self.parameters, self.addresses = parameters, addresses
            self.pairs.clear()
            self.seen.clear()
        try:
            key = f"{casting(self.recorder.device)} {each(kind, entries)}"
            if key in self.seen and key not in self.pairs and len(self.pairs) < MOST and not self.failed:
                self.pairs[key] = Pair(self, entries)
        except Exception as error:
            self.failed = True
            logger.warning(
                f"--cuda-graphs: no further graphs are captured, and training continues without: "
                f"{culprit(error)}{error}"
            )
            return None
        self.seen.add(key)
        return self.pairs.get(key)

    def regions(self, like: Sequence[Sequence[Tensor]]) -> list[Region]:
        """Return groups of tensors in the shared memory of all pairs."""
        sizes = [sum(map(room, group)) for group in like]
        if self.block is None or len(self.block) < sum(sizes):  # earlier pairs keep the smaller block
            self.block = torch.empty(sum(sizes), dtype=torch.uint8, device=self.recorder.device)
        return [*map(Region, self.block[: sum(sizes)].split(sizes), like)]


def graphs_for(network: nn.Module, device: torch.device) -> Graphs | None:
    """Return the graphs of a decoder on a device; None, with a warning, if graphs are not available."""
    if device.type in RECORDERS and AVAILABLE:
        return Graphs(network, RECORDERS[device.type](device))
    why = f"it needs torch 2.4, not {torch.__version__}" if device.type in RECORDERS else "there is no GPU here"
    logger.warning(f"--cuda-graphs changes nothing: {why}")
    return None


def aliased(module: Any, aliases: Mapping[nn.Parameter, nn.Parameter]) -> Any:
    """Return a copy of a module and its submodules, with aliases of the parameters."""
    copied: Any = shallow(module)
    copied._parameters = {name: None if own is None else aliases[own] for name, own in module._parameters.items()}
    copied._modules = {name: None if part is None else aliased(part, aliases) for name, part in module._modules.items()}
    if isinstance(copied, nn.RNNBase):
        copied.__dict__["flatten_parameters"] = lambda: None  # it would give the aliases separate memory
    return copied


def kind(one: Tensor) -> tuple[Any, ...]:
    """Return the properties of a tensor that a graph depends on."""
    return tuple(one.shape), one.dtype, one.requires_grad


def casting(device: torch.device) -> torch.dtype | None:
    """Return the number type of autocast; None outside autocast."""
    return torch.get_autocast_dtype(device.type) if torch.is_autocast_enabled(device.type) else None


def room(one: Tensor) -> int:
    """Return the number of bytes that a tensor takes in a block."""
    return -(-one.numel() * one.element_size() // ALIGNED) * ALIGNED


def leaves(made: Iterable[Tensor]) -> list[Tensor]:
    """Return the leaves to which a backward pass through the operations of these tensors would give a gradient."""
    nodes: list[Any] = [one.grad_fn for one in made]
    seen, found = {None}, []
    while nodes:
        node = nodes.pop()
        if node not in seen:
            seen.add(node)
            nodes += [further for further, _ in node.next_functions]
            if hasattr(node, "variable"):
                found.append(node.variable)
    return found


def culprit(error: BaseException) -> str:
    """Return the beginning of a message: the module in which an error was raised; empty if it was in no module."""
    while error.__context__ is not None:  # the end of a capture hides the cause
        error = error.__context__
    for frame, line in reversed([*traceback.walk_tb(error.__traceback__)]):
        part = frame.f_locals.get("self")
        if isinstance(part, nn.Module) and not type(part).__module__.startswith("torch."):
            return f"{type(part).__name__} ({frame.f_code.co_filename}, line {line}): "
    return ""
