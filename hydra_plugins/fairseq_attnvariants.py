"""A resolver and a callback for ``config/sweep.yaml``; hydra imports all modules in ``hydra_plugins``."""

import contextlib
import hashlib
import logging
import os
import re
import shutil
import sys
import uuid
from pathlib import Path

from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf, read_write

logger = logging.getLogger(__name__)


def short_hash(text: str) -> str:
    """A hash of six hexadecimal digits: a folder's name holds 255 characters, and a run's overrides may have more."""
    return hashlib.sha256(text.encode()).hexdigest()[:6]


if hasattr(OmegaConf, "register_new_resolver"):  # omegaconf 2.0, with fairseq's own pins, has other resolvers
    OmegaConf.register_new_resolver("attnvariants.hash", short_hash, replace=True)


def written_out(text: str, config) -> str:
    """Append to a text the values in its ``${...}`` that are interpolations themselves, at every depth."""
    done = set()
    while new := {*re.findall(r"\$\{([\w.]+)\}", text)} - done:
        done |= new
        for key in sorted(new):
            section, _, option = key.rpartition(".")
            with contextlib.suppress(Exception):  # hydra has some of its values only during a run
                value = OmegaConf.to_container(OmegaConf.select(config, section), resolve=False)[option]
                text += f" {value}" if "${" in str(value) else ""
    return text


class FailedRuns:
    """A callback for hydra: a failed run logs its error, and the sweep ends with a list of all failed runs.

    Without it, hydra raises the error of the first failed run and does not mention the others. A run may be another
    process on another machine, so it writes its message to a file in the sweep's folder.
    """

    folder = None

    def on_multirun_start(self, config, **_):
        """Choose the folder for the messages of failed runs, and start one run at a time on a GPU by default.

        Raises:
            SystemExit: several runs would have the same folder.
        """
        import torch  # here, since hydra imports this module for every program

        shared = OmegaConf.to_container(config.checkpoint, resolve=False)["save_dir"]
        elsewhere = Path(shared).is_absolute() or ".." in Path(shared).parts
        if elsewhere and "${" not in shared:
            sys.exit(f"checkpoint.save_dir={shared} would be of all runs of this sweep: give hydra.sweep.dir instead")
        subdir = OmegaConf.to_container(config.hydra.sweep, resolve=False)["subdir"]
        named = written_out(shared if elsewhere else f"{subdir}/{shared}", config)
        if "${hydra.job.num}" not in named and "${hydra.job.id}" not in named:
            left_out = config.hydra.job.config.override_dirname.exclude_keys
            for override in OverridesParser.create().parse_overrides([*config.hydra.overrides.task]):
                key = override.key_or_group
                hashed = "override_dirname" in named and key not in left_out
                if override.is_sweep_override() and not hashed and f"${{{key}}}" not in named:
                    sys.exit(f"{key} does not change a run's folder: give one value of it for a sweep")
        self.folder = Path(config.hydra.sweep.dir).absolute() / ".failed" / uuid.uuid4().hex
        if config.hydra.launcher.get("n_jobs") == -1 and torch.cuda.is_available() and not config.common.cpu:
            with read_write(config.hydra):
                config.hydra.launcher.n_jobs = 1
            logger.warning("one run at a time on a GPU; hydra.launcher.n_jobs=2 starts two")

    def on_job_end(self, config, job_return, **_):
        """Log the error of a failed run in a sweep, write its message to a file, and let the sweep continue."""
        if self.folder is None or job_return.status.name != "FAILED":
            return
        error = job_return._return_value  # the property raises it
        logger.error("this run failed", exc_info=error)
        run = os.path.relpath(config.hydra.runtime.output_dir, self.folder.parents[1])
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / uuid.uuid4().hex).write_text(f"{run}: {type(error).__name__}: {error}")
        job_return.return_value, job_return.status = float("inf"), type(job_return.status)["COMPLETED"]

    def on_multirun_end(self, config, **_):
        """Name the runs that failed, and end with status 1."""
        if self.folder is None or not self.folder.is_dir():
            return
        failed = sorted(path.read_text().replace("\n", " ") for path in self.folder.iterdir())
        shutil.rmtree(self.folder)
        with contextlib.suppress(OSError):  # another sweep has messages there
            self.folder.parent.rmdir()
        lines = [f"  {config.hydra.sweep.dir}/{message}" for message in failed]
        sys.exit("\n".join([f"failed: {len(lines)} of the sweep's runs, which say why in their logs", *lines]))

    def __getattr__(self, name):
        """Do nothing at hydra's other events."""
        if name.startswith("on_"):
            return lambda **_: None
        raise AttributeError(name)
