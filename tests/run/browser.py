"""Chromium without a window, controlled by its debugging protocol, which is JSON over a web socket."""

import contextlib
import http.client
import json
import re
import shutil
import socket
import struct
import subprocess
import time

NAMES = ("chromium", "chromium-browser", "google-chrome")


def program():
    """Return the path of an installed browser, or None."""
    return next(filter(None, map(shutil.which, NAMES)), None)


@contextlib.contextmanager
def opened(address, profile):
    """Yield a function that evaluates JavaScript in the page at an address."""
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0", f"--user-data-dir={profile}"]
    with subprocess.Popen([program(), *options, address], stderr=subprocess.PIPE, text=True) as process:
        try:
            listening = (re.search(r"DevTools listening on ws://127\.0\.0\.1:(\d+)/", line) for line in process.stderr)
            port = int(next(filter(None, listening))[1])
            yield evaluator(port, address)
        finally:
            process.kill()


def evaluator(port, address):
    asked = http.client.HTTPConnection("127.0.0.1", port)
    deadline = time.monotonic() + 60
    while True:
        asked.request("GET", "/json/list")
        tabs = [tab for tab in json.loads(asked.getresponse().read()) if tab["url"] == address]
        if tabs:
            break
        assert time.monotonic() < deadline
        time.sleep(0.1)
    stream = socket.create_connection(("127.0.0.1", port), timeout=60)
    path = tabs[0]["webSocketDebuggerUrl"].split(str(port), 1)[1]
    lines = [f"GET {path} HTTP/1.1", f"Host: 127.0.0.1:{port}", "Upgrade: websocket", "Connection: Upgrade"]
    lines += ["Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "", ""]
    stream.sendall("\r\n".join(lines).encode())
    received = stream.makefile("rb")
    while received.readline() != b"\r\n":
        pass

    def ask(expression):
        """Return the protocol's answer."""
        about = {"expression": expression, "awaitPromise": True, "returnByValue": True}
        data = json.dumps({"id": 1, "method": "Runtime.evaluate", "params": about}).encode()
        stream.sendall(b"\x81" + struct.pack(">BH", 128 | 126, len(data)) + bytes(4) + data)  # text, masked by zeros
        size = received.read(2)[1]
        if size > 125:
            size = int.from_bytes(received.read(2 if size == 126 else 8), "big")
        return json.loads(received.read(size))

    def evaluate(expression):
        answer = ask(expression)["result"]
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    ready = f"location.href == {json.dumps(address)} && document.readyState == 'complete'"
    # the answer is an error while the page replaces the blank one
    while not ask(ready).get("result", {}).get("result", {}).get("value"):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return evaluate
