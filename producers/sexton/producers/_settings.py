"""The settings of a connection."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from sexton.schemas.errors import InvalidSettings
from sexton.schemas.settings import Settings, load

__all__ = ["with_arguments"]


def with_arguments(settings: Settings | None, overrides: Mapping[str, Any]) -> Settings:
    """Return the settings, those of the environment if none are given, with single ones put on top.

    Raises InvalidSettings, in the words of a caller from Python.
    """
    for name in overrides.keys() - Settings.model_fields.keys():
        close = difflib.get_close_matches(name, Settings.model_fields, n=1)
        hint = f"did you mean {close[0]}?" if close else "docs/settings.md lists every setting"
        message = f"connect has no argument, and Sexton no setting, of this name: {name}"
        raise InvalidSettings(message, hint=hint)
    if not overrides:
        return load() if settings is None else settings
    given = {} if settings is None else settings.model_dump(exclude={"config"}, exclude_none=True)
    try:
        return load(None if settings is None else {}, **{**given, **overrides})
    except InvalidSettings as error:
        # There are no flags here.
        raise InvalidSettings(str(error).replace("(flag)", "(argument)", 1), hint=error.hint) from error
