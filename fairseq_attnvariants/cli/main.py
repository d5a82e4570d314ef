"""``fairseq-attnvariants VERB``: what stock fairseq has no command for."""

import argparse
from pathlib import Path
from typing import Optional, Sequence

import fairseq_attnvariants


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Run one verb; returns the exit status."""
    parser = argparse.ArgumentParser(prog="fairseq-attnvariants", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    user_dir = verbs.add_parser(
        "user-dir",
        help="print the path for --user-dir",
        description="Print the absolute path of the package, for --user-dir and common.user_dir.",
        epilog='example: fairseq-train --user-dir "$(fairseq-attnvariants user-dir)" --arch rnnsearch ...',
    )
    user_dir.set_defaults(run=lambda _: print(package_dir()))
    config_dir = verbs.add_parser(
        "config-dir",
        help="print the path for fairseq-hydra-train --config-dir",
        description="Print the absolute path of the YAML configurations that the package ships.",
        epilog='example: fairseq-hydra-train --config-dir "$(fairseq-attnvariants config-dir)" --config-name train ...',
    )
    config_dir.set_defaults(run=lambda _: print(package_dir() / "config"))
    options = parser.parse_args(arguments)
    options.run(options)
    return 0


def package_dir() -> Path:
    """The folder of the installed package."""
    return Path(fairseq_attnvariants.__file__).resolve().parent


if __name__ == "__main__":
    raise SystemExit(main())
