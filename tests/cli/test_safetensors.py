"""``export --safetensors``: models without pickle, the same translations, and what is refused."""

import hashlib
import json
import os
import re
import resource
import sys

import corpus
import pytest
import torch
from foreign import network, save, write
from safetensors.torch import load_file, save_file
from test_import_nematus import SOURCE, TARGET, command, dictionaries

from fairseq_attnvariants.models import AttentionRNNModel
from fairseq_attnvariants.patches.loading import plain
from fairseq_attnvariants.registry import ConfigurationError
from fairseq_attnvariants_cli.main import main

FILES = {"model.safetensors", "config.json", "dict.xx.txt", "dict.yy.txt"}
EMBEDDING = "decoder.embed_tokens.weight"
LINES = ["ant bee cat", "elk dog dog ant"]


def export(data, model, output):
    """The subcommand's arguments."""
    return ["export", str(data), "--path", str(data / model), "--output", str(output), "--safetensors"]


@pytest.fixture
def checkpoint(tmp_path):
    """A folder with a checkpoint, whose embedding and vocabulary layer are tied."""
    net = network(norm="nematus", tied=True)
    path = save(net, write(net, (len(SOURCE), len(TARGET))), tmp_path / "model")
    assert main(command(path, dictionaries(tmp_path), tmp_path / "checkpoint")) == 0
    return tmp_path / "checkpoint"


@pytest.fixture
def folder(checkpoint):
    """The folder of that model without pickle."""
    output = checkpoint.with_name("exported")
    assert main(export(checkpoint, "model.pt", output)) == 0
    return output


def test_the_same_translations(checkpoint, folder):
    assert {*os.listdir(folder)} == FILES
    one, other = (AttentionRNNModel.from_pretrained(str(path)) for path in (checkpoint, folder))
    given = dict(beam=4, max_len_b=8, nbest=3)
    assert one.translate(LINES, **given) == other.translate(LINES, **given)
    states = [hub.models[0].state_dict() for hub in (one, other)]
    assert states[0].keys() == states[1].keys()
    assert all(torch.equal(value, states[1][name]) for name, value in states[0].items())
    decoder = other.models[0].decoder
    assert decoder.output_projection.weight is decoder.embed_tokens.weight
    assert "decoder.output_projection.weight" not in load_file(folder / "model.safetensors")  # stored once


def test_of_several_folders_the_first_has_the_dictionaries(checkpoint, folder):
    output, data = folder.with_name("again"), os.pathsep.join([str(checkpoint), "more"])
    assert main([*export(checkpoint, "model.pt", output)[:1], data, *export(checkpoint, "model.pt", output)[2:]]) == 0
    assert {*os.listdir(output)} == FILES


def test_twice_there_and_back(folder):
    """An exported folder can be exported again."""
    output = folder.with_name("again")
    assert main(export(folder, "model.safetensors", output)) == 0
    for name in FILES:
        assert (folder / name).read_bytes() == (output / name).read_bytes()


def test_languages_are_those_that_fairseq_finds_in_the_data_folder(checkpoint, tmp_path):
    """If the checkpoint names no languages, those of the binarised text are stored."""
    state = torch.load(checkpoint / "model.pt", weights_only=True)
    state["cfg"]["task"].update(source_lang=None, target_lang=None)
    (checkpoint / "train.xx-yy.xx.idx").touch()
    plain.save(str(tmp_path), state, str(checkpoint))
    task = json.loads((tmp_path / "config.json").read_text())["cfg"]["task"]
    assert (task["source_lang"], task["target_lang"]) == ("xx", "yy")


def test_a_model_of_many_languages_is_of_no_pair(checkpoint, tmp_path):
    state = torch.load(checkpoint / "model.pt", weights_only=True)
    state["cfg"]["task"].update(source_lang=None, target_lang=None, lang_pairs="xx-yy,xx-zz")
    for pair in ("xx-yy", "xx-zz"):
        (checkpoint / f"train.{pair}.xx.idx").touch()
    plain.save(str(tmp_path), state, str(checkpoint))
    task = json.loads((tmp_path / "config.json").read_text())["cfg"]["task"]
    assert (task["source_lang"], task["target_lang"]) == (None, None)


def test_a_part_of_a_tensor_is_one_of_its_own(checkpoint, tmp_path):
    whole = torch.arange(12.0).view(3, 4)
    given = {"whole": whole, "rows": whole[:2], "turned": whole.t(), "same": whole, "none": whole[:0]}
    plain.save(str(tmp_path), {"model": given, "cfg": {"task": {}}}, str(checkpoint))
    found = plain.load(str(tmp_path))["model"]
    assert found.keys() == given.keys() and all(torch.equal(found[name], value) for name, value in given.items())
    assert found["same"] is found["whole"]


@pytest.mark.parametrize("subcommand", ["align", "eos"])
def test_subcommands_read_it(checkpoint, folder, tmp_path, capfd, subcommand):
    (tmp_path / "source").write_text("\n".join(LINES))
    found = []
    for where, name in ((checkpoint, "model.pt"), (folder, "model.safetensors")):
        texts = [part for option in ("--source", "--reference") for part in (option, str(tmp_path / "source"))]
        more = ["--name", "model"] * (subcommand == "eos")
        assert main([subcommand, str(where), "--path", str(where / name), "--cpu", *texts, *more]) == 0
        found.append(capfd.readouterr().out)
    assert found[0] == found[1] != ""


@pytest.mark.commands
def test_fairseq_reads_it(checkpoint, folder):
    languages = ["-s", "xx", "-t", "yy", "--user-dir", corpus.USER_DIR, "--cpu", "--max-len-b", "8", "--path"]
    found = [
        corpus.run("fairseq-interactive", where, *languages, where / name, stdin="\n".join(LINES)).stdout
        for where, name in ((checkpoint, "model.pt"), (folder, "model.safetensors"))
    ]
    hypotheses = [re.findall(r"^[HP]-.*", text, re.MULTILINE) for text in found]
    assert hypotheses[0] == hypotheses[1] and len(hypotheses[0]) == 4


def summed(folder, change=None):
    """Write the configuration after ``change``, with the checksum of the model's file as it is now."""
    path = folder / "config.json"
    content = json.loads(path.read_text())
    content["sha256"]["model.safetensors"] = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    if change is not None:
        change(content)
    path.write_text(json.dumps(content))


def with_parameters(folder, change):
    """Write the model after ``change(parameters)``, with its checksum in the configuration."""
    parameters = load_file(folder / "model.safetensors")
    change(parameters)
    save_file(parameters, folder / "model.safetensors")
    summed(folder)


def test_a_dictionary_that_cannot_be_read_is_named(checkpoint, refusal):
    (checkpoint / "dict.zz.txt").symlink_to("nowhere")
    error = refusal(export(checkpoint, "model.pt", checkpoint.with_name("exported")))
    assert "dict.zz.txt cannot be read: No such file" in error
    assert not checkpoint.with_name("exported").exists()


def flip(path):
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


REFUSED = {
    "a bit of the model": (lambda folder: flip(folder / "model.safetensors"), "model.safetensors is not the one that"),
    "a word": (lambda folder: (folder / "dict.xx.txt").write_text("ant 1\n"), "dict.xx.txt is not the one that was"),
    "half of the configuration": (
        lambda folder: (folder / "config.json").write_text((folder / "config.json").read_text()[:200]),
        "config.json is damaged, or no JSON"),
    "a list": (lambda folder: (folder / "config.json").write_text("[]"), "config.json is damaged: it lacks format"),
    "a later format": (lambda folder: summed(folder, lambda content: content.update(format=2)),
        "config.json is of format 2, and this version reads 1"),
    "no sum of the model": (lambda folder: summed(folder, lambda content: content["sha256"].pop("model.safetensors")),
        "has no checksum of model.safetensors"),
    "no safetensors": (lambda folder: ((folder / "model.safetensors").write_bytes(b"x" * 99), summed(folder)),
        "model.safetensors: not loaded: it is damaged or no safetensors"),
    "a file that is missing": (lambda folder: (folder / "config.json").unlink(), "config.json cannot be read: No such"),
    "a file elsewhere": (lambda folder: summed(folder, lambda content: content["sha256"].update({"../model.npz": ""})),
        "names '../model.npz', which is no file of its folder"),
    "a name with a zero byte": (lambda folder: summed(folder, lambda content: content["sha256"].update({"a\0": ""})),
        r"names 'a.x00', which is no file of its folder"),
    "a name that no file can have": (
        lambda folder: summed(folder, lambda content: content["sha256"].update({"\ud800": ""})),
        r"names '.ud800', which is no file of its folder"),
    "another name": (lambda folder: with_parameters(folder, lambda own: own.update(other=torch.ones(1))),
        "model.safetensors .* does not fit the model .* Unexpected key.*other"),
    "a missing name": (
        lambda folder: with_parameters(folder, lambda own: own.pop("decoder.network.transition.attention.vector")),
        "does not fit the model .* Missing key.*attention.vector"),
    "another shape": (
        lambda folder: with_parameters(
            folder, lambda own: own.update({"decoder.network.transition.attention.vector": torch.ones(3)})
        ),
        "does not fit the model .* size mismatch for decoder.network.transition.attention.vector",
    ),
    "an interpolation": (
        lambda folder: summed(folder, lambda content: content["cfg"]["task"].update(data="${oc.env:HOME}")),
        "a checkpoint holds values, no interpolations"),
    "a tie to nothing": (lambda folder: summed(folder, lambda content: content["tied"].update(a="b")),
        "config.json is damaged: it ties 'a' to 'b'"),
    "a tie instead of what is there": (
        lambda folder: with_parameters(
            folder, lambda own: own.update({"decoder.output_projection.weight": own[EMBEDDING].clone()})
        ),
        "config.json is damaged: it ties 'decoder.output_projection.weight' to 'decoder.embed_tokens.weight'",
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", REFUSED)
def test_refuses(kind, folder):
    change, message = REFUSED[kind]
    change(folder)
    with pytest.raises(ValueError, match=message) as caught:
        AttentionRNNModel.from_pretrained(str(folder))
    assert "\n" not in str(caught.value)


def test_refuses_to_write_without_dictionaries(checkpoint, tmp_path, refusal):
    (tmp_path / "empty").mkdir()
    arguments = export(checkpoint, "model.pt", tmp_path / "made")
    arguments[1] = str(tmp_path / "empty")
    assert "there are no dictionaries, dict.*.txt, in" in refusal(arguments) and not (tmp_path / "made").exists()


def test_refuses_to_write_with_the_dictionaries_of_another_model(checkpoint, tmp_path, refusal):
    (checkpoint / "dict.xx.txt").write_text("ant 1\n")
    error = refusal(export(checkpoint, "model.pt", tmp_path / "made"))
    assert "with another source dictionary than the one in the data folder" in error


@pytest.mark.parametrize("options", [
    ["--int8"], ["--page"], ["--beam", "5"], ["--max-len-a", "0"], ["--bpe-codes", "codes"], ["--lowercase"],
])  # fmt: skip
def test_options_of_a_folder_that_translates_are_refused(checkpoint, tmp_path, refusal, options):
    said = refusal([*export(checkpoint, "model.pt", tmp_path / "made"), *options])
    assert f" export: {options[0]} is of a folder that translates by itself, and" in said
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("kind", ["checkpoint", "safetensors"])
def test_weights_that_do_not_fit_on_the_disk(checkpoint, tmp_path, refusal, kind):
    """The limit on the size of files has the effect of a full disk: libraries of weights raise errors of their own."""
    made, (soft, hard) = tmp_path / "made", resource.getrlimit(resource.RLIMIT_FSIZE)
    imported = command(tmp_path / "model.npz", dictionaries(tmp_path), made)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        said = refusal(imported if kind == "checkpoint" else export(checkpoint, "model.pt", made))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert said.endswith(f": {made} cannot be written: File too large\n") and not [*tmp_path.glob("made*")]


def test_safetensors_that_is_not_installed(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "safetensors", None)
    with pytest.raises(ConfigurationError, match="needs the package safetensors: pip install safetensors"):
        plain.load(str(folder))
