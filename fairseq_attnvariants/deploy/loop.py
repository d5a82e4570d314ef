"""One ONNX graph made of the two in :mod:`.graphs`: the first step, and a loop over the later steps."""

import contextlib
import io
import itertools
import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
import torch
from onnx_ir.passes import Sequential, common
from onnxscript import optimizer
from torch import Tensor, nn
from torch._dynamo import config

from ..nn.state import tensors
from ..registry import ConfigurationError
from ..tasks.shortlist import SPECIALS, Shortlist, copying
from .graphs import EXAMPLES, INPUTS, RECORD, First, Following, Step, prepared, projecting_decoder
from .refusal import lengths_refused, part, why
from .search import Limits, largest_beam

OPSET = 20
TALKATIVE = "onnx_ir", "onnxscript", "torch.onnx", "torch.export"
TIDY = Sequential(
    common.IdentityEliminationPass(),
    common.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=16),
    common.LiftSubgraphInitializersToMainGraphPass(),
    common.DeduplicateInitializersPass(size_limit=2**40),
    common.RemoveUnusedNodesPass(),
    common.RemoveUnusedOpsetsPass(),
    common.ClearMetadataAndDocStringPass(),
)


def export(model: Any, shortlist: Shortlist | None = None) -> ir.Model:
    """Return the graph of a model.

    Args:
        model: a model of this package.
        shortlist: gives the target words of each batch; without one, a graph searches all words.

    Raises:
        ConfigurationError: the model copies source words, and there is a shortlist; or PyTorch's exporter cannot follow
            a component, which the message names with its file and line.
    """
    if shortlist is not None and copying(model):
        raise ConfigurationError(
            "--shortlist: the model copies source words, which would have to be in every list: leave --shortlist out"
        )
    try:
        # the exporter's cache of shapes costs more time than it saves, a fifth of the total
        with torch.no_grad(), quiet(), lengths_refused(), config.patch(fake_tensor_cache_enabled=False):
            return _export(prepared(model), shortlist)
    except Exception as error:  # a traced component may raise anything
        raise ConfigurationError(f"it cannot be exported: {why(error)}{part(error)}") from error


def _export(model: Any, shortlist: Shortlist | None) -> ir.Model:
    given = [example(model, *sizes)[: None if shortlist else -1] for sizes in EXAMPLES]
    projects = projecting_decoder(model)
    first = First(model, projects)
    left, right = (first(*inputs) for inputs in given)
    following = Following(model, projects, left)
    rests = [[*inputs[2:5], *tensors((*step[1:4], read))] for inputs, (step, read) in zip(given, (left, right))]
    refuse_growth(left[0].carried, following(torch.tensor(0), *rests[0]).carried)
    start = convert(first, given, model)
    step = convert(following, [[torch.tensor(0), *rest] for rest in rests], model)
    return looped(start, step, left, shortlist)


def refuse_growth(before: Any, after: Any) -> None:
    """Refuse carried tensors whose sizes or types a step changes, because a loop in a graph cannot carry them.

    Raises:
        ConfigurationError: a size or a type changes.
    """
    for one, other in itertools.zip_longest(tensors(before), tensors(after)):
        if look(one) != look(other):
            raise ConfigurationError(
                f"a component carries {look(one)} after its first step and {look(other)} after its second, and an "
                "exported search needs the same sizes and types after every step: carry tensors that do not grow"
            )


def look(carried: Tensor | None) -> str:
    """The sizes and the type of a tensor ``B x k x ...``, as text; its first two sizes become the rows ``N``."""
    if carried is None:
        return "nothing"
    return f"{' x '.join(map(str, ['N', *carried.shape[2:]]))} ({str(carried.dtype).removeprefix('torch.')})"


def example(model: Any, sentences: int, beam: int, length: int, listed: int) -> list[Tensor]:
    """Inputs of :class:`~.graphs.First`: sources, hypotheses, limits, and symbols of a shortlist."""
    dictionary = model.encoder.dictionary
    source = torch.full((sentences, length), dictionary.eos())
    source[1:, -1] = dictionary.pad()
    limits = torch.full((sentences,), 9), torch.tensor(1), torch.tensor(0.0)
    return [source, torch.arange(beam), *limits, torch.arange(listed) % len(model.decoder.dictionary)]


def convert(graph: nn.Module, given: Sequence[Sequence[Tensor]], model: Any) -> ir.Model:
    """Return a graph in ONNX; the sizes that differ between the two given inputs are free."""
    # numbers of sentences and hypotheses are multiplied, so the exporter needs their names; it finds lengths by itself
    beam = torch.export.Dim("beam", max=largest_beam(model.decoder.dictionary))
    names = dict(zip(zip(*EXAMPLES), (torch.export.Dim("batch"), beam)))
    shapes = tuple(
        {place: names.get(pair, torch.export.Dim.AUTO) for place, pair in enumerate(zip(*sizes)) if pair[0] != pair[1]}
        for sizes in zip(*([tensor.shape for tensor in inputs] for inputs in given))
    )
    program = torch.export.export(Flat(graph), tuple(given[0]), dynamic_shapes=(shapes,), strict=False)
    made = torch.onnx.export(program, dynamo=True, opset_version=OPSET, verbose=False)
    assert made is not None
    return made.model


class Flat(nn.Module):
    """A graph whose output is one tuple of tensors."""

    def __init__(self, graph: nn.Module):
        super().__init__()
        self.inner = graph

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Return the outputs as one tuple of tensors."""
        return tuple(tensors(self.inner(*inputs)))


class Nodes(list[ir.Node]):
    """New nodes of a graph, each after those that it reads."""

    def add(self, kind: str, *inputs: Any, **attributes: Any) -> Any:
        """Add a node, and return its output."""
        self.append(ir.node(kind, inputs, attributes))
        return self[-1].outputs[0]

    def constant(self, value: Any) -> Any:
        """Add a number, or an array of them."""
        return self.add("Constant", value=ir.tensor(value))


def listed_symbols(nodes: Nodes, shortlist: Shortlist, source: Any, beam: Any) -> Any:
    """The symbols of a shortlist for a batch, as :meth:`Shortlist.symbols` lists them.

    They are the frequent words, at least as many as a beam needs, and the candidates of the source's symbols.
    """
    add, constant = nodes.add, nodes.constant
    whole = np.uint16 if len(shortlist.by_frequency) <= 2**16 else np.int32
    tables = shortlist.by_frequency, shortlist.candidates
    frequent, candidates = (constant(table.numpy().astype(whole)) for table in tables)
    least = add("Max", constant(shortlist.frequent), add("Mul", beam, constant(2)))
    count = add("Unsqueeze", add("Add", least, constant(SPECIALS)), constant([0]))
    always = add("Slice", frequent, constant([0]), count)
    own = add("Reshape", add("Gather", candidates, source), constant([-1]))
    symbols = add("Concat", *(add("Cast", one, to=int(ir.DataType.INT64)) for one in (always, own)), axis=0)
    mask = add("ConstantOfShape", constant([len(shortlist.by_frequency)]), value=ir.tensor([0]))
    ones = add("ConstantOfShape", add("Shape", symbols), value=ir.tensor([1]))
    chosen = add("NonZero", add("ScatterElements", mask, symbols, ones, axis=0))  # sorted, and each symbol once
    return add("Squeeze", chosen, constant([0]))


def looped(first: ir.Model, following: ir.Model, like: tuple[Step, Any], shortlist: Shortlist | None) -> ir.Model:
    """Return one model made of the two.

    Args:
        first: the graph of the first step.
        following: the graph of each later step.
        like: a step and the memory that all steps read, as ``first`` returns them.
        shortlist: gives the target words of each batch, or None.
    """
    step, _ = like
    names = [*RECORD, "word_attention"][: len(step.record)]
    handed_on = len(tensors(tuple(step[1:4])))
    split = [1, handed_on, len(names)]
    start, body = first.graph, following.graph
    rename(body, "next.")
    source, hypotheses, *rest = start.inputs
    limits, listed = rest[: len(Limits._fields)], rest[len(Limits._fields) :]
    _, starts, recorded, memory = parts(start.outputs, split)
    [going], ends, records, _ = parts(body.outputs, split)
    [number], inner_limits, states, inner_memory = parts(body.inputs, [1, len(limits), handed_on])
    ir.convenience.replace_all_uses_with([*inner_limits, *inner_memory], [*limits, *memory])
    read = needed([going, *records], dict(zip(states, ends)))
    carried = [three for three in zip(states, starts, ends) if three[0] in read]
    states, starts, ends = map(list, zip(*carried))

    nodes = Nodes()
    beam = ir.Value(name="beam", type=ir.TensorType(ir.DataType.INT64), shape=ir.Shape([]))
    numbers = nodes.add("Range", nodes.constant(0), beam, nodes.constant(1))
    ir.convenience.replace_all_uses_with(hypotheses, numbers)
    if shortlist is not None:
        ir.convenience.replace_all_uses_with(listed[0], listed_symbols(nodes, shortlist, source, beam))
    start.insert_before(start[0], nodes)
    nodes.clear()
    condition = ir.Value(name="next.condition", type=ir.TensorType(ir.DataType.BOOL), shape=ir.Shape([]))
    body.inputs[:] = [number, condition, *states]
    body.outputs[:] = [going, *ends, *records]
    # at least one iteration, because without any the outputs have no sizes; a step after the end ends no hypothesis
    steps = nodes.add("Max", nodes.add("ReduceMax", limits[0], keepdims=0), nodes.constant(1))
    loop = ir.node("Loop", [steps, None, *starts], {"body": body}, num_outputs=len(states) + len(names))
    nodes.append(loop)
    zero, outputs = nodes.constant([0]), []
    for name, begun, looped in zip(names, recorded, loop.outputs[len(states) :]):
        output = nodes.add("Concat", nodes.add("Unsqueeze", begun, zero), looped, axis=0)
        output.name, output.dtype = name, begun.dtype
        output.shape = ir.Shape(["steps", *begun.shape])
        outputs.append(output)
    start.extend(nodes)
    start.inputs[:], start.outputs[:] = [source, beam, *limits], outputs
    start.name = "translation"
    for value, name in zip(start.inputs, INPUTS):
        value.name = name
    fold(first, "Concat")  # the matrices by which search reads contexts
    TIDY(first)
    return first


def fold(model: ir.Model, *kinds: str) -> None:
    """Replace the constant results of these operators, and small ones of any operator, by their values."""
    optimizer.fold_constants(model, should_fold=lambda node: node.op_type in kinds or None)


def parts(values: Sequence[Any], sizes: Sequence[int]) -> list[list[Any]]:
    """Values in groups of these sizes, and the rest as the last group."""
    given = iter(values)
    return [*([*itertools.islice(given, size)] for size in sizes), [*given]]


def rename(graph: ir.Graph, prefix: str) -> None:
    """Add a prefix to all names in a graph, so that another graph has none of them."""
    for value in [*graph.inputs, *graph.initializers.values()]:
        value.name = f"{prefix}{value.name}"
    for node in graph.all_nodes():
        node.name = f"{prefix}{node.name}"
        for value in node.outputs:
            value.name = f"{prefix}{value.name}"


def needed(outputs: Sequence[Any], following: Mapping[Any, Any]) -> set[Any]:
    """All values that these outputs need, at this step or at a later one.

    ``following`` maps each input to the output that becomes this input at the next step.
    """
    found: set[Any] = set()
    left = [*outputs]
    while left:
        value = left.pop()
        if value is None or value in found:
            continue
        found.add(value)
        left.append(following.get(value))
        node = value.producer()
        if node is not None:
            left += node.inputs
            graphs = [
                attribute.value for attribute in node.attributes.values() if isinstance(attribute.value, ir.Graph)
            ]
            left += [read for graph in graphs for inner in graph.all_nodes() for read in inner.inputs]
    return found


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silence the exporters' own messages."""
    loggers = [logging.getLogger(name) for name in TALKATIVE]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.CRITICAL)
        with (
            warnings.catch_warnings(),
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels):
            logger.setLevel(level)
