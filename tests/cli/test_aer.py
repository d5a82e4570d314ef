import json
import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairseq_attnvariants_cli.main import main
from fairseq_attnvariants_cli.subcommands.aer import Gold, error_rate, parse_gold, soft_error_rate

LINKS = st.sets(st.tuples(st.integers(0, 99), st.integers(0, 99)))


@given(LINKS, LINKS, st.integers(0, 1), st.booleans(), st.sampled_from("?p"))
def test_gold_links_survive_a_round_trip(sure, possible, first, swap, mark):
    fields = [(i, "-", j) for i, j in sure] + [(i, mark, j) for i, j in possible]
    line = " ".join(f"{j + first}{m}{i + first}" if swap else f"{i + first}{m}{j + first}" for i, m, j in fields)
    assert parse_gold(line, first, swap) == Gold(sure, sure | possible)


@given(st.text(st.sampled_from("012-?p x")))
def test_gold_links_are_parsed_or_refused(line):
    try:
        gold = parse_gold(line)
    except ValueError as error:
        assert "is not a link" in str(error)
    else:
        assert gold.sure <= gold.possible and len(gold.possible) <= len(line.split())


def test_numbers_below_the_first_are_refused():
    with pytest.raises(ValueError, match="0-1: words are numbered from 1"):
        parse_gold("1-1 0-1", first=1)


# S = {00, 11}, P = S and {21}, A = {00, 21, 32}: |A∩S| = 1, |A∩P| = 2
GOLD = Gold({(0, 0), (1, 1)}, {(0, 0), (1, 1), (2, 1)})


def test_error_rate_by_hand():
    rates = error_rate([({(0, 0), (2, 1), (3, 2)}, GOLD)])
    assert rates == (1 - (1 + 2) / (3 + 2), 2 / 3, 1 / 2)


def test_counts_are_summed_over_sentences():
    # the second sentence: |A| = 1, |S| = 1, |A∩S| = |A∩P| = 1
    rates = error_rate([({(0, 0), (2, 1), (3, 2)}, GOLD), ({(0, 0)}, Gold({(0, 0)}, {(0, 0)}))])
    assert rates == (1 - (2 + 3) / (4 + 3), 3 / 4, 2 / 3)


def test_all_sure_and_only_possible_links_are_no_error():
    assert error_rate([(GOLD.possible, GOLD)]) == (0, 1, 1)


def test_soft_error_rate_by_hand():
    weights = np.array([[0.5, 0.2, 0.1], [0.1, 0.3, 0.4]])  # target by source
    # Σ M_A = 1.6; on S: w[0,0] + w[1,1] = 0.8; on P: with w[1,2] = 1.2
    assert soft_error_rate([(weights, GOLD)]) == pytest.approx((1 - 2.0 / 3.6, 1.2 / 1.6, 0.4))


@pytest.mark.slow
@given(st.lists(st.tuples(LINKS, LINKS, LINKS)))
def test_soft_rates_of_links_are_hard_rates(sentences):
    hard, soft = [], []
    for links, sure, possible in sentences:
        gold = Gold(sure, sure | possible)
        weights = np.zeros((100, 100))
        for i, j in links:
            weights[j, i] = 1
        hard.append((links, gold))
        soft.append((weights, gold))
    assert error_rate(hard) == soft_error_rate(soft)


def test_nothing_to_divide_by():
    link, nothing = {(0, 0)}, Gold(set(), set())
    assert error_rate([(set(), nothing)]) == (None, None, None)
    assert error_rate([(set(), Gold(link, link))]) == (1, None, 0)
    assert error_rate([(link, nothing)]) == (1, 0, None)


# ---- the subcommand


@pytest.fixture
def command(tmp_path):
    """Writes the files, and returns the arguments of the subcommand."""
    files = dict(gold="1-1 2-2 3?2\n1-1\n", hard="0-0 2-1\n0-0\n", soft="1.0,0,0 0,0,1.0\n1\n")
    files |= dict(source="a b c\na\n", target="x y\nx\n")

    def write(**changed):
        for name, text in {**files, **changed}.items():
            (tmp_path / name).write_text(text)
        path = {name: str(tmp_path / name) for name in files}
        arguments = ["aer", path["gold"], "--hard", path["hard"], "--soft", path["soft"], "--first", "1"]
        return [*arguments, "--text", path["source"], path["target"], "--table", str(tmp_path / "table.json")]

    return write


def test_subcommand_prints_and_writes_the_table(command, tmp_path, capfd):
    assert main(command()) == 0
    rows = json.loads((tmp_path / "table.json").read_text())
    assert [row["measure"] for row in rows] == ["AER", "SAER"]
    for row in rows:
        assert (row["error rate"], row["precision"], row["recall"]) == pytest.approx((1 - 5 / 6, 1, 2 / 3))
    assert capfd.readouterr().out.splitlines()[2].split()[:4] == ["AER", "0.1667", "1.0000", "0.6667"]


def test_gold_links_that_are_written_target_first(command, tmp_path):
    assert main([*command(gold="1-1 2-2 2?3\n1-1\n"), "--swap"]) == 0
    assert json.loads((tmp_path / "table.json").read_text())[0]["error rate"] == pytest.approx(1 - 5 / 6)


def test_csv_has_a_header(command, tmp_path):
    assert main([*command(), "--table", str(tmp_path / "table.csv")]) == 0
    assert (tmp_path / "table.csv").read_text().startswith("measure,error rate,precision,recall,file\nAER,0.16666")


@pytest.mark.parametrize("changed, message", [
    (dict(hard="0-0\n"), "hard ends after line 1, but {folder}/gold has 2 lines"),
    (dict(target="x y\n"), "target ends after line 1, but"),
    (dict(gold="1-1\n1-2\n"), "gold, line 2: 0-1 is outside the sentences"),
    (dict(hard="0-0\n1-0\n"), "hard, line 2: 1-0 is outside the sentences"),
    (dict(soft="1.0,0 0,0\n1\n"), "soft, line 1: weights of 2 source and 2 target words, where --text has 3 and 2"),
    (dict(gold="1-1\n0-1\n"), "gold, line 2: 0-1: words are numbered from 1"),
    (dict(gold="1-1\n1:1\n"), "gold, line 2: '1:1' is not a link such as 0-1"),
    (dict(hard="0-0\n0?0\n"), "hard, line 2: '0?0' is not an alignment pair"),
    (dict(soft="0-0\n0-0\n"), "soft, line 1: '0-0' is not an attention weight"),
])  # fmt: skip
def test_bad_input_is_refused(command, tmp_path, refusal, changed, message):
    assert message.format(folder=tmp_path) in refusal(command(**changed))
    assert not (tmp_path / "table.json").exists() and len(os.listdir(tmp_path)) == 5


def test_other_tables_and_nothing_to_compare_are_refused(command, tmp_path, refusal):
    assert "must end in .csv or .json" in refusal([*command(), "--table", str(tmp_path / "table.txt")])
    assert "give --hard, --soft or both" in refusal(["aer", str(tmp_path / "gold")])


def test_missing_weights_are_refused_where_gold_has_links(command, tmp_path, refusal):
    assert f"soft, line 1: no weights, and {tmp_path}/gold has links there" in refusal(command(soft="\n1\n"))


def test_weights_may_be_missing_where_gold_has_no_links(command, tmp_path):
    """align and links write an empty line for a sentence that was skipped."""
    assert main(command(gold="1-1 2-2 3?2\n\n", hard="0-0 2-1\n\n", soft="1.0,0,0 0,0,1.0\n\n")) == 0
    rows = json.loads((tmp_path / "table.json").read_text())
    assert [row["error rate"] for row in rows] == pytest.approx([1 - 3 / 4] * 2)


def test_gold_links_outside_the_weights_are_refused_without_the_text(command, refusal):
    arguments = command(soft="1.0,0 0,0\n1\n")
    del arguments[arguments.index("--text") : arguments.index("--table")]
    assert "gold, line 1: 2-1 is outside the sentences" in refusal(arguments)
