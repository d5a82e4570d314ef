import csv
import os
import tracemalloc

import numpy as np
import pytest
import torch
from conftest import Task, build, dictionary

from fairseq_attnvariants_cli.main import main
from fairseq_attnvariants_cli.subcommands.neighbours import Neighbour, most_frequent, nearest, neighbours, words
from fairseq_attnvariants_cli.systems.model import System
from fairseq_attnvariants_cli.text.files import UserError


def system(name="bridge_direct", count=1, **options):
    return System("a.pt", Task(), [build(name, **options) for _ in range(count)], torch.device("cpu"))


def test_distances_by_hand():
    mapped, embeddings = np.array([[0.0, 0.0], [10.0, 0.0]]), np.array([[3.0, 4.0], [10.0, 2.0], [0.0, 1.0]])
    distances, places = nearest(mapped, embeddings, 2)
    assert places.tolist() == [[2, 0], [1, 0]]
    np.testing.assert_allclose(distances, [[1.0, 5.0], [2.0, 65**0.5]])
    assert nearest(mapped, embeddings, 9)[1].shape == (2, 3)


def test_the_distances_of_all_words_are_not_kept():
    """They would fill the memory with a matrix of all words by all words."""
    words = np.random.default_rng(1).normal(size=(1000, 2))
    tracemalloc.start()
    distances, places = nearest(words, words, 1)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert places[:, 0].tolist() == [*range(1000)] and not distances.any() and most < 8 * 1000 * 100


def test_the_most_frequent_are_words():
    several = dictionary(3, "w")
    several.count[several.index("w1")] = several.count[several.index("w2")] = 7
    several.pad_to_multiple_(16)
    assert [several[k] for k in words(several)] == ["w0", "w1", "w2"]
    assert most_frequent(several, 2) == ["w1", "w2"] and most_frequent(several, 9) == ["w1", "w2", "w0"]
    several.add_symbol("madeupword0000", n=4)  # a text may have it
    assert most_frequent(several, 3) == ["w1", "w2", "madeupword0000"]


@pytest.mark.parametrize("kind", ["hard", "soft"])
def test_words_are_mapped(kind):
    """W maps each source word next to the target word of the same number, towards the one before."""
    bridged = system(bridge_direct=kind, encoder_embed_dim=8, decoder_embed_dim=4)
    with torch.no_grad():
        bridged.model.decoder.bridge.projection.weight.copy_(torch.eye(8)[:4])
        source, target = (half.embed_tokens.weight.zero_() for half in (bridged.model.encoder, bridged.model.decoder))
        target[:, 0] = torch.arange(len(target))
        source[: len(target), :4] = target[: len(source)]
        source[:, 0] -= 0.25
    assert neighbours(bridged, ["w3", "w1"], 2, {"w1": "x"}) == [
        Neighbour("w3", 1, 1, "v3", 0.25, None),
        Neighbour("w3", 1, 2, "v2", 0.75, None),
        Neighbour("w1", 1, 1, "v1", 0.25, "x"),
        Neighbour("w1", 1, 2, "v0", 0.75, "x"),
    ]


def test_what_cannot_be_mapped_is_refused():
    for word in ("zebra", "<unk>", "</s>", "<pad>"):
        with pytest.raises(UserError, match=f"'{word}' is no word of the source dictionary"):
            neighbours(system(), ["w1", word], 1)
    with pytest.raises(UserError, match="a.pt: the model has no direct bridge"):
        neighbours(system("bridge_source"), ["w1"], 1)
    with pytest.raises(UserError, match="a.pt is an ensemble"):
        neighbours(system(count=2), ["w1"], 1)


# ---- the subcommand


def arguments(runs, path, *more):
    return [str(part) for part in ("neighbours", runs.data, "--path", path, "--cpu", *more)]


def test_the_ten_most_frequent_beside_a_lexicon(runs, gated, tmp_path, capfd):
    (tmp_path / "lexicon").write_text("ant\tameise\t3\t0.5\n")
    more = ["--lexicon", tmp_path / "lexicon", "--table", tmp_path / "table.csv"]
    assert main(arguments(runs, gated, *more)) == 0
    head, *rows = csv.reader((tmp_path / "table.csv").read_text().splitlines())
    assert (
        head == ["source", "frequency", "rank", "target", "distance", "lexicon"] == capfd.readouterr().out.split()[:6]
    )
    counts = dict(line.rsplit(" ", 1) for line in (runs.data / "dict.xx.txt").read_text().splitlines())
    assert [(row[0], row[1]) for row in rows] == list(counts.items())[:10]  # fairseq sorts them
    assert {(row[0], row[5]) for row in rows if row[5]} == {("ant", "ameise")}


def test_chosen_words(runs, gated, capfd):
    assert main(arguments(runs, gated, "--words", "gnu", "bee", "--top", "3")) == 0
    head, _, *rows = (line.split() for line in capfd.readouterr().out.splitlines())
    assert "lexicon" not in head and [(row[0], row[2]) for row in rows] == [
        (word, rank) for word in ("gnu", "bee") for rank in "123"
    ]


@pytest.mark.parametrize("more, message", [
    (["--top", "0"], "argument --top: 0 is not at least 1"),
    (["--words", "zebra"], "--words: 'zebra' is no word of the source dictionary"),
    (["--lexicon", "nowhere"], "nowhere cannot be read"),
])  # fmt: skip
def test_bad_input_is_refused(runs, gated, tmp_path, refusal, more, message):
    assert message in refusal(arguments(runs, gated, "--table", tmp_path / "table.csv", *more))
    assert os.listdir(tmp_path) == []
