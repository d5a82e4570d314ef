"""Copies parallel text, lowercased, joined or cut to sentences of a length: ``clean.py [options] IN OUT LANGUAGE...``.

Between words one space is left of any white space, such as carriage returns, no-break spaces and U+2028.

``IN`` and ``OUT`` are prefixes: ``IN.LANGUAGE`` are read, of which two or more are parallel.
"""

import argparse
import contextlib
import itertools
import sys
from typing import BinaryIO, Iterator


def decoded(path: str, stream: BinaryIO) -> Iterator[str]:
    """The lines of a text, which only line feeds end."""
    for number, line in enumerate(stream, start=1):
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError:
            sys.exit(f"clean.py: {path}, line {number}: not UTF-8: save it as UTF-8")


def main() -> None:
    """Write the sentences that are kept."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("in", "out"):
        parser.add_argument(name)
    parser.add_argument("languages", nargs="+")
    parser.add_argument("--lower", action="store_true", help="lowercase")
    parser.add_argument("--longest", type=int, default=0, help="keep those with 1 to so many words a side; 0: keep all")
    parser.add_argument("--join", type=int, default=1, help="make one line of so many neighbouring ones, 1 or more")
    options = vars(parser.parse_args())
    if options["join"] < 1:
        sys.exit(f"clean.py: --join {options['join']} is not at least 1")
    if options["in"] == options["out"]:
        sys.exit("clean.py: OUT is IN, and would be emptied before it is read: choose another prefix")
    read, write = ([f"{options[end]}.{language}" for language in options["languages"]] for end in ("in", "out"))
    try:
        with contextlib.ExitStack() as files:
            reading = [decoded(path, files.enter_context(open(path, "rb"))) for path in read]
            writing = [files.enter_context(open(path, "w", encoding="utf-8", newline="\n")) for path in write]
            pairs = itertools.zip_longest(*reading)
            while joined := list(itertools.islice(pairs, options["join"])):
                if any(None in pair for pair in joined):
                    sys.exit(f"clean.py: {' and '.join(read)} do not have equally many lines")
                # other white space ends lines for subword-nmt, or divides words for fairseq alone
                lines = [" ".join(" ".join(side).split()) for side in zip(*joined)]
                if options["longest"] == 0 or all(1 <= len(line.split()) <= options["longest"] for line in lines):
                    for stream, line in zip(writing, lines):
                        stream.write((line.lower() if options["lower"] else line) + "\n")
    except OSError as error:
        sys.exit(f"clean.py: {error.filename}: {error.strerror}")


if __name__ == "__main__":
    main()
