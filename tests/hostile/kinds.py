"""Files that are no valid checkpoints, by kind, as scanners of models have them in their tests.

Each kind is a function of a path, the canary, which exists afterwards only if code of the file has run.
"""

import base64
import io
import json
import pickle
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable

import numpy

MAGIC, PROTOCOL = 0x1950A86A20F9469CFC6C, 1001  # of torch before 1.6
SYSTEM = {"protocol_version": PROTOCOL, "little_endian": True, "type_sizes": {"short": 2, "int": 4, "long": 4}}


def constant(value, protocol=2):
    """Return the opcodes that push a value of plain data."""
    return pickle.dumps(value, protocol)[2 if protocol else 0 : -1]


def named(module, name):
    """Return the opcode that pushes an object of a module."""
    return f"c{module}\n{name}\n".encode()


def call(module, name, *arguments):
    """Return a pickle of a call."""
    return b"\x80\x02" + named(module, name) + constant(arguments) + b"R."


def touch(canary):
    """Return a shell command that makes the canary, and the same in Python."""
    return f"touch '{canary}'", f"open({str(canary)!r}, 'w').close()"


def stacked(canary):
    """Protocol 4 pushes module and name as texts."""
    text = b"".join(b"\x8c" + bytes([len(part)]) + part.encode() for part in ("os", "system"))
    return b"\x80\x04" + text + b"\x93" + constant((touch(canary)[0],)) + b"R."


def by_instance(canary):
    """``INST``: a call without ``REDUCE``."""
    return b"(" + constant(touch(canary)[0], 0) + b"ios\nsystem\n."


def by_object(canary):
    """``OBJ``."""
    return b"(" + named("os", "system") + constant(touch(canary)[0]) + b"o."


def by_attributes(canary):
    """``getattr`` of an imported module, then a call of what it gives."""
    module = named("builtins", "__import__") + constant(("os",)) + b"R"
    function = named("builtins", "getattr") + b"(" + module + constant("system") + b"tR"
    return b"\x80\x02" + function + constant((touch(canary)[0],)) + b"R."


def by_memo(canary):
    """The function is fetched from the memo."""
    return b"\x80\x02" + named("os", "system") + b"q\x010h\x01" + constant((touch(canary)[0],)) + b"R."


def by_state(canary):
    """``BUILD`` gives an object a method, and then calls it."""
    made = named("argparse", "Namespace") + b")\x81" + b"}" + constant("__setstate__") + named("os", "system") + b"sb"
    return b"\x80\x02" + made + constant(touch(canary)[0]) + b"b."


def by_new_object(canary):
    """``NEWOBJ``: the constructor of a process."""
    return b"\x80\x02" + named("subprocess", "Popen") + constant((["touch", str(canary)],)) + b"\x81."


def second_stream(canary):
    """After one harmless pickle another one."""
    return pickle.dumps({}, 2) + call("os", "system", touch(canary)[0])


def broken_off(canary):
    """What follows the call is no pickle."""
    return call("os", "system", touch(canary)[0])[:-1] + b"\xff\xfe\x00broken"


def dotted(canary):
    """An attribute of what is allowed."""
    return b"\x80\x04\x8c\x08argparse\x8c\x09_sys.path\x93" + constant(("x",)) + b"R."


CALLS: dict[str, Callable] = {
    f"{module}.{name}": lambda canary, module=module, name=name, arguments=arguments: call(
        module, name, *arguments(canary)
    )
    for module, names, arguments in [
        ("os", "system popen", lambda canary: touch(canary)[:1]),
        ("posix", "system", lambda canary: touch(canary)[:1]),
        ("nt", "system", lambda canary: touch(canary)[:1]),
        ("os", "mkdir", lambda canary: (str(canary),)),
        ("subprocess", "Popen run call check_output", lambda canary: (["touch", str(canary)],)),
        ("subprocess", "getoutput", lambda canary: touch(canary)[:1]),
        ("commands", "getoutput", lambda canary: touch(canary)[:1]),  # of Python 2
        ("pty", "spawn", lambda canary: (["touch", str(canary)],)),
        ("asyncio.unix_events", "_UnixSubprocessTransport._start", lambda canary: touch(canary)[:1]),
        ("builtins", "eval exec", lambda canary: touch(canary)[1:]),
        ("__builtin__", "eval execfile", lambda canary: touch(canary)[1:]),
        ("builtins", "open", lambda canary: (str(canary), "w")),
        ("io", "FileIO", lambda canary: (str(canary), "w")),
        ("_io", "FileIO", lambda canary: (str(canary), "w")),
        ("logging", "FileHandler", lambda canary: (str(canary),)),
        ("shutil", "copyfile", lambda canary: (__file__, str(canary))),
        ("code", "InteractiveInterpreter.runcode", lambda canary: touch(canary)[1:]),
        ("timeit", "timeit repeat", lambda canary: touch(canary)[1:]),
        ("cProfile", "run", lambda canary: touch(canary)[1:]),
        ("profile", "run", lambda canary: touch(canary)[1:]),
        ("pdb", "run", lambda canary: touch(canary)[1:]),
        ("bdb", "Bdb.run", lambda canary: touch(canary)[1:]),
        ("trace", "Trace.run", lambda canary: touch(canary)[1:]),
        ("runpy", "run_path", lambda canary: (__file__,)),
        ("importlib", "import_module", lambda canary: ("this",)),
        ("operator", "attrgetter methodcaller", lambda canary: ("system",)),
        ("functools", "partial reduce", lambda canary: ("x", [])),
        ("types", "CodeType FunctionType", lambda canary: (0,)),
        ("ctypes", "CDLL", lambda canary: ("libc.so.6",)),
        ("sys", "exit setrecursionlimit", lambda canary: (3,)),
        ("socket", "create_connection", lambda canary: (("127.0.0.1", 9),)),
        ("urllib.request", "urlopen urlretrieve", lambda canary: (f"file://{__file__}", str(canary))),
        ("webbrowser", "open", lambda canary: (f"file://{canary}",)),
        ("pickle", "loads", lambda canary: (call("os", "system", touch(canary)[0]),)),
        ("base64", "b64decode", lambda canary: (base64.b64encode(call("os", "system", touch(canary)[0])),)),
        ("zlib", "decompress", lambda canary: (zlib.compress(call("os", "system", touch(canary)[0])),)),
        ("numpy", "load fromfile", lambda canary: (__file__,)),
        ("numpy", "ndarray", lambda canary: ((1,), "O", b"A" * 8)),
        ("numpy.core.multiarray", "fromfile _reconstruct", lambda canary: (__file__,)),
        ("numpy._core.multiarray", "frombuffer", lambda canary: (b"A" * 8, "O")),
        ("numpy.testing._private.utils", "runstring", lambda canary: (touch(canary)[1], {})),
        ("numpy.f2py.crackfortran", "getlincoef", lambda canary: (touch(canary)[1], {})),
        ("torch", "load", lambda canary: (__file__,)),
        ("torch.serialization", "load _legacy_load", lambda canary: (__file__,)),
        ("torch.hub", "load", lambda canary: (str(canary), "x")),
        ("torch.jit.unsupported_tensor_ops", "execWrapper", lambda canary: (touch(canary)[1], {}, {})),
        ("torch.utils.cpp_extension", "load", lambda canary: ("x", __file__)),
        ("torch._inductor.codecache", "compile_file", lambda canary: (__file__, str(canary), ["touch"])),
        ("dill._dill", "_create_function", lambda canary: (0,)),
        ("cloudpickle.cloudpickle", "_make_function", lambda canary: (0,)),
        ("joblib.numpy_pickle", "NumpyArrayWrapper", lambda canary: (0,)),
        ("fairseq.checkpoint_utils", "load_checkpoint_to_cpu torch_persistent_save", lambda canary: (str(canary),)),
        ("fairseq.utils", "import_user_module eval", lambda canary: touch(canary)[1:]),
        ("fairseq_attnvariants.patches.loading.checkpoints", "Stored Torch load", lambda canary: (str(canary),)),
        ("hydra.utils", "instantiate", lambda canary: ({"_target_": "os.mkdir", "path": str(canary)},)),
        ("omegaconf.dictconfig", "DictConfig", lambda canary: ({},)),
    ]
    for name in names.split()
}
CALLS.update((function.__doc__.split(":")[0], function) for function in (
    stacked, by_instance, by_object, by_attributes, by_memo, by_state, by_new_object, second_stream, broken_off, dotted
))  # fmt: skip


def archive(content, record="data.pkl", compression=zipfile.ZIP_STORED, **more):
    """Return a pickle in the archive that torch 1.6 and later write."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", compression) as target:
        for name, part in {record: content, "version": b"3\n", "byteorder": b"little", **more}.items():
            target.writestr(f"archive/{name}", part)
    return stream.getvalue()


def legacy(content):
    """Return a pickle in the format of torch before 1.6."""
    return b"".join(pickle.dumps(part, 2) for part in (MAGIC, PROTOCOL, SYSTEM)) + content


def tar(*members):
    """Return a tar archive; members are names with their content, or with another name that they link to."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as target:
        for name, content in members:
            member = tarfile.TarInfo(name)
            if isinstance(content, str):
                member.type, member.linkname = tarfile.SYMTYPE, content
            else:
                member.size = len(content)
            target.addfile(member, None if isinstance(content, str) else io.BytesIO(content))
    return stream.getvalue()


def evil(canary):
    """Return a pickle that runs a command."""
    return call("posix", "system", touch(canary)[0])


def in_a_checkpoint(canary):
    """Return a checkpoint in which one value runs a command."""
    content = constant({"model": {}, "args": None, "cfg": {}, "optimizer_history": [{}]})
    return archive(b"\x80\x02" + content + constant("extra_state") + evil(canary)[2:-1] + b"s.")


def changed(content, old, new):
    """Replace the first ``old``."""
    assert old in content
    return content.replace(old, new, 1)


def array(**options):
    """Return an array of Python objects as numpy writes it."""
    stream = io.BytesIO()
    numpy.save(stream, numpy.array([{}, None], dtype=object), **options)
    return stream.getvalue()


def tensors(header):
    """Return a file of safetensors: the length of a header, the header, and 64 zero bytes."""
    return struct.pack("<Q", len(header)) + header + bytes(64)


JINJA = "{{ cycler.__init__.__globals__.os.system('touch CANARY') }}"
FILES: dict[str, Callable] = {
    "pickle": evil,
    "archive": lambda canary: archive(evil(canary)),
    "value": in_a_checkpoint,
    "before 1.6": lambda canary: legacy(evil(canary)),
    "magic number of its own": lambda canary: pickle.dumps(MAGIC, 2) + evil(canary),
    "magic number that is made by a call": lambda canary: evil(canary) + legacy(evil(canary)),
    "tar before 0.1.10": lambda canary: tar(*((name, evil(canary)) for name in ("sys_info", "pickle", "tensors"))),
    "TorchScript": lambda canary: archive(evil(canary), **{"constants.pkl": evil(canary), "code/x.py": b"import os"}),
    "constants alone": lambda canary: archive(evil(canary), "constants.pkl"),
    "wrong sum": lambda canary: changed(archive(evil(canary)), b"touch", b"touCh"),
    "password": lambda canary: changed(archive(evil(canary)), b"\x14\x03\x14\0\0\0", b"\x14\x03\x14\0\1\0"),
    "flags": lambda canary: changed(archive(evil(canary)), b"PK\x03\x04\x14\0\0\0", b"PK\x03\x04\x14\0\x60\0"),
    "other directory": lambda canary: archive(evil(canary)).replace(b"archive/data.pkl", b"archive/dita.pkl", 1),
    "no directory": lambda canary: archive(evil(canary))[:200],
    "two archives": lambda canary: archive(evil(canary)) + archive(pickle.dumps({}, 2)),
    "prefix": lambda canary: b"#!/bin/sh\ntouch x\n" + archive(evil(canary)),
    "compressed": lambda canary: archive(evil(canary), compression=zipfile.ZIP_DEFLATED),
    "bomb": lambda canary: archive(bytes(1 << 22), compression=zipfile.ZIP_DEFLATED),
    "other paths": lambda canary: archive(evil(canary), **{f"../../{canary.name}": b"x", "/etc/x": b""}),
    "tar with other paths": lambda canary: tar((f"../{canary.name}", b"x"), ("a", "/etc"), ("a/x", b"x")),
    "7z": lambda canary: b"7z\xbc\xaf\x27\x1c\x00\x04" + evil(canary),
    "gzip": lambda canary: b"\x1f\x8b\x08\x00" + bytes(6) + zlib.compress(evil(canary))[2:],
    "npy of objects": lambda canary: array(allow_pickle=True),
    "npy whose header runs": lambda canary: b"\x93NUMPY\x01\x00\x40\x00{'descr': __import__('os')}" + b" " * 60,
    "npz": lambda canary: archive(array(allow_pickle=True), "x.npy"),
    "joblib": lambda canary: b"\x80\x03" + named("joblib.numpy_pickle", "NumpyArrayWrapper") + b")\x81}b.",
    "HDF5": lambda canary: b"\x89HDF\r\n\x1a\n" + bytes(64) + b'{"class_name": "Lambda", "code": "' + evil(canary),
    "SavedModel": lambda canary: b"\x08\x01\x12\x10\n\x06PyFunc\x12\x06ReadFile" + str(canary).encode(),
    "ONNX": lambda canary: b"\x08\x07:\x20\n\x1e\n\x08location\x12\x12../../../etc/passwd",
    "safetensors": lambda canary: tensors(b'{"x": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}'),
    "safetensors of a size of its own": lambda canary: struct.pack("<Q", 1 << 62) + b"{}",
    "GGUF": lambda canary: b"GGUF\x03\x00\x00\x00" + bytes(16) + JINJA.replace("CANARY", str(canary)).encode(),
    "template": lambda canary: json.dumps({"chat_template": JINJA.replace("CANARY", str(canary))}).encode(),
    "YAML": lambda canary: f"!!python/object/apply:os.system ['{touch(canary)[0]}']\n".encode(),
    "Python": lambda canary: touch(canary)[1].encode(),
    "program": lambda canary: b"\x7fELF\x02\x01\x01" + bytes(64),
    "page": lambda canary: b"<!DOCTYPE html><script>alert(1)</script>",
    "pointer": lambda canary: b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n",
    "nothing": lambda canary: b"",
    "zeros": lambda canary: bytes(4096),
    "other content": lambda canary: archive(pickle.dumps({"state_dict": {}, "epoch": 3}, 2)),
    "list": lambda canary: archive(pickle.dumps([1, 2], 2)),
    "deep": lambda canary: archive(b"\x80\x02" + b"]" * 3000 + b"a" * 2999 + b"."),
    "itself": lambda canary: archive(b"\x80\x02]q\x00h\x00a."),
}  # fmt: skip
KINDS = {
    **{f"call of {name}": lambda canary, make=make: archive(make(canary)) for name, make in CALLS.items()},
    **FILES,
}
