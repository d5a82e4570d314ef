#!/usr/bin/env -S python3 -IS
"""Commands that start at once: a process that has imported torch and fairseq, and read a command line, forks for each.

``python warm.py FOLDER`` fills the folder with commands, which are this file, and serves them.
"""

import atexit
import json
import logging
import os
import signal
import socket
import sys
import threading

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
}
MOST = 1 << 20  # bytes of a request


def ask():
    """Be the command by whose name this file was called; returns the exit status."""
    folder, name = os.path.split(os.path.abspath(sys.argv[0]))
    request = {"arguments": [name, *sys.argv[1:]], "folder": os.getcwd(), "environment": dict(os.environ)}
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
        server.connect(os.path.join(folder, "socket"))
        socket.send_fds(server, [json.dumps(request).encode()], [0, 1, 2])
        return int(server.recv(16) or b"1")


def serve(folder):
    """Fork for each request, as long as the process lives that started this one."""
    import fairseq_cli.generate  # noqa: F401
    import fairseq_cli.hydra_train  # noqa: F401
    import fairseq_cli.interactive  # noqa: F401
    import fairseq_cli.preprocess  # noqa: F401
    import fairseq_cli.train  # noqa: F401
    import fairseq_cli.validate  # noqa: F401
    import sacrebleu  # noqa: F401
    import torch._dynamo  # noqa: F401 (fairseq-train's optimizers do)
    from fairseq import options
    from fairseq.dataclass.utils import convert_namespace_to_omegaconf

    given = options.parse_args_and_arch(options.get_generation_parser(), ["data", "--path", "model"])
    convert_namespace_to_omegaconf(given)  # hydra's grammar is slow at first
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody asks for the forks' statuses here
    parent = os.getppid()
    for name in COMMANDS:
        os.symlink(os.path.abspath(__file__), os.path.join(folder, name))
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
        server.bind(os.path.join(folder, "socket"))
        server.listen()
        server.settimeout(5)
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
    """Run a command; returns its exit status."""
    request = json.loads(request)
    for number, (name, stream) in enumerate(zip(("stdin", "stdout", "stderr"), streams)):
        os.dup2(stream, number)
        file = open(number, "w" if number else "r", closefd=False)  # noqa: SIM115
        setattr(sys, name, file)
        setattr(sys, f"__{name}__", file)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv = request["arguments"]
    logging.root.handlers.clear()
    for name in [name for name in sys.modules if name.startswith("fairseq_cli")]:
        del sys.modules[name]  # whose import says where the log goes
    module, _, function = COMMANDS[sys.argv[0]].partition(":")
    try:
        sys.exit(getattr(__import__(module, fromlist=[function]), function)())
    except SystemExit as end:
        status = end.code
        if isinstance(status, str):
            print(status, file=sys.stderr)
            status = 1
    except BaseException:  # noqa: BLE001
        sys.excepthook(*sys.exc_info())
        status = 1
    # the end of an interpreter without taking it apart: processes that load data or sweep have the streams, too
    threading._shutdown()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    return int(status or 0)


if __name__ == "__main__":
    if os.path.basename(sys.argv[0]) == "warm.py":
        serve(sys.argv[1])
    sys.exit(ask())
