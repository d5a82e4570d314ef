"""A graph with weights of eight bits, a quarter as large.

Matrix products multiply whole numbers.  Each row of activations has a separate scale, so a sentence's result does not
depend on its batch.  Both factors are unsigned, because every processor adds products of such numbers exactly.
Attention's energies and ONNX's recurrent operators compute in float32; these operators' weights are small only in the
file.
"""

from typing import Any

import numpy as np
import onnx_ir as ir

from .loop import TIDY, fold, quiet

SMALLEST = 256  # the fewest numbers of a matrix that is reduced
ZERO = 128  # the code for 0
LARGEST = 127.0


def reduce(model: ir.Model) -> ir.Model:
    """Return a copy of the model with weights of eight bits."""
    model = ir.from_proto(ir.to_proto(model))
    with quiet():
        fold(model, "Transpose")
    model.opset_imports["com.microsoft"] = 1
    rewriter = Rewriter(model.graph)
    for node in list(model.graph.all_nodes()):
        rewriter.rewrite(node)
    with quiet():
        TIDY(model)
    return model


class Rewriter:
    """Replaces nodes that read weights by nodes that read weights of eight bits.

    Args:
        graph: the main graph, which holds all weights.
    """

    def __init__(self, graph: ir.Graph):
        self.graph = graph
        self.small: dict[tuple[Any, int, int], tuple[Any, Any]] = {}
        self.rows: dict[tuple[Any, Any], tuple[Any, Any]] = {}
        self.nodes: list[ir.Node] = []
        self.count = 0

    def rewrite(self, node: ir.Node) -> None:
        """Replace a node that reads a matrix of weights."""
        make = getattr(self, f"_{node.op_type.lower()}", None)
        made = None if make is None or node.domain else make(node)
        if made is None or node.graph is None:
            return
        node.graph.insert_before(node, self.nodes)
        self.nodes = []
        if made is not node:
            node.outputs[0].replace_all_uses_with(made, replace_graph_outputs=True)
            node.graph.remove(node, safe=True)

    def _matmul(self, node: ir.Node) -> Any:
        left, right = node.inputs
        return self.product(node, left, right, 0) if weights(right, 2) else None

    def _gemm(self, node: ir.Node) -> Any:
        left, right, *bias = node.inputs
        plain = all(node.attributes.get_float(name, 1.0) == 1.0 for name in ("alpha", "beta"))
        if not (plain and weights(right, 2)) or node.attributes.get_int("transA", False):
            return None
        made = self.product(node, left, right, node.attributes.get_int("transB", False))
        return self.node("Add", made, bias[0]) if bias else made

    def _gather(self, node: ir.Node) -> Any:
        table, numbers = node.inputs
        if not weights(table, 2) or node.attributes.get_int("axis", False):
            return None
        values, scales = self.reduced(table, 1)  # a scale for each row
        rows = self.node("Sub", self.cast(self.node("Gather", values, numbers), ir.DataType.FLOAT), self.number(ZERO))
        return self.node("Mul", rows, self.node("Gather", scales, numbers))

    def _gru(self, node: ir.Node) -> Any:
        for place in (1, 2):
            read = node.inputs[place]
            if weights(read, 3):
                values, scales = self.reduced(read, 2)
                whole = self.node("Sub", self.cast(values, ir.DataType.FLOAT), self.number(ZERO))
                node.replace_input_with(place, self.node("Mul", whole, scales))
        return node

    _lstm = _gru

    def product(self, node: ir.Node, left: Any, right: Any, transposed: int) -> Any:
        """Return ``left @ right``, computed in whole numbers."""
        values, scales = self.reduced(right, 0, transposed)  # a scale for each column
        key = node.graph, left
        if key not in self.rows:
            largest = self.node("ReduceMax", self.node("Abs", left), self.number([-1]), keepdims=1)
            scale = self.node("Div", self.node("Max", largest, self.number(1e-30)), self.number(LARGEST))
            whole = self.node("Round", self.node("Div", left, scale))
            self.rows[key] = self.cast(self.node("Add", whole, self.number(ZERO)), ir.DataType.UINT8), scale
        rows, scale = self.rows[key]
        zero, one = self.weight(np.array(ZERO, np.uint8)), self.number(1.0)
        # the operator scales each column, but has one scale for all rows; so rows are scaled after it
        total = self.node("MatMulIntegerToFloat", rows, values, one, scales, zero, zero, domain="com.microsoft")
        return self.node("Mul", total, scale)

    def reduced(self, value: Any, axis: int, transposed: int = 0) -> tuple[Any, Any]:
        """Weights as whole numbers, and their scales: the largest magnitude along an axis becomes :data:`LARGEST`."""
        key = value, axis, transposed
        if key not in self.small:
            array = value.const_value.numpy()
            array = array.T if transposed else array
            scales = np.maximum(np.abs(array).max(axis, keepdims=True), 1e-30) / np.float32(LARGEST)
            whole = (np.rint(array / scales) + ZERO).astype(np.uint8)
            scales = scales if axis else scales.ravel()
            self.small[key] = self.weight(whole), self.weight(scales)
        return self.small[key]

    def weight(self, array: np.ndarray) -> Any:
        """A new constant of the graph."""
        self.count += 1
        tensor = ir.tensor(np.ascontiguousarray(array), name=f"small.{self.count}")
        value = ir.Value(
            name=tensor.name, type=ir.TensorType(tensor.dtype), shape=ir.Shape(array.shape), const_value=tensor
        )
        self.graph.register_initializer(value)
        return value

    def number(self, value: Any) -> Any:
        """A constant of one number, or of a list of whole numbers."""
        return self.weight(np.array(value, np.int64 if isinstance(value, list) else np.float32))

    def cast(self, value: Any, kind: ir.DataType) -> Any:
        """Return the value in another type."""
        return self.node("Cast", value, to=int(kind))

    def node(self, kind: str, *inputs: Any, domain: str = "", **attributes: Any) -> Any:
        """Return the output of a new node."""
        made = ir.node(kind, inputs, attributes, domain=domain)
        self.count += 1
        made.outputs[0].name = f"small.{self.count}"
        self.nodes.append(made)
        return made.outputs[0]


def weights(value: Any, dimensions: int) -> bool:
    """Whether a value is a constant float32 tensor with so many dimensions, and large enough to be reduced."""
    tensor = None if value is None else value.const_value
    return (
        tensor is not None
        and tensor.dtype == ir.DataType.FLOAT
        and len(tensor.shape) == dimensions
        and tensor.size >= SMALLEST
        and tensor.shape[-1] > 1
    )
