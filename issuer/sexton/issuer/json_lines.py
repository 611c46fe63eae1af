"""Log lines as JSON objects, one a line. Bodies, tokens and addresses with passwords are never logged."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime

__all__ = ["KAFKA", "JsonLines", "call_ended", "start"]

_FIELDS = "sexton_fields"
_calls = logging.getLogger("sexton.issuer.calls")
KAFKA = logging.getLogger("sexton.issuer.kafka")
"""Takes what the Kafka clients say of themselves; silent in a program that does not log."""
KAFKA.addHandler(logging.NullHandler())


class JsonLines(logging.Formatter):
    """One JSON object for each record: time, level, logger, message, the call's fields, the error."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, _FIELDS, {}),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


def start(level: str) -> None:
    """Log to stderr from now on; lines below `level` are left out."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=level, handlers=[handler], force=True)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)


def call_ended(path: str, seconds: float, *, caller: str, problem: str | None, changes: bool) -> None:
    """Log that a call was answered; those that change nothing and went well only at DEBUG."""
    level = logging.INFO if changes or problem else logging.DEBUG
    if _calls.isEnabledFor(level):
        fields = {"path": path, "caller": caller, "ms": round(seconds * 1000, 1)}
        fields |= {} if problem is None else {"problem": problem}
        _calls.log(level, "call answered", extra={_FIELDS: fields})
