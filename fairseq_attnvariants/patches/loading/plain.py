"""A trained model as plain files: parameters as safetensors, the configuration as JSON, the dictionaries as text.

Nothing is pickled.  A folder holds ``model.safetensors``, ``config.json`` and ``dict.LANGUAGE.txt``; fairseq's
commands and :meth:`~...models.hub.Pretrained.from_pretrained` read it.  SHA-256 sums detect damage; they
are no signature.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from ...models.hub import PLAIN as MODEL
from ...registry import ConfigurationError
from ..messages.data import find_languages

CONFIG, DICTIONARIES = "config.json", "dict.*.txt"
FORMAT = 1


def save(folder: str, state: Mapping[str, Any], data: str) -> None:
    """Write a model to a folder.

    Args:
        folder: an empty folder.
        state: a checkpoint of fairseq 0.12; its optimizer is left out.
        data: the folder of the dictionaries to copy.

    Raises:
        ConfigurationError: there are no dictionaries, one cannot be read, or safetensors is not installed.
        OSError: something cannot be written.
    """
    dictionaries = sorted(Path(data).glob(DICTIONARIES))
    if not dictionaries:
        raise ConfigurationError(
            f"there are no dictionaries, {DICTIONARIES}, in {data}: give the folder of fairseq-preprocess"
        )
    try:
        texts = {path.name: path.read_bytes() for path in dictionaries}
    except OSError as error:
        raise ConfigurationError(f"{error.filename} cannot be read: {error.strerror}") from error
    kept: dict[str, Tensor] = {}
    tied: dict[str, str] = {}
    first: dict[Any, str] = {}
    for name, tensor in state["model"].items():
        own = first.setdefault(place(tensor), name)
        if own == name or not tensor.numel():
            kept[name] = tensor.contiguous().clone()  # else a view would be written with its base tensor
        else:
            tied[name] = own
    # save_file raises an error of its own on a full disk
    for name, content in {MODEL: _safetensors().save(kept), **texts}.items():
        Path(folder, name).write_bytes(content)
    config = {
        "format": FORMAT,
        "sha256": {name: _sha256(os.path.join(folder, name)) for name in (MODEL, *texts)},
        "tied": tied,
        "cfg": {**state["cfg"], "task": _with_languages(state["cfg"]["task"], data)},
        "task_state": state.get("task_state", {}),  # such as the columns of --task string_transduction
    }
    with open(os.path.join(folder, CONFIG), "w", encoding="utf-8") as stream:
        json.dump(config, stream, indent=1, default=vars)  # a Namespace, for components without a dataclass


def place(tensor: Tensor) -> tuple[Any, ...]:
    """Where a tensor's numbers are, and how they are read: tied tensors have the same place."""
    return tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype


def _with_languages(task: Any, data: str) -> Any:
    """The task's configuration; if it lacks a language of its pair, both come from the data folder."""
    named = task if isinstance(task, Mapping) else vars(task)
    languages = [named.get(name) for name in ("source_lang", "target_lang")]
    if "source_lang" not in named or "lang_pairs" in named or None not in languages:
        return task
    return {**named, **dict(zip(("source_lang", "target_lang"), find_languages(data, *languages)))}


def load(folder: str) -> dict[str, Any]:
    """Load the checkpoint that :func:`save` wrote, without an optimizer.

    Raises:
        ConfigurationError: a file cannot be read, or is damaged; the message is one sentence that names it.
    """
    try:
        return _loaded(folder)
    except OSError as error:
        raise ConfigurationError(f"{error.filename or folder} cannot be read: {error.strerror}") from error


def _loaded(folder: str) -> dict[str, Any]:
    path, config = os.path.join(folder, MODEL), os.path.join(folder, CONFIG)
    content = _read(config)
    for name, expected in content["sha256"].items():
        if os.path.basename(name) != name or not name.isprintable():
            raise ConfigurationError(f"{config} names {name!a}, which is no file of its folder")
        if _sha256(os.path.join(folder, name)) != expected:
            raise ConfigurationError(
                f"{os.path.join(folder, name)} is not the one that was written with {config}: it is damaged or changed"
            )
    if MODEL not in content["sha256"]:
        raise ConfigurationError(f"{config} has no checksum of {MODEL}")
    safetensors = _safetensors()
    try:
        parameters: dict[str, Tensor] = safetensors.load_file(path)
    except Exception as error:  # a damaged file can cause any error
        why = f"it is damaged or no safetensors ({type(error).__name__})"
        raise ConfigurationError(f"{path}: not loaded: {why}") from None
    for name, own in content["tied"].items():
        if own not in parameters or name in parameters:
            raise ConfigurationError(
                f"{config} is damaged: it ties {name!a} to {own!a}, of which only the second may be in {path}"
            )
        parameters[name] = parameters[own]
    return {**checkpoint(content["cfg"], parameters), "task_state": content.get("task_state", {})}


def checkpoint(cfg: Any, parameters: Mapping[str, Tensor]) -> dict[str, Any]:
    """A checkpoint of fairseq 0.12 without an optimizer."""
    return {
        "args": None,
        "cfg": cfg,
        "model": parameters,
        "optimizer_history": [{"criterion_name": "", "optimizer_name": "", "lr_scheduler_state": {}, "num_updates": 0}],
        "extra_state": {"train_iterator": {"epoch": 1, "iterations_in_epoch": 0, "shuffle": True}},
    }


def _read(path: str) -> dict[str, Any]:
    try:
        with open(path, encoding="utf-8") as stream:
            content = json.load(stream)
    except (ValueError, RecursionError):
        raise ConfigurationError(f"{path} is damaged, or no JSON") from None
    if isinstance(content, dict) and content.get("format") not in (None, FORMAT):
        raise ConfigurationError(f"{path} is of format {content['format']!r}, and this version reads {FORMAT}")
    texts = isinstance(content, dict) and all(_of_texts(content.get(name)) for name in ("sha256", "tied"))
    tables = texts and all(isinstance(content.get(name, {}), dict) for name in ("cfg", "task_state"))
    if not tables or None in (content.get("format"), content.get("cfg")):
        raise ConfigurationError(f"{path} is damaged: it lacks format, sha256, tied or cfg, or one is of another kind")
    return content


def _of_texts(part: Any) -> bool:
    return isinstance(part, dict) and all(isinstance(value, str) for value in part.values())


def _sha256(path: str) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _safetensors() -> Any:
    try:
        from safetensors import torch as safetensors
    except ImportError:
        raise ConfigurationError("model.safetensors needs the package safetensors: pip install safetensors") from None
    return safetensors
