"""Models of Nematus and Marian: the same probabilities, real searches, and what is refused."""

import json
import os
import re
import shutil
import subprocess
import warnings
import zipfile
from pathlib import Path

import corpus
import foreign
import numpy as np
import pytest
import torch
from fairseq.data import Dictionary
from foreign import Reference, nematus_options, network, save, write

from fairseq_attnvariants.models import AttentionRNNModel
from fairseq_attnvariants_cli.imported.archive import Options
from fairseq_attnvariants_cli.imported.checkpoint import Side
from fairseq_attnvariants_cli.imported.nematus import dropped_out
from fairseq_attnvariants_cli.imported.vocabulary import read_vocabulary
from fairseq_attnvariants_cli.main import main
from fairseq_attnvariants_cli.text.files import UserError

MARIAN = shutil.which("marian") or shutil.which("pymarian")
SOURCE = ["eos", "UNK", "ant", "bee", "cat", "dog", "elk"]
TARGET = ["</s>", "<unk>", "fox", "gnu", "hen", "jay"]
DEEP = dict(enc_cells=3, dec_cells=4)
STACK = dict(enc_depth=3, dec_depth=3)
NETWORKS = {
    "nematus": network(),
    "nematus, normalised": network(norm="nematus"),
    "nematus, deep transitions": network(**DEEP),
    "nematus, normalised deep transitions, tied": network(norm="nematus", tied=True, **DEEP),
    "nematus, one embedding": network(one=True, tied=True),
    "nematus, one embedding and an output": network(one=True, norm="nematus"),
    "nematus, stacked": network(norm="nematus", **STACK),
    "nematus, stacked with contexts": network(enc_depth=2, dec_depth=2, deep_context=True, enc_cells=2),
    "nematus, later": network(later=True, norm="nematus", **DEEP, dec_depth=2),
    "nematus, later, not normalised": network(later=True, enc_cells=2, dec_depth=2),
    "marian's nematus": network(kind="marian-nematus"),
    "marian's nematus, normalised deep": network(kind="marian-nematus", norm="nematus", tied=True, **DEEP),
    "amun": network(kind="amun"),
    "amun, normalised": network(kind="amun", norm="marian", tied=True),
    "s2s": network(kind="s2s", transposed=True),
    "s2s, normalised": network(kind="s2s", norm="marian"),
    "s2s, normalised deep, tied": network(kind="s2s", norm="marian", one=True, tied=True, **DEEP),
    "s2s, alternating": network(kind="s2s", norm="marian", **STACK),
    "s2s, two alternating": network(kind="s2s", enc_depth=2, enc_cells=2, dec_depth=2, skip=False),
    "s2s, stacks apart": network(kind="s2s", stacks="own", norm="marian", **STACK),
    "s2s, upper layers of one direction": network(kind="s2s", stacks="both", enc_depth=4),
}
PLAIN = "nematus", "marian's nematus", "amun", "s2s"  # one of each kind


def dictionaries(folder, one=False):
    """Files of a JSON and a YAML dictionary."""
    paths = [str(folder / name) for name in ("source.json", "target.yml")]
    target = SOURCE if one else TARGET
    with open(paths[0], "w") as stream:
        json.dump({word: row for row, word in enumerate(SOURCE)}, stream)
    with open(paths[1], "w") as stream:
        stream.writelines(f"{word}: {row}\n" for row, word in enumerate(target))
    return paths


def command(model, words, output, *more):
    sides = ["--source-dict", words[0], "--target-dict", words[1], "-s", "xx", "-t", "yy"]
    return ["import-nematus", str(model), *sides, "--output", str(output), *more]


def imported(folder, net, seed=0):
    """Import a network; return its arrays and the folder of the imported model."""
    target = SOURCE if net["one"] else TARGET
    arrays = write(net, (len(SOURCE), len(target)), seed)
    path = save(net, arrays, folder / "model")
    assert main(command(path, dictionaries(folder, net["one"]), folder / "made")) == 0
    return arrays, folder / "made"


def read_by_marian(net):
    """Return whether Marian reads a network: all of Marian's, and those of Nematus without stacks, which differ."""
    stacked = max(net["enc_depth"], net["dec_depth"]) > 1
    return net["kind"] != "nematus" or not (stacked or net["one"] or net["later"])


def marian(command, model, *arguments):
    """Run a command of Marian; return the fields of each line that it prints."""
    words = ["-v", model.with_name("source.json"), model.with_name("target.yml")]
    line = [MARIAN, command, "-m", model, *words, *arguments, "--word-scores", "--cpu-threads", "1", "-w", "100"]
    found = subprocess.run([*map(str, line)], capture_output=True, text=True, timeout=100)
    assert found.returncode == 0, found.stderr[-2000:]
    return [[field.strip() for field in line.split("|||")] for line in found.stdout.splitlines()]


def symbol(row):
    """Return fairseq's index of a row: 2 for the end of the sentence, 3 for unknown words, from 4 on for others."""
    return {0: 2, 1: 3}.get(row, row + 2)


@pytest.fixture
def dtype(request):
    """The number type of all parameters, also those of the checkpoint."""
    torch.set_default_dtype(request.param)
    yield request.param
    torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("name, dtype", [
    *((name, torch.float64) for name in NETWORKS),
    *(pytest.param(name, torch.float32, marks=pytest.mark.slow) for name in PLAIN),
], indirect=["dtype"], ids=str)  # fmt: skip
def test_probabilities_are_theirs(name, dtype, tmp_path):
    """Probabilities equal the equations', with and without padding, at once and step by step."""
    net, tolerance = NETWORKS[name], 1e-5 if dtype == torch.float32 else 1e-10
    arrays, folder = imported(tmp_path, net)
    reference, rows = Reference(net, arrays), len(SOURCE if net["one"] else TARGET)
    [model] = AttentionRNNModel.from_pretrained(str(folder)).models
    sources, previous = [[2, 4, 1, 0], [3, 0]], [[2, 3, 1, 5], [4, 2, 2, 3]]
    tokens = torch.full((2, 4), 1)
    for row, words in enumerate(sources):
        tokens[row, 4 - len(words) :] = torch.tensor([symbol(word) for word in words])
    given = torch.tensor([[2, *map(symbol, words)] for words in previous])
    lengths = torch.tensor([len(words) for words in sources])
    output = model(tokens, lengths, given)[0].log_softmax(-1)
    state, encoded, steps = {}, model.encoder(tokens, lengths), []
    for step in range(given.size(1)):
        steps.append(model.decoder(given[:, : step + 1], encoded, incremental_state=state)[0].log_softmax(-1))
    for found in (output, torch.cat(steps, dim=1)):
        assert found[..., :2].exp().eq(0).all()
        for row, words in enumerate(sources):
            expected = torch.from_numpy(reference.score(words, previous[row]))
            own = found[row][:, [*map(symbol, range(rows))]].double()
            torch.testing.assert_close(own, expected, rtol=0, atol=tolerance)


@pytest.mark.commands
@pytest.mark.parametrize("name", ["nematus, normalised deep transitions, tied", "s2s, alternating"])
def test_a_real_search(name, tmp_path):
    """fairseq's commands find the same translations, with the scores of the equations."""
    net = NETWORKS[name]
    arrays, folder = imported(tmp_path, net)
    text = "ant bee cat\nelk dog dog ant zebra\n"
    (tmp_path / "test.xx").write_text(text)
    dictionaries = ["--srcdict", folder / "dict.xx.txt", "--tgtdict", folder / "dict.yy.txt"]
    only = ["-s", "xx", "-t", "yy", "--only-source", "--testpref", tmp_path / "test", "--destdir", tmp_path / "bin"]
    corpus.run("fairseq-preprocess", *only, *dictionaries)
    (tmp_path / "bin" / "dict.yy.txt").write_bytes((folder / "dict.yy.txt").read_bytes())
    model = ["--user-dir", corpus.USER_DIR, "--path", folder / "model.pt", "--cpu", "--beam", "4", "--max-len-b", "8"]
    languages = ["-s", "xx", "-t", "yy"]
    generated = corpus.run("fairseq-generate", tmp_path / "bin", *languages, *model).stdout
    interactive = corpus.run("fairseq-interactive", folder, *languages, *model, stdin=text).stdout
    hub = AttentionRNNModel.from_pretrained(str(folder))
    found = dict(re.findall(r"^D-(\d)\t\S+\t(.*)$", generated, re.MULTILINE))
    assert found == dict(re.findall(r"^D-(\d)\t\S+\t(.*)$", interactive, re.MULTILINE))
    lines = text.splitlines()
    assert [found["0"], found["1"]] == hub.translate(lines, beam=4, max_len_b=8)
    scores = dict(re.findall(r"^P-(\d)\t(.*)$", generated, re.MULTILINE))
    for number, line in enumerate(lines):
        rows = [SOURCE.index(word) if word in SOURCE else 1 for word in line.split()] + [0]
        target = [TARGET.index(word) if word in TARGET else 1 for word in found[str(number)].split()]
        logs = Reference(net, arrays).score(rows, target)
        expected = [step[word] / np.log(2) for step, word in zip(logs, [*target, 0])]
        np.testing.assert_allclose([float(one) for one in scores[str(number)].split()], expected, atol=2e-4)


@pytest.mark.commands
@pytest.mark.more
@pytest.mark.skipif(not MARIAN, reason="there is no Marian on PATH: `pip install pymarian` brings one")
@pytest.mark.parametrize("name", [name for name, net in NETWORKS.items() if read_by_marian(net)])
def test_marian_itself_gives_these_scores(name, tmp_path, monkeypatch):
    """Marian's scorer and search, with and without padding, give the scores of the equations and the imported model."""
    net = NETWORKS[name]
    monkeypatch.setattr(foreign, "K", foreign.M)  # Marian reads no other width
    arrays, folder = imported(tmp_path, net)
    kind = "marian-nematus" if net["kind"] == "nematus" else net["kind"]
    model = Path(save({**net, "kind": kind}, arrays, tmp_path / "given"))
    target = SOURCE if net["one"] else TARGET
    pairs = [("ant bee cat", [2, 3, 4]), ("dog", [5]), ("elk elk ant yak cat dog", [2, 2, 3, 1, 5]), ("bee", [])]
    (tmp_path / "text.xx").write_text("".join(f"{line}\n" for line, _ in pairs))
    (tmp_path / "text.yy").write_text("".join(" ".join(target[row] for row in rows) + "\n" for _, rows in pairs))
    sides = [tmp_path / "text.xx", tmp_path / "text.yy"]
    search = ["-i", sides[0], "--n-best", "--beam-size", "4", "--normalize", "--mini-batch", "4"]
    given = [(*pair, scores) for pair, [_, scores] in zip(pairs, marian("score", model, "-t", *sides), strict=True)]
    for number, words, scores, *_ in marian("decode", model, *search):
        given.append((pairs[int(number)][0], [target.index(word) for word in words.split()], scores))
    assert len(given) > 3 * len(pairs)
    [network] = AttentionRNNModel.from_pretrained(str(folder)).models
    for line, rows, scores in given:
        source = [SOURCE.index(word) if word in SOURCE else 1 for word in line.split()] + [0]
        expected = [float(score) for score in scores.removeprefix("WordScores=").split()]
        steps, ends = [*range(len(expected))], [*rows, 0][: len(expected)]
        tokens, previous = (torch.tensor([[*map(symbol, numbers)]]) for numbers in (source, [0, *rows]))
        output = network(tokens, torch.tensor([len(source)]), previous)[0].log_softmax(-1)[0]
        own = output[steps, [*map(symbol, ends)]].tolist()
        for found in (own, Reference(net, arrays).score(source, rows)[steps, ends]):
            np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4)


def test_dropout_that_was_not_scaled_in_training(tmp_path):
    """In translation, Nematus before 0.1 multiplies what matrices read by the share that dropout keeps."""
    net, words = network(), dictionaries(tmp_path)
    arrays = write(net, (len(SOURCE), len(TARGET)))
    path = save(net, arrays, tmp_path / "model")
    rates = dict(dropout_embedding=0.2, dropout_hidden=0.3, dropout_source=0.1, dropout_target=0.15)
    old = {**nematus_options(net), "model_version": 0, **rates}
    (tmp_path / "model.npz.json").write_text(json.dumps(old))
    assert main(command(path, words, tmp_path / "made")) == 0
    scaled = {}
    for name, array in arrays.items():
        factor = 0.7
        if name in ("encoder_W", "encoder_Wx", "encoder_r_W", "encoder_r_Wx"):
            factor = 0.8 * 0.9
        if name in ("decoder_W", "decoder_Wx", "ff_logit_prev_W"):
            factor = 0.8 * 0.85
        scaled[name] = array if array.ndim == 1 or name.startswith("Wemb") else array * factor
    expected = torch.from_numpy(Reference(net, scaled).score([2, 3, 0], [2, 3]))
    [model] = AttentionRNNModel.from_pretrained(str(tmp_path / "made")).models
    output = model(torch.tensor([[4, 5, 2]]), torch.tensor([3]), torch.tensor([[2, 4, 5]]))[0].log_softmax(-1)
    found = output[0][:, [*map(symbol, range(len(TARGET)))]].double()
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


def test_words_that_fairseq_has_of_its_own_and_such_as_no_file_holds(tmp_path):
    """Rows without a word, words with no row, and in YAML what looks like a number or a truth value."""
    (tmp_path / "a.yml").write_text('"</s>": 0\n"<unk>": 1\nyes: 2\n1.5: 3\n"<s>": 4\n"\\r": 5\n~: 7\n')
    vocabulary = read_vocabulary(str(tmp_path / "a.yml"))
    path = tmp_path / "dict.xx.txt"
    path.write_text("".join(line + "\n" for line in vocabulary.lines(7)))
    found = Dictionary.load(str(path))
    assert found.symbols[4:] == ["yes", "1.5", "<s>", "<row-5>", "<row-6>"] and found.index("<s>") == 6
    assert vocabulary.rows(7) == [-1, -1, 0, 1, 2, 3, 4, 5, 6]
    (tmp_path / "b.json").write_text('{"x": 0, "</s>": 3, "UNK": 1, "\\ud800": 2}')
    vocabulary = read_vocabulary(str(tmp_path / "b.json"))
    assert vocabulary.rows(4) == [-1, -1, 3, 1, 0, 2] and vocabulary.lines(4) == ["x 1", "<row-2> 1"]
    with pytest.raises(UserError, match="b.json: the model has 3 rows, too few for the end of a sentence and unknown"):
        vocabulary.rows(3)


def changed(path, **options):
    """Change options in the file of a model of Nematus."""
    with open(f"{path}.json") as stream:
        content = json.load(stream)
    with open(f"{path}.json", "w") as stream:
        json.dump({**content, **options}, stream)


def rewritten(path, change):
    """Call ``change`` on the arrays of a model, and write them again."""
    with np.load(path) as archive:
        arrays = dict(archive)
    change(arrays)
    np.savez(path, **arrays)


def flipped(path):
    """Flip one bit of the file."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def twice(path):
    """Add a second array of the same name to a model."""
    with zipfile.ZipFile(path, "a") as members, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        members.writestr("Wemb.npy", members.read("Wemb.npy"))


REFUSED = {
    "factors": (lambda path: changed(path, factors=2), "model.npz.json: factors is 2, which no model here has"),
    "lstm": (lambda path: changed(path, encoder="lstm"), "encoder is lstm, .*what is read is gru"),
    "transformer": (lambda path: changed(path, model_type="transformer"), "model_type is transformer"),
    "weights": (lambda path: changed(path, weight_normalisation=True), "weight_normalisation is True"),
    "a second factor": (lambda path: rewritten(path, lambda arrays: arrays.update(Wemb1=np.ones((3, 2), "float32"))),
        "factors of source words, of which Wemb1 is one"),
    "another array": (lambda path: rewritten(path, lambda arrays: arrays.update(lm_Wemb=np.ones((3, 2), "float32"))),
        "has arrays that no model here has an equation for: lm_Wemb"),
    "a missing array": (lambda path: rewritten(path, lambda arrays: arrays.pop("decoder_Ux_nl")),
        "lacks the array decoder_Ux_nl"),
    "another shape": (lambda path: rewritten(path, lambda arrays: arrays.update(decoder_Wc=np.ones((3, 2), "float32"))),
        "the array decoder_Wc is 3 x 2, and with the sizes of the others it has to be 8 x 8"),
    "no matrix": (lambda path: rewritten(path, lambda arrays: arrays.update(Wemb=np.ones(3, "float32"))),
        "the array Wemb is 3, and a matrix is wanted"),
    "tied widths that differ": (
        lambda path: (
            rewritten(path, lambda arrays: arrays.pop("ff_logit_W")),
            changed(path, tie_decoder_embeddings=True),
        ),
        "has arrays that do not fit together: tied embeddings need",
    ),
    "an array twice": (twice, "model.npz has the array Wemb twice: it is damaged"),
    "layers that are missing": (lambda path: changed(path, enc_depth=2),
        "enc_depth is 2, and the arrays of .*model.npz show 1: these are the options of another model, or arrays are"),
    "cells that are missing": (lambda path: changed(path, dec_base_recurrence_transition_depth=3),
        "dec_base_recurrence_transition_depth is 3, and .* show 2"),
    "options of another model": (lambda path: changed(path, dim_word=500), "dim_word is 500, and .* show 5: these are"),
    "options of a wider model": (lambda path: changed(path, dim=1000), "dim is 1000, and .* show 4: these are"),
    "an output that is missing": (lambda path: rewritten(path, lambda arrays: arrays.pop("ff_logit_W")),
        "tie_decoder_embeddings is False, and .* show True: these are"),
    "an embedding that is missing": (lambda path: rewritten(path, lambda arrays: arrays.pop("Wemb_dec")),
        "tie_encoder_decoder_embeddings is False, and .* show True"),
    "normalisation that is missing": (lambda path: changed(path, layer_normalisation=True),
        "layer_normalisation is True, and .* show False"),
    "a switch that is a text": (lambda path: changed(path, use_dropout="false", model_version=0, dropout_hidden=0.5),
        "use_dropout is 'false', and true or false is wanted"),
    "a number that is a text": (lambda path: changed(path, factors="1"), "factors is '1', .*what is read is 1"),
    "a layer without those below": (
        lambda path: rewritten(path, lambda arrays: arrays.update(encoder_9999999_U=arrays["encoder_U"])),
        "no model here has an equation for: encoder_9999999_U"),
    "a layer of a number that Python does not read": (
        lambda path: rewritten(
            path, lambda arrays: arrays.update({f"decoder_cell{'9' * 5000}_U": arrays["encoder_U"]})
        ),
        "no model here has an equation for: decoder_cell9999",
    ),
    "a rate that is none": (lambda path: changed(path, model_version=0, dropout_hidden="much"),
        "dropout_hidden is much, and a number from 0 on and below 1 is wanted"),
    "NaN": (lambda path: rewritten(path, lambda arrays: arrays["ff_logit_b"].fill(np.nan)), "ff_logit_b holds NaN"),
    "whole numbers": (lambda path: rewritten(path, lambda arrays: arrays.update(Wemb=np.ones((7, 5), "int8"))),
        "the array Wemb is of int8, .* before it was quantised"),
    "objects": (lambda path: rewritten(path, lambda arrays: arrays.update(Wemb=np.array([{}], dtype=object))),
        "is no .npz with arrays of numbers, .* Python's objects are not read"),
    "a bit": (flipped, "is damaged|is no .npz"),
    "half of it": (lambda path: path.write_bytes(path.read_bytes()[:900]), "is no .npz"),
    "nothing": (lambda path: path.write_bytes(b""), "is no .npz"),
    "none": (lambda path: path.unlink(), "model.npz cannot be read: No such file or directory"),
    "no options": (lambda path: path.with_name("model.npz.json").write_text("[1]"), "model.npz.json holds no options"),
    "options of something else": (lambda path: path.with_name("model.npz.json").write_text('{"ant": 2}'),
        "model.npz.json has no option of Nematus, such as dim_word: give the file of this model"),
    "an option twice": (lambda path: path.with_name("model.npz.json").write_text('{"factors": 2, "factors": 1}'),
        "model.npz.json: 'factors' is there twice: take out the wrong one"),
}  # fmt: skip


@pytest.mark.parametrize("kind", REFUSED)
def test_refuses(kind, tmp_path, refusal):
    """A refusal is one sentence, and leaves no files."""
    change, message = REFUSED[kind]
    net, words = network(), dictionaries(tmp_path)
    path = Path(save(net, write(net, (len(SOURCE), len(TARGET))), tmp_path / "model"))
    change(path)
    before = {*os.listdir(tmp_path)}
    error = refusal(command(path, words, tmp_path / "made"))
    assert re.search(message, error) and {*os.listdir(tmp_path)} == before


def test_says_how_a_binary_of_marian_becomes_what_is_read(tmp_path, refusal):
    error = refusal(command(tmp_path / "model.bin", dictionaries(tmp_path), tmp_path / "made"))
    assert f"marian convert -f {tmp_path / 'model.bin'} -t MODEL.npz" in error


@pytest.mark.parametrize("option,value", [
    ("type", "transformer"),
    ("type", "multi-s2s"),
    ("enc-cell", "lstm"),
    ("right-left", True),
    ("dec-cell-high-depth", 2),
    ("dec-cell-base-depth", 1),  # the context for the readout alone
    ("input-types", ["sequence", "sequence", "alignment"]),
])  # fmt: skip
def test_refuses_options_of_marian(option, value, tmp_path, refusal, monkeypatch):
    net, words = NETWORKS["s2s"], dictionaries(tmp_path)
    stored = {**foreign.marian_options(net, (len(SOURCE), len(TARGET))), option: value}
    monkeypatch.setattr(foreign, "marian_options", lambda net, words: stored)
    path = save(net, write(net, (len(SOURCE), len(TARGET))), tmp_path / "model")
    assert f"special:model.yml: {option} is {value}" in refusal(command(path, words, tmp_path / "made"))
    assert not os.path.exists(tmp_path / "made")


@pytest.mark.parametrize("content,message", [
    ("{", "is no dictionary, or is damaged"),
    ("[]", "is no dictionary: words with numbers are wanted"),
    ('{"eos": 0, "UNK": 1, "ant": "many"}', "'ant' has the number 'many', which is none of a row"),
    ('{"eos": 0, "UNK": 1, "ant": 1.5}', "'ant' has the number '1.5'"),
    ('{"eos": 0, "UNK": 1, "ant": 1}', "'UNK' and 'ant' have one number, 1"),
    ('{"ant": 0, "UNK": 1}', "row 0 is 'ant', and </s> or eos is wanted there"),
    ("[" * 100_000, "is no dictionary, or is damaged"),
    ('{"eos": 0, "UNK": 1, "ant": 2, "bee": 3, "ant": 4}', "'ant' is there twice: take out the wrong one"),
])  # fmt: skip
def test_refuses_dictionaries(content, message, tmp_path, refusal):
    net, words = network(), dictionaries(tmp_path)
    path = save(net, write(net, (len(SOURCE), len(TARGET))), tmp_path / "model")
    Path(words[0]).write_text(content)
    error = refusal(command(path, words, tmp_path / "made"))
    assert f"source.json: {message}" in error or f"source.json {message}" in error
    assert not os.path.exists(tmp_path / "made")


@pytest.mark.parametrize("content, message", [
    ("</s>: 0\n<unk>: 1\nant: 2\nant: 3\n", "'ant' is there twice: take out the wrong one"),
    ("? [a, b]\n: 0\n", "is no dictionary, or is damaged"),
])  # fmt: skip
def test_refuses_dictionaries_in_yaml(content, message, tmp_path):
    (tmp_path / "words.yml").write_text(content)
    with pytest.raises(UserError, match=message):
        read_vocabulary(str(tmp_path / "words.yml"))


def test_rows_without_a_word_are_told(tmp_path, capfd):
    """A dictionary of another model may be too small."""
    net, words = network(), dictionaries(tmp_path)
    path = save(net, write(net, (len(SOURCE) + 3, len(TARGET))), tmp_path / "model")
    assert main(command(path, words, tmp_path / "made")) == 0
    assert "source.json: 3 of the model's 10 rows have no word: is it another model's?\n" in capfd.readouterr().err


def test_a_short_message_of_a_long_value(tmp_path):
    """The aliases of YAML can make a small file a value of any size."""
    path = tmp_path / "words.yml"
    lists = (f"&a{k} [{','.join([f'*a{k - 1}'] * 9) if k else 'x'}]" for k in range(12))
    path.write_text(f"many: [{', '.join(lists)}]\n")
    with pytest.raises(UserError, match="'many' has the number .{,99}, which is none of a row"):
        read_vocabulary(str(path))


def test_a_first_word_with_a_byte_order_mark(tmp_path):
    """fairseq would take the mark for the file's; in another line it is a part of the word."""
    path = tmp_path / "words.json"
    path.write_text(json.dumps({"eos": 0, "UNK": 1, "\ufeffthe": 2, "\ufeffa": 3}))
    side = Side("en", read_vocabulary(str(path)), 4)
    assert side.write(str(tmp_path)).symbols[4:] == ["<row-2>", "\ufeffa"]


def test_refuses_a_folder_that_is_there_and_one_name_for_two_languages(tmp_path, refusal):
    net, words = network(), dictionaries(tmp_path)
    path = save(net, write(net, (len(SOURCE), len(TARGET))), tmp_path / "model")
    assert "exists already: name another folder" in refusal(command(path, words, tmp_path))
    assert "are both xx" in refusal([*command(path, words, tmp_path / "made"), "-t", "xx"])
    assert "is not the name of a language" in refusal([*command(path, words, tmp_path / "made"), "-t", "../x"])


def test_a_row_that_is_missing_is_where_the_file_names_it(tmp_path):
    """``</s>`` and ``<unk>`` have the first two rows only if the file does not name them."""
    path = tmp_path / "words.json"
    path.write_text('{"the": 1, "</s>": 5, "<unk>": 2}')
    found = read_vocabulary(str(path))
    assert (found.end, found.unknown) == (5, 2)
    path.write_text('{"the": 2}')
    found = read_vocabulary(str(path))
    assert (found.end, found.unknown) == (0, 1)


@pytest.mark.parametrize(
    "version, factor", [(0, 0.5), ("0.05", 0.5), (0.1, 1), (0.2, 1), ("new", 1), pytest.param(10**400, 1, id="huge")]
)
def test_dropout_is_scaled_of_the_versions_before_the_first(version, factor):
    given = Options("a.json", False, {"use_dropout": True, "model_version": version, "dropout_hidden": 0.5})
    assert (dropped_out({"ff_state_W": np.ones((2, 2))}, given)["ff_state_W"] == factor).all()
