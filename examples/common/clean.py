"""Copy parallel text, and lowercase, join or select its sentences: ``clean.py [options] IN OUT LANGUAGE...``.

One space replaces any white space between words, such as carriage returns, no-break spaces and U+2028.

``IN`` and ``OUT`` are prefixes: the script reads ``IN.LANGUAGE`` and writes ``OUT.LANGUAGE``. The files of several
languages are parallel.
"""

import argparse
import sys
from pathlib import Path

from split import read_lines, write_lines


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
    for name, least in (("join", 1), ("longest", 0)):
        if options[name] < least:
            sys.exit(f"clean.py: --{name} {options[name]} is not at least {least}")
    if options["in"] == options["out"]:
        sys.exit("clean.py: OUT is IN, and would be emptied before it is read: choose another prefix")
    read, write = ([f"{options[end]}.{language}" for language in options["languages"]] for end in ("in", "out"))
    texts = [read_lines(path) for path in read]
    if len({*map(len, texts)}) > 1:
        sys.exit(f"clean.py: {' and '.join(read)} do not have equally many lines")
    kept = []
    for first in range(0, len(texts[0]), options["join"]):
        # subword-nmt would end lines at other white space, or fairseq alone would divide words there
        lines = [" ".join(" ".join(text[first : first + options["join"]]).split()) for text in texts]
        if options["longest"] == 0 or all(1 <= len(line.split()) <= options["longest"] for line in lines):
            kept.append([line.lower() if options["lower"] else line for line in lines])
    for number, path in enumerate(write):
        write_lines(Path(path), (lines[number] for lines in kept))


if __name__ == "__main__":
    main()
