"""``fairseq-attnvariants check``: tests whether an architecture meets fairseq's demands."""

import json
import textwrap
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..options import Once, UserDirOptions, check_distinct, option, switch
from ..text.files import UserError, standard_output

if TYPE_CHECKING:
    from ..checks import Finding, Subject

VERDICTS = {True: "holds", False: "FAILS", None: "not applicable"}
INDENT = " " * (2 + max(map(len, VERDICTS.values())))


@dataclass
class Options(UserDirOptions):
    """Test that an architecture pads, batches and decodes as fairseq expects. A small model is built and
    tested on generated sentences, without data or a GPU. Options that are not listed here go to the model, as in
    fairseq-train; sizes that you do not give are small. The exit status is 1 if a test fails.

    example: fairseq-attnvariants check --user-dir mine --arch mine --json

    Args:
        arch: an architecture of this package, of --user-dir or of fairseq
        task: translation (default), char_translation, or string_transduction, whose sources have features here
        demand: run only these: in-place, widths, same, future, padding, alone, attention, short, loss, time,
            memory, compiled, exported, contexts, incremental, reordering, leaving, beam, ensemble, device,
            parameters, gradients, half, saved, resumed (default: all)
        json: print JSON: an object with a list of the demands
    """

    arch: str = option("NAME", required=True, action=Once)
    task: str = option("NAME", default="translation")
    demand: list[str] | None = option("NAME", nargs="+")
    json: bool = switch()
    others: list[str] = field(init=False)  # arguments that are not options of this subcommand


def run(options: Options) -> int:
    """Test every demand, and print the findings; return 1 if a demand fails, else 0."""
    import torch

    from ..checks import DEMANDS, Subject

    torch.set_num_threads(1)
    names = options.demand or list(DEMANDS)
    for name in names:
        if name not in DEMANDS:
            raise UserError(f"--demand {name}: choose from {', '.join(DEMANDS)}")
    check_distinct("--demand", names)
    rows: list[dict[str, Any]] = []
    subject = Subject(options.arch, ["--task", options.task, *options.others])
    with standard_output() as output:
        if not options.json:
            print(heading(subject), file=output)
        for name in names:
            demand, finding = DEMANDS[name], DEMANDS[name](subject)
            rows.append(
                dict(name=name, demand=demand.text, holds=finding.holds, found=finding.found, means=demand.means)
            )
            if not options.json:
                print(line(f"{name}: {demand.text}", demand.means, finding), file=output, flush=True)
        verdicts = {row["name"]: row["holds"] for row in rows}
        if options.json:
            sizes = {flag.removeprefix("--"): value for flag, value in subject.sizes.items()}
            about = dict(architecture=options.arch, parameters=subject.parameters, sizes=sizes, demands=rows)
            print(json.dumps(about, indent=2), file=output)
        else:
            print(f"\n{conclusion(verdicts)}", file=output)
    return int(False in verdicts.values())


def conclusion(verdicts: dict[str, bool | None]) -> str:
    """Return the last line of the output, with the names of the demands that fail."""
    failed = [name for name, holds in verdicts.items() if holds is False]
    if not failed:
        return "all hold" if True in verdicts.values() else "none is applicable"
    advice = " (begin with the first: others often follow from it)" if len(failed) > 1 else ""
    return f"{len(failed)} of {len(verdicts)} fail: {', '.join(failed)}{advice}"


def heading(subject: "Subject") -> str:
    """Describe the tested model. Options that are not mentioned have the architecture's or the user's values."""
    sizes = " ".join(f"{flag} {value}" for flag, value in subject.sizes.items()) or "at its own sizes"
    text = f"{subject.architecture} with {subject.parameters:,} parameters: {sizes}"
    if subject.refusal is not None:
        text += "; widths that all differ are refused, see the demand widths"
    return textwrap.fill(text, 120, break_on_hyphens=False) + "\n"


def line(text: str, means: str, finding: "Finding") -> str:
    """Return a line with a demand and its verdict, and lines with the finding below it."""
    below = [finding.found, f"which means: {means}"] if finding.holds is False else [finding.found]
    lines = [VERDICTS[finding.holds].ljust(len(INDENT)) + text]
    for more in filter(None, below):
        lines += textwrap.wrap(more, 120, initial_indent=INDENT + "  ", subsequent_indent=INDENT + "  ")
    return "\n".join(lines)
