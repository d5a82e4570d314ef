"""The runtime as a program: it translates lines, or serves requests."""

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time

import packages
import pytest
from conftest import LONG

from fairseq_attnvariants_cli import main as command

pytestmark = pytest.mark.commands
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    return packages.write(tmp_path_factory.mktemp("package"))


def run(package, *options, given="", **about):
    data = given if isinstance(given, bytes) else given.encode()
    command = [sys.executable, "-I", package / "translate.py", *options]
    return subprocess.run(command, input=data, capture_output=True, env=ENVIRONMENT, timeout=60, **about)


def test_lines_are_translated(package):
    made = run(package, given="the red\n\nzebra dogs\r\nthe tree")
    assert (made.returncode, made.stdout.decode(), made.stderr) == (0, "the red\n\nzebra dogs\nthe tree\n", b"")


def test_more_lines_than_are_read_at_a_time(package, tmp_path):
    lines = [("the red dogs saw trees "[: i % 23]).strip() for i in range(9000)]
    (tmp_path / "text").write_text("\n".join(lines) + "\n")
    with open(tmp_path / "text", "rb") as text:
        made = subprocess.run(
            [sys.executable, package / "translate.py"], stdin=text, capture_output=True, env=ENVIRONMENT
        )
    assert made.stdout.decode().split("\n") == [*lines, ""]


def test_n_best_lists_and_attention(package):
    assert run(package, "--n-best", "2", given="the red\n\ndogs\n").stdout.decode().split("\n") == [
        "1\t-0.100000\tthe red",
        "1\t-0.200000\tred dogs",
        "3\t-0.100000\tdogs",
        "3\t-0.200000\tsaw",
        "",
    ]
    (line,) = run(package, "--attention", "--beam", "1", given="the zebra\n").stdout.decode().splitlines()
    (found,) = json.loads(line)["n_best"]
    assert found["attention"] == [[1, 0, 0], [0, 1, 0], [0, 0, 1]]
    assert (found["replaced"], found["symbols"]) == ([1], ["the", "zebra", "</s>"])


def test_what_cannot_be_translated_gets_a_sentence_and_an_empty_line(package):
    given = b"the red\n\xff\xfe\n" + b"a" * 100_000 + b"\n" + b"the " * 60 + b"\ndogs\n\x00\x1b[31m\n"
    made = run(package, given=given)
    assert made.stdout.decode() == "the red\n\n\n\ndogs\n\x00\x1b[31m\n"
    messages = made.stderr.decode().splitlines()
    assert messages[0] == "line 2 is not translated: it is not UTF-8"
    assert messages[1] == "line 3 is not translated: it has more than 20000 characters: split it"
    assert messages[2:] == ["line 4 is not translated: it has 60 symbols, and the model reads at most 49: split it"]
    assert made.returncode == 1
    answers = [json.loads(line) for line in run(package, "--attention", given=given).stdout.decode().splitlines()]
    assert [sorted(answer) for answer in answers[:2]] == [["n_best", "source", "text"], ["error"]]


@pytest.mark.parametrize("options, message", [
    (["--beam", "99"], "error: the beam must be from 1 to 8, not 99"),
    (["--n-best", "0"], "error: n-best must be from 1 to the beam of 2, not 0\n"),
    (["--n-best", "3", "--beam", "2"], "error: n-best must be from 1 to the beam of 2, not 3: give a wider beam"),
    (["--beams", "2"], "error: --beams is no option (--help has all)"),
    (["--batch-size", "0"], "--batch-size must be at least 1, and --threads from 1 to 1024"),
    (["--host", "0.0.0.0"], "error: --host is the address of --serve: leave it out, or give a port"),
    (["--serve", "0", "--host", ""], "error: '' is no FILE and no --host: give a value, or set the variable that it"),
    ([""], "error: '' is no FILE and no --host: give a value, or set the variable that it comes from\n"),
    (["-", "-"], "error: only one text can be standard input: name a file for the others\n"),
    (["--serve", "99999999"], "error: port 99999999 of 127.0.0.1 is not available"),
])  # fmt: skip
def test_wrong_options_get_a_sentence(package, options, message):
    made = run(package, *options, given="the red\n")
    assert message in made.stderr.decode()
    assert "Traceback" not in made.stderr.decode()
    assert made.returncode == 2 and made.stdout == b""


def test_a_damaged_package_gets_a_sentence(tmp_path):
    package = packages.write(tmp_path)
    (package / "model.onnx").write_bytes(b"")
    made = run(package, given="the red\n")
    assert made.stderr.decode().startswith(f"error: {package}/model.onnx: it is not the file that was exported")
    assert made.returncode == 2


@pytest.mark.parametrize("streams", ["<&-", ">&-", "> /dev/full"])
@pytest.mark.parametrize("program, begins, status", [
    ("{package}/translate.py", "error", 2),
    ("-m fairseq_attnvariants_cli translate {package}", "fairseq-attnvariants translate", 2),
])  # fmt: skip
def test_streams_that_fail_get_a_sentence(package, streams, program, begins, status):
    command = f'echo the red | "{sys.executable}" {program.format(package=package)} {streams}'
    made = subprocess.run(["sh", "-c", command], capture_output=True, text=True, env=ENVIRONMENT, cwd=packages.ROOT)
    assert re.fullmatch(rf"{begins}: standard input or output fails \(.*\)\n", made.stderr)
    assert made.returncode == status


def test_a_closed_standard_error_takes_nothing_else_along(package):
    """Messages are lost, and do not come among the translations."""
    line = f'printf "the red\\n\\377\\ndogs\\n" | "{sys.executable}" "{package}/translate.py" 2>&-'
    made = subprocess.run(["sh", "-c", line], capture_output=True, env=ENVIRONMENT)
    assert (made.returncode, made.stdout) == (1, b"the red\n\ndogs\n")


def test_files_instead_of_standard_input(package, tmp_path):
    """The end of a file ends a line, and messages name the file; an unreadable file is refused before translation."""
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_bytes(b"the red\ndogs")
    second.write_bytes(b"\xef\xbb\xbfthe tree\n\xff\n")
    made = run(package, first, second, "--n-best", "2")
    assert [line.split("\t")[::2] for line in made.stdout.decode().splitlines()][::2] == [
        ["1", "the red"],
        ["2", "dogs"],
        ["3", "the tree"],
    ]
    assert (made.returncode, made.stderr.decode()) == (1, f"{second}: line 2 is not translated: it is not UTF-8\n")
    made = run(package, first, "-", given="saw\n")
    assert made.stdout.decode().splitlines() == ["the red", "dogs", "saw"]
    made = run(package, first, "/proc/self/mem")  # it opens, but cannot be read
    assert made.returncode == 2 and b"error: /proc/self/mem cannot be read" in made.stderr
    for missing in (tmp_path / "none", tmp_path):
        made = run(package, first, missing)
        assert (made.returncode, made.stdout) == (2, b"")
        assert re.fullmatch(f"error: {missing} cannot be read \\(.*\\)\n", made.stderr.decode())
    assert "--serve answers requests, and" in run(package, first, "--serve", "0").stderr.decode()
    for option in (["--beam", "2"], ["--n-best", "2"], ["--attention"], ["--keep-unk"]):
        assert "are fields of a request" in run(package, "--serve", "0", *option).stderr.decode()
    assert "--threads from 1 to 1024" in run(package, first, "--threads", "99999999999999").stderr.decode()


@pytest.mark.parametrize("options", [[], ["--n-best", "2"], ["--attention", "--beam", "3"], ["--keep-unk"]])
def test_the_subcommand_does_the_same(package, options, capfdbinary, tmp_path):
    """The subcommand runs the same code."""
    (tmp_path / "text").write_text("the red\n\nzebra dogs\n")
    assert command.main(["translate", *map(str, [package, tmp_path / "text", *options])]) == 0
    assert capfdbinary.readouterr() == (run(package, *options, tmp_path / "text").stdout, b"")
    assert command.main(["translate", *map(str, [package, tmp_path / "text", *options, "--beam", 99])]) == 2
    assert capfdbinary.readouterr().err == b"fairseq-attnvariants translate: the beam must be from 1 to 8, not 99\n"


@pytest.mark.parametrize("asked, status", [([], 0), (["--beam", "99"], 2)])
def test_the_subcommand_leaves_the_signals_of_its_caller(package, asked, status, tmp_path):
    """Otherwise the next broken connection would end the calling process."""
    (tmp_path / "text").write_text("the red\n")
    numbers = (signal.SIGINT, signal.SIGPIPE)
    assert signal.getsignal(signal.SIGPIPE) is signal.SIG_IGN  # as Python sets it, and after any other test
    before = [signal.getsignal(number) for number in numbers]
    assert command.main(["translate", *map(str, [package, tmp_path / "text", *asked])]) == status
    assert [signal.getsignal(number) for number in numbers] == before


@pytest.mark.parametrize("name", ["numpy", "onnxruntime"])
def test_without_what_it_needs_it_says_what_to_install(package, name):
    hidden = f"import sys; sys.modules[{name!r}] = None; "
    alone = f"import runpy; runpy.run_path({str(package / 'translate.py')!r}, run_name='__main__')"
    within = f"from fairseq_attnvariants_cli import main; sys.exit(main.main(['translate', {str(package)!r}]))"
    for code, begins in ((alone, "error"), (within, "fairseq-attnvariants translate")):
        made = subprocess.run([sys.executable, "-c", hidden + code], capture_output=True, text=True, cwd=packages.ROOT)
        assert re.fullmatch(f"{begins}: {name} is not installed: pip install numpy onnxruntime\n", made.stderr)
        assert made.returncode != 0


def test_lines_are_answered_as_they_come(package):
    with subprocess.Popen(
        [sys.executable, package / "translate.py"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=ENVIRONMENT
    ) as process:
        for line in (b"the red\n", b"dogs saw\n"):
            process.stdin.write(line)
            process.stdin.flush()
            assert process.stdout.readline() == line
        process.send_signal(signal.SIGINT)
        assert process.wait(LONG) == -signal.SIGINT


def test_the_module_imports_neither_torch_nor_fairseq(package):
    watch = (
        "import runpy, sys; runpy.run_path(sys.argv[1]); print(sorted({name.split('.')[0] for name in sys.modules}))"
    )
    made = subprocess.run(
        [sys.executable, "-I", "-c", watch, package / "translate.py"], capture_output=True, check=True
    )
    imported = set(json.loads(made.stdout.decode().replace("'", '"')))
    assert {"numpy", "onnxruntime"} < imported
    assert not {"torch", "fairseq", "fairseq_attnvariants", "onnx"} & imported


class Serving:
    def __init__(self, package, patience=2.0, before="pass"):
        code = (
            "import sys; sys.path.insert(0, sys.argv.pop(1)); import translate as t; "
            f"t.PATIENCE = {patience}; {before}; t.main()"
        )
        command = [sys.executable, "-c", code, package, "--serve", "0"]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, env=ENVIRONMENT)
        self.port = int(self.process.stderr.readline().decode().split("/")[2].split(":")[1])

    def ask(self, body, path="/translate", method="POST", **headers):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        connection.request(method, path, data, headers)
        answer = connection.getresponse()
        status, content = answer.status, json.loads(answer.read())
        connection.close()
        return status, content

    def open(self, data):
        connection = socket.create_connection(("127.0.0.1", self.port))
        connection.sendall(data)
        return connection


@pytest.fixture(scope="module")
def served(package):
    serving = Serving(package)
    yield serving
    serving.process.kill()
    serving.process.wait()


def test_the_server_translates(served):
    assert served.ask({"text": "the red"})[1]["translations"][0]["text"] == "the red"
    assert served.ask({"lines": []})[1] == {"translations": []}
    status, answer = served.ask({"lines": ["the zebra", ""], "beam": 3, "n_best": 2, "attention": True})
    assert status == 200
    first, second = answer["translations"]
    assert [one["text"] for one in first["n_best"]] == ["the zebra", "red zebra"]
    assert first["n_best"][0]["attention"] == [[1, 0, 0], [0, 1, 0], [0, 0, 1]]
    assert second["text"] == ""


@pytest.mark.parametrize("body, message", [
    (b"", "not JSON"),
    (b"\xff", "not JSON"),
    (b"[" * 50_000, "not JSON"),
    (b"[]", 'must be an object with either "text" or "lines"'),
    ({}, 'must be an object with either "text" or "lines"'),
    ({"text": "a", "lines": []}, 'must be an object with either "text" or "lines"'),
    ({"text": 1}, "'text' is unknown or has another type"),
    ({"text": "a", "beams": 1}, "'beams' is unknown or has another type"),
    ({"text": "a", "beam": True}, "'beam' is unknown or has another type"),
    ({"text": "a", "beam": 10**9}, "the beam must be from 1 to 8"),
    ({"lines": [1]}, "'lines' must be a list of texts"),
    ({"lines": ["a"] * 101}, "at most 100 lines, of at most 2000 characters each"),
    ({"text": "a" * 100_000}, "at most 100 lines, of at most 2000 characters each"),
    ({"lines": ["a", "a " * 60]}, "line 2: it has 60 symbols"),
])  # fmt: skip
def test_requests_that_cannot_be_answered_get_a_sentence(served, body, message):
    status, answer = served.ask(body)
    assert status == 400
    assert message in answer["error"]


def test_requests_are_bounded(served):
    assert served.ask(b"x", **{"Content-Length": "999999999"})[0] == 413
    assert served.ask(b"x", **{"Content-Length": "-1"})[0] == 411
    assert served.ask(b"x", path="/etc/passwd")[0] == 404
    assert served.ask(b"", method="GET", path="/")[0] == 404


def test_a_client_may_take_its_time_with_a_large_answer(package):
    """Each part of the answer has to be taken within the patience, not the complete answer."""
    serving = Serving(package, patience=1.0)
    body = json.dumps({"lines": ["the red " * 24] * 30, "beam": 8, "n_best": 8, "attention": True}).encode()
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**14)
    connection.connect(("127.0.0.1", serving.port))
    connection.sendall(b"POST /translate HTTP/1.0\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    answer = connection.recv(2**12)
    begun = time.monotonic()
    while part := connection.recv(2**18):
        answer += part
        time.sleep(0.02)
    serving.process.kill()
    assert time.monotonic() - begun > 1.0 and len(json.loads(answer.partition(b"\r\n\r\n")[2])["translations"]) == 30


def test_the_server_at_an_address_of_version_6(package):
    command = [sys.executable, package / "translate.py", "--serve", "0", "--host", "::1"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, env=ENVIRONMENT)
    address = process.stderr.readline().decode()
    process.kill()
    if "Address family" in address or "Cannot assign" in address:
        pytest.skip("this machine has no IPv6")
    assert re.fullmatch(r"http://\[::1\]:\d+/translate takes POST\n", address)


def test_clients_that_send_nothing_do_not_stop_the_others(served):
    slow = [served.open(b"POST /translate HTTP/1.0\r\nContent-Length: 100\r\n\r\n{") for _ in range(30)]
    assert served.ask({"text": "the red"})[0] == 200
    slow += [served.open(b"POST /tr") for _ in range(40)]
    deadline = time.monotonic() + 20
    while True:  # at first all connections are in use; then clients that send nothing lose theirs
        try:
            assert served.ask({"text": "the red"})[0] == 200
            break
        except (OSError, http.client.HTTPException):
            assert time.monotonic() < deadline
            time.sleep(0.2)
    for connection in slow:
        connection.close()


def test_connections_without_a_thread_are_closed_and_take_no_place(package):
    without = "t.CONNECTIONS, start, left = 1, t.threading.Thread.start, [0, 0, 0]; "
    without += "t.threading.Thread.start = lambda thread: 1 / left.pop() if left else start(thread)"
    serving = Serving(package, before=without)
    for _ in range(3):
        with pytest.raises((OSError, http.client.HTTPException)):
            serving.ask({"text": "the red"})
    assert serving.ask({"text": "the red"})[0] == 200
    serving.process.kill()
    assert serving.process.communicate()[1].count(b"a request failed: ZeroDivisionError") == 3


@pytest.mark.slow
@pytest.mark.more
def test_ten_thousand_requests(served):
    """Eight clients ask at the same time; no request is lost, and memory does not grow."""
    failed = []

    def memory():
        with open(f"/proc/{served.process.pid}/statm") as numbers:
            return int(numbers.read().split()[1]) * 4096 / 2**20

    def client(count):
        for _ in range(count):
            status, answer = served.ask({"text": "the red dogs", "attention": True})
            if status != 200 or answer["translations"][0]["text"] != "the red dogs":
                failed.append(answer)

    def all_ask(count):
        threads = [threading.Thread(target=client, args=(count,)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    all_ask(125)
    before = memory()
    all_ask(1125)
    assert not failed
    assert memory() < before + 16


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_server_stops_without_waiting_for_clients(package, number):
    serving = Serving(package, patience=60.0)
    held = [serving.open(b"POST /translate HTTP/1.0\r\n") for _ in range(5)]
    assert serving.ask({"text": "the red"})[0] == 200
    serving.process.send_signal(number)
    assert serving.process.wait(LONG) == 0
    assert serving.process.stderr.read() == b""
    for connection in held:
        connection.close()
