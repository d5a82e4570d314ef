"""The runtime's library: n-best lists, batches, unknown words, two levels."""

import argparse
import json
import re
import unicodedata

import numpy as np
import packages
import pytest
from packages import SPECIAL, WORDS, runtime

SentenceError = runtime.SentenceError


@pytest.fixture(scope="module")
def translator(tmp_path_factory):
    return runtime.Translator(packages.write(tmp_path_factory.mktemp("package")))


def test_results_are_in_the_order_of_the_lines(translator):
    lines = ["the", "", "the red dogs saw", " \t ", "red dogs", "the tree ."]
    for size in (1, 2, 40):
        found = translator.translate(lines, batch_size=size)
        assert [one.text for one in found] == [" ".join(line.split()) for line in lines]
        assert [len(one.source) for one in found] == [len(line.split()) + 1 for line in lines]


def test_a_translation_has_text_score_symbols_and_attention(translator):
    (found,) = translator.translate(["the red"], beam=3, n_best=2)
    assert found.source == ["the", "red", "</s>"]
    assert [one.text for one in found.n_best] == ["the red", "red dogs"]
    assert [one.symbols for one in found.n_best] == [["the", "red", "</s>"], ["red", "dogs", "</s>"]]
    np.testing.assert_allclose([one.score for one in found.n_best], [-0.1, -0.2], rtol=1e-6)
    for one in found.n_best:
        np.testing.assert_array_equal(one.attention, np.eye(3))
    assert json.loads(json.dumps(found.plain()))["n_best"][1]["attention"] == np.eye(3).tolist()
    (without,) = translator.translate(["the red"], attention=False)
    assert without.n_best[0].attention is None
    assert "attention" not in without.plain()["n_best"][0]
    (empty,) = translator.translate([""], attention=False)
    assert "attention" not in empty.plain()["n_best"][0]


def test_the_graph_gets_what_the_manifest_says(tmp_path, monkeypatch):
    """Sources are padded on the right, and each sentence has its limit of length."""
    search = dict(search__min_len=2, search__unkpen=0.5, search__max_len_a=2.0, search__max_len_b=1)
    translator = runtime.Translator(packages.write(tmp_path, **search))
    seen, run = [], translator.session.run

    def noted(names, given):
        seen.append({name: value.tolist() for name, value in given.items()})
        return run(names, given)

    monkeypatch.setattr(translator.session, "run", noted)
    translator.translate(["the", "the red dogs"], beam=3)
    source, limits = [[4, 5, 6, 2], [4, 2, 1, 1]], [9, 5]
    assert seen == [{"source": source, "beam": 3, "max_len": limits, "min_len": 2, "unkpen": 0.5}]


@pytest.mark.parametrize("lenpen", [0.0, 1.0, 2.5])
def test_n_best_lists_are_read_as_the_format_reads_them(translator, monkeypatch, lenpen):
    """Hypotheses have unequal lengths, back-pointers cross, and scores come in any order."""
    rng = np.random.default_rng(1)
    T, B, k, S, size = 7, 3, 4, 5, len(translator.target)
    out = {name: rng.integers(0, k, (T, B, k)) for name in ("parents", "ended_parents")}
    out["words"] = rng.integers(4, size, (T, B, k))
    out |= {name: -rng.random((T, B, k), np.float32) for name in ("scores", "ended_scores")}
    out["ended"] = rng.random((T, B, k)) < 0.3
    out["ended"][-1, :, 0] = True
    out["attention"] = rng.random((T, B, k, S), np.float32)
    sources = [["the"] * length for length in (4, 2, 1)]
    monkeypatch.setitem(translator.search, "lenpen", lenpen)
    for b, symbols in enumerate(sources):
        found = translator._sentence(out, b, symbols, k, True).n_best
        expected = packages.n_best(out, b, len(symbols) + 1, 2, lenpen)
        assert len(found) == len(expected)
        for one, (score, indices, log_probabilities, looks) in zip(found, expected):
            np.testing.assert_allclose(one.score, score, rtol=1e-6)
            assert one.symbols == [translator.target[i] for i in indices]
            np.testing.assert_allclose(one.log_probabilities, log_probabilities, rtol=1e-5)
            np.testing.assert_array_equal(one.attention, np.array(looks))


def test_unknown_words_are_copied_from_where_attention_looked(translator):
    (found,) = translator.translate(["the zebra saw"])
    assert found.text == "the zebra saw"
    assert found.n_best[0].replaced == [1]
    assert found.source[1] == "zebra"
    (left,) = translator.translate(["the zebra saw"], replace_unk=False)
    assert left.text == "the <unk> saw"
    assert left.n_best[0].replaced == []


def test_a_model_that_copies_prefers_words_that_the_dictionary_lacks(translator, monkeypatch):
    attention = np.array([[0.6, 0.3, 0.1, 0.0], [0.5, 0.0, 0.0, 0.5]])
    arguments = (["the", "zebra", "gnu"], 0, True, 0.0, [3, 3], [0.0, 0.0], attention, None)
    assert translator._hypothesis(*arguments).symbols == ["the", "the"]
    monkeypatch.setitem(translator.manifest, "copies", True)
    # in the second row, no word that the dictionary lacks has a weight
    assert translator._hypothesis(*arguments).symbols == ["zebra", "the"]


@pytest.mark.parametrize("special", ["<s>", "<pad>", "</s>"])
def test_special_symbols_in_a_text_are_unknown_words(translator, special):
    (found,) = translator.translate([f"the {special} saw"], replace_unk=False)
    assert found.text == "the <unk> saw"


def of_characters(folder, characters):
    """Return a translator of sources and targets of characters, which end with a space and EOS."""
    symbols = [*SPECIAL, " ", *characters]
    about = dict(source__units="characters", target__units="characters", source__end=[4, 2])
    return runtime.Translator(packages.write(folder, source=symbols, target=symbols, **about))


def test_characters_are_read_and_written(tmp_path):
    translator = of_characters(tmp_path, "abcé\u3000")
    (found,) = translator.translate([" ab \t\u3000é  zc "])
    assert found.source == [*"ab \u3000é zc", " ", "</s>"]
    with pytest.raises(SentenceError, match="it has 49 symbols, and the model reads at most 48: split it"):
        translator.translate(["a" * 49])
    assert found.text == "ab \u3000é zc"
    assert found.n_best[0].replaced == [6]


@pytest.mark.parametrize("units, expected", [
    ("graphemes", ["a|é|a", "a| |e|e\u0331", "\U0001f469\u200d\U0001f467|\U0001f469", "<|u|n|k|>|a", "한|하|a"]),
    ("spaced", ["aéa", "a|ee̱", "👩\u200d👧👩", "<unk>a", "한하a", "ḇé", "c\xa0a|ḇé"]),
    ("decomposed", ["a|e|\u0301|a", "a| |e|e|\u0331"]),
])  # fmt: skip
def test_strings_are_split_by_their_dictionary(tmp_path, units, expected):
    """Unknown text is split into symbols, too, and copied; a translation is composed."""
    symbols = [*SPECIAL, " ", *packages.STRINGS[units]]
    about = dict(source__units=units, target__units=units)
    translator = runtime.Translator(packages.write(tmp_path, source=symbols, target=symbols, **about))
    lines = packages.STRING_LINES[: len(expected)]
    for line, known, found in zip(lines, expected, translator.translate(lines)):
        assert "|".join(found.source[:-1]) == known
        assert found.text == re.sub(" +", " ", unicodedata.normalize("NFC", line.strip()))


def one_hypothesis(words, **attention):
    """Return a graph's outputs for one sentence and a beam of 1: ``words``, of which the last ends the translation."""
    shape = (len(words), 1, 1)
    out = {name: np.zeros(shape, np.int64) for name in ("parents", "ended_parents")}
    out |= {name: np.zeros(shape, np.float32) for name in ("scores", "ended_scores")}
    out |= {"words": np.array(words).reshape(shape), "ended": np.arange(len(words)).reshape(shape) == len(words) - 1}
    return out | {name: np.reshape(rows, (*shape, -1)) for name, rows in attention.items()}


def featured(folder, after=False, units="graphemes", **more):
    """Return a translator of sources with features, whose indices come after those of the source or before them."""
    known = [*SPECIAL, *packages.FEATURED]
    about = dict(format=2, source__units=units, target__units=units, source__features=known.index("[N]"), **more)
    return runtime.Translator(packages.write(folder, source=known, target=known, source__features_after=after, **about))


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("units, line, expected", [
    ("graphemes", "ab\tPL;N;PL", "[N] [PL] | a b"),
    ("graphemes", " ba \t N , PSS(PL) \r\n", "[N] [PSS] [PSS(PL)] | b a"),
    ("graphemes", "a[SG]b[N]\tN", "[N] | a [SG] b [ N ]"),
    ("decomposed", "a[N]\t", "| a [ N ]"),
    ("words", "a [N] [SG]\tN", "[N] | a <unk> [SG]"),
    ("graphemes", "ab\tN(PSS(PL))", "[N] [PSS] [PSS(PL)] | a b"),
    ("graphemes", "ab\te\u0301", "[é] | a b"),
])  # fmt: skip
def test_features_are_read_in_the_order_of_the_dictionary(tmp_path, after, units, line, expected):
    """Each feature is read once; letters that look like a feature are letters."""
    translator = featured(tmp_path, after, units)
    features, letters = (part.split() for part in expected.split("|"))
    assert translator.symbols(line, 1) == [*features, *letters]
    tags, symbols = ([translator.index.get(one, 3) for one in part] for part in (features, letters))
    assert translator._indices([*features, *letters]) == ([*symbols, 2, *tags] if after else [*tags, *symbols, 2])
    (found,) = translator.translate([line])
    assert found.source == [*([] if after else features), *letters, "</s>"]
    assert found.n_best[0].attention.shape[1] == len(found.source)


@pytest.mark.parametrize("copies", [False, True])
@pytest.mark.parametrize("after, columns", [(False, [0.8, 0.1, 0.2, 0]), (True, [0.1, 0.2, 0, 0.8])])
def test_a_feature_is_not_copied(tmp_path, after, columns, copies):
    """A letter is copied, even if a feature has more attention; a model that copies prefers what the target lacks."""
    translator = featured(tmp_path, after, copies=copies)
    out = one_hypothesis(words=[3, 2], attention=[columns, columns])
    assert translator._sentence(out, 0, ["[N]", "z", "a"], 1, True).text == ("z" if copies else "a")


def test_words_are_without_features(tmp_path):
    """The words of the upper of two levels are made of letters alone."""
    translator = featured(tmp_path)
    out = one_hypothesis(words=[0], attention=np.zeros((1, 4)), word_attention=np.zeros((1, 2)))
    assert translator._sentence(out, 0, ["[N]", "a", "b"], 1, True).words == ["ab", "</s>"]


@pytest.mark.parametrize("line, message", [
    ("ab", "it has no features: they come after a tab, such as N;PL"),
    ("ab\tPL;X", "the model does not know its feature X: leave it out"),
    ("ab\tPL;PSS(N", "the parentheses of its features do not match"),
    ("ab\tPL)", "the parentheses of its features do not match"),
    ("ab\tN; (PL", "the parentheses of its features do not match"),
    ("a" * 49 + "\tN", "it has 50 symbols, and the model reads at most 49: split it"),
    ("ab\tZ;PL;X", "the model does not know its feature Z: leave it out"),
    ("ab\t" + "x" * 101, "the model does not know its feature " + "x" * 100 + ": leave it out"),
])  # fmt: skip
def test_features_that_cannot_be_read(tmp_path, line, message):
    translator = featured(tmp_path)
    with pytest.raises(runtime.SentenceError, match=re.escape(message)):
        translator.translate([line])
    assert [one.text for one in translator.translate(["\tX", ""])] == ["", ""]


def test_japanese_is_read_and_written_by_characters(tmp_path):
    """Spaces within a line are kept; those at its ends are removed."""
    translator = of_characters(tmp_path, sorted({*"猫が好きです。はい"}))
    (found,) = translator.translate([" 猫が好き です。\r"])
    assert found.source == [*"猫が好き です。", " ", "</s>"] and found.text == "猫が好き です。"


def test_two_levels_have_attention_over_words_too(tmp_path):
    translator = of_characters(tmp_path, "abc")
    out = one_hypothesis(
        words=[0, 0], attention=np.arange(20.0).reshape(2, 10), word_attention=np.arange(8.0).reshape(2, 4)
    )
    found = translator._sentence(out, 0, [*"ab c"], 1, True)
    assert found.words == ["ab", "c", "</s>"]
    np.testing.assert_array_equal(found.n_best[0].attention, [[0, 1, 2, 3, 4, 5], [10, 11, 12, 13, 14, 15]])
    np.testing.assert_array_equal(found.n_best[0].word_attention, [[0, 1, 2], [4, 5, 6]])
    assert found.plain()["n_best"][0]["word_attention"] == [[0, 1, 2], [4, 5, 6]]


def test_a_translation_has_at_most_the_symbols_that_the_manifest_allows(tmp_path):
    search = dict(search__max_len_a=0.5, search__max_len_b=1)
    translator = runtime.Translator(packages.write(tmp_path / "a", **search))
    (found,) = translator.translate(["the red dogs saw the tree ."])
    assert len(found.n_best[0].symbols) == 0.5 * 8 + 1 + 1
    translator = runtime.Translator(packages.write(tmp_path / "b", search__largest_target=3))
    (found,) = translator.translate(["the red dogs saw the tree ."])
    assert len(found.n_best[0].symbols) == 3


@pytest.mark.parametrize("lines, options, message", [
    (["the"], dict(beam=0), "the beam must be from 1 to 8, not 0"),
    (["the"], dict(beam=9), "the beam must be from 1 to 8, not 9"),
    (["the"], dict(beam=2, n_best=3), "the beam of 2, not 3: give a wider beam"),
    (["the"], dict(n_best=0), "n-best must be from 1 to the beam of 2, not 0"),
    (["the", "the " * 50], {}, "line 2: it has 50 symbols, and the model reads at most 49: split it"),
    (["a" * 100_000], {}, "line 1: it has 100000 characters, and at most 20000 are allowed"),
    (["a b" * 100_000], {}, "line 1: it has 300000 characters"),
])  # fmt: skip
def test_what_cannot_be_translated_is_refused(translator, lines, options, message):
    with pytest.raises(SentenceError, match=message):
        translator.translate(lines, **options)


def test_a_sentence_whose_attention_would_fill_memory_is_refused(tmp_path):
    search = dict(search__largest_source=20_000, search__largest_target=20_000, search__max_len_a=3.0)
    translator = runtime.Translator(packages.write(tmp_path, **search))
    with pytest.raises(SentenceError, match="line 1: it is too long for this beam: split it, or take a smaller beam"):
        translator.translate(["a " * 9_000], beam=2)


def test_batches_are_as_large_as_their_attention_may_be(translator, monkeypatch):
    sizes, batch = [], translator._batch
    monkeypatch.setattr(translator, "_batch", lambda rows, *more: sizes.append(len(rows)) or batch(rows, *more))
    monkeypatch.setattr(runtime, "LARGEST_ATTENTION", 2 * translator.weights(["the"], beam=1))
    translator.translate(["the"] * 5, beam=1)
    assert sizes == [2, 2, 1]


def test_only_the_start_of_a_line_without_an_end_is_kept(tmp_path):
    (tmp_path / "text").write_bytes(b"a" * 10**6)
    with open(tmp_path / "text", "rb") as text:
        [[line]] = runtime.chunks(text.fileno())
    assert len(line) == 4 * runtime.LONGEST_LINE + 4


def test_control_characters_are_characters_or_white_space(translator):
    text = "".join(map(chr, [*range(32), 0x7F, 0x85, 0xA0, 0x200B, 0x2028, 0xFEFF, 0xFFFE, 0xFFFF, 0x10FFFF]))
    (found,) = translator.translate([f"the{text}red"])
    assert found.text == " ".join(f"the{text}red".split())


def test_dictionaries_of_the_two_sides_differ(tmp_path):
    target = [*SPECIAL, *(word.upper() for word in WORDS)]
    translator = runtime.Translator(packages.write(tmp_path, target=target))
    assert translator.translate(["the red dogs"])[0].text == "THE RED DOGS"


def test_of_a_symbol_that_is_there_twice_the_last_counts(tmp_path):
    """A line with #fairseq:overwrite in fairseq's dictionaries makes such symbols."""
    source, target = [*SPECIAL, *WORDS, WORDS[0]], [*SPECIAL, *WORDS, "again"]
    translator = runtime.Translator(packages.write(tmp_path, source=source, target=target))
    assert translator.translate([WORDS[0]])[0].text == "again"


def test_a_request_beyond_those_that_may_wait_is_told_so(translator):
    class Full:
        def acquire(self, blocking=True):
            assert not blocking
            return False

    desk = runtime.Desk(translator)
    desk.waiting = Full()
    assert desk.answer(b'{"text": "the"}')[0] == 503


def test_a_request_gets_attention_only_if_it_asks(translator):
    desk = runtime.Desk(translator)
    for more, names in (({}, set()), ({"attention": True}, {"attention"}), ({"attention": False}, set())):
        _, answer = desk.answer(json.dumps({"text": "the", **more}).encode())
        assert {*answer["translations"][0]["n_best"][0]} & {"attention"} == names


def test_a_model_that_fails_is_told_to_the_client(translator, monkeypatch):
    monkeypatch.setattr(translator, "session", argparse.Namespace(get_outputs=list, run=None))
    status, answer = runtime.Desk(translator).answer(b'{"text": "the"}')
    assert status == 500 and answer["error"].startswith("the model cannot be run")


@pytest.mark.parametrize("threads", [1, 3])
def test_onnxruntime_gets_so_many_threads(tmp_path, monkeypatch, threads, capfd):
    seen, make = [], runtime.onnxruntime.InferenceSession
    session = lambda data, options, **more: seen.append(options) or make(data, options, **more)  # noqa: E731
    monkeypatch.setattr(runtime.onnxruntime, "InferenceSession", session)
    (tmp_path / "text").write_text("the red\n")
    package = packages.write(tmp_path / "package")
    assert runtime.main([str(package), str(tmp_path / "text"), "--threads", str(threads)]) == 0
    assert [(one.intra_op_num_threads, one.inter_op_num_threads) for one in seen] == [(threads, 1)]


def test_a_refused_line_is_remembered_to_the_end(tmp_path, capfd):
    """Later files are still translated."""
    (tmp_path / "first").write_bytes(b"\xff\n")
    (tmp_path / "second").write_bytes(b"the red\n")
    package = packages.write(tmp_path / "package")
    assert runtime.main([str(package), str(tmp_path / "first"), str(tmp_path / "second")]) == 1
    assert capfd.readouterr().out == "\nthe red\n"


def test_lines_are_counted_in_characters_not_bytes(tmp_path, capfd):
    line = "\U00020000" * runtime.LONGEST_LINE
    (tmp_path / "text").write_text(f"{line}\n{line}a\n", encoding="utf-8")
    assert runtime.main([str(packages.write(tmp_path / "package")), str(tmp_path / "text")]) == 1
    out, error = capfd.readouterr()
    assert out == f"{line}\n\n" and "line 2 is not translated: it has more than 20000 characters" in error


def test_a_request_is_translated_in_batches_of_the_size_that_was_asked_for(translator, monkeypatch):
    sizes = []
    run = translator._batch
    monkeypatch.setattr(translator, "_batch", lambda sources, *more: sizes.append(len(sources)) or run(sources, *more))
    assert runtime.Desk(translator, 2).answer(b'{"lines": ["the", "red", "dogs"]}')[0] == 200
    assert sizes == [2, 1]


def test_an_error_without_a_text_is_told_by_its_name(translator, monkeypatch):
    class Small:
        get_outputs = translator.session.get_outputs

        def run(self, names, given):
            raise MemoryError

    monkeypatch.setattr(translator, "session", Small())
    with pytest.raises(runtime.PackageError, match=r"the model cannot be run \(MemoryError\)"):
        translator.translate(["the red"])


def large(values):
    return values[..., :1] * 0 + 99


def below_zero(values):
    """Return indices that would be read from the end."""
    return values * 0 - 1


@pytest.mark.parametrize("fault, change", [
    ("ended", lambda values: values & False),
    *((fault, lambda values: values * np.nan) for fault in ("scores", "ended_scores", "attention", "word_attention")),
    ("ended_scores", lambda values: values * np.inf),
    *((fault, lambda values: values[..., 0]) for fault in sorted(runtime.OUTPUTS)),
    *((fault, lambda values: values.astype(complex)) for fault in sorted(runtime.OUTPUTS)),
    *(("words", lambda values, shape=shape: np.zeros(shape, values.dtype)) for shape in ((), (0, 1, 2))),
    ("words", lambda values: [values]),
    ("word_attention", lambda values: values[0]),
    *((fault, large) for fault in ("words", "parents", "ended_parents", "attention")),
    *((fault, below_zero) for fault in ("words", "parents", "ended_parents")),
])  # fmt: skip
def test_outputs_that_the_format_does_not_allow_are_refused(translator, monkeypatch, fault, change):
    """A graph of two levels is read, also with an unknown output, and refused if it is damaged."""
    session, damaged = translator.session, False
    run, outputs = (
        session.run,
        [*session.get_outputs(), *(argparse.Namespace(name=n) for n in ("word_attention", "more"))],
    )

    def two_levels(names, given):
        out = dict(zip(names, run(names[:-2], given)))
        out.update(word_attention=out["attention"], more=np.array(1))
        if damaged:
            out[fault] = change(out[fault])
        return list(out.values())

    monkeypatch.setattr(session, "get_outputs", lambda: outputs)
    monkeypatch.setattr(session, "run", two_levels)
    assert translator.translate(["the red"])[0].text == "the red"
    damaged = True
    with pytest.raises(runtime.PackageError, match="not what FORMAT.md describes"):
        translator.translate(["the red"])


@pytest.mark.parametrize("lenpen", [1e9, 10**9])
@pytest.mark.filterwarnings("ignore:overflow")
def test_a_length_penalty_of_any_size_takes_no_time(tmp_path, lenpen):
    [found] = runtime.Translator(packages.write(tmp_path / "a", search__lenpen=lenpen)).translate(["b a"])
    assert found.n_best[0].score == 0


def test_a_request_may_have_a_beam_up_to_a_limit(tmp_path):
    """The limit is the package's beam if that is wider."""
    for own, most in ((2, 32), (40, 40)):
        package = packages.write(tmp_path / str(own), search__beam=own, search__largest_beam=50)
        desk = runtime.Desk(runtime.Translator(package))
        for beam, status in ((most, 200), (most + 1, 400)):
            found, answer = desk.answer(json.dumps({"text": "the red", "beam": beam}).encode())
            assert found == status, answer
        assert answer == {"error": f"the beam must be from 1 to {most}, not {most + 1}"}


@pytest.mark.parametrize("attention", [False, True])
def test_an_answer_names_the_line_that_is_refused(tmp_path, attention):
    desk = runtime.Desk(featured(tmp_path))
    answer = desk.answer(json.dumps({"lines": ["ab\tN", "ab"], "attention": attention}).encode())
    assert answer == (400, {"error": "line 2: it has no features: they come after a tab, such as N;PL"})


def test_a_message_obeys_nobody(tmp_path, capfd):
    """A message shows escapes instead of control characters, which a terminal would obey."""
    featured(tmp_path)
    (tmp_path / "text").write_text("ab\t\x1b[31mé\rX\n", encoding="utf-8")
    assert runtime.main([str(tmp_path), str(tmp_path / "text")]) == 1
    assert (
        "line 1 is not translated: the model does not know its feature \\x1b[31mé\\rX: leave" in capfd.readouterr().err
    )


def test_the_attention_of_an_answer_is_bounded(translator, monkeypatch):
    body = {"lines": ["the red", "dogs"], "beam": 2, "n_best": 2}
    weights = sum(translator.weights(line.split(), 2) for line in body["lines"])
    desk = runtime.Desk(translator)
    for largest, status in ((weights, 200), (weights - 1, 400)):
        monkeypatch.setattr(runtime, "LARGEST_ANSWER", largest)
        assert desk.answer(json.dumps(body).encode())[0] == 200  # without attention
        found, answer = desk.answer(json.dumps({**body, "attention": True}).encode())
        assert found == status, answer
    assert "the attention of so many words is too large" in answer["error"]


def test_a_translation_may_be_as_long_as_it_must_be(tmp_path):
    about = dict(search__min_len=7, search__max_len_a=0.0, search__max_len_b=3)
    translator = runtime.Translator(packages.write(tmp_path, **about))
    assert translator._max_len(5) == 7


def test_scores_may_be_sums(tmp_path):
    package = packages.write(tmp_path, search__normalize=False, search__lenpen=2.0)
    [found] = runtime.Translator(package).translate(["the red"])
    assert found.n_best[0].score == pytest.approx(-0.3)
