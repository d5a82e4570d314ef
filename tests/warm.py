"""Commands that start at once: a process that has imported torch and fairseq, and read command lines, forks for each.

``python warm.py FOLDER`` fills the folder with commands, which are links to ``ask.py``, and serves them: one process
serves those that import this package, and another process serves all others.
"""

import argparse
import ast
import atexit
import gc
import logging
import os
import runpy
import shlex
import signal
import socket
import sys
import threading
import weakref
from importlib.util import find_spec

COMMANDS = {
    "fairseq-preprocess": "fairseq_cli.preprocess:cli_main",
    "fairseq-train": "fairseq_cli.train:cli_main",
    "fairseq-hydra-train": "fairseq_cli.hydra_train:cli_main",
    "fairseq-generate": "fairseq_cli.generate:cli_main",
    "fairseq-interactive": "fairseq_cli.interactive:cli_main",
    "fairseq-validate": "fairseq_cli.validate:cli_main",
    "fairseq-attnvariants": "fairseq_attnvariants_cli.main:main",
    "sacrebleu": "sacrebleu.sacrebleu:main",
    "subword-nmt": "subword_nmt.subword_nmt:main",
    "python.script": "__main__:script",
}
# the interpreter, for commands that start others: with a module of fairseq it is one of the commands above
PYTHON = r"""#!/bin/sh
case "$1 $2" in
  "-m fairseq_cli."*) name=${{2#fairseq_cli.}}; shift 2; exec "${{0%/*}}/fairseq-$name" "$@" ;;
esac
exec {executable} "$@"
"""
MOST = 1 << 20  # bytes of a request
# options of most trainings, for hydra
SMOOTHED = "--criterion label_smoothed_cross_entropy"
LINES = {
    "stock": ["--arch lstm"],
    "plugin": [
        "--arch rnnsearch",
        *(f"--arch rnnsearch {SMOOTHED}{more}" for more in ("", "_with_costs")),
        f"--arch rnnsearch {SMOOTHED} --lr-scheduler polynomial_decay --total-num-update 1",
        f"--arch ava --task char_translation {SMOOTHED}",
    ],
}


def serve(folder):
    """Serve both kinds of commands."""
    import composing
    import fairseq_cli.generate  # noqa: F401
    import fairseq_cli.hydra_train  # noqa: F401
    import fairseq_cli.interactive  # noqa: F401
    import fairseq_cli.preprocess  # noqa: F401
    import fairseq_cli.train  # noqa: F401
    import fairseq_cli.validate  # noqa: F401
    import matplotlib.backends.backend_agg  # noqa: F401
    import matplotlib.backends.backend_pdf  # noqa: F401
    import matplotlib.style  # noqa: F401
    import sacrebleu  # noqa: F401
    import scipy.stats  # noqa: F401
    import torch._dynamo  # noqa: F401 (fairseq-train's optimizers do)
    from fairseq import utils

    composing.remember()
    [package] = find_spec("fairseq_attnvariants").submodule_search_locations
    os.symlink(package, os.path.join(folder, "package"))
    for name in COMMANDS:
        os.symlink(os.path.join(os.path.dirname(os.path.abspath(__file__)), "ask.py"), os.path.join(folder, name))
    python = os.path.join(folder, "python.warm")
    with open(python, "w", opener=lambda path, flags: os.open(path, flags, 0o700)) as script:
        script.write(PYTHON.format(executable=shlex.quote(sys.executable)))
    sys.executable = python
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nothing reads the statuses of forks here
    started_by, first = os.getppid(), os.getpid()
    if os.fork():
        accept(folder, "stock", started_by)
        return
    try:
        utils.import_user_module(argparse.Namespace(user_dir=package))
        accept(folder, "plugin", first)
    except BaseException:
        os.kill(first, signal.SIGTERM)  # so that a process that waits for both ends its wait
        raise


def script():
    """Run a Python script that imports this package: ``python.script FILE ARGUMENTS``."""
    del sys.argv[0]
    sys.path.insert(0, os.path.dirname(os.path.abspath(sys.argv[0])))
    runpy.run_path(sys.argv[0], run_name="__main__")


def read_lines(kind):
    """Parse command lines, because hydra is slow at the first ones."""
    from fairseq import options
    from fairseq.dataclass.utils import convert_namespace_to_omegaconf

    given = [options.parse_args_and_arch(options.get_generation_parser(), ["data", "--path", __file__])]
    for line in LINES[kind]:
        line = f"data --optimizer adam {line}".split()
        given.append(options.parse_args_and_arch(options.get_training_parser(), line))
    for arguments in given:
        convert_namespace_to_omegaconf(arguments)


def accept(folder, kind, parent):
    """Fork for each request, as long as the parent process lives."""
    read_lines(kind)
    for finalizer in weakref.finalize._registry:
        finalizer.atexit = False  # otherwise torch unloads its libraries at the end of every fork
    gc.collect()
    gc.freeze()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
        server.bind(os.path.join(folder, f"{kind}.new"))
        server.listen()
        server.settimeout(5)
        os.rename(os.path.join(folder, f"{kind}.new"), os.path.join(folder, kind))
        while os.getppid() == parent:
            try:
                connection, _ = server.accept()
            except TimeoutError:
                continue
            if os.fork() == 0:
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                status = run(*socket.recv_fds(connection, MOST, 3)[:2])
                connection.send(str(status).encode())
                os._exit(status)
            connection.close()


def run(request, streams):
    """Run a command; return its exit status."""
    arguments, folder, environment = ast.literal_eval(request.decode())
    for number, (name, stream) in enumerate(zip(("stdin", "stdout", "stderr"), streams)):
        os.dup2(stream, number)
        file = open(number, "w" if number else "r", closefd=False)  # noqa: SIM115
        setattr(sys, name, file)
        setattr(sys, f"__{name}__", file)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = arguments
    logging.root.handlers.clear()
    for name in [name for name in sys.modules if name.startswith("fairseq_cli")]:
        del sys.modules[name]  # their import decides where the log goes
    module, _, function = COMMANDS[sys.argv[0]].partition(":")
    try:
        sys.exit(getattr(__import__(module, fromlist=[function]), function)())
    except SystemExit as end:
        status = end.code
        if isinstance(status, str):
            print(status, file=sys.stderr)
            status = 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
        status = 1
    # end the interpreter without clearing it: processes that load data or sweep have the streams, too
    threading._shutdown()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    return int(status or 0)


if __name__ == "__main__":
    serve(sys.argv[1])
