"""Models from Python: translations with attention, and names that no architecture has."""

import argparse
import dataclasses
import math
import re
from argparse import Namespace

import pytest
import torch
from conftest import Task
from corpus import USER_DIR, run
from fairseq import options
from fairseq.data import Dictionary
from fairseq.dataclass.configs import GenerationConfig
from fairseq.models import build_model

from fairseq_attnvariants.models import AttentionRNNModel
from fairseq_attnvariants.models.hub import INSTEAD, Hub
from fairseq_attnvariants.tasks import StringDictionary

SENTENCES = ["ant bee cat dog", "elk yak", "jay"]
READ = "beam max_len_a max_len_b min_len match_source_len unnormalized lenpen unkpen no_repeat_ngram_size sampling "
READ += "sampling_topk sampling_topp temperature diverse_beam_groups diverse_beam_strength diversity_rate"


def test_translation_with_attention(runs):
    """The attention is that of the model when it reads the translation as a given target."""
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
    """The task adds a space at the end of the source."""
    folder, name = characters.ava.parent, characters.ava.name
    hub = AttentionRNNModel.from_pretrained(str(folder), name, str(characters.data), user_dir=USER_DIR)
    found = hub.translate("ant bee", beam=2, attention=True)
    assert found.source[-2:] == [" ", "</s>"] and found.attention.shape == (len(found.target), len(found.source))


def test_an_ensemble(runs):
    """Names are separated by a colon; translations are those of the command."""
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
    for option in ("attention", "prefix", "ordered", "options"):  # translate has some of them
        with pytest.raises(TypeError, match=f"no option '{option}'"):
            hub.generate(hub.encode("ant"), **{option: True})


@pytest.fixture(scope="module")
def hub(runs):
    return AttentionRNNModel.from_pretrained(runs.rnnsearch, "checkpoint_best.pt", runs.data)


def test_prefixes(hub):
    """A prefix is for all sentences, or there is one for each, in any order of batches."""
    found = hub.translate(SENTENCES, prefix="hen jay")
    assert [text.split()[:2] for text in found] == [["hen", "jay"]] * 3
    first, second, third = hub.translate(SENTENCES, prefix=["ant", "", "hen fox gnu"])
    assert first.startswith("ant") and second == hub.translate(SENTENCES[1]) and third.startswith("hen fox gnu")
    assert hub.translate(SENTENCES[0], prefix="ant") == first
    assert hub.translate("jay", prefix="hen fox", max_len_b=2) == "hen fox"


def test_constraints(hub):
    """The words of a phrase stay together; phrases are in the order of the list, or in any order."""
    first, second, third = hub.translate(SENTENCES, beam=4, constraints=[["gnu"], [], ["fox hen", "ant"]])
    assert "gnu" in first.split() and second == hub.translate(SENTENCES[1], beam=4)
    assert re.search("fox hen.*ant", third)
    assert hub.translate("jay", beam=4, constraints=iter(["fox hen", "ant"])) == third
    free = hub.translate("jay", beam=4, constraints=["fox hen", "ant"], ordered=False)
    assert "fox hen" in free and "ant" in free
    best = hub.translate("jay", beam=4, prefix="ant", constraints=["gnu"])
    assert best.startswith("ant") and "gnu" in best


def test_forced_text_is_cut_into_tokens_as_the_source_is(hub, monkeypatch):
    class Lower:
        encode, decode = staticmethod(str.lower), staticmethod(str.upper)

    monkeypatch.setattr(hub, "bpe", Lower)
    assert hub.translate("JAY", prefix="HEN", constraints=["GNU"]).startswith("HEN")
    assert hub.score("JAY", "HEN").tokens == ["hen", "</s>"]


def test_several_translations(hub):
    found = hub.translate(SENTENCES, beam=4, nbest=3)
    assert [texts[0] for texts in found] == hub.translate(SENTENCES, beam=4)
    assert all(len({*texts}) == 3 for texts in found) and hub.translate(SENTENCES[1], beam=4, nbest=3) == found[1]
    told = hub.translate(SENTENCES[1], beam=4, nbest=2, attention=True)
    assert [one.text for one in told] == found[1][:2]
    assert hub.translate([]) == hub.translate([], prefix="ant", constraints=[]) == []


def test_a_source_word_for_each_unknown_one(hub):
    """``replace_unk`` takes the source word with the highest weight, except EOS; or its translation."""
    given = dict(unkpen=-30, attention=True)
    [plain] = hub.translate(["yak elk ant"], **given)
    assert "<unk>" in plain.target
    places = plain.attention[:-1, :-1].argmax(1).tolist()
    words = [["yak", "elk", "ant"][k] if word == "<unk>" else word for word, k in zip(plain.target, places)]
    assert hub.translate("yak elk ant", replace_unk=True, **given).text == " ".join(words)
    table = {"yak": "horse", "elk": "moose", "ant": "fourmi"}
    table_words = [table[word] if one == "<unk>" else word for one, word in zip(plain.target, words)]
    assert hub.translate("yak elk ant", replace_unk=table, **given).text == " ".join(table_words)
    assert hub.translate("yak elk ant", unkpen=-30) == plain.text
    unknown = torch.tensor([hub.tgt_dict.unk()])
    assert [*hub._places(unknown, torch.zeros(1, 2), ["yak", "elk"])] == [None]  # no weight is on a word


def test_a_tag_is_no_source_word(hub, monkeypatch):
    """All words of the dictionary are tags here; a tag is never chosen, even with a high weight."""
    sentence = "ant bee yak cat dog"
    target = hub.translate(sentence, unkpen=-30).split()
    monkeypatch.setattr(hub.src_dict, "first_feature", hub.src_dict.nspecial, raising=False)
    expected = ["yak" if word == "<unk>" else word for word in target]
    assert expected != target and hub.translate(sentence, unkpen=-30, replace_unk=True).split() == expected


def test_a_source_word_is_one_of_what_the_tokenizer_makes(hub, monkeypatch):
    """The text is detokenised after the words are replaced."""

    class Dots:
        encode, decode = staticmethod(lambda text: text.replace(".", " .")), staticmethod(lambda text: f"<{text}>")

    monkeypatch.setattr(hub, "tokenizer", Dots)
    plain = hub.translate("yak. elk. ant", unkpen=-30, attention=True)
    source = ["yak", ".", "elk", ".", "ant"]
    places = plain.attention[:-1, :-1].argmax(1).tolist()
    words = [source[k] if word == "<unk>" else word for word, k in zip(plain.target, places)]
    assert len(plain.source) == 6 and plain.target.count("<unk>")
    assert hub.translate("yak. elk. ant", unkpen=-30, replace_unk=True) == f"<{' '.join(words)}>"


def test_what_is_translated_is_logged_if_asked(hub, caplog):
    caplog.set_level("INFO", logger="fairseq_attnvariants")
    found = hub.translate(SENTENCES, beam=2, verbose=True, prefix=["ant", "", ""], nbest=2)
    lines = [line.split("\t") for line in caplog.messages if line[:2] in ("S\t", "H\t", "P\t")]
    assert [line[0] for line in lines] == ["S", "H", "P", "H", "P"] * 3
    assert sorted(line[2] for line in lines if line[0] == "H") == sorted(sum(found, []))
    for (_, score, text), (_, scores) in zip(lines[1::5], lines[2::5]):
        assert float(score) == pytest.approx(sum(map(float, scores.split())) / (len(text.split()) + 1), abs=1e-3)
    caplog.clear()
    hub.translate(SENTENCES)
    assert not [line for line in caplog.messages if line[:2] == "S\t"]


def test_models_of_fairseqs_do_not_copy():
    """Models of fairseq may have no cfg."""
    assert not Hub.copies.fget(Namespace(models=[torch.nn.Linear(1, 1)]))


def test_scores_of_given_translations(runs):
    """Scores are those of fairseq-generate --score-reference, also for an ensemble."""
    names = ["checkpoint1.pt", "checkpoint2.pt"]
    hub = AttentionRNNModel.from_pretrained(runs.rnnsearch, ":".join(names), runs.data)
    paths = ":".join(str(runs.rnnsearch / name) for name in names)
    command = ["fairseq-generate", runs.data, "--user-dir", USER_DIR, "--path", paths, "--cpu", "--score-reference"]
    printed = dict(re.findall(r"^P-(\d+)\t(.*)$", run(*command).stdout, re.MULTILINE))
    sources, targets = ((runs.text / f"test.{side}").read_text().splitlines() for side in ("xx", "yy"))
    for number, score in enumerate(hub.score(sources, targets)):
        expected = [float(value) * math.log(2) for value in printed[str(number)].split()]
        assert score.log_probabilities.tolist() == pytest.approx(expected, abs=1e-4)
        assert score.total == pytest.approx(sum(expected), abs=1e-3) and len(score.tokens) == len(expected)
    alone = hub.score(sources[0], targets[0])
    assert alone.total == pytest.approx(hub.score(sources, targets)[0].total, abs=1e-4)
    assert alone.tokens == [*targets[0].split(), "</s>"]


def test_forced_text_on_characters(characters):
    hub = AttentionRNNModel.from_pretrained(characters.ava.parent, characters.ava.name, str(characters.data))
    assert hub.translate(["ant bee", "cat"], prefix="do", max_len_b=9)[1].startswith("do")
    assert "gn" in hub.translate("ant bee", constraints=["gn"], max_len_b=9)
    assert hub.score("ant", "tna").tokens == ["t", "n", "a", "</s>"]


def test_every_option_of_fairseq_is_read_or_refused(hub, runs):
    """Stock fairseq's interface ignores options that search does not read, or fails because of them."""
    fields = {field.name: field for field in dataclasses.fields(GenerationConfig) if field.name != "_name"}
    assert {*READ.split(), "print_alignment", *INSTEAD} == fields.keys()
    for option in INSTEAD:
        other = 2 if fields[option].default != 2 else 3
        if option not in ("nbest", "replace_unk", "constraints"):  # translate takes these
            with pytest.raises(ValueError, match=f"{option} has no effect here: "):
                hub.translate(SENTENCES, **{option: other})
        with pytest.raises(ValueError, match=f"{option} has no effect here: "):
            hub.generate([hub.encode("ant")], **{option: other})
        if "retain_dropout" not in option:
            with pytest.raises(ValueError, match=f"{option} has no effect here: "):
                AttentionRNNModel.from_pretrained(runs.rnnsearch, "checkpoint_best.pt", runs.data, **{option: other})
    with pytest.raises(ValueError, match="print_alignment has no effect here: give attention=True"):
        hub.translate("ant", print_alignment="hard")
    assert hub.generate(hub.encode("ant"), print_alignment="hard")[0]["alignment"]
    usual = {option: fields[option].default for option in INSTEAD}
    found, [expected] = hub.generate(hub.encode("ant"), **usual), hub.generate([hub.encode("ant")])
    assert [one["tokens"].tolist() for one in found] == [one["tokens"].tolist() for one in expected]


SKIP = dict(skip_invalid_size_inputs=True)


def test_what_generate_takes_translate_takes(hub):
    """Sentences that are too long may be left out, and a function may say which tokens are allowed."""
    long = " ".join(["ant"] * 2000)
    shown = hub.translate([long, "jay"], **SKIP, attention=True)
    assert [one.source for one in shown] == [["jay", "</s>"]]
    for leave_out in (lambda: hub.translate(long, **SKIP), lambda: hub.generate(hub.encode(long), **SKIP)):
        with pytest.raises(ValueError, match="left the only sentence out"):
            leave_out()
    allowed = [hub.tgt_dict.index("gnu"), hub.tgt_dict.eos()]
    assert {*hub.translate("jay", prefix_allowed_tokens_fn=lambda batch, tokens: allowed).split()} == {"gnu"}
    prefixes = torch.tensor([[hub.tgt_dict.index(word)] for word in ("hen", "fox", "gnu")])
    found = hub.translate(SENTENCES, inference_step_args={"prefix_tokens": prefixes})
    assert [text.split()[0] for text in found] == ["hen", "fox", "gnu"]
    nothing = {"prefix_tokens": None, "constraints": None}  # fairseq's defaults
    assert hub.translate(SENTENCES, inference_step_args=nothing) == hub.translate(SENTENCES)


@pytest.mark.parametrize("given,message", [
    (dict(beam=0), "--beam 0 must be at least 1"),
    (dict(nbest=6), "nbest=6: give a number from 1 to the beam width, which is beam=5"),
    (dict(prefix=["ant"]), "prefix has 1 entries for 3 sentences"),
    (dict(prefix="zebra"), "prefix: 'zebra' has a word that the target dictionary lacks, or a symbol such as </s>"),
    (dict(prefix="ant </s> bee"), "prefix: 'ant </s> bee' has a word that"),
    (dict(prefix="ant bee cat", max_len_b=2), "prefix: 3 tokens, where max_len_a, .* allow 2"),
    (dict(prefix="ant " * 1024, max_len_b=2000), "prefix: 1024 tokens, where .* --max-target-positions allow 1023"),
    (dict(constraints=[["ant bee cat"], [], []], max_len_b=2), "constraints: 3 tokens, where max_len_a, .* allow 2"),
    (dict(constraints="ordered"), "constraints has 7 entries for 3 sentences"),
    (dict(constraints=["ant"] * 3), "constraints are a list of words and phrases for each sentence, and not 'ant'"),
    (dict(constraints=[[""], [], []]), r"constraints are a list of words .* and not \[''\]"),
    (dict(constraints=[["zebra"], [], []]), "constraints: 'zebra' has a word that the target dictionary lacks"),
    (dict(constraints=[["<pad>"], [], []]), "constraints: '<pad>' has a word that"),
    (dict(constraints=[[]] * 3, sampling=True), "--sampling and --constraints are different kinds of search"),
    (dict(constraints=[[]] * 3, diverse_beam_groups=2), "--diverse-beam-groups and --constraints are different"),
    (dict(constraints=[[]] * 3, diversity_rate=0.5), "--diversity-rate and --constraints are different"),
    (dict(constraints=[[]] * 3, match_source_len=True), "--match-source-len and --constraints are different"),
    (dict(replace_unk="@@ "), "replace_unk='@@ ': give True, or a dictionary of words"),
])  # fmt: skip
def test_what_does_not_fit_is_refused(hub, given, message):
    with pytest.raises(ValueError, match=message):
        hub.translate(SENTENCES, **given)


@pytest.mark.parametrize("search", ["generate", "sample"])
def test_every_search_refuses_a_beam_of_none(hub, search):
    given = hub.encode("ant") if search == "generate" else SENTENCES
    with pytest.raises(ValueError, match="--beam 0 must be at least 1"):
        getattr(hub, search)(given, beam=0)


def test_scores_need_a_translation_for_each_sentence(hub):
    for targets in ("ant", ["ant"]):
        with pytest.raises(ValueError, match="score takes a translation for each sentence"):
            hub.score(SENTENCES, targets)


@pytest.mark.parametrize("folder,name,text,message", [
    ("checkpoint_best.pt", "model.pt", "{data}", "is a file: give its folder and its name, '.*', 'checkpoint_best.pt'"),
    ("", "model.pt", "{data}", "there is no model.pt in .*: give its name there as checkpoint_file"),
    ("", "checkpoint_best.pt", "{data}/none", "no dictionaries, dict.*.txt, in .*none: give the folder of fairseq"),
    ("", "checkpoint_best.pt", ".", "no dictionaries, .* begins with a dot is taken from the model's folder"),
])  # fmt: skip
def test_what_is_not_there_is_named(runs, folder, name, text, message):
    with pytest.raises(ValueError, match=message):
        AttentionRNNModel.from_pretrained(runs.rnnsearch / folder, name, text.format(data=runs.data))


def test_options_of_loading_that_cannot_work_are_refused(runs):
    for given, message in (
        (dict(beam=2), "beam has no effect here: give it to translate or generate"),
        (dict(user_dir="nowhere"), "there is no .*nowhere: correct the path"),
    ):
        with pytest.raises(ValueError, match=message):
            AttentionRNNModel.from_pretrained(runs.rnnsearch, "checkpoint_best.pt", runs.data, **given)


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


def test_a_tag_is_no_word_that_was_copied():
    """If the highest weight is on a tag, the copied symbol is the letter with the next one that targets lack."""
    source, target = StringDictionary.of(["ab"], ""), StringDictionary.of(["ab"], "")
    features = Dictionary()
    features.add_symbol("N")
    source.add_features(features)
    hub = object.__new__(Hub)
    read = source.encode_line("aщ\tN")
    hub.__dict__.update(src_dict=source, tgt_dict=target, models=[Namespace(cfg=Namespace(copying=True))])
    hub.encode = lambda _: read
    hub.task = Namespace(build_dataset_for_inference=lambda *_: [{"source": read}])
    hub.apply_bpe = hub.tokenize = hub.detokenize = hub.remove_bpe = lambda text: text
    hub.decode = target.string
    hypothesis = {"tokens": torch.tensor([target.unk(), 2]), "attention": torch.tensor([[0.5, 0.1, 0.4, 0.0]] * 2).T}
    assert hub._translation("aщ\tN", hypothesis, True).text == "щ"


def test_constraints_go_with_their_sentence(hub):
    """This also holds for prefixes of several lengths, each of which is searched separately."""
    words = ["gnu", "fox", "hen"]
    found = hub.translate(SENTENCES, beam=4, prefix=["", "ant", ""], constraints=[[word] for word in words])
    assert all(word in text.split() for word, text in zip(words, found)) and found[1].startswith("ant")


def test_a_prefix_may_be_as_long_as_the_source_allows(hub):
    assert hub.translate("jay", prefix="ant bee cat", max_len_a=1, max_len_b=2).startswith("ant bee cat")
    with pytest.raises(ValueError, match="prefix: 3 tokens, where max_len_a, .* allow 2"):
        hub.translate("jay", prefix="ant bee cat", max_len_a=1, max_len_b=0)


def test_a_model_that_returns_no_attention(runs):
    """The stock lstm has attention, but fairseq builds it so that it does not return it."""
    hub = AttentionRNNModel.from_pretrained(runs.lstm, "checkpoint_best.pt", runs.data)
    assert hub.translate("ant")
    for option in ("attention", "replace_unk"):
        with pytest.raises(ValueError, match="the model returns no attention: leave attention and replace_unk out"):
            hub.translate("ant", **{option: True})
