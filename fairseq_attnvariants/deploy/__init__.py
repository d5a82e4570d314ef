"""Export of a trained model to a package that translates without fairseq and torch; FORMAT.md has its format."""

from importlib.util import find_spec

import torch

NEEDED = "onnx", "onnxscript", "onnxruntime"
TORCH = "2.9"  # the first whose exporter has ONNX's own operators, and loops


def missing() -> str:
    """Return the packages to install before the modules of this folder can be imported; nothing if all are there."""
    absent = [name for name in NEEDED if find_spec(name) is None]
    if absent:
        return f'{", ".join(absent)} missing: pip install "fairseq-attnvariants[export]" brings all it needs'
    if find_spec("torch.onnx.ops") is None:
        return f"export needs torch {TORCH} or later, not {torch.__version__}"
    return ""
