"""A name that no architecture has: the answer is the nearest one.

Stock fairseq lists all of them where ``--arch`` is mistyped, and stumbles over its own message where it is in a
configuration (``KeyError: "'_name'"``).
"""

import argparse
import functools
from typing import Sequence

from fairseq import models, options

from ..registry import nearest


def guard_names() -> None:
    """Let fairseq's parser of ``--arch`` and its ``build_model`` name the nearest architecture."""
    build, add = models.build_model, options.add_model_args

    @functools.wraps(build)
    def build_model(cfg, *args, **options):
        name = getattr(cfg, "_name", None)
        known = {*models.ARCH_MODEL_REGISTRY, *models.MODEL_DATACLASS_REGISTRY}
        if name is not None and name not in known:
            raise ValueError(f"model._name={name}: {no_such(str(name), known)}")
        return build(cfg, *args, **options)

    @functools.wraps(add)
    def add_model_args(parser):
        group = add(parser)
        for action in group._group_actions:
            if action.dest == "arch":
                action.type, action.choices = architecture, None  # argparse would list all 200
        return group

    models.build_model, options.add_model_args = build_model, add_model_args


def architecture(name: str) -> str:
    """The type of ``--arch``.

    Raises:
        argparse.ArgumentTypeError: there is no such architecture.
    """
    if name not in models.ARCH_MODEL_REGISTRY:
        raise argparse.ArgumentTypeError(f"{name}: {no_such(name, models.ARCH_MODEL_REGISTRY)}")
    return name


def no_such(name: str, known, folders: Sequence[str] = ()) -> str:
    """What to say of an architecture's name that is not ``known``, after ``folders`` of ``--user-dir``."""
    more = "if it is your own, or another plugin's, give its --user-dir"
    if folders:
        more = f"what the --user-dir {' and '.join(folders)} imports enters none of this name"
    return f"there is no such architecture here{nearest(name, known)}; {more}"
