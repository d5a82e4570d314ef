"""A package as one HTML file, which translates in a browser without a network."""

import base64
import gzip
import hashlib
import html
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..registry import ConfigurationError
from .package import FORMAT, WITH_FEATURES

HERE = Path(__file__).parent
Name = str | os.PathLike[str]
# files of onnxruntime-web
PROGRAM, LOADER, ENGINE = "ort.wasm.min.js", "ort-wasm-simd-threaded.mjs", "ort-wasm-simd-threaded.wasm"


def find_onnxruntime_web(folder: Name | None = None) -> Path:
    """The folder ``dist`` of onnxruntime-web: in ``folder``, or where npm puts it, here or in a folder above.

    Raises:
        ConfigurationError: onnxruntime-web is not there.
    """
    here = Path.cwd()
    folders = (
        [Path(folder)] if folder else [above / "node_modules" / "onnxruntime-web" for above in (here, *here.parents)]
    )
    found = [inside for outside in folders for inside in (outside, outside / "dist") if (inside / ENGINE).is_file()]
    if not found or not all((found[0] / name).is_file() for name in (PROGRAM, LOADER)):
        raise ConfigurationError(
            f"a page needs onnxruntime-web, which is not in {folder or 'node_modules'}: "
            f"run `npm install onnxruntime-web --ignore-scripts`{', or name its folder' if folder else ''}"
        )
    return found[0]


def build_page(package: Name, onnxruntime_web: Name | None = None) -> Path:
    """Write ``translate.html`` into a package.

    Args:
        package: the folder that ``fairseq-attnvariants export`` wrote.
        onnxruntime_web: the folder of onnxruntime-web; by default ``node_modules/onnxruntime-web``, here or above.

    Returns:
        The path of the page, a single file that needs no other file.

    Raises:
        ConfigurationError: onnxruntime-web is missing, the package has another format, or one of its files is damaged,
            a link, or elsewhere.
    """
    folder, web = Path(package), find_onnxruntime_web(onnxruntime_web)
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    if manifest.get("format") not in (FORMAT, WITH_FEATURES):
        raise ConfigurationError(
            f"{folder} is of format {manifest.get('format')!r}, and a page needs {FORMAT} or {WITH_FEATURES}"
        )
    contents = read_files(folder, manifest["files"])
    model = contents.pop("model.onnx")
    files = {name: json.loads(data) if name.endswith(".json") else data.decode() for name, data in contents.items()}
    about, sides = manifest["about"], [manifest[side].get("language") or side for side in ("source", "target")]
    notes = [f"{name}: {about[name]}." for name in ("trained", "score", "license") if about.get(name)]
    values = {
        "title": html.escape(about.get("title") or f"{sides[0]} to {sides[1]}, {manifest['architecture']}"),
        "source": html.escape(sides[0]),
        "target": html.escape(sides[1]),
        # a phone would begin a single word with a capital, which such models seldom know
        "capitals": "off" if manifest["source"]["units"] in ("spaced", "graphemes", "decomposed") else "sentences",
        "about": html.escape(" ".join([f"Architecture: {manifest['architecture']}.", *notes])),
        "package": packed(json.dumps({"manifest": manifest, "files": files}).encode()),
        "model": packed(model),
        "wasm": packed((web / ENGINE).read_bytes()),
        "loader": packed((web / LOADER).read_bytes()),
        "onnxruntime": script((web / PROGRAM).read_text(encoding="utf-8")),
        "runtime": script((HERE / "page.js").read_text(encoding="utf-8")),
    }
    template = (HERE / "page.html").read_text(encoding="utf-8")
    page = folder / "translate.html"
    unfinished = page.with_suffix(".tmp")
    unfinished.unlink(missing_ok=True)  # a link, or the rest of an earlier run; mode x opens only new files
    with open(unfinished, "x", encoding="utf-8") as stream:
        stream.write(re.sub(r"\$(\w+)\b", lambda match: values.get(match[1], match[0]), template))
    unfinished.replace(page)
    return page


def read_files(folder: Path, listed: Mapping[str, Any]) -> dict[str, bytes]:
    """The content of the files that a manifest lists, by name.

    Raises:
        ConfigurationError: a file is damaged, a link, or elsewhere.
    """
    contents: dict[str, bytes] = {}
    for name, about in listed.items():
        if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", name) or (folder / name).is_symlink():
            raise ConfigurationError(f"{folder}: {name!r} cannot be a file of a package: export the model again")
        contents[name] = (folder / name).read_bytes()
        if hashlib.sha256(contents[name]).hexdigest() != about["sha256"]:
            raise ConfigurationError(f"{folder / name} is not the file that was exported: export the model again")
    return contents


def packed(data: bytes) -> str:
    """Compressed bytes as text; equal bytes give equal text."""
    return base64.b64encode(gzip.compress(data, mtime=0)).decode()


def script(text: str) -> str:
    """JavaScript for a page: no string in it ends the element, and it names no source map."""
    return re.sub(r"<(?=/script|!--)", r"\\x3c", re.sub(r"//# sourceMappingURL=\S*", "", text), flags=re.IGNORECASE)
