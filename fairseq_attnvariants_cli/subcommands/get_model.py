"""``fairseq-attnvariants get-model``: one of the models that ship with the repository."""

import hashlib
import http.client
import json
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from ..installed import installed, runtime
from ..options import option
from ..text.files import UserError, reason, say
from ..text.folders import new_folder

# SHA-256 of each manifest, which has the SHA-256 of all files except the program
MODELS = {
    "ja-en": "bcaacbe0bd2adb90df4229011f646b7004fdae4278b503fe3547b0a693bd5a1e",
    "en-ja": "b91a69f05176bd9eb404860bc7832b0551528bacf202f9b17113f14fdef98317",
}
LARGEST = 2**20  # most bytes of a manifest or of the program
PATIENCE = 60  # seconds without an answer


@dataclass
class Options:
    """Copy or download a model that ships with the repository, and check that this version knows it.

    example: fairseq-attnvariants get-model ja-en --from checkout/models

    Args:
        model: its name
        from_: the folder models of a checkout, or its address (https://...)
        output: the new folder (default: the model's name)
    """

    model: str = option("MODEL", positional=True, choices=list(MODELS))
    from_: str = option("URL_OR_FOLDER", dest="from_", required=True)
    output: str | None = option("FOLDER")


def known(model: str) -> dict[str, str]:
    """Return the SHA-256 of the manifest, which has that of the other files, and of this version's program."""
    return {"manifest.json": MODELS[model], "translate.py": hashlib.sha256(runtime().read_bytes()).hexdigest()}


def fetch(place: str, name: str, sha256: str, largest: int) -> bytes:
    """Read a file of a model, and check its SHA-256.

    Raises:
        UserError: the file cannot be read, or has another SHA-256.
    """
    address = f"{place}/{name}"
    try:
        with urllib.request.urlopen(address, timeout=PATIENCE) if "://" in place else open(address, "rb") as stream:
            data = stream.read(largest + 1)
    except (OSError, ValueError, http.client.HTTPException) as error:
        why = getattr(error, "strerror", None) or reason(error)
        raise UserError(f"--from: {address} cannot be read ({why})") from error
    if hashlib.sha256(data).hexdigest() != sha256:
        version = installed("fairseq-attnvariants")
        raise UserError(f"--from: {address} is not the file of version {version} (other SHA-256): take that version's")
    return data


def run(options: Options) -> None:
    """Fetch all files, and check each."""
    output, place = options.output or options.model, f"{options.from_.rstrip('/')}/{options.model}"
    with new_folder(output) as folder:

        def keep(name: str, sha256: str, largest: int) -> bytes:
            data = fetch(place, name, sha256, largest)
            Path(folder, name).write_bytes(data)
            return data

        manifest, program = known(options.model).items()
        for name, about in json.loads(keep(*manifest, LARGEST))["files"].items():
            keep(name, about["sha256"], about["bytes"])
        keep(*program, LARGEST)
        size = sum(path.stat().st_size for path in Path(folder).iterdir())
    say(f"{output}: {size / 2**20:.1f} MB; python {output}/translate.py < text translates with it")
