"""A name that no architecture has: stock fairseq stumbles over its own message there (``KeyError: "'_name'"``)."""

import difflib
import functools

from fairseq import models


def guard_names() -> None:
    """Let fairseq's ``build_model`` name the nearest architecture instead."""
    build = models.build_model

    @functools.wraps(build)
    def build_model(cfg, *args, **options):
        name = getattr(cfg, "_name", None)
        known = {*models.ARCH_MODEL_REGISTRY, *models.MODEL_DATACLASS_REGISTRY}
        if name is not None and name not in known:
            near = difflib.get_close_matches(str(name), sorted(known), n=1)
            raise ValueError(
                f"model._name={name}: there is no such architecture here"
                + (f" (did you mean {near[0]}?)" if near else "")
                + "; if it is your own, or another plugin's, give its --user-dir"
            )
        return build(cfg, *args, **options)

    models.build_model = build_model
