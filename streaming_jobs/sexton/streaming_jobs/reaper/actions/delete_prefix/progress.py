"""How far a prefix has come, and what one step did to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from sexton.storage import KeyState

__all__ = ["FIRST_PASS_OVER", "PrefixProgress", "PrefixState", "PrefixStep"]

FIRST_PASS_OVER = ""
"""`PrefixProgress.after` once everything was listed and tried: what is listed now is left over, or new."""


class PrefixState(StrEnum):
    """How a step ended; what is held, and what continues, comes again."""

    DONE = "done"
    MORE = "more"
    BUCKET = "bucket"
    ENVIRONMENT = "environment"


@dataclass(frozen=True, slots=True)
class PrefixProgress:
    """How far a prefix has come: objects (or versions) `gone`, and the key `after` which it continues.

    `after` is None at the beginning and FIRST_PASS_OVER when a pass has reached the end.
    """

    gone: int = 0
    after: str | None = None


@dataclass(frozen=True, slots=True)
class PrefixStep:
    """What one step did; `progress` counts from the beginning, `effects` only this step.

    `failed` names up to 1,000 of the `failed_count` keys that cannot be deleted (when done: that stay, at
    least). `fault` says why the bucket or everything waits, `note` what a person should know. `unknown`:
    some may have gone that nobody has counted.
    """

    state: PrefixState
    progress: PrefixProgress = field(default_factory=PrefixProgress)
    effects: Mapping[str, int] = field(default_factory=dict)
    failed: tuple[tuple[str, KeyState], ...] = ()
    failed_count: int = 0
    fault: KeyState | None = None
    note: str = ""
    request_ids: tuple[str, ...] = ()
    unknown: bool = False
