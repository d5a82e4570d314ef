"""Pages for a browser, from the subcommands' Jinja templates."""

from typing import Any


def template(name: str) -> Any:
    """A template, in which everything is escaped that is put in."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    loader = PackageLoader(__package__.partition(".")[0], "subcommands")
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, keep_trailing_newline=True)
    return environment.get_template(name)
