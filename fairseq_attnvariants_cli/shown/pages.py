"""Pages for a browser, from the subcommands' Jinja templates."""

from typing import Any


def template(name: str) -> Any:
    """Return a template that escapes all values."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    loader = PackageLoader(__package__.partition(".")[0], "subcommands")
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, keep_trailing_newline=True)
    return environment.get_template(name)
