"""The models that ship are those of the card, and translate as recorded, with the runtime alone."""

import hashlib
import json

import packages
import pytest
from packages import runtime

from fairseq_attnvariants_cli.main import main
from fairseq_attnvariants_cli.subcommands.get_model import MODELS, known

FOLDER = packages.ROOT / "models"
LARGEST = 6 * 2**20
TRANSLATIONS = {
    "ja-en": {
        "彼は医者になりたがっている。": "he wants to be a doctor.",
        "この本は私のものではありません。": "this book is not mine.",
        "10時前に戻らなければならない": "you must be back before ten",
        "明日は雨が降るでしょう。": "it will rain tomorrow.",
    },
    "en-ja": {
        "He wants to be a doctor.": "彼は医者になりたい。",
        "I can't swim.": "私は泳げない。",
        "She gets up at six every morning": "彼女は毎朝６時に起きる",
    },
}


def test_every_model_is_known():
    assert {path.parent.name for path in FOLDER.glob("*/manifest.json")} == set(MODELS) == set(TRANSLATIONS)


@pytest.mark.parametrize("model", MODELS)
def test_the_files_are_those_that_get_model_and_the_card_know(model):
    """After an export, copy the printed hashes to get_model.py and models/README.md. The program is the current one."""
    sha256 = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in (FOLDER / model).iterdir()}
    assert {name: sha256[name] for name in known(model)} == known(model)
    listed = json.loads((FOLDER / model / "manifest.json").read_text())["files"]
    assert {name: about["sha256"] for name, about in listed.items()} == {
        name: value for name, value in sha256.items() if name not in known(model)
    }
    assert sha256["model.onnx"] in (FOLDER / "README.md").read_text()
    assert sum(path.stat().st_size for path in (FOLDER / model).iterdir()) <= LARGEST


@pytest.mark.parametrize("model", TRANSLATIONS)
def test_the_model_translates_as_recorded(model):
    found = runtime.Translator(FOLDER / model).translate(list(TRANSLATIONS[model]))
    assert [one.text for one in found] == list(TRANSLATIONS[model].values())


def test_get_model_gets_one(tmp_path):
    assert main(["get-model", "ja-en", "--from", FOLDER.as_uri(), "--output", str(tmp_path / "here")]) == 0
    sentence, translation = next(iter(TRANSLATIONS["ja-en"].items()))
    assert runtime.Translator(tmp_path / "here").translate([sentence])[0].text == translation


def test_a_request_has_a_beam_of_bounded_width():
    """The package's largest beam, 1887, would take hours."""
    desk = runtime.Desk(runtime.Translator(FOLDER / "ja-en"))
    assert desk.answer(b'{"text": "", "beam": 32}')[0] == 200
    assert desk.answer(b'{"text": "", "beam": 33}') == (400, {"error": "the beam must be from 1 to 32, not 33"})


def test_a_request_has_attention_of_bounded_size():
    desk = runtime.Desk(runtime.Translator(FOLDER / "ja-en"))
    request = {"lines": ["\u732b" * 100] * 100, "n_best": 5, "attention": True}
    status, answer = desk.answer(json.dumps(request).encode())
    assert status == 400 and answer["error"].startswith("the attention of so many words is too large: ask for fewer")
    assert desk.answer(b'{"lines": ["\xe7\x8c\xab"], "n_best": 5, "attention": true}')[0] == 200


def test_lines_are_a_list():
    translator = runtime.Translator(FOLDER / "ja-en")
    for lines, more in (("the red", {}), (["the red"], {"batch_size": 0})):
        with pytest.raises(runtime.SentenceError, match="takes a list of lines|at least 1, not 0"):
            translator.translate(lines, **more)
