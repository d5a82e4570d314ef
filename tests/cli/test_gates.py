import csv
import json
import os

import corpus
import numpy as np
import pytest
import reference
import torch
from conftest import Task, build, dictionary
from fairseq import checkpoint_utils
from fairseq.models.nat import NATransformerModel
from fairseq.models.transformer_lm import TransformerLanguageModel

from fairseq_attnvariants_cli.main import main
from fairseq_attnvariants_cli.subcommands.gates import averages, draw
from fairseq_attnvariants_cli.systems.gated import encoder_gates, gate_names, gates_of
from fairseq_attnvariants_cli.systems.model import System, load
from fairseq_attnvariants_cli.text.files import UserError
from fairseq_attnvariants_cli.text.subwords import join_sentence, join_values


@pytest.mark.parametrize("kind", [TransformerLanguageModel, NATransformerModel])
def test_models_of_another_kind_are_refused(kind, runs, monkeypatch):
    other = object.__new__(kind)
    monkeypatch.setattr(checkpoint_utils, "load_model_ensemble_and_task", lambda *args, **named: ([other], None, None))
    with pytest.raises(UserError, match=f"best.pt is a {kind.__name__}, and subcommands read only models with an enc"):
        load(str(runs.rnnsearch / "checkpoint_best.pt"), str(runs.data), cpu=True)


# ---- words and averages


def test_values_of_pieces_are_averaged_and_eos_is_a_word():
    words, numbers = join_sentence(["a@@", "b", "c", "</s>"], "@@ ")
    assert (words, numbers) == (["ab", "c", "</s>"], [0, 0, 1, 2])
    values = np.array([[1.0, 2.0, 3.0, 4.0], [0.0, 1.0, 0.0, 9.0]])
    np.testing.assert_allclose(join_values(values, numbers), [[1.5, 3.0, 4.0], [0.5, 0.0, 9.0]])


def test_averages_by_hand():
    labels = [["b", "a", "b"], ["c"]]
    values = [np.array([[10.0, 20.0, 30.0, 50.0], [1.0, 2.0, 3.0, 5.0]]), np.array([[40.0, 60.0], [4.0, 6.0]])]
    rows = [
        ("all words", 4, 25.0, 2.5),
        ("end of sentence", 2, 55.0, 5.5),
        ("b", 2, 20.0, 2.0),
        ("a", 1, 20.0, 2.0),
        ("c", 1, 40.0, 4.0),
    ]
    assert averages(labels, values) == rows
    assert averages(labels, values, 2) == rows[:4]


def test_empty_sentences_have_no_words():
    assert averages([[]], [np.array([[7.0]])]) == [("end of sentence", 1, 7.0)]


# ---- the parts of a model


def system(name, count=1, **options):
    return System("a.pt", Task(), [build(name, **options) for _ in range(count)], torch.device("cpu"))


@pytest.mark.parametrize("name, names", [
    ("adaptive_gru", {"source": ["g forward", "g backward"], "target": ["g before attention", "g after attention"]}),
    ("context_gate", {"target": ["z after attention"]}),
    ("adaptive_output", {"target": ["alpha_s", "alpha_y", "alpha_c"]}),
    ("conddec", {"target": ["condition left"]}),
])  # fmt: skip
def test_a_model_may_have_one_of_the_parts(name, names):
    assert gate_names(gates_of(system(name))) == names


def test_stacked_layers_are_counted_from_the_lowest():
    names = gate_names(gates_of(system("adaptive_gru", encoder_layers=2, decoder_layers=2)))
    directions = ("g forward", "g backward")
    assert names["source"] == [f"{name}, layer {layer}" for layer in (1, 2) for name in directions]
    decoder = ("g before attention, layer 1", "g after attention, layer 1", "g after attention, layer 2")
    assert names["target"] == [*decoder]


def test_a_model_without_gates_is_refused():
    needed = "gates in the encoder.*arch adaptive_gru.*gates in the decoder.*an adaptive output.*a condition .*conddec"
    with pytest.raises(UserError, match=f"a.pt: the model has neither {needed}"):
        gates_of(system("rnnsearch"))
    with pytest.raises(UserError, match="a.pt is an ensemble: give one checkpoint"):
        gates_of(system("adaptive_both", count=2))


# ---- the subcommand


def test_the_help_says_that_a_target_gate_weighs_the_rest(capsys):
    with pytest.raises(SystemExit):
        main(["gates", "--help"])
    said = " ".join(capsys.readouterr().out.split())
    assert "the weight of the context, or, with --context-gate target, the weight of the rest." in said


def arguments(runs, path, *more):
    text = ["--source", runs.text / "test.xx", "--reference", runs.text / "test.yy"]
    return [str(part) for part in ("gates", runs.data, "--path", path, "--cpu", *text, *more)]


def values(runs, tmp_path, path, *more):
    """Return the records that ``--values`` writes, one for each line of the text."""
    assert main(arguments(runs, path, "--values", tmp_path / "values", *more)) == 0
    records = [json.loads(line) for line in (tmp_path / "values").read_text().splitlines()]
    assert [record["line"] for record in records] == list(range(1, 13))
    return records


def expected_steps(runs, path, monkeypatch, name, share):
    """Yield, per test sentence, its length and the mean of ``share(arguments)`` in % for each call of a plain step."""
    loaded = load(str(path), str(runs.data), cpu=True)
    source, target = loaded.task.source_dictionary, loaded.task.target_dictionary
    step, found = getattr(reference, name), []

    def recorded(*arguments, **more):
        found.append(100 * float(share(*arguments).mean()))
        return step(*arguments, **more)

    monkeypatch.setattr(reference, name, recorded)
    monkeypatch.setitem(reference.STEPS, name, recorded)
    lines = [(runs.text / f"test.{side}").read_text().splitlines() for side in ("xx", "yy")]
    for one, other in zip(*lines, strict=True):
        tokens = torch.tensor([*map(source.index, one.split()), source.eos()])
        previous = torch.tensor([target.eos(), *map(target.index, other.split())])
        found.clear()
        reference.logits(loaded.model, loaded.model.cfg, tokens, previous)
        yield len(tokens), found


def test_gates_of_cells_follow_the_equation(runs, gated, tmp_path, monkeypatch):
    """Gates of the subcommand, in batches, equal those of plain loops over one sentence at a time."""

    def share(x, h, w, u, b):
        return torch.sigmoid(w @ x + b + u @ h)[-len(h) :]

    records = values(runs, tmp_path, gated)
    for record, (length, steps) in zip(records, expected_steps(runs, gated, monkeypatch, "adaptive_gru", share)):
        expected = {
            "g forward": steps[:length],
            "g backward": steps[length : 2 * length][::-1],
            "g before attention": steps[2 * length :: 2],
            "g after attention": steps[2 * length + 1 :: 2],
        }
        for name, gates in expected.items():
            assert record[name] == pytest.approx(gates, abs=2e-4), name


def test_context_gates_follow_the_equation(runs, tmp_path, monkeypatch):
    options = ["--max-update", "5", "--init-std", "0.3"]
    corpus.run("fairseq-train", *corpus.train_arguments(runs.data, tmp_path, *options, arch="context_gate"))
    path = tmp_path / "checkpoint_last.pt"

    def share(p, kind, gate, conditional, inputs, h):
        return torch.sigmoid(p("source.context.weight")[-len(h) :] @ inputs["context"] + p.affine("gate", h))

    records = values(runs, tmp_path, path)
    for record, (_, steps) in zip(records, expected_steps(runs, path, monkeypatch, "gated_cell", share)):
        assert record["z after attention"] == pytest.approx(steps, abs=2e-4)
        assert len(steps) == len(record["target"]) and max(steps) - min(steps) > 0.1


def test_every_layer_is_there_whichever_level_it_is_of(runs, tmp_path):
    """Attention via attention keeps the lowest layer apart; the one above, with zero parameters, has gates of 50%."""
    options = ["--max-update", "1", "--attention-via", "--encoder-layers", "3", "--init-std", "0.3"]
    corpus.run("fairseq-train", *corpus.train_arguments(runs.data, tmp_path, *options, arch="adaptive_gru"))
    state = torch.load(tmp_path / "checkpoint_last.pt", weights_only=True)
    for name, parameter in state["model"].items():
        if name.startswith("encoder.network.upper.layers.0.cells."):
            parameter.zero_()
    torch.save(state, tmp_path / "halves.pt")
    for record in values(runs, tmp_path, tmp_path / "halves.pt"):
        names = [f"g {direction}, layer {k}" for k in (1, 2, 3) for direction in ("forward", "backward")]
        assert list(record)[2:8] == names
        assert all(gate == 50 for name in names[2:4] for gate in record[name])
        assert all(gate != 50 for name in names[:2] for gate in record[name])


def test_layers_of_one_direction_have_one_gate(runs, tmp_path):
    options = ["--max-update", "1", "--encoder-layers", "3", "--encoder-bidirectional-layers", "1", "--residuals", "3"]
    corpus.run("fairseq-train", *corpus.train_arguments(runs.data, tmp_path, *options, arch="adaptive_gru"))
    names = ["g forward, layer 1", "g backward, layer 1", "g forward, layer 2", "g forward, layer 3"]
    for record in values(runs, tmp_path, tmp_path / "checkpoint_last.pt"):
        assert list(record)[2:6] == names
        assert all(len(record[name]) == len(record["source"]) for name in names)


def test_gates_of_words_and_segments_above_characters_are_refused():
    with pytest.raises(UserError, match="a.pt: the gates of a hierarchical encoder are not those of its tokens"):
        gates_of(system("ava", encoder_cell="adaptive_gru"))
    with pytest.raises(UserError, match="a.pt: the gates of a convolutional encoder are not those of its tokens"):
        gates_of(system("char2char", encoder_cell="adaptive_gru"))


def test_gates_of_sources_with_features_are_refused():
    """The encoder's cells do not read features that are attended to; gates of an adaptive output remain possible."""
    features = dictionary()
    features.first_feature = len(features) - 2
    with pytest.raises(UserError, match="a.pt: the encoder's cells do not read features that are attended to"):
        gates_of(System("a.pt", Task(features), [build("adaptive_gru", Task(features))], torch.device("cpu")))
    model = build("adaptive_output", Task(features))
    assert gates_of(System("a.pt", Task(features), [model], torch.device("cpu")))


def test_gates_of_the_output_tell_the_parts_apart(runs, gated, tmp_path):
    """If the state's and the previous word's terms are 0, their weights are equal, and the context's differ."""
    state = torch.load(gated, weights_only=True)
    readout = "decoder.network.readout."
    for name in ("hidden.weight", "hidden.bias", "target.weight", "weighting.whole.weight", "weighting.whole.bias"):
        state["model"][readout + name].zero_()
    for name in ("context", "weighting.part", "weighting.score"):
        state["model"][f"{readout}{name}.weight"].fill_(0.1)
    torch.save(state, tmp_path / "context.pt")
    for record in values(runs, tmp_path, tmp_path / "context.pt"):
        s, y, c = (torch.tensor(record[name]) for name in ("alpha_s", "alpha_y", "alpha_c"))
        torch.testing.assert_close(s, y)
        assert (s - c).abs().min() > 1e-3 and len(c) == len(record["target"])


def test_what_is_left_of_the_condition_follows_the_equation(runs, tmp_path):
    """The values come after the output's gates, and equal those of a plain loop."""
    options = ["--max-update", "5", "--decoder-condition", "--init-std", "0.3"]
    corpus.run("fairseq-train", *corpus.train_arguments(runs.data, tmp_path, *options, arch="adaptive_output"))
    loaded = load(str(tmp_path / "checkpoint_last.pt"), str(runs.data), cpu=True)
    source, target = loaded.task.source_dictionary, loaded.task.target_dictionary
    for record in values(runs, tmp_path, tmp_path / "checkpoint_last.pt"):
        assert list(record) == ["line", "target", "alpha_s", "alpha_y", "alpha_c", "condition left"]
        text = (runs.text / "test.xx").read_text().splitlines()[record["line"] - 1].split()
        tokens = torch.tensor([*map(source.index, text), source.eos()])
        previous = torch.tensor([target.eos(), *map(target.index, record["target"][:-1])])
        *_, terms = reference.logits(loaded.model, loaded.model.cfg, tokens, previous)
        norms = terms["conditions"].norm(dim=1)
        expected = (100 * norms[1:] / norms[0]).float()
        torch.testing.assert_close(torch.tensor(record["condition left"]), expected, rtol=0, atol=2e-4)


def test_gates_do_not_depend_on_the_batch(runs, gated, tmp_path, monkeypatch):
    together = values(runs, tmp_path, gated)
    monkeypatch.setattr("fairseq_attnvariants.nn.decoder.CHUNK", 3)
    for record, alone in zip(together, values(runs, tmp_path, gated, "--batch-size", "1"), strict=True):
        for name in ("g forward", "g backward", "alpha_s", "alpha_y", "alpha_c"):
            assert record[name] == pytest.approx(alone[name], abs=2e-4)
        sums = [sum(several) for several in zip(*(record[name] for name in ("alpha_s", "alpha_y", "alpha_c")))]
        assert sums == pytest.approx([100] * len(record["target"]), abs=1e-3)


def test_tables_are_the_means_of_the_values(runs, gated, tmp_path, capfd):
    with open(tmp_path / "tags", "w") as stream:
        for line in (runs.text / "test.xx").read_text().splitlines():
            stream.write(" ".join("short" if len(word) < 4 else "long" for word in line.split()) + "\n")
    more = ["--source-tags", tmp_path / "tags", "--source-table", tmp_path / "s.csv"]
    records = values(runs, tmp_path, gated, *more, "--target-table", tmp_path / "t.json", "--limit", "3")
    tagged = list(csv.reader((tmp_path / "s.csv").read_text().splitlines()))
    assert tagged[0] == ["source tag", "frequency", "g forward %", "g backward %"]
    assert [row[0] for row in tagged[1:3]] == ["all words", "end of sentence"]
    short = [g for r in records for word, g in zip(r["source"], r["g backward"]) if len(word) < 4]
    [row] = [row for row in tagged if row[0] == "short"]
    assert int(row[1]) == len(short) and float(row[3]) == pytest.approx(sum(short) / len(short), abs=1e-3)

    by_word = json.loads((tmp_path / "t.json").read_text())
    assert len(by_word) == 2 + 3 and list(by_word[0])[4:] == ["alpha_s %", "alpha_y %", "alpha_c %"]
    ends = [r["alpha_c"][-1] for r in records]
    assert by_word[1]["frequency"] == 12 and by_word[1]["alpha_c %"] == pytest.approx(sum(ends) / 12, abs=1e-3)
    printed = capfd.readouterr().out
    assert "source tag" in printed and "target word" in printed


def test_a_generated_target(runs, gated, tmp_path):
    """The second run forces what the first one generated, and finds the same gates."""
    line = arguments(runs, gated)[:-2]
    generate = [*line, "--beam", "1", "--max-len-b", "3", "--values", str(tmp_path / "values")]
    assert main(generate) == 0
    records = [json.loads(row) for row in (tmp_path / "values").read_text().splitlines()]
    (tmp_path / "hypotheses").write_text("".join(" ".join(r["target"][:-1]) + "\n" for r in records))
    assert {len(r["target"]) for r in records} <= {1, 2, 3, 4}
    assert values(runs, tmp_path, gated, "--reference", tmp_path / "hypotheses") == records


def test_what_is_there_is_reported(runs, gated, tmp_path, monkeypatch, capfd, refusal):
    monkeypatch.setattr(
        "fairseq_attnvariants_cli.systems.gated.gates_of", lambda system: [*encoder_gates(system.model.encoder)]
    )
    assert "alpha_s" not in values(runs, tmp_path, gated)[0] and "target word" not in capfd.readouterr().out
    for option in ("--target-tags", "--target-table"):
        error = refusal(arguments(runs, gated, option, tmp_path / "x.csv"))
        assert f"{option}: the model of {gated} has no gates in the decoder's cells" in error
        assert not (tmp_path / "x.csv").exists()


def test_the_picture_shows_words_and_gates():
    pytest.importorskip("matplotlib")
    words, names = ["ein", "$x$", "</s>"], ["alpha_s", "alpha_y"]
    figure = draw([(words, names, np.array([[10.0, 20.0, 30.0], [1.0, 2.0, 3.0]])), (["a"], ["g"], np.ones((1, 1)))])
    top, bottom = figure.axes
    assert [label.get_text() for label in top.get_xticklabels()] == words
    assert [line.get_ydata().tolist() for line in top.lines] == [[10, 20, 30], [1, 2, 3]]
    assert [text.get_text() for text in bottom.get_legend().get_texts()] == ["g"]


def test_the_picture_is_of_the_line(runs, gated, tmp_path):
    pytest.importorskip("matplotlib")
    assert main(arguments(runs, gated, "--line", "4", "--plot", tmp_path / "p.svg")) == 0
    picture = (tmp_path / "p.svg").read_text()
    assert picture.count("<!-- zebra -->") == picture.count("<!-- yak -->") == 2


@pytest.mark.parametrize("more, message", [
    (["--line", "2"], "--line needs a picture: give --plot, too"),
    (["--line", "13", "--plot", "x.png"], "test.xx has lines 1 to 12, and no line 13"),
    (["--limit", "-1"], "argument --limit: -1 is not at least 0"),
    (["--generate"], "give --reference or --generate, not both"),
    (["--source-table", "x.txt"], "x.txt: the name of a table must end in"),
    (["--plot", "x.gif"], "must end in .png, .svg or .pdf"),
])  # fmt: skip
def test_bad_input_is_refused(runs, gated, tmp_path, refusal, more, message):
    assert message in refusal(arguments(runs, gated, "--values", tmp_path / "values", *more))
    assert os.listdir(tmp_path) == []


def test_tags_that_do_not_match_are_refused(runs, gated, tmp_path, capfd):
    lines = (runs.text / "test.yy").read_text().splitlines()
    lines[6] += " more"
    (tmp_path / "tags").write_text("\n".join(lines) + "\n")
    assert main(arguments(runs, gated, "--target-tags", tmp_path / "tags", "--values", tmp_path / "values")) == 2
    count = len(lines[6].split())
    expected = f"tags, line 7: {count} tags, but the target of {runs.text}/test.xx has {count - 1} words there"
    assert expected in capfd.readouterr().err and os.listdir(tmp_path) == ["tags"]


def test_a_plain_model_is_refused(runs, tmp_path, refusal):
    error = refusal(arguments(runs, runs.rnnsearch / "checkpoint_best.pt", "--values", tmp_path / "values"))
    assert "the model has neither gates in the encoder" in error and os.listdir(tmp_path) == []


@pytest.mark.parametrize("name", ["ava", "char2char"])
def test_gates_of_a_decoder_are_those_of_its_tokens_whatever_the_encoder(name):
    assert set(gate_names(gates_of(system(name, decoder_cell="adaptive_gru")))) == {"target"}
