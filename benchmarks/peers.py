"""Commands of several toolkits, in turns, against the first: the time of one more update or one more sentence.

    python benchmarks/peers.py --least 10 --most 40 \\
        --way "lstm=fairseq-train DATA --arch lstm ... --save-dir {folder} --max-update {n}" \\
        --way "marian=marian -m {folder}/model.npz ... --after {n}u"
    python benchmarks/peers.py --least 80 --most 240 --way "lstm=head -n {n} TEXT | fairseq-interactive ..." ...

A way is a name and a command line for bash.  It runs with ``--least`` and with ``--most`` instead of ``{n}``, each time
with an empty folder instead of ``{folder}``.  The difference of the two times is divided by that of the two numbers, so
starting, loading and saving do not count.  The output is how many times as fast as the first way each way is: the ratio
of times in the same round, as the median with the smallest and the largest.
"""

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
import time

from spread import against, spread
from tqdm import tqdm

from fairseq_attnvariants_cli.options import natural, positive


def seconds(line, number, cpu_time):
    """The time of a command with a number: the elapsed seconds, or the processor seconds of it and its processes."""
    with tempfile.TemporaryDirectory() as folder:
        line = line.replace("{n}", str(number)).replace("{folder}", folder)
        before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        done = subprocess.run(["bash", "-eo", "pipefail", "-c", line], capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{line}\n{done.stderr[-2000:]}\nends with status {done.returncode}")
        passed, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime if cpu_time else passed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--way", action="append", required=True, metavar="NAME=COMMAND")
    parser.add_argument("--least", type=natural, required=True, metavar="N")
    parser.add_argument("--most", type=natural, required=True, metavar="N")
    parser.add_argument("--rounds", type=positive, default=3)
    parser.add_argument("--cpu-time", action="store_true", help="computing time instead of the time that passes")
    arguments = parser.parse_args()
    if arguments.least >= arguments.most:
        parser.error("--least must be less than --most")
    ways = {}
    for name, found, line in (way.partition("=") for way in arguments.way):
        if not (name and line) or name in ways:
            why = "this name is given twice" if name in ways else "write NAME=COMMAND"
            parser.error(f"--way {name}{found}{line}: {why}")
        ways[name] = line
    times = {name: [] for name in ways}
    for _ in tqdm(range(arguments.rounds), "rounds", leave=False):
        for name, line in ways.items():
            short, long = (seconds(line, number, arguments.cpu_time) for number in (arguments.least, arguments.most))
            times[name].append((long - short) / (arguments.most - arguments.least))
    for name, found in against(times, next(iter(times))).items():
        print(f"{name:20s} {1e3 * statistics.median(times[name]):9.1f} ms   x{spread(found)}")


if __name__ == "__main__":
    main()
