"""The one way by which a function of fairseq's or torch's is replaced."""

import functools
import inspect
from typing import Any, Callable, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])


def replaces(owner: Any, name: str) -> Callable[[Function], Function]:
    """Decorate a function that takes the place of ``owner``'s ``name``, and gets what was there as its first argument.

    ``owner`` is a module or a class; a static method stays one, and so does a class method.

    Raises:
        AttributeError: there is nothing of this name.
    """

    def enter(function: Function) -> Function:
        there = inspect.getattr_static(owner, name)
        kind: Any = type(there) if isinstance(there, (classmethod, staticmethod)) else lambda plain: plain
        original = getattr(there, "__func__", there)

        @functools.wraps(original)
        def replacement(*args: Any, **named: Any) -> Any:
            return function(original, *args, **named)

        setattr(owner, name, kind(replacement))
        return function

    return enter
