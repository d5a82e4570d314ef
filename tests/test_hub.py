"""Models from Python: translations with attention, and names that no architecture has."""

import argparse

import pytest
import torch
from conftest import Task
from corpus import USER_DIR
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


@pytest.mark.parametrize("name,message", [
    ("rnsearch", "did you mean rnnsearch"), ("adaptive-both", "did you mean adaptive_both"), ("xyz", "another plugin's")
])  # fmt: skip
def test_an_unknown_name(name, message):
    with pytest.raises(ValueError, match=f"model._name={name}: there is no such architecture.*{message}"):
        build_model(argparse.Namespace(_name=name), Task())
