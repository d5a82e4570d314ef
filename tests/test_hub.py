"""Models from Python: translations with attention, and names that no architecture has."""

import argparse
import re

import pytest
import torch
from conftest import Task
from corpus import USER_DIR, run
from fairseq import options
from fairseq.models import build_model

from fairseq_attnvariants.models import AttentionRNNModel


def test_translation_with_attention(runs):
    """The attention is that of the model reading its own translation."""
    hub = AttentionRNNModel.from_pretrained(
        str(runs.rnnsearch), "checkpoint_best.pt", str(runs.data), user_dir=USER_DIR
    )
    sentences = ["ant bee cat dog", "elk yak"]
    translations = hub.translate(sentences, beam=3, attention=True)
    assert [translation.text for translation in translations] == hub.translate(sentences, beam=3)
    assert [translation.source[-2:] for translation in translations] == [["dog", "</s>"], ["<unk>", "</s>"]]
    for sentence, (text, source, target, attention) in zip(sentences, translations):
        assert target == [*text.split(), "</s>"]
        tokens, written = hub.encode(sentence), hub.tgt_dict.encode_line(text, add_if_not_exist=False).long()
        previous = torch.cat([written[-1:], written[:-1]])
        model = hub.models[0]
        expected = model(tokens[None], torch.tensor([len(tokens)]), previous[None])[1]["attn"][0][0]
        assert attention.shape == (len(target), len(source))
        torch.testing.assert_close(attention, expected)


def test_attention_on_characters(characters):
    """The task ends the source in a space."""
    folder, name = characters.ava.parent, characters.ava.name
    hub = AttentionRNNModel.from_pretrained(str(folder), name, str(characters.data), user_dir=USER_DIR)
    found = hub.translate("ant bee", beam=2, attention=True)
    assert found.source[-2:] == [" ", "</s>"] and found.attention.shape == (len(found.target), len(found.source))


def test_an_ensemble(runs):
    """Names with a colon between; translations are those of the command."""
    names = ["checkpoint1.pt", "checkpoint2.pt"]
    hub = AttentionRNNModel.from_pretrained(runs.rnnsearch, ":".join(names), runs.data)
    paths = ":".join(str(runs.rnnsearch / name) for name in names)
    out = run("fairseq-generate", runs.data, "--user-dir", USER_DIR, "--path", paths, "--cpu", "--beam", "3").stdout
    found = {int(number): text for number, text in re.findall(r"^H-(\d+)\t\S+\t(.*)$", out, re.MULTILINE)}
    sources = (runs.text / "test.xx").read_text().splitlines()
    assert len(hub.models) == 2 and hub.translate(sources, beam=3) == [found[k] for k in range(len(sources))]


def test_an_option_that_search_does_not_have(runs):
    hub = AttentionRNNModel.from_pretrained(runs.rnnsearch, "checkpoint_best.pt", runs.data)
    assert hub.translate(["ant"], beam=2, lenpen=0.5) == hub.translate(["ant"], 2, lenpen=0.5)
    for translate in (hub.translate, hub.sample):
        with pytest.raises(TypeError, match=r"no option 'beem' \(did you mean beam\?\)"):
            translate("ant", beem=5)


@pytest.mark.parametrize("folder,name,text,message", [
    ("checkpoint_best.pt", "model.pt", "{data}", "is a file: give its folder and its name, '.*', 'checkpoint_best.pt'"),
    ("", "model.pt", "{data}", "there is no model.pt in .*: give its name there as checkpoint_file"),
    ("", "checkpoint_best.pt", "{data}/none", "no dictionaries, dict.*.txt, in .*none: give the folder of fairseq"),
    ("", "checkpoint_best.pt", ".", "no dictionaries, .* begins with a dot is taken from the model's folder"),
])  # fmt: skip
def test_what_is_not_there_is_named(runs, folder, name, text, message):
    with pytest.raises(ValueError, match=message):
        AttentionRNNModel.from_pretrained(runs.rnnsearch / folder, name, text.format(data=runs.data))


def test_an_unknown_arch(capsys):
    parser = options.get_training_parser()
    assert options.parse_args_and_arch(parser, ["data", "-a", "dl4mt"]).arch == "dl4mt"
    with pytest.raises(SystemExit):
        options.parse_args_and_arch(parser, ["data", "--arch", "rnnserch"])
    last = capsys.readouterr().err.splitlines()[-1]
    assert "argument --arch/-a: rnnserch: there is no such architecture here (did you mean rnnsearch?)" in last


@pytest.mark.parametrize("name,message", [
    ("rnsearch", "did you mean rnnsearch"), ("adaptive-both", "did you mean adaptive_both"), ("xyz", "another plugin's")
])  # fmt: skip
def test_an_unknown_name(name, message):
    with pytest.raises(ValueError, match=f"model._name={name}: there is no such architecture.*{message}"):
        build_model(argparse.Namespace(_name=name), Task())
