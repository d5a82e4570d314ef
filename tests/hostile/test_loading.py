"""Every reader, in every environment, refuses every kind of malicious file in one sentence, and runs no code."""

import argparse
import ast
import functools
import json
import logging
import os
import pickle
import sys
import tarfile
import threading
import traceback
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import corpus
import fairseq
import kinds
import numpy
import pytest
import torch
from fairseq import checkpoint_utils, hub_utils, options, tasks
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.trainer import Trainer

from fairseq_attnvariants.models import AttentionRNNModel
from fairseq_attnvariants.patches.loading import checkpoints as loading
from fairseq_attnvariants.patches.loading.archives import unpack
from fairseq_attnvariants.registry import ConfigurationError
from fairseq_attnvariants_cli.main import parser
from fairseq_attnvariants_cli.text.files import UserError

pytestmark = [pytest.mark.hostile, pytest.mark.filterwarnings("ignore")]  # stock fairseq has many


@pytest.fixture(params=["plain", "forced", "asked for"])
def environment(request, monkeypatch):
    """The plain environment; a variable that turns safe loading off; a changed fairseq that loads unsafely."""
    if request.param == "forced":
        monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    elif request.param == "asked for":
        unsafe = functools.partial(checkpoint_utils.torch.load, weights_only=False)
        monkeypatch.setattr(checkpoint_utils.torch, "load", unsafe)
    return request.param


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """The path of the file to read."""
    return tmp_path_factory.mktemp("strangers") / "checkpoint_last.pt"


@pytest.fixture(scope="module")
def fairseq_readers(runs, path):
    """Functions that load the checkpoint as fairseq's commands and functions do, by their names."""
    arguments = corpus.train_arguments(runs.data, path.parent)
    cfg = convert_namespace_to_omegaconf(options.parse_args_and_arch(options.get_training_parser(), arguments))
    task = tasks.setup_task(cfg.task)
    trainer = Trainer(cfg, task, task.build_model(cfg.model), task.build_criterion(cfg.criterion))
    folder, name = str(path.parent), path.name
    return {
        "generate": lambda: checkpoint_utils.load_model_ensemble([str(path)], {}, task),
        "train": lambda: checkpoint_utils.load_checkpoint(cfg.checkpoint, trainer),
        "from_pretrained": lambda: hub_utils.from_pretrained(folder, name, str(runs.data), user_dir=corpus.USER_DIR),
        "moving average": lambda: checkpoint_utils.load_ema_from_checkpoint(str(path)),
    }


@pytest.fixture(scope="module")
def subcommands(runs, path):
    """Every subcommand that opens checkpoints, as functions without arguments, by their names."""
    pytest.importorskip("matplotlib")
    model = [str(runs.data), "--path", str(path), "--cpu"]
    lines = {
        name: [name, *model]
        for name in ("align", "attention", "attribute", "eos", "export", "gates", "neighbours", "similarity")
    }
    lines["align"] += ["--source", str(runs.text / "test.xx"), "--reference", str(runs.text / "test.yy")]
    lines["attention"] += ["--output", str(path.with_suffix(".png"))]
    lines["export"] += ["--output", str(path.with_suffix(".folder"))]
    lines["average"] = ["average", str(path), "--output", str(path.with_suffix(".average"))]
    lines["results"] = ["results", str(path.parent), "--checkpoint", path.name, "--cpu"]
    parsed = {name: parser(line).parse_args(line) for name, line in lines.items()}
    return {name: functools.partial(found.run, found) for name, found in parsed.items()}


@pytest.mark.parametrize("kind", kinds.KINDS.values(), ids=kinds.KINDS)
def test_every_kind_is_refused_in_one_sentence_and_nothing_runs(path, fairseq_readers, subcommands, environment, kind):
    canary = path.with_name("canary")
    path.write_bytes(kind(canary))
    # the environments change torch.load, which all subcommands use
    some = subcommands if environment == "plain" else {name: subcommands[name] for name in ("align", "results")}
    for name, read in {**fairseq_readers, **some}.items():
        with pytest.raises(UserError if name in subcommands else Exception) as refusal:
            read()
        message = str(refusal.value)
        assert message.startswith(str(path)) and "\n" not in message and len(message) < 400, name
        told = message if name in subcommands else "".join(traceback.format_exception(refusal.value))
        assert not [
            advice for advice in ("add_safe_globals(", "`weights_only`", "weights_only=False") if advice in told
        ]
    assert os.listdir(path.parent) == [path.name] and not path.parent.with_name("canary").exists()


def test_every_module_of_fairseq_that_loads_is_guarded():
    root = Path(fairseq.__file__).parent
    found = []
    for path in root.rglob("*.py"):
        text = path.read_text()
        if "torch.load" in text and "examples" not in path.parts:  # fairseq does not import these
            called = {ast.unparse(node.func) for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)}
            if "torch.load" in called:
                found.append(".".join(path.relative_to(root.parent).with_suffix("").parts))
    assert len(found) > 4 and all(isinstance(sys.modules[name].torch, loading.Torch) for name in found)


def test_loading_elsewhere_stays_as_it_is(tmp_path):
    """Loading allows no classes to other code; classes that others allowed stay, and are refused in checkpoints."""
    torch.save(argparse.Namespace(x=1), tmp_path / "x.pt")
    before = set(torch.serialization.get_safe_globals())
    torch.serialization.add_safe_globals([Path])
    try:
        assert loading.load(tmp_path / "x.pt").x == 1
        with pytest.raises(pickle.UnpicklingError):
            torch.load(tmp_path / "x.pt", weights_only=True)
        assert set(torch.serialization.get_safe_globals()) == before | {Path}
        torch.save(Path, tmp_path / "x.pt")
        assert torch.load(tmp_path / "x.pt", weights_only=True) is Path
        with pytest.raises(ValueError, match="x.pt: not loaded: it asks for pathlib.Path"):
            loading.load(tmp_path / "x.pt")
    finally:
        torch.serialization.clear_safe_globals()
        torch.serialization.add_safe_globals(list(before))


class Mine:
    """A class that another part of the process has allowed."""


def test_loading_in_threads_leaves_the_others_alone(tmp_path):
    """Four threads load checkpoints, a fifth its allowed class: none gets the classes of the other, then or later."""
    torch.save({"x": argparse.Namespace(x=numpy.arange(3))}, tmp_path / "ours.pt")
    torch.save(Mine(), tmp_path / "theirs.pt")
    before, filters = set(torch.serialization.get_safe_globals()), list(warnings.filters)
    torch.serialization.add_safe_globals([Mine])
    ended = threading.Event()

    def ours(_):
        for _ in range(200):
            assert loading.load(tmp_path / "ours.pt")["x"].x.tolist() == [0, 1, 2]
            with pytest.raises(ValueError, match="it asks for .*Mine"):
                loading.load(tmp_path / "theirs.pt")

    def theirs():
        count = 0
        while not ended.is_set() or not count:
            assert type(torch.load(tmp_path / "theirs.pt", weights_only=True)) is Mine
            with pytest.raises(pickle.UnpicklingError):
                torch.load(tmp_path / "ours.pt", weights_only=True)
            count += 1
        return count

    try:
        with ThreadPoolExecutor(5) as pool:
            fifth = pool.submit(theirs)
            try:
                list(pool.map(ours, range(4)))
            finally:
                ended.set()
            assert fifth.result() > 1
        assert set(torch.serialization.get_safe_globals()) == before | {Mine} and list(warnings.filters) == filters
        assert type(torch.load(tmp_path / "theirs.pt", weights_only=True)) is Mine
    finally:
        torch.serialization.clear_safe_globals()
        torch.serialization.add_safe_globals(list(before))


# ---- arrays

DTYPES = ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", ">i4"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_arrays_and_numbers_of_numpy_come_back(tmp_path, dtype):
    values = [numpy.array([[0, 1, 2], [3, 4, 5]], dtype), numpy.array(1, dtype)]
    values += [values[0].T, numpy.asfortranarray(values[0]), values[0][1, 2]]
    torch.save({"list": values, "names": argparse.Namespace(tuple=tuple(values))}, tmp_path / "x.pt")
    found = loading.load(tmp_path / "x.pt")
    for one, other in zip(values + values, [*found["list"], *found["names"].tuple], strict=True):
        assert type(other) is type(one) and other.dtype == one.dtype and numpy.array_equal(one, other)
        assert not isinstance(other, numpy.ndarray) or other.flags.owndata or other.base.flags.owndata


def stored(dtype=(b"i8", b""), shape=(1,), content=bytes(8), function=b"_reconstruct"):
    """Return the pickle of an array as numpy writes it, with changes."""
    code, state = dtype
    kind = kinds.named("numpy", "dtype") + kinds.constant((code.decode(), False, True)) + b"R" + state
    made = kinds.named("numpy._core.multiarray", function.decode()) + b"(" + kinds.named("numpy", "ndarray")
    made += kinds.constant((0,)) + kinds.constant(b"b") + b"tR"
    return (
        b"\x80\x02"
        + made
        + b"("
        + kinds.constant(1)
        + kinds.constant(shape)
        + kind
        + b"\x89"
        + kinds.constant(content)
        + b"tb."
    )


def state(*values):
    return kinds.constant(values) + b"b"


PLAIN = (3, "<", None, None, None, -1, -1, 0)
ARRAYS = {
    "of objects": stored((b"O8", b"")),
    "of objects by another name": stored((b"object", b"")),
    "of texts": stored((b"U2", b"")),
    "of bytes": stored((b"S8", b"")),
    "of records": stored((b"V8", b"")),
    "of times": stored((b"M8", b"")),
    "of fields": stored((b"i8,O", b"")),
    "of a changed dtype": stored((b"i8", state(3, "<", None, None, None, 1, -1, 0))),
    "of a dtype with flags": stored((b"i8", state(*PLAIN[:-1], 63))),
    "of a dtype with fields": stored((b"i8", state(3, "<", None, ("x",), {"x": 1}, 8, 1, 0))),
    "of a dtype with data": stored((b"i8", state(*PLAIN, {}))),
    "of an order that is none": stored((b"i8", state(3, "O", *PLAIN[2:]))),
    "too large": stored(shape=(1 << 40,)),
    "too small": stored(shape=(0,)),
    "of a negative size": stored(shape=(-1, -1)),
    "of a size that is none": stored(shape=(True,)),
    "of an overflowing size": stored(shape=(1 << 32, 1 << 32)),
    "of too many axes": stored(shape=(1,) * 99),
    "of no content": stored(content=None),
    "of a list": stored(content=[1]),
    "made by a call": kinds.call("numpy", "ndarray", (1,), "O", b"A" * 8),
    "of no state": kinds.call("numpy._core.multiarray", "_reconstruct", 0, (0,), b"b"),
    "a dtype alone": kinds.call("numpy", "dtype", "O"),
    "a number of objects": b"\x80\x02" + kinds.named("numpy._core.multiarray", "scalar") + b"("
    + kinds.call("numpy", "dtype", "O8")[2:-1] + kinds.constant(b"A" * 8) + b"tR.",
    "as a key": b"\x80\x02}" + stored()[2:-1] + b"Ns.",
}  # fmt: skip


def test_the_array_that_the_others_change_is_read(tmp_path):
    (tmp_path / "x.pt").write_bytes(kinds.archive(stored((b"i8", state(*PLAIN)))))
    assert loading.load(tmp_path / "x.pt").tolist() == [0]


@pytest.mark.parametrize("content", ARRAYS.values(), ids=ARRAYS)
def test_arrays_of_anything_but_plain_numbers_are_refused(tmp_path, content):
    (tmp_path / "x.pt").write_bytes(kinds.archive(content))
    with pytest.raises(ValueError, match=r"x\.pt: not loaded: it is damaged or no checkpoint \(\w+\)$"):
        loading.load(tmp_path / "x.pt")


def test_an_object_at_an_address_does_not_end_the_interpreter(runs, tmp_path):
    """Without the refusal, fairseq-train ended in a segmentation fault."""
    content = kinds.constant({"model": {}, "args": None, "cfg": {}, "optimizer_history": [{}]}) + kinds.constant("x")
    content += kinds.call("numpy", "ndarray", (1,), "O", b"A" * 8)[2:-1]
    (tmp_path / "checkpoint_last.pt").write_bytes(kinds.archive(b"\x80\x02" + content + b"s."))
    process = corpus.run("fairseq-train", *corpus.train_arguments(runs.data, tmp_path), check=False)
    last = process.stderr.splitlines()[-1]
    assert process.returncode == 1 and f"{tmp_path / 'checkpoint_last.pt'}: not loaded: it is damaged" in last


def test_a_tensor_that_repeats_what_is_stored_is_refused(tmp_path):
    torch.save({"model": torch.zeros(1).expand(10**9)}, tmp_path / "x.pt")
    with pytest.raises(ValueError, match="x.pt: not loaded: it is damaged or no checkpoint"):
        loading.load(tmp_path / "x.pt")


# ---- configurations


@pytest.fixture
def reason(runs, tmp_path):
    """A function that changes the stock lstm's checkpoint, and returns the message of the refusal."""

    def read(change):
        found = loading.load(runs.lstm / "checkpoint_last.pt")
        change(found)
        torch.save(found, tmp_path / "stranger.pt")
        with pytest.raises(ValueError) as refusal:
            checkpoint_utils.load_checkpoint_to_cpu(str(tmp_path / "stranger.pt"))
        message = str(refusal.value)
        assert message.startswith(str(tmp_path / "stranger.pt")) and "\n" not in message
        return message.removeprefix(str(tmp_path / "stranger.pt"))

    return read


def in_args(**changes):
    """Return a change that stores old arguments instead of a configuration."""

    def change(found):
        found["args"], found["cfg"] = argparse.Namespace(**{**vars(found["cfg"]["model"]), **changes}), None

    return change


@pytest.mark.parametrize("text", [
    "${oc.env:HOME}", "x ${oc.env:HOME}", r"'\x24{oc.env:X}'", r"['\N{DOLLAR SIGN}{oc.env:X}']", "'$' '{oc.env:X}'"
])  # fmt: skip
@pytest.mark.parametrize(
    "wrap", [str, lambda text: [text], lambda text: {"x": (text,)}], ids=["text", "list", "mapping"]
)
def test_interpolations_do_not_reach_hydra(reason, monkeypatch, text, wrap):
    """Literals count, too, which fairseq evaluates where it expects a number or a list."""
    monkeypatch.setattr(checkpoint_utils, "convert_namespace_to_omegaconf", None)
    assert reason(in_args(save_interval=wrap(text))).endswith("a checkpoint holds values, no interpolations")


@pytest.mark.parametrize("value", [
    numpy.array("${oc.env:HOME}"), numpy.array(1), numpy.float64(1), torch.zeros(1), b"x", {1}, 1j, torch.float32
], ids=str)  # fmt: skip
def test_a_configuration_holds_plain_values(reason, value):
    message = reason(in_args(bpe_codes=value))
    if isinstance(value, numpy.ndarray) and value.dtype.kind == "U":
        assert "asks for" in message or "damaged" in message
    else:
        assert message.startswith(": option bpe_codes is ") and message.endswith("a configuration holds plain values")


@pytest.mark.parametrize(
    "kind", ["bpe", "tokenizer", "scoring", "criterion", "optimizer", "lr_scheduler", "task", "arch"]
)
@pytest.mark.parametrize("name", ["../../x", "/tmp/x", "x", 3, ["bert"]], ids=str)
def test_names_are_those_of_the_registries(reason, monkeypatch, kind, name):
    """Otherwise hydra would read a file with that name."""
    monkeypatch.setattr(checkpoint_utils, "convert_namespace_to_omegaconf", None)
    message = (
        f" needs the {kind.replace('arch', 'model')} {name!r}, which neither fairseq nor this package has: give the "
    )
    message += "--user-dir of the folder that has it"
    assert reason(in_args(**{kind: name})) == message
    if kind in ("bpe", "tokenizer", "scoring", "task"):
        assert reason(lambda found: found["cfg"].update({kind: {"_name": name}})) == message


NESTED = {  # a Namespace in a model's options, which fairseq converts again (`w2v_args`), and similar forms
    "Namespace": lambda **options: argparse.Namespace(**options),
    "mapping": lambda **options: options,
    "list of a mapping": lambda **options: [{"x": (options,)}],
    "literal": lambda **options: repr(options),
    "JSON": lambda **options: json.dumps({"x": True, "y": [options]}),
    "literal in JSON": lambda **options: json.dumps([repr(options)]),
}


@pytest.mark.parametrize("wrap", NESTED.values(), ids=NESTED)
@pytest.mark.parametrize("form", ["args", "cfg"])
def test_nested_configurations_are_checked_at_every_depth(reason, environment, monkeypatch, form, wrap):
    """Otherwise hydra would read the named YAML file, and put ``HOME`` into its message."""
    monkeypatch.setattr(checkpoint_utils, "convert_namespace_to_omegaconf", None)

    def nested(**options):
        if form == "args":
            return reason(in_args(w2v_args=wrap(**options)))
        return reason(lambda found: vars(found["cfg"]["model"]).update(w2v_args=wrap(**options)))

    for name in ("../../../x", "nothing"):
        assert f" needs the bpe {name!r}, which neither" in nested(bpe=name)
        assert f" needs the task {name!r}, which neither" in nested(task={"_name": name})
        assert f" needs the tokenizer {name!r}, which neither" in nested(cfg={"x": {"tokenizer": name}})
    assert " needs the optimizer '../x', which neither" in nested(optimizer="../x")
    for text in (r"$\{oc.env:HOME\}", r"a/$\\{oc.env:HOME}", "${oc.env:HOME}"):
        refused = [nested(x=text), nested(**{text: "x"}), nested(x={"y": [{text: 1}]})]
        assert all(message.endswith("a checkpoint holds values, no interpolations") for message in refused)


def test_what_nested_configurations_legally_hold_is_read(runs, tmp_path):
    """Names of criteria, for example, may come from another plugin, which a translation does not need."""
    state = loading.load(runs.lstm / "checkpoint_last.pt")
    inner = {"task": {"_name": "translation"}, "criterion": "mine", "bpe": None, "model": {"_name": "lstm"}}
    vars(state["cfg"]["model"]).update(w2v_args=argparse.Namespace(arch="lstm", **inner), x=json.dumps({"price": "$5"}))
    torch.save(state, tmp_path / "x.pt")
    found = checkpoint_utils.load_checkpoint_to_cpu(str(tmp_path / "x.pt"))
    assert found["cfg"]["model"].w2v_args.criterion == "mine"


def test_an_option_that_is_nested_without_an_end_is_refused(reason):
    for text in ("[" * 50_000 + "'x'", '{"a":' * 50_000):
        assert reason(in_args(x=text)).endswith("a configuration that is nested too deeply")


@pytest.mark.parametrize("name", ["x\x1b[2J", "x\nForged: line", "x\r", "\u202ex", "x\x00"])
def test_names_that_cannot_be_printed_are_refused(reason, name):
    """Otherwise messages that name an option or a parameter, also fairseq's and torch's, would contain them."""
    for change in (
        in_args(**{name: 1}),
        in_args(w2v_args={"x": [{name: 1}]}),
        lambda found: vars(found["cfg"]["model"]).update({name: "${x}"}),
        lambda found: found["model"].update({name: torch.zeros(1)}),
    ):
        message = reason(change)
        assert message.endswith("has a name that cannot be printed") and message.isprintable()


@pytest.mark.parametrize("cfg", ["model: {_name: lstm}", ["x"], 3, "x: &x [1]\ny: [*x, *x]"])
def test_a_configuration_is_a_mapping(reason, cfg):
    def change(found):
        found["cfg"] = cfg

    assert reason(change) == f" is not a checkpoint of fairseq 0.12: its cfg is {type(cfg).__name__}"


def test_old_arguments_are_a_namespace(reason):
    assert reason(lambda found: found.update(args={"arch": "lstm"})).endswith("its args are dict")


def test_a_configuration_that_grows_as_it_is_read_is_refused(reason):
    def change(found):
        value = ["x"] * 10
        for _ in range(60):
            value = [value] * 2
        found["cfg"]["task"].update(x=value) if isinstance(found["cfg"]["task"], dict) else None
        found["cfg"]["x"] = value

    assert reason(change).endswith("a configuration of more than 100000 values")


@pytest.mark.parametrize("kind", [in_args, lambda **options: lambda found: vars(found["cfg"]["model"]).update(options)])
def test_a_path_that_is_a_pipe_is_refused(reason, tmp_path, kind):
    """A reader would wait for a writer of the pipe."""
    os.mkfifo(tmp_path / "pipe")
    message = reason(kind(encoder_embed_path=str(tmp_path / "pipe")))
    assert "encoder_embed_path is" in message and message.endswith("which is no file, but a pipe or a device")


# ---- archives of models


def packed(folder, *members):
    path = folder / "model.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for name, content in members:
            if isinstance(content, Path):
                archive.add(content, name)
            else:
                archive.addfile(content)
    return path


def special(name, kind, target=""):
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, str(target)
    return name, member


def translate(path, runs):
    hub = AttentionRNNModel.from_pretrained(str(path), "model.pt", str(runs.data), user_dir=corpus.USER_DIR)
    return hub.translate("ant bee")


def test_an_archive_that_is_written_anew_is_read_anew(runs, tmp_path):
    other = torch.load(runs.rnnsearch / "checkpoint_best.pt", weights_only=True)
    for tensor in other["model"].values():
        if tensor.is_floating_point():
            tensor.zero_()
    torch.save(other, tmp_path / "zero.pt")
    found = []
    for checkpoint in (runs.rnnsearch / "checkpoint_best.pt", tmp_path / "zero.pt"):
        path = packed(tmp_path, ("model.pt", checkpoint))
        hub = AttentionRNNModel.from_pretrained(str(path), "model.pt", str(runs.data), user_dir=corpus.USER_DIR)
        found.append(hub.models[0].decoder.output_projection.weight.abs().sum().item())
    assert found[0] > 0 == found[1]


@pytest.mark.parametrize("inner", ["", "model/"])
def test_a_model_in_an_archive_translates_and_the_archive_stays(runs, tmp_path, inner):
    """Stock fairseq replaces the archive by a folder."""
    path = packed(tmp_path, (f"{inner}model.pt", runs.rnnsearch / "checkpoint_best.pt"))
    content = path.read_bytes()
    assert translate(path, runs) == translate(path, runs)
    assert path.read_bytes() == content and os.listdir(tmp_path) == [path.name]


@pytest.mark.parametrize("name, kind, target", [
    ("../out", tarfile.REGTYPE, ""),
    ("a/../../out", tarfile.REGTYPE, ""),
    ("/tmp/out", tarfile.REGTYPE, ""),
    ("out", tarfile.SYMTYPE, "/etc"),
    ("out", tarfile.SYMTYPE, "../x"),
    ("out", tarfile.LNKTYPE, "/etc/passwd"),
    ("out", tarfile.FIFOTYPE, ""),
    ("out", tarfile.CHRTYPE, ""),
])  # fmt: skip
def test_an_archive_holds_files_and_folders_of_its_own(runs, tmp_path, name, kind, target):
    path = packed(tmp_path, ("model.pt", runs.rnnsearch / "checkpoint_best.pt"), special(name, kind, target))
    with pytest.raises(ValueError, match=rf"^{path}: not unpacked, '{name}' in it is no file or folder of its own$"):
        translate(path, runs)
    assert os.listdir(tmp_path) == [path.name]


@pytest.mark.parametrize("content", [b"", b"x" * 999, b"\x1f\x8b\x08\x00" + bytes(99)])
def test_what_is_no_archive_is_refused(runs, tmp_path, content):
    (tmp_path / "model.tar.gz").write_bytes(content)
    with pytest.raises(ValueError, match="model.tar.gz: not unpacked, it is no folder and no archive"):
        translate(tmp_path / "model.tar.gz", runs)
    with pytest.raises(ValueError, match="none: there is no such folder or archive"):
        translate(tmp_path / "none", runs)
    with pytest.raises(ConfigurationError, match="none:1: there is no such folder or archive"):
        translate("none:1", runs)


@pytest.mark.parametrize("compression", ["gz", "bz2", "xz"])
def test_an_archive_whose_compressed_content_is_damaged_is_refused(tmp_path, compression):
    path = tmp_path / "model.tar"
    with tarfile.open(path, f"w:{compression}") as archive:
        archive.add(__file__, "model.pt")
    content = bytearray(path.read_bytes())
    content[len(content) // 2 :] = b"\xff" * (len(content) - len(content) // 2)
    path.write_bytes(content)
    with pytest.raises(ValueError, match="model.tar: not unpacked, .* or damaged$"):
        unpack(str(path))


# ---- warnings of torch's security holes


@pytest.mark.parametrize(
    "version, told", [("2.5.1+cpu", True), ("2.9.0", True), ("2.10.0", False), ("2.13.0+cpu", False)]
)
def test_known_holes_are_told_once(tmp_path, monkeypatch, caplog, version, told):
    torch.save({}, tmp_path / "x.pt")
    monkeypatch.setattr(torch, "__version__", version)
    loading._warn_of_holes.cache_clear()
    logging.disable(logging.NOTSET)
    for _ in range(2):
        loading.load(tmp_path / "x.pt")
    warned = [record.message.startswith(f"torch {version} has known security holes") for record in caplog.records]
    assert warned == [True] * told
    loading._warn_of_holes.cache_clear()
