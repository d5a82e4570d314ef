"""Functions that read and write files. Text is UTF-8; a line ends in LF or CR LF."""

import contextlib
import errno
import io
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, TextIO, TypeVar

STANDARD_OUTPUT = ("/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")
OPEN = re.compile("/dev/stderr|(?:/dev|/proc/self)/fd/([0-9]{1,9})")  # names of files that this process has open
REPLACED = "{} is an input, too, and would be replaced: name another file for the output"
T = TypeVar("T")
_targets: dict[str, str] = {}  # files that are being written, and what messages call them
_taken: list[TextIO] = []  # standard input, once it is read
_inputs: set[str] = set()  # files that this command has read


# control characters, line separators and characters that change the direction of writing: they falsify the display
UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


class UserError(Exception):
    """An error that the user can correct, described in one sentence."""


def refuse(message: str) -> Any:
    """Raise a :class:`UserError`; argparse calls this as a parser's ``error``."""
    raise UserError(message)


def visible(text: str) -> str:
    """Escape the characters that control a terminal. Names and words do not need them."""
    return UNSEEN.sub(lambda match: ascii(match[0])[1:-1], text)


def say(message: str) -> None:
    """Print a message as one line on standard error."""
    print(visible(message.replace("\n", " ")), file=sys.stderr)


def reason(error: Exception) -> str:
    """Return the first line of an error's message, or the name of an error without a message.

    The second line is added if the first ends in a colon. An error of the operating system gives its file and its
    reason, without its number.
    """
    if isinstance(error, OSError) and error.strerror:
        return error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"
    lines = [line.strip() for line in str(error).strip().split("\n")]
    return " ".join(lines[: 1 + lines[0].endswith(":")]) or type(error).__name__


def read_lines(path: str) -> Iterator[str]:
    """Yield the lines of a file, or of standard input for ``-``, without line endings.

    Raises:
        UserError: the file cannot be read, or a line is not UTF-8.
    """
    if path == "-":
        _take_input()
    try:
        with contextlib.nullcontext(sys.stdin.buffer) if path == "-" else open(path, "rb") as stream:
            note_input("/dev/stdin" if path == "-" else path)
            for number, line in enumerate(stream, start=1):
                try:
                    # a byte order mark is not part of the first word
                    yield line.removesuffix(b"\r\n").removesuffix(b"\n").decode("utf-8-sig" if number == 1 else "utf-8")
                except UnicodeDecodeError as error:
                    raise UserError(f"{path}, line {number}: not UTF-8 ({error.reason}): save it as UTF-8") from error
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from error


def forget_inputs() -> None:
    """Forget which files were read; a new command begins."""
    _inputs.clear()


def note_input(path: str) -> None:
    """Remember a file that this command reads, which no output may replace.

    Raises:
        UserError: it is being written.
    """
    place = os.path.realpath(path)
    if place in _targets:
        raise UserError(REPLACED.format(_targets[place]))
    _inputs.add(place)


def _take_input() -> None:
    """Refuse to read standard input if it is closed, or has been read before."""
    if sys.stdin is None:
        raise UserError("standard input cannot be read: it is closed")
    if sys.stdin in _taken:
        raise UserError("only one text can be standard input: name a file for the others")
    _taken.append(sys.stdin)


def read_parallel(*paths: str) -> list[tuple[str, ...]]:
    """Return the lines of parallel files, one tuple per line.

    Raises:
        UserError: a file cannot be read, one ends before the others, all are empty, or two are standard input.
    """
    columns = [list(read_lines(path)) for path in paths]
    longest = max(range(len(paths)), key=lambda k: len(columns[k]))
    for path, lines in zip(paths, columns, strict=True):
        if len(lines) < len(columns[longest]):
            raise UserError(
                f"{path} ends after line {len(lines)}, but {paths[longest]} has {len(columns[longest])} lines"
            )
    if not columns[0]:
        raise UserError(f"{paths[0]} is empty")
    return list(zip(*columns, strict=True))


@contextlib.contextmanager
def write_whole(path: str | None = None, links: bool = True) -> Iterator[TextIO]:
    """Yield a text stream whose content is written to ``path``, as UTF-8, only if the block ends without an error.

    Bytes of file names that are not UTF-8 become escapes. See :func:`write_bytes`.
    """
    with write_bytes(path, links) as stream:
        text = io.StringIO()
        yield text
        stream.write(text.getvalue().encode("utf-8", errors="backslashreplace"))


def optional(
    write: Callable[..., contextlib.AbstractContextManager[T]], path: str | None, *more: Any
) -> contextlib.AbstractContextManager[T | None]:
    """Open a path with ``write``, or return a context that gives None if there is no path."""
    return write(path, *more) if path else contextlib.nullcontext()


@contextlib.contextmanager
def write_bytes(path: str | None = None, links: bool = True) -> Iterator[BinaryIO]:
    """Yield a binary stream whose content is written to ``path``, only if the block ends without an error.

    The start of the block checks that ``path`` can be written. None and ``-`` mean standard output.

    Args:
        path: the file.
        links: whether to write to a link, a pipe or a device of this name, as for names that the user gave. Otherwise
            a file replaces it.

    Raises:
        UserError: the file cannot be written.
    """
    content = io.BytesIO()
    if path is None or path == "-" or os.path.abspath(path) in STANDARD_OUTPUT:
        with only_output("-", "standard output"):
            yield content
        with standard_output() as output:
            if hasattr(output, "buffer"):
                output.flush()
                output.buffer.write(content.getbuffer())
            else:  # it is no file, as in a notebook
                output.write(content.getvalue().decode(errors="backslashreplace"))
        return

    target = os.path.realpath(path) if links else os.path.abspath(path)
    opened = OPEN.fullmatch(os.path.abspath(path))
    special = opened or not os.path.basename(path) or os.path.exists(path) and not os.path.isfile(path)
    if links and special:  # such as /dev/null or a pipe
        with writing(path):
            # an open stream is written at its position
            stream = open(os.dup(int(opened[1] or 2)) if opened else path, "wb")  # noqa: SIM115
            os.write(stream.fileno(), b"")
        with stream:
            yield content
            with writing(path):
                stream.write(content.getbuffer())
                stream.flush()
        return

    with only_output(target, path):
        yield from _replaced(target, path, content)


@contextlib.contextmanager
def only_output(target: str, path: str) -> Iterator[None]:
    """Reserve ``target`` for one output while the block runs; the message names ``path``.

    Raises:
        UserError: another output is written there, or the command has read it.
    """
    if target in _targets:
        raise UserError(f"{path} is given for two outputs: name another file for one of them")
    if target in _inputs:
        raise UserError(REPLACED.format(path))
    _targets[target] = path
    try:
        yield
    finally:
        del _targets[target]


def _replaced(target: str, path: str, content: io.BytesIO) -> Iterator[BinaryIO]:
    """Write a new file, and rename it to ``target``.

    Until then its name is random, because a link with a predictable name could redirect the output.
    """
    folder, name = os.path.split(target)
    scratch = os.path.join(folder, f"{name[:40]}.{os.urandom(4).hex()}.tmp")  # the length of names is limited
    exists = os.path.isfile(target) and not os.path.islink(target)
    with writing(path):
        if exists and not os.access(target, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        stream = open(scratch, "xb")  # noqa: SIM115
    try:
        with writing(path):
            if exists:
                shutil.copymode(target, scratch)
        yield content
        with writing(path):
            with stream:  # on a full disk, only closing may fail
                stream.write(content.getbuffer())
            os.replace(scratch, target)
    except BaseException:
        with contextlib.suppress(OSError):
            stream.close()
        with contextlib.suppress(OSError):
            os.unlink(scratch)
        raise


@contextlib.contextmanager
def writing(path: str) -> Iterator[None]:
    """Turn errors of the operating system in a block that writes ``path`` into :class:`UserError`.

    Raises:
        UserError: ``path`` cannot be written.
        BrokenPipeError: the reader of a pipe has closed it.
    """
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror}") from error


@contextlib.contextmanager
def standard_output() -> Iterator[TextIO]:
    """Yield standard output, or the null device if it is closed, and flush it at the end of the block.

    Raises:
        UserError: standard output cannot be written, for example on a full disk.
        BrokenPipeError: the reader has closed it.
    """
    output = sys.stdout or open(os.devnull, "w", errors="backslashreplace")  # noqa: SIM115
    with writing("standard output"):
        try:
            try:
                yield output
            finally:
                output.flush()
        except OSError:
            with contextlib.suppress(OSError):  # else the interpreter would flush again when it exits
                os.dup2(os.open(os.devnull, os.O_WRONLY), output.fileno())
            raise
