"""Write the options of :mod:`.options` into the ``model`` section of ``train.yaml``.

python -m fairseq_attnvariants.architectures.make_yaml
"""

import dataclasses
import json
import re
from pathlib import Path

from .options import AttentionRNNConfig

PATH = Path(__file__).parent.with_name("config") / "train.yaml"
SECTION = re.compile(r"^model:\n(  .*\n)+", re.MULTILINE)


def filled(text: str) -> str:
    """The text of ``train.yaml`` with every option and its default."""
    rows = ["model:", "  _name: rnnsearch"]
    for option in dataclasses.fields(AttentionRNNConfig):
        if option.name == "_name":
            continue
        value = option.default
        # interpolations and words are written unchanged; null, truth values and numbers as in JSON
        rows.append(f"  {option.name}: {value if isinstance(value, str) else json.dumps(value)}")
    return SECTION.sub(lambda _: "\n".join(rows) + "\n", text, count=1)


if __name__ == "__main__":
    PATH.write_text(filled(PATH.read_text()))
