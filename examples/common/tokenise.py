"""Raw text on standard input, words on standard output, split as Moses splits them: ``tokenise.py LANGUAGE``.

Needs ``pip install sacremoses``, whose own command always writes ``&apos;`` for ``'``.
"""

import functools
import io
import multiprocessing
import sys

from sacremoses import MosesTokenizer

CHUNK = 1000  # lines handed to a process at once


def main() -> None:
    """Tokenise with one process a core."""
    if len(sys.argv) != 2:
        sys.exit("usage: tokenise.py LANGUAGE < RAW > TEXT")
    tokenise = functools.partial(MosesTokenizer(sys.argv[1]).tokenize, return_str=True, escape=False)
    # only line feeds end a line
    lines = io.TextIOWrapper(sys.stdin.buffer, encoding="utf-8", newline="\n")
    output = io.TextIOWrapper(sys.stdout.buffer, encoding="utf-8", newline="\n")
    with multiprocessing.Pool() as pool:
        for line in pool.imap(tokenise, lines, CHUNK):
            output.write(line + "\n")
    output.flush()


if __name__ == "__main__":
    main()
