"""Packages as FORMAT.md describes them, with a graph, written by hand, that answers with its source."""

import hashlib
import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper

ROOT = Path(__file__).parents[2]
MODULE = ROOT / "fairseq_attnvariants_run" / "fairseq_attnvariants_run.py"
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]
WORDS = ["the", "red", "dogs", "saw", "th@@", "is", "tree", ".", "&apos;s", "dog"]
# symbols of strings by the units of the manifest, and lines with these symbols and others
STRINGS = {
    "graphemes": ["a", "e", "é", "e\u0331", "\U0001f469", "\U0001f469\u200d\U0001f467", "한"],
    "spaced": ["aéa", "a", "\u1e07\u00e9", "c\u00a0a"],
    "decomposed": ["a", "e", "\u0301", "\u0331", "\u1112", "\u1161", "\u11ab"],
}
STRING_LINES = [
    "ae\u0301a", " a ee\u0331 \n", "\U0001f469\u200d\U0001f467\U0001f469", "<unk>a", "한하a", "b\u0331é",
    "c\u00a0a  b\u0331e\u0301 \u3000", "",
]  # fmt: skip
# sources with features, from [N] on, some with parentheses; and lines, some of which are refused
FEATURED = [*"abN", "[SG]", "[N]", "[PL]", "[PSS]", "[PSS(PL)]", "[é]"]
FEATURED_LINES = [
    "ab\tPL;N",
    " ba \t N , PSS(PL) \r\n",
    "bz\tPL;PL",
    "a[SG]b[N]\tN",
    "ab\t",
    "\tN",
    "",
    "ab",
    "ab\tPL;X",
    "ab\tPL;PSS(N",
    "ab\tPL)",
    "ab\tPL\tN",
    "ab\tN(PSS(PL))",
    "ab\tN; (PL",
    "ab\te\u0301;N",
    "a [N] [SG]\tN",
    "ab\tZ;PL;X",
    "ab\t\U0001d518;\uff22",
    "ab\t" + "x" * 101,
    "a" * 48 + "\tN",
    "a" * 49 + "\tN",
]

spec = importlib.util.spec_from_file_location("packaged_runtime", MODULE)
runtime = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(runtime)


def echo(size, changes=()):
    """Return a model of ``size`` symbols: hypothesis ``j`` is the source with ``j`` added to each known symbol's index.

    It attends to the symbol that it copies; each symbol costs ``0.1 (j + 1)``. ``changes`` are nodes to put in front.
    """
    names = {"source": TensorProto.INT64, "beam": TensorProto.INT64, "max_len": TensorProto.INT64}
    names |= {"min_len": TensorProto.INT64, "unkpen": TensorProto.FLOAT}
    shapes = {"source": ["B", "S"], "max_len": ["B"]}
    inputs = [helper.make_tensor_value_info(name, kind, shapes.get(name, [])) for name, kind in names.items()]
    kinds = {"ended": TensorProto.BOOL, "scores": TensorProto.FLOAT, "ended_scores": TensorProto.FLOAT}
    outputs = ["words", "parents", "scores", "ended", "ended_parents", "ended_scores", "attention"]
    outputs = [
        (name, kinds.get(name, TensorProto.FLOAT if name == "attention" else TensorProto.INT64)) for name in outputs
    ]
    outputs = [
        helper.make_tensor_value_info(name, kind, ["T", "B", "k", *(["S"] if name == "attention" else [])])
        for name, kind in outputs
    ]
    constants = {"zero": 0, "one": 1, "eos": 2, "unk": 3, "four": 4, "rest": size - 4}
    initializers = [helper.make_tensor(name, TensorProto.INT64, [], [value]) for name, value in constants.items()]
    initializers += [helper.make_tensor(f"axis{i}", TensorProto.INT64, [1], [i]) for i in (0, 1, 2)]
    initializers += [helper.make_tensor("cost", TensorProto.FLOAT, [], [-0.1])]
    node = helper.make_node
    nodes = [
        *changes,
        node("Range", ["zero", "beam", "one"], ["j"]),
        node("Transpose", ["source"], ["turned"]),  # T x B
        node("Unsqueeze", ["turned", "axis2"], ["each"]),
        node("Greater", ["each", "unk"], ["known"]),
        node("Add", ["each", "j"], ["moved"]),
        node("Sub", ["moved", "four"], ["from_four"]),
        node("Mod", ["from_four", "rest"], ["around"]),
        node("Add", ["around", "four"], ["shifted"]),
        node("Where", ["known", "shifted", "each"], ["words"]),  # T x B x k
        node("Mul", ["words", "zero"], ["nothing"]),
        node("Add", ["nothing", "j"], ["ended_parents"]),
        node("Shape", ["source"], ["S"], start=1),
        node("Squeeze", ["S"], ["length"]),
        node("Range", ["zero", "length", "one"], ["t"]),
        node("Unsqueeze", ["t", "axis1"], ["t1"]),
        node("Unsqueeze", ["t1", "axis2"], ["t2"]),
        node("Greater", ["t2", "zero"], ["later"]),
        node("Where", ["later", "ended_parents", "zero"], ["parents"]),
        node("Equal", ["each", "eos"], ["is_eos"]),
        node("Unsqueeze", ["max_len", "axis1"], ["most"]),
        node("Equal", ["t2", "most"], ["is_last"]),
        node("Or", ["is_eos", "is_last"], ["end"]),  # later values are not read: k hypotheses have ended
        node("Expand", ["end", "shape"], ["ended"]),
        node("Shape", ["words"], ["shape"]),
        node("Add", ["ended_parents", "one"], ["j1"]),
        node("Add", ["t2", "one"], ["t3"]),
        node("Mul", ["j1", "t3"], ["paid"]),
        node("Cast", ["paid"], ["floats"], to=TensorProto.FLOAT),
        node("Mul", ["floats", "cost"], ["scores"]),
        node("Identity", ["scores"], ["ended_scores"]),
        node("Concat", ["shape", "S"], ["wide"], axis=0),
        node("Equal", ["t1", "t"], ["diagonal"]),
        node("Cast", ["diagonal"], ["eye"], to=TensorProto.FLOAT),
        node("Unsqueeze", ["eye", "axis1"], ["eye1"]),
        node("Unsqueeze", ["eye1", "axis2"], ["eye2"]),
        node("Expand", ["eye2", "wide"], ["attention"]),
    ]
    order = [n for n in nodes if n.op_type != "Expand" or n.output[0] == "attention"]
    order.insert([n.output[0] for n in order].index("shape") + 1, next(n for n in nodes if n.output[0] == "ended"))
    graph = helper.make_graph(order, "echo", inputs, outputs, initializers)
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def fingerprint(symbols):
    return hashlib.sha256("\n".join(symbols).encode()).hexdigest()


def manifest(source, target, **changes):
    def side(name, symbols):
        about = {"language": "en", "units": "words", "symbols": f"{name}.json", "size": len(symbols)}
        return {**about, "fingerprint": fingerprint(symbols)}

    search = dict(beam=2, lenpen=1.0, unkpen=0.0, min_len=1, max_len_a=0.0, max_len_b=200, normalize=True)
    search.update(largest_beam=8, largest_source=50, largest_target=1024)
    about = {
        "format": 1,
        "architecture": "echo",
        "options": {},
        "source": {**side("source", source), "end": [2]},
        "target": side("target", target),
        "special": {"bos": 0, "pad": 1, "eos": 2, "unk": 3},
        "text": {"lowercase": False, "tokenizer": None, "truecase": None, "bpe": None},
        "search": search,
        "copies": False,
        "adds_up": True,
        "int8": False,
        "graph": {"opset": 20},
        "about": {},
    }
    for name, value in changes.items():
        group, _, field = name.partition("__")
        if field:
            about[group][field] = value
        else:
            about[group] = value
    return about


def write(folder, model=None, source=SPECIAL + WORDS, target=SPECIAL + WORDS, files=(), **changes):
    """Write a package; ``files`` are more files, ``changes`` fields of the manifest such as ``search__beam=3``."""
    folder.mkdir(parents=True, exist_ok=True)
    model = model or echo(len(target))
    about = manifest(source, target, **changes)
    operators = {f"{node.domain}::{node.op_type}" if node.domain else node.op_type for node in model.graph.node}
    about["graph"].setdefault("operators", sorted(operators))
    contents = {"model.onnx": model.SerializeToString(), "source.json": source, "target.json": target}
    contents |= dict(files)
    for name, content in contents.items():
        data = content if isinstance(content, bytes) else json.dumps(content, ensure_ascii=False).encode()
        (folder / name).write_bytes(data)
    rehash(folder, about, contents)
    (folder / "translate.py").write_bytes(MODULE.read_bytes())
    return folder


def rehash(folder, about=None, names=None):
    """Write the manifest with the sizes and hashes of the files as they are."""
    about = about or json.loads((folder / "manifest.json").read_text())
    names = names or about["files"]
    data = {name: (folder / name).read_bytes() for name in names}
    about["files"] = {n: {"bytes": len(d), "sha256": hashlib.sha256(d).hexdigest()} for n, d in data.items()}
    (folder / "manifest.json").write_text(json.dumps(about, ensure_ascii=False))


def n_best(out, b, length, eos, lenpen):
    """Return an n-best list, read literally as in FORMAT.md."""
    steps, _, k = out["words"].shape
    found = []
    for t, j in [(t, j) for t in range(steps) for j in range(k) if out["ended"][t, b, j]][:k]:
        row, symbols, sums = out["ended_parents"][t, b, j], [eos], [out["ended_scores"][t, b, j]]
        looks = [out["attention"][t, b, row, :length]]
        for s in range(t - 1, -1, -1):
            symbols.insert(0, out["words"][s, b, row])
            sums.insert(0, out["scores"][s, b, row])
            row = out["parents"][s, b, row]
            looks.insert(0, out["attention"][s, b, row, :length])
        found.append((sums[-1] / (t + 1) ** lenpen, symbols, np.diff(sums, prepend=0), looks))
    return sorted(found, key=lambda one: -one[0])
