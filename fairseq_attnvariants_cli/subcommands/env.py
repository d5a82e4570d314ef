"""``fairseq-attnvariants env``: installed versions and hardware, for a bug report."""

import os
import platform
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import packages_distributions
from importlib.util import find_spec
from pathlib import Path

from ..installed import installed
from ..text.files import reason, standard_output, visible

LIBRARIES = ("numpy", "hydra-core", "omegaconf", "sacrebleu", "subword-nmt", "matplotlib", "entmax", "eflomal")
INSTRUCTIONS = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_int8", "amx_bf16")  # as Linux names them
VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "PYTHONPATH")
STARTUP = "fairseq_attnvariants_startup"


@dataclass
class Options:
    """Print the installed versions and the hardware, for a bug report."""


def facts() -> Iterator[tuple[str, str]]:
    """Yield names and values; a value that cannot be found is replaced by the reason."""
    yield "fairseq_attnvariants", installed("fairseq-attnvariants")
    yield "--user-dir", folder("fairseq_attnvariants")
    yield "start-up file", startup()
    yield "fairseq", distribution("fairseq")
    yield "Python", f"{platform.python_version()}, {sys.executable}"
    yield "torch", distribution("torch")
    yield from on_torch()
    for library in LIBRARIES:
        yield library, installed(library)
    yield "platform", platform.platform()
    yield "processor", processor()
    yield "environment", ", ".join(f"{name}={os.environ[name]}" for name in VARIABLES if name in os.environ) or "-"


def folder(module: str) -> str:
    """Return the folder that a package would be imported from."""
    try:
        spec = find_spec(module)
    except (ImportError, ValueError) as error:
        return reason(error)
    return str(Path(spec.origin).parent) if spec and spec.origin else "not found"


def distribution(module: str) -> str:
    """Return the versions of all distributions that contain a module, joined by ``over``, and its folder."""
    owners = dict.fromkeys(packages_distributions().get(module, []))
    return f"{' over '.join(f'{owner} {installed(owner)}' for owner in owners) or 'not installed'}, {folder(module)}"


def startup() -> str:
    """Return the path of the ``.pth`` file, and whether this interpreter has read it."""
    found = [path for path in (Path(entry, "fairseq_attnvariants.pth") for entry in sys.path) if path.is_file()]
    if found:
        return f"{found[0]}{'' if STARTUP in sys.modules else ', not read by this interpreter (python -S?)'}"
    return "missing: pip install this package again" + (
        "; without it fairseq does not start here" if sys.version_info >= (3, 11) else ""
    )


def on_torch() -> Iterator[tuple[str, str]]:
    """Yield the threads and the CUDA devices of torch, or the error of its import."""
    try:
        import torch
    except Exception as error:  # the report may be about a broken torch
        yield "torch starts", f"no: {reason(error)}"
        return
    yield "threads", f"{torch.get_num_threads()}, {torch.backends.cpu.get_cpu_capability()}"
    devices = [torch.cuda.get_device_name(k) for k in range(torch.cuda.device_count())]
    yield "CUDA", f"{torch.version.cuda or 'not in this torch'}, {', '.join(devices) or 'no device'}"


def processor() -> str:
    """Return the processor's name, cores and vector instructions, as far as the system reports them."""
    try:
        lines = [line.partition(":") for line in Path("/proc/cpuinfo").read_text().splitlines()]
    except OSError:  # only Linux has this file
        lines = []
    told = {key.strip(): value.strip() for key, _, value in lines}
    name, flags = told.get("model name") or platform.processor() or platform.machine(), told.get("flags", "").split()
    return ", ".join([name, f"{os.cpu_count()} cores", " ".join(one for one in INSTRUCTIONS if one in flags)])


def run(options: Options) -> None:
    """Print a line for each fact."""
    with standard_output() as output:
        for name, value in facts():
            print(visible(f"{name:<22}{value}"), file=output)
