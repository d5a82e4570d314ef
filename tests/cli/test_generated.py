"""The one reader of what fairseq-generate prints."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairseq_attnvariants_cli.text.alignments import hard_links
from fairseq_attnvariants_cli.text.files import UserError
from fairseq_attnvariants_cli.text.generated import LAST, LONGEST, is_generated, parse_attention, read_generated

PRINTED = """2026-01-01 00:00:00 | INFO | fairseq_cli.generate | loading
S-1\tthe small dog
T-1\tder kleine hund
H-1\t-0.5\tder hund
D-1\t-0.5\tder hund
P-1\t-0.1 -0.1 -0.1
A-1\t0-0 2-1
H-1\t-0.7\tworse
P-1\t-0.7 -0.7
A-1\t1-0
S-0\ta
H-0\t-0.25\t
Generate test with beam=2: BLEU4 = 0.00
"""


def read(text, **more):
    return read_generated(text.splitlines(), "file", **more)


def test_sentences_and_their_hypotheses():
    found = read(PRINTED)
    assert sorted(found) == [0, 1]
    place, source, reference, (best, second) = found[1]
    assert (place, source, reference) == ("file, line 2", "the small dog", "der kleine hund")
    assert (best.place, best.score, best.text) == ("file, line 4", "-0.5", "der hund")
    assert best.attention.tolist() == [[1, 0, 0], [0, 0, 1]] and second.attention.tolist() == [[0, 1, 0]]
    [empty] = found[0].hypotheses
    assert found[0].reference is None and empty.text == "" and empty.attention is None


def test_sorted_lines_are_the_same():
    lines = sorted(PRINTED.splitlines(), key=lambda line: line[:3])  # stable: rank by rank, as sort -s
    for plain, found in zip(read(PRINTED)[1].hypotheses, read("\n".join(lines))[1].hypotheses, strict=True):
        assert plain.text == found.text and plain.attention.tolist() == found.attention.tolist()


def test_bare_text_is_told_apart():
    assert is_generated(PRINTED.splitlines()) and not is_generated(["S-0\ta", "a text about H-0"])


def test_words_that_are_not_the_tokens_have_no_attention():
    joined = PRINTED.replace("\tder hund\nD-1", "\tderhund\nD-1")  # as fairseq-generate --remove-bpe prints it
    best, second = read(joined.replace("A-1\t0-0 2-1", "A-1\t0-0"))[1].hypotheses
    assert best.attention is None and second.attention is not None


@pytest.mark.parametrize("outside", ["3-2", "0.2,0.2,0.2,0.2,0.2 " * 4])
def test_where_pieces_of_sources_were_joined_no_alignment_is_read(outside):
    """--remove-bpe joins sources, too, which scores do not show: alignments of other sentences could be wrong."""
    joined = PRINTED.replace("\tder hund\nD-1", "\tderhund\nD-1") + (
        f"S-2\ta bc d\nH-2\t-0.5\ta bc d\nP-2\t-0.1 -0.1 -0.1 -0.1\nA-2\t{outside}\n"
    )
    assert all(hypothesis.attention is None for sentence in read(joined).values() for hypothesis in sentence.hypotheses)


def test_alignments_may_be_needed():
    with pytest.raises(UserError, match="file, line 12: H-0 has no A- line: run fairseq-generate with --print-align"):
        read(PRINTED, aligned=True)


@pytest.mark.parametrize("text, message", [
    ("nothing", "file has no H- lines: it is not what fairseq-generate prints"),
    (PRINTED.replace("S-0\ta\n", ""), "file, line 11: sentence 0 has 0 S-, 0 T-, 1 H-, 0 P-, 0 A- lines"),
    (PRINTED + PRINTED, "file, line 15: sentence 1 has 2 S-, 2 T-, 4 H-, 4 P-, 4 A- lines"),
    (PRINTED.replace("A-1\t1-0\n", ""), "sentence 1 has 1 S-, 1 T-, 2 H-, 2 P-, 1 A- lines"),
    (PRINTED.replace("0-0 2-1", "3-0"), "file, line 7: A-1: 3-0 is outside the sentences, which have 3 and 2 tokens"),
    (PRINTED.replace("T-1", "T-1\nT-1"), "file, line 2: sentence 1 has 1 S-, 2 T-, 2 H-, 2 P-, 2 A- lines"),
    (PRINTED.replace("S-0", "S-10000001"), "file, line 11: sentence 10000001, where 10000000 is the last that is read"),
    (PRINTED.replace("-0.25\t", "-0.25"), "file, line 12: no tab between score and text"),
])  # fmt: skip
def test_cut_or_doubled_output_is_refused(text, message):
    with pytest.raises(UserError) as refused:
        read(text)
    assert message in str(refused.value)


# ---- attention


def test_soft_attention_loses_eos():
    # rows: two words and EOS; columns: three words and EOS, which has the highest weight in the first row
    weights = parse_attention("0.1,0.2,0.1,0.6 0.4,0.1,0.4,0.1 0.0,0.0,0.0,1.0", 3, 2)
    np.testing.assert_allclose(weights, [[0.1, 0.2, 0.1], [0.4, 0.1, 0.4]])
    assert hard_links(weights) == [(1, 0), (0, 1)]


@pytest.mark.parametrize("text, target", [("", 0), ("", 1), ("1.000000 1.000000", 1)])
def test_an_empty_source_has_no_links(text, target):
    assert hard_links(parse_attention(text, 0, target)) == []


@pytest.mark.parametrize("text", [
    "0.1,0.9", "2-0", "0-1", "0-", "0-0 x", "0-0 0.5,0.5", "0.1,x 0.1,0.2", "0.5,nan,0 0,0,0", "1.5,0.1,0.1 0,0,0",
])  # fmt: skip
def test_attention_of_other_sentences_is_refused(text):
    with pytest.raises(ValueError, match="is outside|is not|rows of"):
        parse_attention(text, 2, 1)


def test_long_lines_are_refused_before_they_fill_the_memory():
    with pytest.raises(ValueError, match="100000 and 100000 tokens, where alignments of at most 10000 are read"):
        parse_attention("0-0", 100000, 100000)


@given(
    st.text(st.characters(exclude_categories=("Cs",))) | st.text("0123-., ", max_size=12),
    st.integers(0, 3),
    st.integers(0, 3),
)
def test_attention_is_parsed_or_refused(text, source, target):
    try:
        weights = parse_attention(text, source, target)
    except ValueError:
        return
    assert weights.shape == (target, source)


@given(st.lists(st.lists(st.floats(0, 1), min_size=5, max_size=5), min_size=1))
def test_printed_weights_are_read(rows):
    printed = " ".join(",".join(f"{weight:.6f}" for weight in row) for row in rows)
    np.testing.assert_allclose(parse_attention(printed, 4, len(rows) - 1), np.array(rows)[:-1, :4], atol=5e-7)


def test_limits_are_the_last_that_are_read():
    assert [*read_generated([f"S-{LAST}\ta", f"H-{LAST}\t-1\tx"], "file")] == [LAST]
    assert parse_attention("0-0", LONGEST, 1).shape == (1, LONGEST)
