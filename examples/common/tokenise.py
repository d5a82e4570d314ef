"""Split raw text from standard input into words, as Moses does, and print it: ``tokenise.py LANGUAGE``.

It needs ``pip install sacremoses``. The command of sacremoses always writes ``&apos;`` for ``'``; this script does not.
"""

import argparse
import functools
import io
import multiprocessing
import os
import sys

from sacremoses import MosesTokenizer

CHUNK = 1000  # lines handed to a process at once


def main() -> None:
    """Tokenise with one process per core."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("language", metavar="LANGUAGE")
    language = parser.parse_args().language
    tokenise = functools.partial(MosesTokenizer(language).tokenize, return_str=True, escape=False)
    # only line feeds end a line
    lines = io.TextIOWrapper(sys.stdin.buffer, encoding="utf-8", newline="\n")
    output = io.TextIOWrapper(sys.stdout.buffer, encoding="utf-8", newline="\n")
    with multiprocessing.Pool() as pool:
        try:
            for line in pool.imap(tokenise, lines, CHUNK):
                output.write(line + "\n")
            output.flush()
        except UnicodeDecodeError:
            sys.exit("tokenise.py: standard input is not UTF-8: save the text as UTF-8")
        except BrokenPipeError:  # the reader, such as head, has enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), output.fileno())  # else Python would write again when it exits
            sys.exit(1)


if __name__ == "__main__":
    main()
