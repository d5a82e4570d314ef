"""Tables of the measurements of ``gpu.py``, and a comparison with the aims.

python benchmarks/gpu_table.py gpu.jsonl
"""

import argparse
import json
import sys

from tabulate import tabulate

# the stock lstm's time divided by the way's, on an H100 or H200, in float32
AIMS = [
    ("training", "256/512", 80, "rnnsearch:graphs", 2.5),
    ("training", "256/512", 80, "dl4mt:graphs", 2.0),
    ("training", "256/512", 80, "recatt:graphs", 1.5),
    ("training", "characters", 80, "ava:graphs", 1.5),
    ("training", "620/1000", 80, "rnnsearch:graphs", 1.8),
    ("training", "620/1000", 80, "dl4mt:graphs", 1.5),
    ("fairseq-train", "256/512", 80, "rnnsearch:graphs", 2.0),
    ("search", "256/512", 80, "rnnsearch:graphs", 2.0),
    ("search", "256/512", 1, "rnnsearch:graphs", 2.0),
]
MEMORY = 1.3  # the most memory, as a multiple of the memory without graphs
NVIDIA = 140_909  # tokens a second of GNMT v2, mixed precision, one A100, batch 128 (DeepLearningExamples)


def read(path):
    """The rows of a file; lines that are cut off or no rows are left out with a message."""
    rows = []
    with open(path, encoding="utf-8", errors="replace") as lines:
        for number, line in enumerate(lines, start=1):
            try:
                row = json.loads(line)
                rows += [row] if row["part"] else []
            except (ValueError, TypeError, LookupError):
                print(f"{path}, line {number}: cut off, left out", file=sys.stderr)
    return rows


def markdown(body, heads):
    return tabulate(body, heads, tablefmt="github", disable_numparse=True)


def key(row):
    return row["part"], row["size"], row.get("batch"), row.get("dtype", "float32")


def by_way(rows, part):
    """The measurements of a part by column and way; a row without a ratio gets the ratio of the times."""
    columns = {}
    for row in rows:
        if row["part"] == part and "ms" in row:
            columns.setdefault(key(row), {})[row["way"]] = row
    for ways in columns.values():
        for row in ways.values():
            if "lstm" in ways:
                row.setdefault("ratio", ways["lstm"]["ms"] / row["ms"])
    return columns


def cell(row, unit):
    if row is None:
        return ""
    unit = "characters" if "characters" in row["size"] else unit
    if row["way"] == "lstm":
        text = f"1 ({row['rate']:,.0f} {unit}/s)"
    elif "low" in row:
        text = f"{row['ratio']:.2f} ({row['low']:.2f} to {row['high']:.2f})"
    else:
        text = f"{row['ratio']:.2f}" if "ratio" in row else f"{row['rate']:,.0f} {unit}/s"
    return f"{text}, {row['gib']:.2f} GiB" if row.get("gib") else text


def table(rows, part, unit):
    columns = by_way(rows, part)
    ways = dict.fromkeys(way for column in columns.values() for way in column)
    heads = [", ".join(str(one) for one in (size, batch, dtype) if one) for _, size, batch, dtype in columns]
    body = [[name(way), *(cell(column.get(way), unit) for column in columns.values())] for way in ways]
    return markdown(body, ["", *heads])


def name(way):
    arch, _, how = way.partition(":")
    arch = "stock `lstm`" if arch == "lstm" else f"`{arch}`"
    return f"{arch}, {how}" if how else arch


def aims(rows):
    found = {part: by_way(rows, part) for part in ("training", "fairseq-train", "search")}

    def measured(part, size, batch, way):
        return found[part].get((part, size, batch, "float32"), {}).get(way, {})

    body = []
    for part, size, batch, way, aim in AIMS:
        row, plain = (measured(part, size, batch, one) for one in (way, way.partition(":")[0]))
        ratio = row.get("ratio")
        text = "" if ratio is None else f"{ratio:.2f}"
        said = "not measured" if ratio is None else "reached" if ratio >= aim else "missed"
        more = row["gib"] / plain["gib"] if row.get("gib") and plain.get("gib") else None
        memory = "" if more is None else f"{more:.2f}" + ("" if more <= MEMORY else ", above")
        body.append([f"{part}, {size}, batch {batch}", name(way), aim, text, said, memory])
    heads = ["", "", "aim", "ratio", "", f"memory, at most {MEMORY}"]
    return markdown(body, heads)


def busy(rows):
    body = []
    for row in (row for row in rows if row["part"] == "profile"):
        times = f"{row['ms']:.1f}", f"{row['busy_ms']:.1f}", f"{row['share']:.2f}"
        body.append([row["size"], name(row["way"]), *times, row["kernels"]])
    return markdown(body, ["", "", "update, ms", "busy, ms", "share", "kernels"])


def gnmt(rows):
    body = [
        [name(row["way"]), f"{tokens:,.0f}", f"{tokens / NVIDIA:.2f}"]
        for row in rows
        if row["part"] == "training" and row["way"].startswith("gnmt") and "ms" in row
        for tokens in [row["rate"] * row["tokens_a_word"]]
    ]
    return markdown(body, ["", "tokens/s of both sides", f"of NVIDIA's {NVIDIA:,}"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("measured", metavar="FILE", help="what gpu.py wrote")
    path = parser.parse_args().measured
    try:
        rows = read(path)
    except OSError as error:
        parser.error(f"FILE {path}: {error.strerror}")
    if not rows:
        parser.error(f"FILE {path}: no row of gpu.py: give what it wrote")
    for row in rows:
        if row["part"] == "machine":
            print(f"{row['device']}, torch {row['torch']} for CUDA {row['cuda']}")
    sections = {
        "Aims": aims(rows),
        "Training": table(rows, "training", "words"),
        "By fairseq-train": table(rows, "fairseq-train", "words"),
        "Search, beam 5": table(rows, "search", "sentences"),
        "How long the GPU is busy": busy(rows),
        "GNMT v2's sizes": gnmt(rows),
    }
    for title, text in sections.items():
        print(f"\n**{title}**\n\n{text}")
    for row in rows:
        if "error" in row or row["part"] == "left out":
            print(f"\n{row['part']} {row.get('name', row.get('way'))}: {row.get('error', 'no time')}")


if __name__ == "__main__":
    main()
