"""`functools.cache` that keeps the signature: a class is hashable, which type checkers do not see."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

__all__ = ["cache"]

_Function = TypeVar("_Function", bound=Callable[..., Any])


def cache(function: _Function) -> _Function:
    """Remember the result for each set of arguments."""
    return cast(_Function, functools.cache(function))
