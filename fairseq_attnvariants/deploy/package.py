"""The files of an exported package, and its manifest."""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import onnx_ir as ir

from .. import __version__
from ..architectures.options import AttentionRNNConfig
from ..models.fingerprint import digest
from ..nn.attention import adds_up
from ..tasks.shortlist import Shortlist
from ..tasks.string_dictionary import first_feature
from .graphs import end
from .proof import Proof, Search
from .search import largest_beam

FORMAT, WITH_FEATURES = 1, 2
"""formats of packages; the second is for sources with features, which older runtimes would read wrongly"""
VERSIONS = "fairseq", "torch", "onnx", "onnxruntime"


def operators(model: ir.Model) -> list[str]:
    """Every operator of a graph and its subgraphs."""
    nodes = model.graph.all_nodes()
    return sorted(
        {node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}::{node.op_type}" for node in nodes}
    )


def side(language: str, dictionary: Any, name: str) -> dict[str, Any]:
    """Return the manifest's entry for the source or the target."""
    return {
        "language": language,
        "units": getattr(dictionary, "units", "words"),
        "symbols": f"{name}.json",
        "size": len(dictionary),
        "fingerprint": digest(dictionary).hex(),
    }


def languages_of(task: Any) -> tuple[str, str]:
    """The languages of a task; tables of strings name none."""
    return getattr(task.cfg, "source_lang", None) or "source", getattr(task.cfg, "target_lang", None) or "target"


def manifest(
    task: Any,
    model: Any,
    graph: ir.Model,
    proof: Proof,
    search: Search,
    text: Mapping[str, Any],
    about: Mapping[str, str | None],
    int8: bool,
    shortlist: Shortlist | None = None,
) -> dict[str, Any]:
    """The manifest without the list of files.

    Args:
        task, model: the exported task and model.
        graph, proof, search: the model's graph, its comparison with fairseq, and the settings of a search.
        text: the conversion of lines to words, as FORMAT.md describes it.
        about: the user's notes.
        int8: whether weights have eight bits.
        shortlist: the shortlist in the graph, or None.
    """
    source, target, cfg = task.source_dictionary, task.target_dictionary, model.cfg
    languages = languages_of(task)
    first = first_feature(source)
    after = model.encoder.first_feature is not None
    features = dict(features=first, features_after=after) if first < len(source) else {}
    names = [field.name for field in dataclasses.fields(AttentionRNNConfig) if field.name != "_name"]
    values = {name: getattr(cfg, name, None) for name in names}
    return {
        "format": WITH_FEATURES if features else FORMAT,
        "architecture": str(getattr(cfg, "_name", None) or getattr(cfg, "arch", "")),
        "options": {
            name: value if isinstance(value, (bool, int, float, type(None))) else str(value)
            for name, value in values.items()
        },
        "source": {**side(languages[0], source, "source"), "end": end(source), **features},
        "target": side(languages[1], target, "target"),
        "special": dict(bos=source.bos(), pad=source.pad(), eos=source.eos(), unk=source.unk()),
        "text": dict(text),
        "search": {
            **search._asdict(),
            "largest_beam": largest_beam(target),
            "largest_source": int(model.encoder.max_source_positions),
        },
        "copies": bool(cfg.copying),
        "adds_up": adds_up(model),
        "int8": int8,
        "shortlist": shortlist and {"size": shortlist.candidates.size(1), "frequent": shortlist.frequent},
        "graph": {
            "opset": graph.opset_imports[""],
            "inputs": [value.name for value in graph.graph.inputs],
            "outputs": [value.name for value in graph.graph.outputs],
            "operators": operators(graph),
        },
        "proof": {name: value for name, value in proof._asdict().items() if name != "where"},
        "versions": {"fairseq_attnvariants": __version__, **{name: metadata.version(name) for name in VERSIONS}},
        "about": dict(about),
    }


def symbols(dictionary: Any) -> bytes:
    """A dictionary as a JSON array."""
    return json.dumps(dictionary.symbols, indent=0, ensure_ascii=True).encode()


def write(folder: Path, files: Mapping[str, bytes], about: Mapping[str, Any]) -> None:
    """Write the files, and the manifest that lists them."""
    for name, content in files.items():
        (folder / name).write_bytes(content)
    listed = {
        name: {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)} for name, content in files.items()
    }
    text = json.dumps({**about, "files": listed}, indent=1, ensure_ascii=True, allow_nan=False)
    (folder / "manifest.json").write_text(text + "\n", encoding="ascii")
