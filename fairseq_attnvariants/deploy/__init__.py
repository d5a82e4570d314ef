"""Export of a trained model to a package that translates without fairseq and torch; FORMAT.md describes it."""

from importlib.util import find_spec

import torch

NEEDED = "onnx", "onnxscript", "onnxruntime"
TORCH = "2.9"  # the first version whose exporter has ONNX's operators and loops


def missing() -> str:
    """Return what to install before the modules of this folder can be imported, as a sentence; empty if nothing."""
    absent = [name for name in NEEDED if find_spec(name) is None]
    if absent:
        return f'{", ".join(absent)} missing: pip install "fairseq-attnvariants[export]" brings all it needs'
    if find_spec("torch.onnx.ops") is None:
        return f"export needs torch {TORCH} or later, not {torch.__version__}"
    return ""
