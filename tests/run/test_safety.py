"""The runtime refuses damaged, malicious and foreign packages before onnxruntime reads them."""

import json
import os
import random
import shutil
from collections import Counter

import onnx
import onnxruntime
import packages
import pytest
from onnx import TensorProto, helper
from packages import SPECIAL, WORDS, rehash, runtime

PackageError = runtime.PackageError
SIZE = len(SPECIAL + WORDS)


@pytest.fixture(autouse=True)
def unseen(monkeypatch):
    """A list with an entry for each model that onnxruntime was given."""
    seen = []
    make = runtime.onnxruntime.InferenceSession
    monkeypatch.setattr(runtime.onnxruntime, "InferenceSession", lambda *a, **k: seen.append(1) or make(*a, **k))
    return seen


@pytest.fixture
def package(tmp_path):
    return packages.write(tmp_path / "package")


def refused(folder, message, seen):
    with pytest.raises(PackageError, match=message) as caught:
        runtime.Translator(folder)
    assert str(folder) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not seen


def change(folder, **fields):
    about = json.loads((folder / "manifest.json").read_text())
    for name, value in fields.items():
        group, _, field = name.partition("__")
        target = about[group] if field else about
        target[field or group] = value
        if value is ...:
            del target[field or group]
    (folder / "manifest.json").write_text(json.dumps(about))


@pytest.mark.parametrize("fields, message", [
    (dict(format=3), "its format is 3, and this program reads 1 and 2"),
    (dict(source__features=3), "source.features is outside of the dictionary"),
    (dict(source__features=SIZE), "source.features is outside of the dictionary"),
    (dict(source__features=4000), "source.features is outside of the dictionary"),
    (dict(source__features="4"), "source.features is missing or unknown"),
    (dict(source__features_after=1), "source.features_after is missing or unknown"),
    (dict(format=...), "its format is None"),
    (dict(search__beam=...), "search.beam is missing or unknown"),
    (dict(search__beam="5"), "search.beam is missing"),
    (dict(search__beam=True), "search.beam is missing"),
    (dict(search__lenpen=None), "search.lenpen is missing"),
    (dict(source=[]), "source.units is missing"),
    (dict(files=...), "files is missing"),
    (dict(files={}), "files does not describe source.json"),
    (dict(special__unk=4000), "special or source.end is outside of a dictionary"),
    (dict(source__end=["</s>"]), "special or source.end is outside of a dictionary"),
    (dict(source__fingerprint="0"), "source.json: its fingerprint is not the one in manifest.json"),
    (dict(source__units="bytes"), "source.units"),
    (dict(text__tokenizer="sentencepiece"), "text.tokenizer"),
    (dict(text__tokenizer={"kind": "spacy"}), "text.tokenizer"),
    (dict(text__bpe={"kind": "sentencepiece"}), "text.bpe"),
    (dict(text__tokenizer="moses"), "text.tokenizer"),
    (dict(text__bpe={"kind": "subword-nmt"}), "None cannot be the name of a file"),
    (dict(graph__operators=["Add"]), "model.onnx: it uses .*Transpose.*, which manifest.json does not list"),
    (dict(search__largest_beam=10**10), "search.largest_beam is too large"),
    (dict(search__max_len_a=1e308), "search.max_len_a is too large"),
    (dict(search__max_len_a=-1e308), "search.max_len_a is too large"),
    (dict(search__min_len=10**5), "search.min_len is too large"),
    (dict(search__min_len=1024), "search.min_len is too large"),
])  # fmt: skip
def test_manifests_that_are_not_complete(package, fields, message, unseen):
    change(package, **fields)
    refused(package, message, unseen)


READ = [f"{side}.{name}" for side in ("source", "target") for name in ("units", "symbols", "fingerprint")]
READ += ["source.end", *(f"special.{name}" for name in ("pad", "eos", "unk"))]
READ += [f"search.{name}" for name in ("beam", "lenpen", "unkpen", "min_len", "max_len_a", "max_len_b", "normalize")]
READ += [f"search.largest_{name}" for name in ("beam", "source", "target")]
READ += [f"text.{name}" for name in ("lowercase", "tokenizer", "truecase", "bpe")]
READ += ["copies", "graph.operators", "files"]


@pytest.mark.parametrize("name", READ)
def test_every_field_that_is_read_has_to_be_there(package, name, unseen):
    change(package, **{name.replace(".", "__"): ...})
    refused(package, f"manifest.json: {name} is missing or unknown", unseen)


def test_special_symbols_have_to_be_in_both_dictionaries(tmp_path, unseen):
    folder = packages.write(tmp_path, packages.echo(SIZE), target=SPECIAL[:3])
    refused(folder, "special or source.end is outside of a dictionary", unseen)


def test_an_unknown_symbol_that_is_a_feature(tmp_path, unseen):
    """Otherwise all letters of a source could be features, with none left to copy."""
    folder = packages.write(tmp_path, source=[*SPECIAL, "a", "<unk>"], format=2, source__features=5)
    refused(folder, "source.features is outside of the dictionary, or <unk> is a feature", unseen)


@pytest.mark.parametrize("content, message", [
    (b"", "it is not JSON"),
    (b"[]", "its format is None"),
    (b"{'format': 1}", "it is not JSON"),
    (b'{"format": NaN}', "it has NaN"),
    (b"\xff\xfe", "it is not JSON"),
    (b"[" * 100_000, "it is not JSON"),
    (b"cposix\nsystem\n(S'echo'\ntR.", "it is not JSON"),
])  # fmt: skip
def test_manifests_that_are_not_json(package, content, message, unseen):
    (package / "manifest.json").write_bytes(content)
    refused(package, message, unseen)


@pytest.mark.parametrize(
    "name", ["../secret.json", "/etc/passwd", ".hidden", "a/b.json", "a\\b.json", "", "c:x", "a\0b", None, 1, ["x"]]
)
def test_names_that_leave_the_folder(package, name, unseen):
    (package.parent / "secret.json").write_text(json.dumps(SPECIAL + WORDS))
    change(package, source__symbols=name) if isinstance(name, str) else change(
        package, text__bpe={"kind": "subword-nmt", "codes": name}
    )
    refused(package, "cannot be the name of a file", unseen)


def test_a_link_that_leaves_the_folder(package, unseen):
    (package / "source.json").rename(package.parent / "source.json")
    (package / "source.json").symlink_to(package.parent / "source.json")
    refused(package, "source.json: it is outside of the package", unseen)


def test_what_is_no_file(package, unseen):
    (package / "source.json").unlink()
    os.mkfifo(package / "source.json")
    refused(package, "source.json: it is no file", unseen)


def test_a_folder_without_a_package(tmp_path, unseen):
    refused(tmp_path / "nowhere", "manifest.json: it cannot be read", unseen)


@pytest.mark.parametrize("name", ["model.onnx", "source.json", "target.json"])
@pytest.mark.parametrize(
    "damage", [lambda d: d[:-1], lambda d: d + b" ", lambda d: d[:9] + bytes([d[9] ^ 1]) + d[10:], None]
)
def test_files_that_are_not_what_was_exported(package, name, damage, unseen):
    path = package / name
    path.write_bytes(damage(path.read_bytes())) if damage else path.unlink()
    refused(package, f"{name}: it (is not the file that was exported|cannot be read)", unseen)


@pytest.mark.parametrize("content", [b"{}", b'["a", 1]', b'["\\ud800"]', b"\xff"])
def test_dictionaries_that_are_none(package, content, unseen):
    (package / "source.json").write_bytes(content)
    rehash(package)
    refused(package, "source.json: it", unseen)


def external(model):
    tensor = helper.make_tensor("w", TensorProto.FLOAT, [1], b"0000", raw=True)
    tensor.raw_data = b""
    onnx.external_data_helper.set_external_data(tensor, "../../etc/passwd")
    return tensor


def nested(node, depth=1):
    """Return ``node`` in the branches of an If, ``depth`` graphs deep."""
    for i in range(depth):
        branch = helper.make_graph([node], f"g{i}", [], [])
        node = helper.make_node("If", ["c"], [f"y{i}"], then_branch=branch)
    return node


def in_sparse(tensor):
    return helper.make_sparse_tensor(tensor, helper.make_tensor("i", TensorProto.INT64, [1], [0]), [1])


def put(place, thing):
    """Return a model with a tensor or a node at a place."""
    model = packages.echo(SIZE)
    graph = model.graph
    if place == "initializer":
        graph.initializer.append(thing)
    elif place == "sparse initializer":
        graph.sparse_initializer.append(in_sparse(thing))
    elif place == "node":
        graph.node.append(thing)
    elif place == "attribute":
        graph.node.append(helper.make_node("Constant", [], ["w"], value=thing))
    elif place == "attribute of a nested graph":
        graph.node.append(nested(helper.make_node("Constant", [], ["w"], value=thing), 3))
    elif place == "nested initializer":
        node = nested(helper.make_node("Identity", ["w"], ["v"]))
        node.attribute[0].g.initializer.append(thing)
        graph.node.append(node)
    elif place == "sparse attribute":
        graph.node.append(helper.make_node("Constant", [], ["w"], sparse_value=in_sparse(thing)))
    elif place == "list of tensors":
        graph.node.append(helper.make_node("Identity", ["j"], ["w"], tensors=[thing]))
    elif place == "nested node":
        graph.node.append(nested(thing, 5))
    elif place == "list of graphs":
        branch = helper.make_graph([thing], "g", [], [])
        graph.node.append(helper.make_node("Identity", ["j"], ["w"], graphs=[branch, branch]))
    return model


TENSORS = ["initializer", "sparse initializer", "attribute", "attribute of a nested graph", "nested initializer"]
TENSORS += ["sparse attribute", "list of tensors"]


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("place", TENSORS)
def test_external_data(tmp_path, place, named, unseen):
    tensor = external(None)
    if not named:
        del tensor.external_data[:]
    package = packages.write(tmp_path, put(place, tensor))
    about = json.loads((package / "manifest.json").read_text())
    about["graph"]["operators"] += ["Constant", "If", "Identity"]
    rehash(package, about)
    refused(package, "model.onnx: it has external data, which is refused", unseen)


@pytest.mark.parametrize("place", ["node", "nested node", "list of graphs"])
@pytest.mark.parametrize(
    "domain, name",
    [("evil", "Run"), ("com.microsoft", "SampleOp"), ("ai.onnx.ml", "Scaler"), ("ai.onnx.training", "Gradient")],
)
def test_foreign_operators(tmp_path, place, domain, name, unseen):
    package = packages.write(tmp_path, put(place, helper.make_node(name, ["j"], ["e"], domain=domain)))
    about = json.loads((package / "manifest.json").read_text())
    about["graph"]["operators"] += ["Identity", "If", name, f"{domain}::{name}"]
    rehash(package, about)
    refused(package, f"model.onnx: it uses (the domain '{domain}'|{domain}::{name})", unseen)


def test_functions_and_training(tmp_path, unseen):
    model = packages.echo(SIZE)
    model.functions.append(
        helper.make_function(
            "evil", "f", ["x"], ["y"], [helper.make_node("Identity", ["x"], ["y"])], [helper.make_opsetid("", 20)]
        )
    )
    refused(packages.write(tmp_path / "a", model), "model.onnx: it has functions, which is refused", unseen)
    model = packages.echo(SIZE)
    model.training_info.add()
    refused(packages.write(tmp_path / "b", model), "model.onnx: it has training information, which is refused", unseen)


def test_graphs_in_graphs_without_end(package, unseen):
    def field(number, data):
        size = len(data)
        return bytes([number << 3 | 2, size & 127 | 128, size >> 7 & 127 | 128, size >> 14]) + data

    graph = b""
    for _ in range(500):
        graph = field(1, field(5, field(6, graph)))  # a node, its attribute, a graph
    (package / "model.onnx").write_bytes(field(7, graph))
    rehash(package)
    refused(package, "model.onnx: graphs are nested more than 32 deep", unseen)


def test_bytes_that_are_no_model(tmp_path, unseen):
    package = packages.write(tmp_path)
    data = (package / "model.onnx").read_bytes()
    rng = random.Random(1)
    long_key = b"\xf0\x80\x80\x80\x10\x01"  # field 14, if its key is cut to 32 bits
    for content in (
        data[:-3],
        data + long_key,
        b"\xff" * 50,
        b"PK\x03\x04" + data,
        b"\x3b" + data,
        b"\x80" * 20,
        rng.randbytes(1000),
    ):
        (package / "model.onnx").write_bytes(content)
        rehash(package)
        refused(package, "model.onnx: it ", unseen)


def test_damage_anywhere_in_a_model_ends_in_a_sentence(package, monkeypatch):
    """A damaged model is refused, or has only listed operators; the scan neither crashes nor runs forever."""
    monkeypatch.setattr(runtime.onnxruntime, "InferenceSession", lambda *_, **__: 1 / 0)
    data = packages.echo(SIZE).SerializeToString()
    rng, found = random.Random(1), Counter()
    for _ in range(300):
        at = rng.randrange(len(data))
        (package / "model.onnx").write_bytes(data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :])
        rehash(package)
        with pytest.raises(PackageError, match="model.onnx: ") as caught:
            runtime.Translator(package)
        found["division by zero" in str(caught.value)] += 1
    assert min(found[True], found[False]) > 10, found


def test_operators_are_those_that_onnx_finds():
    model = put("nested node", helper.make_node("MatMulNBits", ["j"], ["e"], domain="com.microsoft"))
    expected = {node.op_type for node in model.graph.node} | {"com.microsoft::MatMulNBits"}
    assert set(runtime.operators(memoryview(model.SerializeToString()))) == expected


def test_a_model_with_other_inputs(tmp_path):
    model = packages.echo(SIZE)
    model.graph.input.append(helper.make_tensor_value_info("more", TensorProto.FLOAT, []))
    with pytest.raises(PackageError, match="model.onnx: it has the inputs and outputs"):
        runtime.Translator(packages.write(tmp_path, model))


def test_a_model_in_another_format_of_onnxruntime(package, tmp_path, monkeypatch):
    """A stranger's bytes may be in that format and also be ONNX without operators; here the scan finds none."""
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "model.ort")
    options.add_session_config_entry("session.save_model_format", "ORT")
    onnxruntime.InferenceSession((package / "model.onnx").read_bytes(), options, providers=["CPUExecutionProvider"])
    shutil.move(tmp_path / "model.ort", package / "model.onnx")
    rehash(package)
    monkeypatch.setattr(runtime, "operators", lambda data: [])
    with pytest.raises(PackageError, match="model.onnx: onnxruntime cannot read it"):
        runtime.Translator(package)


def test_a_link_to_itself(package, unseen):
    (package / "source.json").unlink()
    (package / "source.json").symlink_to("source.json")
    refused(package, "source.json: it (cannot be read|is outside)", unseen)


@pytest.mark.parametrize("text", ["", "abc", "za"])
def test_a_class_of_characters_is_of_ranges(text):
    with pytest.raises(PackageError, match="tables of the Moses tokeniser are incomplete .* is no class of characters"):
        runtime.Moses(
            {"language": "de", **dict.fromkeys(("alnum", "alpha", "lower", "number", "currency", "cjk"), text)}
        )


def test_a_copied_package_is_the_same(package, tmp_path):
    shutil.copytree(package, tmp_path / "elsewhere")
    assert runtime.Translator(tmp_path / "elsewhere").translate(["the red"])[0].text == "the red"


def test_files_that_are_too_large(package, monkeypatch, unseen):
    size = (package / "manifest.json").stat().st_size
    monkeypatch.setattr(runtime, "LARGEST_MANIFEST", size - 1)
    refused(package, f"manifest.json: it is no file, or larger than {size - 1} bytes", unseen)
    monkeypatch.setattr(runtime, "LARGEST_MANIFEST", size)
    monkeypatch.setattr(runtime, "LARGEST_FILE", 9)
    refused(package, "source.json: it is no file, or larger than 9 bytes", unseen)


def test_a_model_that_lacks_an_output(tmp_path):
    model = packages.echo(SIZE)
    del model.graph.output[-1]
    with pytest.raises(PackageError, match="model.onnx: it has the inputs and outputs"):
        runtime.Translator(packages.write(tmp_path, model))
