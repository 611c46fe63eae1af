"""Which fault ended a micro-batch: a worker's error comes back as text inside Spark's own exception."""

from __future__ import annotations

from sexton.schemas import errors
from sexton.schemas.errors import EnvironmentFault, SextonError
from sexton.storage import errors as store_errors

__all__ = ["fault_of"]

_MODULES = {module.__name__: module for module in (errors, store_errors)}


def fault_of(error: BaseException) -> SextonError | None:
    """Return our own error behind an exception of Spark, None when there is none.

    The last line of a worker's traceback is `module.Class: message`. It is searched for line by line: a
    regular expression over a long traceback overflows the stack of the stream's thread. A fault of the
    environment comes back as EnvironmentFault, anything else of ours (an unclean reply too) as SextonError.
    """
    if isinstance(error, SextonError):
        return error
    for line in reversed(str(error).splitlines()):
        path, _, message = line.strip().partition(": ")
        module, _, name = path.rpartition(".")
        found = getattr(_MODULES.get(module), name, None)
        if isinstance(found, type) and issubclass(found, SextonError):
            holds = issubclass(found, EnvironmentFault) and found is not store_errors.UncleanReply
            return EnvironmentFault(message) if holds else SextonError(message)
    return None
