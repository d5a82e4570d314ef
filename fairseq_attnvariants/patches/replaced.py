"""The decorator with which the patches replace functions of other packages."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])


def replaces(owner: Any, name: str) -> Callable[[Function], Function]:
    """Replace the function ``name`` of ``owner`` by the decorated one, which gets the original as its first argument.

    ``owner`` is a module or a class.  A static method stays a static method, a class method a class method.

    Raises:
        AttributeError: ``owner`` has no attribute of this name.
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
