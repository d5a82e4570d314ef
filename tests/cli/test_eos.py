import io
import json
import os

import numpy as np
import pytest
import torch
from corpus import pipe_of

from fairseq_attnvariants_cli.main import main
from fairseq_attnvariants_cli.subcommands.eos import count_ends
from fairseq_attnvariants_cli.systems import model
from fairseq_attnvariants_cli.systems.model import Forced


def pair(*rows):
    weights = np.array(rows)
    return Forced(0, ["s"] * (weights.shape[1] - 1) + ["</s>"], ["t"] * (len(rows) - 1) + ["</s>"], {"attn": weights})


def test_only_the_last_row_counts():
    yes, no = [0.1, 0.2, 0.7], [0.1, 0.7, 0.2]
    assert count_ends([pair(no, yes), pair(no, yes), pair(yes, no), pair([1.0]), pair([0.5, 0.5])]) == 3


# ---- the subcommand


def arguments(runs, *more):
    path = runs.rnnsearch / "checkpoint_best.pt"
    search = () if "--reference" in more or "--forced" in more else ("--max-len-b", "5")
    return [str(part) for part in ("eos", runs.data, "--path", path, "--cpu", *search, *more)]


def shares(runs, tmp_path, *more):
    assert main(arguments(runs, "--table", tmp_path / "table.json", *more)) == 0
    return json.loads((tmp_path / "table.json").read_text())


def test_several_models(runs, gated, tmp_path, capfd):
    rows = shares(runs, tmp_path, "--source", runs.text / "test.xx", "--path", gated)
    systems = ["rnnsearch/checkpoint_best.pt", "gated/checkpoint_last.pt"]
    assert [(row["system"], row["sentences"]) for row in rows] == [(system, 12) for system in systems]
    assert [row["%"] for row in rows] == [pytest.approx(100 * row["source EOS"] / 12) for row in rows]
    assert "source EOS" in capfd.readouterr().out


def test_translations_are_decoded_or_the_reference(runs, tmp_path, monkeypatch):
    decoded, forced = [], model.force

    def force(system, text, limit):
        dictionary = system.task.target_dictionary
        decoded.append([dictionary.string(sentence.item["target"]) for sentence in text.sentences])
        return forced(system, text, limit)

    monkeypatch.setattr(model, "force", force)
    monkeypatch.setattr(model, "generate", lambda system, text, _: text.with_targets([torch.tensor([4, 5, 2])] * 12))
    shares(runs, tmp_path)
    shares(runs, tmp_path, "--forced")
    files = ["--source", runs.text / "test.xx", "--reference", runs.text / "test.yy"]
    shares(runs, tmp_path, "--forced", *files)
    reference = (runs.text / "test.yy").read_text().splitlines()
    reference[3] = "<unk> <unk>"
    assert len(set(decoded[0])) == 1 and decoded[1:] == [reference, reference]


def test_flat_attention_is_on_the_first_word(runs, tmp_path):
    """Equal weights link to the first word, so only the translation of an empty line ends at the source's EOS."""
    state = torch.load(runs.rnnsearch / "checkpoint_best.pt", weights_only=True)
    state["model"]["decoder.network.transition.attention.vector"].zero_()
    torch.save(state, tmp_path / "flat.pt")
    (tmp_path / "source").write_text("ant bee\n\ncat\n\n")
    rows = shares(runs, tmp_path, "--source", tmp_path / "source", "--path", tmp_path / "flat.pt")
    assert (rows[1]["source EOS"], rows[1]["%"]) == (2, 50.0)


@pytest.mark.parametrize("more, message", [
    (["--reference", "y", "--generate"], "give --reference or --generate, not both"),
    (["--source", "x", "--forced"], "--source needs --reference"),
    (["--source", os.devnull], "/dev/null is empty"),
    (["--table", "x.txt"], "the name of a table must end in"),
])  # fmt: skip
def test_bad_input_is_refused(runs, tmp_path, refusal, more, message):
    assert message in refusal(arguments(runs, "--table", tmp_path / "table.csv", *more))
    assert os.listdir(tmp_path) == []


READERS = {  # subcommands that read --source and --reference: the number of models, and other options that they need
    "eos": (2, []),
    "attention": (2, ["--output", "a.png"]),
    "attribute": (2, ["--method", "input-x-gradient"]),
    "align": (1, []),
    "tune": (1, ["--beam", "1", "--max-len-b", "3"]),
}


@pytest.mark.parametrize("subcommand", READERS)
@pytest.mark.parametrize("piped,other", [("--source", "--reference"), ("--reference", "--source")])
def test_a_text_may_be_a_stream(runs, tmp_path, monkeypatch, capfd, subcommand, piped, other):
    """One text is standard input, the other ``<(...)``, and several models read them."""
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    text = b"ant bee\ncat\n"
    (tmp_path / "text").write_bytes(text)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text)))
    count, more = READERS[subcommand]
    paths = [part for k in range(count) for part in ("--path", str(runs.rnnsearch / f"checkpoint{k + 1}.pt"))]

    def found(*texts):
        status = main([subcommand, str(runs.data), *paths, "--cpu", piped, texts[0], other, texts[1], *more])
        out, err = capfd.readouterr()
        assert status == 0, err
        return out, [path.read_bytes() for path in tmp_path.glob("*.png")]

    assert found("-", pipe_of(text)) == found("text", "text") != ("", [])
