"""Where reports lie: a folder, or a prefix of a bucket. Nothing is ever deleted there."""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Protocol

from sexton.schemas.errors import EnvironmentFault, UsageError
from sexton.schemas.settings import Settings
from sexton.storage import ObjectStore, StoreRefused
from sexton.streaming_jobs.collectors.attempts import FindingState, parse_id
from sexton.streaming_jobs.collectors.parquet import to_parquet
from sexton.streaming_jobs.collectors.report import (
    Report,
    ReportState,
    ReportUnreadable,
    from_lines,
    to_lines,
)
from sexton.streaming_jobs.collectors.room import Scope

__all__ = ["LONGEST_EXPIRY_S", "Place", "Reports", "UnknownReport", "open_place", "scope_name"]

LONGEST_EXPIRY_S = 7 * 24 * 3600.0
"""Of intents: what is asked for and has no outcome yet is looked for in reports that are not older."""
_STAMP = "%Y%m%dT%H%M%S%f"


class UnknownReport(UsageError):
    """There is no report of that id."""


class Place(Protocol):
    """Named files; a write replaces the file as a whole, or not at all."""

    def names(self, folder: str) -> list[str]:
        """Return the names of the files in a folder, in order."""

    def read(self, name: str) -> bytes | None:
        """Return a file, None where there is none."""

    def write(self, name: str, body: bytes) -> None:
        """Write a file."""


class Folder:
    """A folder; it is made when it is first written to."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def names(self, folder: str) -> list[str]:
        """Return the names of the files in a folder, in order; raises EnvironmentFault."""
        path = self._root / folder
        try:
            return sorted(f"{folder}/{each.name}" for each in path.iterdir() if each.is_file())
        except FileNotFoundError:
            return []
        except OSError as error:
            raise _unusable(path, error) from error

    def read(self, name: str) -> bytes | None:
        """Return a file, None where there is none; raises EnvironmentFault."""
        try:
            return (self._root / name).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _unusable(self._root / name, error) from error

    def write(self, name: str, body: bytes) -> None:
        """Write a file; raises EnvironmentFault."""
        path = self._root / name
        new = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with new.open("wb") as file:
                file.write(body)
                file.flush()
                os.fsync(file.fileno())
            new.replace(path)
        except OSError as error:
            raise _unusable(path, error) from error


class Bucket:
    """A prefix of a bucket."""

    def __init__(self, store: ObjectStore, bucket: str, prefix: str) -> None:
        self._store = store
        self._bucket = bucket
        self._prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""

    def names(self, folder: str) -> list[str]:
        """Return the names of the files in a folder, in order."""
        found = self._store.list_keys(self._bucket, f"{self._prefix}{folder}/")
        return [key[len(self._prefix) :] for key in found]

    def read(self, name: str) -> bytes | None:
        """Return a file, None where there is none."""
        try:
            return self._store.get(self._bucket, self._prefix + name)
        except StoreRefused as refused:
            if refused.code == "NoSuchKey":
                return None
            raise

    def write(self, name: str, body: bytes) -> None:
        """Write a file."""
        self._store.put(self._bucket, self._prefix + name, body)


def open_place(settings: Settings, store: ObjectStore) -> Place:
    """Return the place that the settings name."""
    if settings.reports is None:
        return Folder(settings.state_dir / "reports")
    scheme, found, rest = settings.reports.partition("://")
    if not found:
        return Folder(Path(scheme).expanduser())
    bucket, _, prefix = rest.partition("/")
    return Bucket(store, bucket, prefix)


def scope_name(scope: Scope) -> str:
    """Return a short name of a scope."""
    return hashlib.sha256(f"{scope.bucket}/{scope.prefix}".encode()).hexdigest()[:8]


class Reports:
    """The reports of one collector."""

    def __init__(self, place: Place, collector: str) -> None:
        self._place = place
        self._collector = collector

    def new_id(self, scope: Scope, now: datetime) -> str:
        """Return the id of a new report: collector, scope, when, and what tells two of one instant apart."""
        stamp = now.astimezone(UTC).strftime(_STAMP)
        return f"{self._collector}-{scope_name(scope)}-{stamp}-{secrets.token_hex(3)}"

    def write(self, report: Report) -> None:
        """Write a report, as JSON lines and Parquet; one of the same id is replaced."""
        name = f"{self._collector}/{report.report_id}"
        self._place.write(f"{name}.parquet", to_parquet(report))
        # Last, and alone ever read again: a report counts once its lines are there.
        lines = "".join(f"{line}\n" for line in to_lines(report))
        self._place.write(f"{name}.jsonl", lines.encode())

    def read(self, report_id: str) -> Report:
        """Return a report; raises UnknownReport, ReportUnreadable."""
        body = self._place.read(f"{self._collector}/{report_id}.jsonl") if _is_name(report_id) else None
        if body is None:
            raise UnknownReport(
                f"the collector {self._collector} has no such report: {report_id}",
                hint="SEXTON_REPORTS says where reports lie",
            )
        try:
            return from_lines(body.decode("utf-8", "replace"))
        except ReportUnreadable as error:
            raise ReportUnreadable(f"{report_id}: {error}", hint=error.hint) from error

    def last(self, scope: Scope) -> Report | None:
        """Return the last report of a scope that can be compared with: whole, and within its breaker.

        One for which the breaker opened is no measure, unless a person has approved it.
        """
        wanted = f"{self._collector}-{scope_name(scope)}-"
        for report_id in reversed([each for each in self._ids() if each.startswith(wanted)]):
            report = self.read(report_id)
            is_whole = report.scope == scope and report.state is not ReportState.FAILED
            if is_whole and report.listed_at and (not report.breaker_open or report.approved_at):
                return report
        return None

    def asked(self, now: datetime) -> dict[str, dict[int, datetime]]:
        """Return what Kafka has acknowledged, by the shared part of the ids and by attempt, with its expiry.

        Of reports whose intents may not have expired yet.
        """
        since = (now - timedelta(seconds=LONGEST_EXPIRY_S)).strftime(_STAMP)
        found: dict[str, dict[int, datetime]] = {}
        for report_id in self._ids():
            if _stamp(report_id) < since:
                continue
            report = self.read(report_id)
            if report.state is not ReportState.EMITTED or report.expires_at is None:
                continue
            for finding in report.findings:
                about = parse_id(finding.intent.intent_id) if finding.intent else None
                if finding.state is FindingState.ASK and about is not None:
                    attempts = found.setdefault(about[0], {})
                    attempts[about[1]] = max(report.expires_at, attempts.get(about[1], report.expires_at))
        return found

    def _ids(self) -> Iterator[str]:
        names = (name for name in self._place.names(self._collector) if name.endswith(".jsonl"))
        ids = [name.rpartition("/")[2].removesuffix(".jsonl") for name in names]
        yield from sorted(ids, key=_stamp)


def _is_name(report_id: str) -> bool:
    return bool(report_id) and "/" not in report_id and not report_id.startswith(".")


def _unusable(path: Path, error: OSError) -> EnvironmentFault:
    return EnvironmentFault(
        f"reports cannot be kept: {path}: {error.strerror}", hint="SEXTON_REPORTS says where they lie"
    )


def _stamp(report_id: str) -> str:
    return report_id.rpartition("-")[0].rpartition("-")[2]
