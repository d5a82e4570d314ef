"""The demand on ``--compile``: a step is compiled once."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch._dynamo

from fairseq_attnvariants.architectures.refusals import check_compiler
from fairseq_attnvariants.deploy.refusal import LINES
from fairseq_attnvariants.nn.decoder import Decoder
from fairseq_attnvariants.registry import ConfigurationError

from ..systems.user_dirs import last_in_user_dir
from .demand import demand
from .growth import line
from .outcome import Broken, NotApplicable
from .subject import LONG_SOURCE, LONG_TARGET, Pairs, Subject

BATCHES = 4
LEAST = 29  # smallest number of sentences and of symbols
STEPS = 3


@demand
def compiled(subject: Subject) -> None:
    """Compile a step for several batch sizes in training. The compiler only counts, unless options have ``--compile``.

    Demand: --compile compiles a step once, for batches of any size
    Otherwise: --compile compiles it again for every length: training takes many times as long, and at torch's limit the
        rest of it is not compiled
    """
    if not isinstance(getattr(subject.shared.decoder, "network", None), Decoder):
        raise NotApplicable("its decoder has no --compile")
    if not hasattr(torch.compiler, "is_compiling"):
        raise NotApplicable(f"--compile needs torch 2.3 or later, not {torch.__version__}")
    if not torch._dynamo.is_dynamo_supported():
        raise NotApplicable("torch.compile does not work on this system")
    model, compiler = subject.untouched().train(), torch._dynamo.lookup_backend("eager")
    if model.cfg.compile:
        try:
            check_compiler(torch.device("cpu"))
        except ConfigurationError as refusal:
            raise NotApplicable(str(refusal)) from None
        compiler = torch._dynamo.lookup_backend("inductor")
    graphs: list[Any] = []

    def compile_graph(graph: Any, inputs: list[Any]) -> Callable[..., Any]:
        graphs.append(graph)
        return compiler(graph, inputs)

    torch._dynamo.reset()
    model.decoder.network.compile_step(backend=compile_graph)
    first, *others = batches(subject)
    subject.forward(model, first)
    once, why = len(graphs), ""
    for pairs in others:
        try:
            with torch._dynamo.config.patch(error_on_recompile=not why):
                subject.forward(model, pairs)
        except torch._dynamo.exc.RecompileError as error:
            why = str(error).splitlines()[-1].partition(": ")[2]
            subject.forward(model, pairs)
    if len(graphs) > once:
        raise Broken(f"{len(others)} batches of other sizes compile it {len(graphs) - once} times more: {why}")
    if places := [place for graph in graphs for place in convolutions(graph)]:
        raise Broken(
            f"a convolution over the source is compiled for each length{places[0]}: write it as a product, as "
            "nn.histories.ConvolutionHistory does"
        )


def convolutions(graph: Any) -> Iterator[str]:
    """Yield the places, in a user's code, of convolutions over a dynamic length, which torch's compiler fixes."""
    for node in graph.graph.nodes:
        part = graph.get_submodule(node.target) if node.op == "call_module" else node.target
        name = getattr(part, "__name__", type(part).__name__)
        lengths = getattr(node.meta.get("example_value"), "shape", ())[2:]
        if name.lower().startswith("conv") and not all(isinstance(length, int) for length in lengths):
            yield last_in_user_dir(LINES.findall(node.meta.get("stack_trace") or ""))


def batches(subject: Subject) -> list[Pairs]:
    """Return batches whose sizes differ from each other and from all widths: the compiler treats equal sizes as one."""
    widths = {size for parameter in subject.shared.parameters() for size in parameter.shape}
    sizes = (size for size in itertools.count(LEAST) if size not in widths)
    return [
        subject.pairs([line(subject, LONG_SOURCE, next(sizes) - 1)] * rows, [line(subject, LONG_TARGET, STEPS)] * rows)
        for rows in itertools.islice(sizes, BATCHES)
    ]
