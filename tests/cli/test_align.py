import os
import re
import shutil
import weakref

import corpus
import numpy as np
import pytest
import torch
from fairseq.data.data_utils import post_process
from fairseq.data.indexed_dataset import MMapIndexedDataset, MMapIndexedDatasetBuilder
from hypothesis import given
from hypothesis import strategies as st

from fairseq_attnvariants_cli.main import main
from fairseq_attnvariants_cli.options import BatchOptions
from fairseq_attnvariants_cli.subcommands.align import word_attention
from fairseq_attnvariants_cli.systems import model
from fairseq_attnvariants_cli.systems.model import Forced, batches
from fairseq_attnvariants_cli.text.alignments import format_soft, hard_links, parse_links, parse_soft
from fairseq_attnvariants_cli.text.subwords import join_attention, join_tokens, word_numbers

PIECES = {
    "@@ ": st.sampled_from(["a", "b@@", "@@", "cd"]),
    "sentencepiece": st.sampled_from(["\u2581a", "b", "\u2581", "\u2581cd"]),
    "_EOW": st.sampled_from(["a", "b_EOW", "_EOW"]),
}


# ---- subwords


@pytest.mark.parametrize("style, tokens, numbers", [
    (None, ["b@@", "a"], [0, 1]),
    ("@@ ", ["a", "b@@", "c@@", "d", "e"], [0, 1, 1, 1, 2]),
    ("sentencepiece", ["\u2581a", "b", "\u2581", "c", "\u2581d", "\u2581"], [0, 0, 1, 1, 2, 2]),
    ("letter", ["a", "|", "b"], [0, 0, 1]),
])  # fmt: skip
def test_pieces_belong_to_words(style, tokens, numbers):
    assert word_numbers(tokens, style) == numbers


@given(st.data(), st.sampled_from(list(PIECES)))
def test_words_are_those_that_fairseq_prints(data, style):
    tokens = data.draw(st.lists(PIECES[style], min_size=1))
    numbers = word_numbers(tokens, style)
    words = join_tokens(tokens, style)
    assert " ".join(words) == " ".join(post_process(" ".join(tokens), style).split())
    assert numbers == sorted(numbers) and numbers[0] == 0 and set(numbers) == set(range(len(words)))


def test_source_pieces_are_summed_and_target_pieces_averaged():
    weights = np.array([[0.1, 0.2, 0.3], [0.5, 0.1, 0.2], [0.0, 0.4, 0.4]])
    joined = join_attention(weights, [0, 1, 1], [0, 0, 1])
    np.testing.assert_allclose(joined, np.array([[0.3, 0.4], [0.0, 0.8]]))


def test_a_piece_of_two_words_is_the_first_ones():
    """The second word has no subword, so its attention is 0, not NaN."""
    tokens = ["\u2581ein\u2581hund", "\u2581da"]
    numbers = word_numbers(tokens, "sentencepiece")
    assert join_tokens(tokens, "sentencepiece") == ["ein", "hund", "da"]
    joined = join_attention(np.array([[0.2, 0.8], [0.5, 0.5]]), [0, 1], numbers)
    assert joined.shape == (3, 2) and sorted(joined.sum(1).tolist()) == [0, 1, 1]


# ---- links


def test_eos_is_left_out_and_the_rest_not_renormalised():
    attention = np.array([[0.1, 0.2, 0.7], [0.3, 0.1, 0.6], [0.0, 0.1, 0.9]])
    pair = Forced(0, ["a@@", "b", "</s>"], ["x", "y", "</s>"], {"attn": attention})
    np.testing.assert_allclose(word_attention(pair), attention[:2, :2])
    assert hard_links(word_attention(pair)) == [(1, 0), (0, 1)]
    np.testing.assert_allclose(word_attention(pair, "@@ "), np.array([[0.3], [0.4]]))


def test_of_equal_weights_the_first_is_linked():
    assert hard_links(np.array([[0.2, 0.4, 0.4]])) == [(1, 0)]


@pytest.mark.parametrize("shape", [(0, 0), (0, 3), (2, 0)])
def test_an_empty_sentence_has_no_links(shape):
    assert hard_links(np.zeros(shape)) == [] and not parse_soft(format_soft(np.zeros(shape))).size


@given(st.integers(1, 6).flatmap(lambda n: st.lists(st.lists(st.floats(0, 1), min_size=n, max_size=n), min_size=1)))
def test_weights_survive_a_round_trip(rows):
    weights = np.array(rows)
    np.testing.assert_allclose(parse_soft(format_soft(weights)), weights, rtol=0, atol=5e-7)


def test_sums_of_rounded_weights_are_read_again():
    """Rounded weights of a word's subwords may add up to a little more than 1, or be below 0: they are clipped."""
    weights = np.array([[1.000001, -1e-6], [0.25, 0.75]])
    line = format_soft(weights)
    assert line == "1.000000,0.000000 0.250000,0.750000" and parse_soft(line).max() == 1


@given(st.text(st.sampled_from("0.1,2 -en")))
def test_weights_are_parsed_or_refused(line):
    try:
        weights = parse_soft(line)
    except ValueError as error:
        assert "weight" in str(error)
    else:
        assert len(weights) == len(line.split()) and weights.sum() <= weights.size


@pytest.mark.parametrize("line", ["0.5,0.5 1", "1.5", "-0.1", "nan", "0-0", "0.5,,0.5"])
def test_malformed_weights_are_refused(line):
    with pytest.raises(ValueError, match="weight"):
        parse_soft(line)


# ---- batches


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(0, 9))), st.integers(1, 4), st.integers(1, 20))
def test_batches_hold_every_sentence_once_and_one_source_length(lengths, sentences, tokens):
    found = list(batches(lengths, BatchOptions(sentences, tokens)))
    assert sorted(k for batch in found for k in batch) == list(range(len(lengths)))
    for batch in found:
        assert len({lengths[k][0] for k in batch}) == 1 and len(batch) <= sentences
        assert len(batch) == 1 or len(batch) * max(max(lengths[k]) for k in batch) <= tokens


# ---- the subcommand


def arguments(runs, tmp_path, path, *more):
    text = ["--source", runs.text / "test.xx", "--reference", runs.text / "test.yy"]
    output = ["--output", tmp_path / "hard", "--soft", tmp_path / "soft", "--cpu"]
    return [str(part) for part in ("align", runs.data, "--path", path, *text, *output, *more)]


def aligned(runs, tmp_path, path, *more):
    assert main(arguments(runs, tmp_path, path, *more)) == 0
    return (tmp_path / "hard").read_text(), (tmp_path / "soft").read_text()


def test_links_are_those_of_fairseq(runs, tmp_path):
    """Links equal those of ``fairseq-generate --score-reference --print-alignment``, one sentence at a time."""
    path = runs.rnnsearch / "checkpoint_best.pt"
    hard, _ = aligned(runs, tmp_path, path)
    common = [runs.data, "--user-dir", corpus.USER_DIR, "--path", path, "--cpu", "--batch-size", "1"]
    output = corpus.run("fairseq-generate", *common, "--score-reference", "--print-alignment").stdout
    theirs = {int(number): links for number, links in re.findall(r"^A-(\d+)\t(.*)$", output, flags=re.MULTILINE)}
    assert [sorted(parse_links(theirs[number])) for number in range(12)] == [
        sorted(parse_links(line)) for line in hard.split("\n")[:-1]
    ]


@pytest.mark.parametrize("output", ["--output", "--soft"])
def test_no_output_replaces_a_checkpoint(runs, tmp_path, refusal, output):
    """One of an ensemble, under another name."""
    path = shutil.copy(runs.rnnsearch / "checkpoint1.pt", tmp_path / "model.pt")
    (tmp_path / "link").symlink_to("model.pt")
    before = path.read_bytes()
    models = f"{runs.rnnsearch / 'checkpoint2.pt'}:{path}"
    error = refusal(["align", str(runs.data), "--path", models, "--cpu", output, str(tmp_path / "link")])
    assert f"{tmp_path / 'link'} is an input, too, and would be replaced" in error
    assert path.read_bytes() == before and len(os.listdir(tmp_path)) == 2


def test_the_weights_of_former_sentences_are_not_kept(tmp_path, monkeypatch):
    """They need more memory than the lines, which are written in the order of the text."""
    kept = []

    def force(*_):
        for number in (2, 0, 1):
            assert not any(weights() is not None for weights in kept[:-1])
            weights = np.eye(number + 2)
            kept.append(weakref.ref(weights))
            tokens = [*"abc"[: number + 1], "</s>"]
            yield Forced(number, tokens, tokens, {"attn": weights})
            del weights

    monkeypatch.setattr(model, "decoded", lambda *_, **more: [(None, None)])
    monkeypatch.setattr(model, "force", force)
    assert main(["align", "data", "--path", "a.pt", "--output", str(tmp_path / "links")]) == 0
    assert (tmp_path / "links").read_text() == "0-0\n0-0 1-1\n0-0 1-1 2-2\n"


@pytest.mark.parametrize("name", ["rnnsearch", "lstm"])
def test_links_do_not_depend_on_the_batch(runs, tmp_path, name):
    path = getattr(runs, name) / "checkpoint_last.pt"
    hard, soft = aligned(runs, tmp_path, path)
    for size in ("1", "5"):
        again, weights = aligned(runs, tmp_path, path, "--batch-size", size)
        assert again == hard
        for line, other in zip(soft.split("\n"), weights.split("\n"), strict=True):
            np.testing.assert_allclose(parse_soft(line), parse_soft(other), rtol=0, atol=2e-6)


def test_a_binarised_split_gives_the_same(runs, tmp_path):
    path = runs.rnnsearch / "checkpoint_best.pt"
    from_text = aligned(runs, tmp_path, path)
    line = arguments(runs, tmp_path, path, "--gen-subset", "test")
    del line[line.index("--source") : line.index("--output")]
    assert main(line) == 0
    assert ((tmp_path / "hard").read_text(), (tmp_path / "soft").read_text()) == from_text


def test_steps_are_counted_from_the_first_word(runs, tmp_path):
    """A stock model may be trained with padding before the target's words."""
    state = torch.load(runs.lstm / "checkpoint_last.pt", weights_only=False)
    state["cfg"]["task"]["left_pad_target"] = True
    torch.save(state, tmp_path / "left.pt")
    task = model.load(str(tmp_path / "left.pt"), str(runs.data)).task
    sentences = [pair.item for pair in model.read_subset("test", task).sentences]
    padding = task.dataset("test").collater(sentences)["target"].eq(task.target_dictionary.pad())
    assert padding.any() and not padding[:, 0].any()


def test_what_a_checkpoint_names_may_have_moved(runs, tmp_path):
    """A checkpoint's data folder, pretrained embeddings and tools of ``--eval-bleu`` need not exist."""
    state = torch.load(runs.rnnsearch / "checkpoint_best.pt", weights_only=True)
    state["cfg"]["model"].update(encoder_embed_path="nowhere", decoder_embed_path="nowhere")
    state["cfg"]["task"].update(data="nowhere", eval_bleu=True, eval_bleu_detok="nothing")
    torch.save(state, tmp_path / "moved.pt")
    moved = aligned(runs, tmp_path, tmp_path / "moved.pt")
    assert moved == aligned(runs, tmp_path, runs.rnnsearch / "checkpoint_best.pt")


def test_an_ensemble_has_the_mean_attention(runs, tmp_path):
    paths = [runs.rnnsearch / f"checkpoint{epoch}.pt" for epoch in (1, 2)]
    singles = [aligned(runs, tmp_path, path)[1].split("\n") for path in paths]
    together = aligned(runs, tmp_path, ":".join(map(str, paths)))[1].split("\n")
    for first, second, both in zip(*singles, together, strict=True):
        mean = (parse_soft(first) + parse_soft(second)) / 2
        np.testing.assert_allclose(parse_soft(both), mean, rtol=0, atol=2e-6)


def test_unknown_pieces_are_joined_as_they_stand_in_the_text(runs, tmp_path):
    (tmp_path / "source").write_text("ant ze@@ br@@ a bee\n\n")
    (tmp_path / "reference").write_text("bee ya@@ k\nant\n")
    more = ["--source", tmp_path / "source", "--reference", tmp_path / "reference", "--remove-bpe"]
    hard, soft = aligned(runs, tmp_path, runs.rnnsearch / "checkpoint_best.pt", *more)
    assert [j for _, j in parse_links(hard.split("\n")[0])] == [0, 1] and parse_soft(soft.split("\n")[0]).shape == (
        2,
        3,
    )
    assert hard.split("\n")[1] == ""


@pytest.mark.commands
def test_words_for_a_model_of_subwords_are_remarked_on(tmp_path, capfd):
    """Without the remark, the links would silently be those of ``<unk>``."""
    corpus.write_corpus(tmp_path, train=20)
    for text in tmp_path.glob("*.??"):
        text.write_text(text.read_text().replace("cat", "ca@@ t"))
    data, texts = corpus.preprocess(tmp_path), [tmp_path / "source", tmp_path / "reference"]
    corpus.train_here(*corpus.train_arguments(data, tmp_path / "run", "--max-update", "1"))
    checkpoint = tmp_path / "run" / "checkpoint_last.pt"
    line = ["align", data, "--path", checkpoint, "--source", texts[0], "--reference", texts[1], "--cpu", "--output"]
    said = f" has unknown words and no subwords, which {checkpoint} reads: apply its codes to the text\n"
    for words, remarked in (("ant ca@@ t ze@@ bra", []), ("ant bee", []), ("ant zebra", texts)):
        for text in texts:
            text.write_text(f"{words}\n")
        capfd.readouterr()
        assert main([*map(str, line), str(tmp_path / "hard")]) == 0
        assert capfd.readouterr().err == "".join(f"{text}{said}" for text in remarked)


class TestBadInput:
    @pytest.fixture(autouse=True)
    def nothing_written(self, tmp_path):
        yield
        assert not (tmp_path / "hard").exists() and not (tmp_path / "soft").exists()

    def test_unequal_files(self, runs, tmp_path, refusal):
        (tmp_path / "short").write_text("ant\n")
        path = runs.rnnsearch / "checkpoint_best.pt"
        line = arguments(runs, tmp_path, path, "--reference", tmp_path / "short")
        assert "short ends after line 1, but" in refusal(line)

    def test_a_long_sentence(self, runs, tmp_path, refusal):
        for name in ("source", "reference"):
            (tmp_path / name).write_text("ant\n" + "ant " * 1024 + "\n")
        files = ["--source", tmp_path / "source", "--reference", tmp_path / "reference"]
        line = arguments(runs, tmp_path, runs.rnnsearch / "checkpoint_best.pt", *files)
        assert "source, line 2: 1025 source tokens, EOS included, but" in refusal(line)

    @pytest.mark.parametrize("content", [None, b"", b"no checkpoint"])
    def test_no_checkpoint(self, runs, tmp_path, refusal, content):
        path = tmp_path / "checkpoint.pt"
        if content is not None:
            path.write_bytes(content)
        error = refusal(arguments(runs, tmp_path, path))
        assert "checkpoint.pt cannot be loaded" in error or "checkpoint.pt: not loaded: it is damaged" in error

    def test_other_dictionaries(self, runs, tmp_path, refusal):
        shutil.copytree(runs.data, tmp_path / "other")
        for side in ("xx", "yy"):
            dictionary = tmp_path / "other" / f"dict.{side}.txt"
            lines = dictionary.read_text().splitlines(keepends=True)
            dictionary.write_text("".join(lines[::-1]))
        line = arguments(runs, tmp_path, runs.rnnsearch / "checkpoint_best.pt")
        line[1] = str(tmp_path / "other")
        assert "another source dictionary" in refusal(line)

    def test_a_model_without_attention(self, runs, tmp_path, refusal, monkeypatch):
        from fairseq_attnvariants.models.attention_rnn import AttentionRNNModel

        forward = AttentionRNNModel.forward
        monkeypatch.setattr(AttentionRNNModel, "forward", lambda *args, **more: (forward(*args, **more)[0], {}))
        line = arguments(runs, tmp_path, runs.rnnsearch / "checkpoint_best.pt")
        assert "the model returns no 'attn' with the logits" in refusal(line)

    def test_a_reference_alone(self, runs, tmp_path, refusal):
        line = arguments(runs, tmp_path, runs.rnnsearch / "checkpoint_best.pt")
        place = line.index("--source")
        assert "--reference needs --source" in refusal([*line[:place], *line[place + 2 :]])
        place = line.index("--reference")
        assert "--source needs --reference" in refusal([*line[:place], *line[place + 2 :]])

    def test_a_missing_checkpoint_is_not_blamed_on_the_data(self, runs, tmp_path, refusal):
        line = arguments(runs, tmp_path, tmp_path / "nowhere.pt")
        assert refusal(line).endswith("nowhere.pt cannot be loaded: No such file or directory\n")

    def test_a_missing_split(self, runs, tmp_path, refusal):
        line = arguments(runs, tmp_path, runs.rnnsearch / "checkpoint_best.pt", "--gen-subset", "nowhere")
        del line[line.index("--source") : line.index("--output")]
        assert "split 'nowhere' cannot be loaded" in refusal(line)

    def test_an_output_that_cannot_be_written(self, runs, tmp_path, refusal):
        line = arguments(runs, tmp_path, runs.rnnsearch / "checkpoint_best.pt", "--soft", tmp_path / "no" / "soft")
        assert "soft cannot be written" in refusal(line)
        assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    "kept, message", [(0, "line 3: no symbol, not even that"), (-1, "line 3: the {} has no end of")]
)
@pytest.mark.parametrize("side,name", [("xx", "source"), ("yy", "target")])
def test_a_sentence_without_an_end_is_refused(runs, tmp_path, refusal, side, name, kept, message):
    """Other programs write an empty line to an index like this; every subcommand must refuse it."""
    shutil.copytree(runs.data, tmp_path / "bin")
    path = str(tmp_path / "bin" / f"test.xx-yy.{side}")
    sentences = [*MMapIndexedDataset(str(runs.data / f"test.xx-yy.{side}"))]
    builder = MMapIndexedDatasetBuilder(f"{path}.bin", dtype=np.uint16)
    for number, sentence in enumerate(sentences):
        builder.add_item(sentence[:kept] if number == 2 else sentence)
    builder.finalize(f"{path}.idx")
    paths = ["--path", str(runs.rnnsearch / "checkpoint_best.pt"), "--cpu"]
    for command in (["align"], ["eos", "--forced"], ["tune", "--gen-subset", "test"]):
        assert message.format(name) in refusal([*command, str(tmp_path / "bin"), *paths])
