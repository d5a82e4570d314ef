"""Models that ship: get-model copies them for users of the wheel, and refuses other files under their names."""

import hashlib
import json
import re

import pytest

from fairseq_attnvariants_cli.installed import runtime
from fairseq_attnvariants_cli.main import main
from fairseq_attnvariants_cli.subcommands import get_model

MANIFEST = {"files": {"model.onnx": {"sha256": hashlib.sha256(b"model").hexdigest(), "bytes": 5}}}
CONTENT = {"manifest.json": json.dumps(MANIFEST).encode(), "model.onnx": b"model"}
CONTENT["translate.py"] = runtime().read_bytes()


@pytest.fixture
def models(tmp_path, monkeypatch):
    """A folder with a model whose digest is in the table of this version."""
    (tmp_path / "models" / "ja-en").mkdir(parents=True)
    for name, content in CONTENT.items():
        (tmp_path / "models" / "ja-en" / name).write_bytes(content)
    monkeypatch.setitem(get_model.MODELS, "ja-en", hashlib.sha256(CONTENT["manifest.json"]).hexdigest())
    monkeypatch.chdir(tmp_path)
    return tmp_path / "models"


@pytest.mark.parametrize("address", [str, lambda path: f"{path}/", lambda path: path.as_uri()])
def test_the_whole_model_arrives(models, tmp_path, address, capsys):
    (models / "ja-en" / "translate.html").write_text("not part of it")
    assert main(["get-model", "ja-en", "--from", address(models)]) == 0
    assert {path.name: path.read_bytes() for path in (tmp_path / "ja-en").iterdir()} == CONTENT
    said = capsys.readouterr().err
    assert re.fullmatch(r"ja-en: 0\.\d MB; python ja-en/translate.py < text translates with it\n", said)


@pytest.mark.parametrize("name", CONTENT)
@pytest.mark.parametrize("other", [b"", b"x", b"model and more"])
def test_another_file_is_refused(models, tmp_path, name, other, refusal):
    (models / "ja-en" / name).write_bytes(other)
    error = refusal(["get-model", "ja-en", "--from", models.as_uri(), "--output", "here"])
    assert f"ja-en/{name} is not the file of version " in error
    assert [path.name for path in tmp_path.iterdir()] == ["models"]


@pytest.mark.parametrize("place, why", [
    ("nowhere", "--from: nowhere/ja-en/manifest.json cannot be read (No such file or directory)"),
    ("file:///nowhere", "--from: file:///nowhere/ja-en/manifest.json cannot be read (<urlopen error"),
    ("nothing://here", "--from: nothing://here/ja-en/manifest.json cannot be read (<urlopen error unknown url type"),
    ("https://", "--from: https:/ja-en/manifest.json cannot be read ("),
])  # fmt: skip
def test_a_place_without_models_is_refused(models, tmp_path, place, why, refusal):
    assert why in refusal(["get-model", "ja-en", "--from", place])
    assert [path.name for path in tmp_path.iterdir()] == ["models"]


def test_options_are_refused_before_anything_is_read(models, refusal):
    (models.parent / "ja-en").mkdir()
    for line, why in (
        ("get-model ja-en --from models", "ja-en exists already: name another folder, or remove it"),
        ("get-model de-en --from models", "invalid choice: 'de-en' (choose from"),
        ("get-model ja-en", "the following arguments are required: --from"),
    ):
        assert why in refusal(line.split())
