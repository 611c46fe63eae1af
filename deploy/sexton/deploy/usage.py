"""Running one noun's command: wrong usage is reported in the form of every other error, in plain words."""

from __future__ import annotations

from typing import Any

import typer

from sexton.schemas.errors import UsageError
from sexton.schemas.settings_checks import in_words

__all__ = ["invoke"]

# Typer names no common base of its errors; this one's own bases hold it, whichever parser it stands on.
_Refused: Any = next(each for each in typer.BadParameter.__mro__ if each.__name__ == "ClickException")


def invoke(command: Any, arguments: list[str], name: str) -> int:
    """Run a command and return its exit code; raises UsageError for a call that it cannot parse.

    A noun without a verb prints its help on stderr and is wrong usage.
    """
    try:
        code = command(args=arguments, prog_name=name, standalone_mode=False)
    except typer.Abort as ended:  # a question that got no answer
        raise KeyboardInterrupt from ended
    except _Refused as refused:
        if type(refused).__name__ == "NoArgsIsHelpError":
            refused.show()
            return UsageError.exit_code
        raise _wrong_usage(refused, name) from None
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    return code if isinstance(code, int) else 0


def _wrong_usage(refused: Any, name: str) -> UsageError:
    path = refused.ctx.command_path if getattr(refused, "ctx", None) is not None else name
    errors = getattr(refused.__cause__, "errors", None)
    if errors is not None:  # of the library that reads values: its words are about types
        refused.message = in_words(errors()[0], secret=False)
    found_text = str(refused.format_message()).strip().rstrip(".")
    return UsageError(found_text[:1].lower() + found_text[1:], hint=f"`{path} --help` says how it is called")
