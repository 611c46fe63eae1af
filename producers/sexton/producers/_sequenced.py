"""The writer of sequenced metadata: create a file, check the boundary, and only then report success."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from sexton.producers._errors import (
    HandleUnusable,
    SequencedConflict,
    SequencedNotWritten,
    SequencedUnknown,
)
from sexton.producers._fork import notice_fork, renew_after_fork
from sexton.producers._limits import Deadline, Limits
from sexton.producers._sequenced_counts import SequencedStatistics
from sexton.producers._sequenced_rules import Boundary, Whose, observed, whose
from sexton.producers._sequenced_store import NoObject, SequencedStore, StoredObject, store_of
from sexton.producers._turn import OneAtATime
from sexton.schemas.checks import check_bucket, check_keys
from sexton.schemas.errors import StoreUnavailable, UsageError
from sexton.schemas.sequenced import MAX_FILE_ID, Namespace

__all__ = ["SequencedWriter", "sequenced"]

_PUTS = 3  # of one create; a confirm has as many again


@dataclass(slots=True)
class _Pending:
    """A create that has not ended; `is_unsure` once the fate of a PUT of it was unknown."""

    id: int
    key: str
    body: bytes
    nonce: str | None
    is_written: bool = False
    is_unsure: bool = False
    why: Exception | None = None


class SequencedWriter(OneAtATime):
    """A writer of one namespace; make it with `sequenced`. Threads may share it: its calls take turns.

    It belongs to the process that made it; a forked child makes one of its own.
    """

    _after_unknown: ClassVar[str] = "make a new writer, and read latest()"

    def __init__(
        self,
        store: SequencedStore,
        bucket: str,
        namespace: Namespace,
        nonce_of: Callable[[bytes], str | None] | None = None,
    ) -> None:
        super().__init__()
        self._store, self._bucket, self._namespace, self._nonce_of = store, bucket, namespace, nonce_of
        self._boundary = Boundary()
        self._pending: _Pending | None = None
        self._ended: HandleUnusable | None = None
        self._statistics = SequencedStatistics()
        renew_after_fork(self)

    @property
    def namespace(self) -> Namespace:
        """Where the files and the boundary lie."""
        return self._namespace

    def create(self, id: int, body: bytes) -> str:
        """Create the file of an id, 1 to 2^63 - 1, and return its key: it stands, and is above the boundary.

        The id is the one after that of the file on which `body` builds. The file is put with
        `If-None-Match: *`; then the boundary is read, once, and only then is success reported.

        A PUT of unknown fate is resolved by reading the file back: it carries a nonce, so that one's own is
        told from another's with the same bytes. If it is not there it is put again, with the same nonce, up
        to three times in all. That is safe, however late the first PUT lands: of both at most one is stored
        while the file stands, and either is this create. What lands after the file was collected lies at or
        below the boundary, where nobody looks.

        Raises SequencedConflict, SequencedNotWritten; SequencedUnknown if nobody knows whether it stands, as
        when the boundary cannot be read; BoundaryVanished, BoundaryLowered and BoundaryUnreadable, by every
        later call too; UsageError.
        """
        if not isinstance(body, bytes):
            raise UsageError(f"a body must be bytes, not {type(body).__name__}")
        if not isinstance(id, int) or not 1 <= id <= MAX_FILE_ID:
            raise UsageError(f"an id is a number from 1 to {MAX_FILE_ID}: {id!r:.80}")
        nonce = self._nonce(body)
        with self._mine():
            if self._pending is not None:
                raise self._unknown_fate(self._pending, "an earlier create that has not ended")
            pending = _Pending(id, self._namespace.key(id), body, nonce)
            if self._boundary.is_dead(id):  # it only rises: a file that is dead already is not written
                raise self._stale(pending)
            self._pending = pending
            return self._finish(pending)

    def confirm(self) -> str:
        """Continue the create that raised SequencedUnknown, and return its key; raises what `create` does.

        It repeats that very create under its nonce, so that a late PUT of it is still told from another's.
        UsageError if there is none.
        """
        with self._mine():
            if self._pending is None:
                raise UsageError("no create of this writer is of unknown fate")
            return self._finish(self._pending)

    def latest(self) -> tuple[int, str] | None:
        """Return id and key of the newest file, None if there is none above the boundary.

        Lists from the boundary on, all pages; what is not exactly a file of the namespace is left out. The
        file may be collected before it is read, once there is a newer one: then call again.
        Raises StoreUnavailable, and what ends the writer.
        """
        with self._mine():
            boundary = self._read_boundary()
            after = self._namespace.key(boundary.id)
            try:
                listed = list(self._store.list_after(self._bucket, self._namespace.folder, after))
            except Exception as error:
                raise _unavailable(
                    f"the files of {self._namespace.text} could not be listed", error
                ) from error
        found = map(self._namespace.id_of, listed)
        ids = [id for id in found if id is not None and not boundary.is_dead(id)]
        return (max(ids), self._namespace.key(max(ids))) if ids else None

    def read(self, id: int) -> bytes | None:
        """Return the bytes of a file, None if it is not there (any more); raises StoreUnavailable."""
        with self._mine():
            key = self._namespace.key(id)
            try:
                found = self._store.get_if_changed(self._bucket, key, None)
            except Exception as error:
                raise _unavailable(f"{key} could not be read", error) from error
        return found.body if isinstance(found, StoredObject) else None

    def statistics(self) -> SequencedStatistics:
        """Return what this writer has done."""
        return self._statistics

    def end(self, why: HandleUnusable) -> None:
        """Take note of what ends the writer: from now on every call raises it."""
        self._ended = self._ended or why

    def renew(self) -> None:
        """In a forked child: a create of the parent is not repeated here, it would be reported twice."""
        super().renew()
        self._pending = None
        self.end(HandleUnusable("the writer belongs to the parent process", hint="make a new one here"))

    def __repr__(self) -> str:
        return f"SequencedWriter({self._bucket!r}, {self._namespace.text!r})"

    @contextmanager
    def _mine(self) -> Iterator[None]:
        """Wait for this writer's turn; raises what has ended it."""
        with self._alone(Deadline(Limits().call_timeout), threading.get_ident()):
            self._usable()
            yield

    def _usable(self) -> None:
        notice_fork()
        if self._ended is not None:
            raise type(self._ended)(str(self._ended), hint=self._ended.hint)

    def _nonce(self, body: bytes) -> str:
        if self._nonce_of is None:
            return secrets.token_hex(16)
        nonce = self._nonce_of(body)
        if not isinstance(nonce, str) or not nonce:
            raise UsageError(f"nonce_of must find the nonce of a body that is created: {nonce!r:.80}")
        return nonce

    def _finish(self, pending: _Pending) -> str:
        for _ in range(_PUTS):
            if not pending.is_written:
                self._put(pending)
            if not pending.is_written:
                self._read_back(pending)
            # After the file was read: absent and still above the boundary, it cannot have been collected.
            boundary = self._check(pending)
            if boundary.is_dead(pending.id):
                self._pending = None
                if pending.is_written:
                    raise self._stale(pending)
                collected = f"it may have been collected: the boundary is {boundary.id}"
                raise self._unknown_fate(pending, collected) from pending.why
            if pending.is_written:
                self._usable()  # a child that the PUT has forked goes on from here too
                self._pending = None
                self._statistics = self._statistics.and_one("created")
                return pending.key
        raise self._unknown_fate(pending, "it is not there yet") from pending.why

    def _put(self, pending: _Pending) -> None:
        """Send it once; `is_written` is true afterwards if the store says that it was this PUT."""
        nonce = pending.nonce if self._nonce_of is None else None
        was_unsure, pending.is_unsure = pending.is_unsure, True  # until it returns, and if it is interrupted
        try:
            written = self._store.put_if_absent(self._bucket, pending.key, pending.body, nonce)
            if not isinstance(written, bool):
                raise UsageError(f"put_if_absent must return True or False, not {written!r:.80}")
        except SequencedNotWritten as error:
            pending.why = error
            if not was_unsure:  # else this PUT was refused, and an earlier one may still land
                self._pending = None
                self._statistics = self._statistics.and_one("refused")
                raise
        except Exception as error:  # noqa: BLE001 - whatever the service's client raises; told if it matters
            pending.why = error
        else:
            pending.is_written, pending.is_unsure = written, was_unsure

    def _read_back(self, pending: _Pending) -> None:
        """See whose file has the id: also after a 412, as a client that repeats PUTs meets its own file."""
        try:
            found = self._store.get_if_changed(self._bucket, pending.key, None)
            if self._nonce_of is not None and isinstance(found, StoredObject):
                found = replace(found, nonce=self._nonce_of(found.body))
        except Exception as error:
            pending.why = error
            raise self._unknown_fate(pending, "it could not be read back") from error
        if found is NoObject.UNCHANGED:
            raise self._unknown_fate(pending, "no body came for it") from pending.why
        match whose(found, pending.nonce, pending.body):
            case Whose.OWN:
                pending.is_written = True
            case Whose.ANOTHERS:
                self._pending = None
                self._statistics = self._statistics.and_one("taken")
                raise SequencedConflict(f"another one's file has the id: {pending.key}")
            case Whose.NOBODY_KNOWS:
                self._pending = None
                without = "its bytes are there, without a nonce"
                raise self._unknown_fate(pending, without) from pending.why

    def _check(self, pending: _Pending) -> Boundary:
        try:
            return self._read_boundary()
        except StoreUnavailable as error:
            pending.why = error
            raise self._unknown_fate(pending, "the boundary could not be read") from error

    def _read_boundary(self) -> Boundary:
        key = self._namespace.boundary_key
        begun = time.monotonic()
        try:
            answer = self._store.get_if_changed(self._bucket, key, self._boundary.etag)
        except Exception as error:
            raise _unavailable(f"the boundary {key} could not be read", error) from error
        finally:
            self._statistics = self._statistics.checked(time.monotonic() - begun)
        try:
            self._boundary = observed(self._boundary, key, answer)
        except HandleUnusable as error:
            self.end(error)
            raise
        return self._boundary

    def _stale(self, pending: _Pending) -> SequencedConflict:
        self._statistics = self._statistics.and_one("stale")
        dead = self._boundary.id
        return SequencedConflict(f"the boundary is {dead}, the file is dead: {pending.key}", boundary=dead)

    def _unknown_fate(self, pending: _Pending, what: str) -> SequencedUnknown:
        self._statistics = self._statistics.and_one("unknown")
        why = f": {type(pending.why).__name__}: {pending.why}" if pending.why is not None else ""
        message = f"nobody knows whether {pending.key} was created, {what}{why}"
        return SequencedUnknown(message, final=self._pending is None)


def sequenced(
    s3: Any,
    bucket: str,
    root: str,
    name: str,
    *,
    nonce_of: Callable[[bytes], str | None] | None = None,
) -> SequencedWriter:
    """Return a writer of the files `<root>/<name>/<20 digits>.<name>`; nothing is contacted before a call.

    `s3` is the service's own boto3 client, or an object with the calls of SequencedStore. The store's
    conditional writes must be real. The nonce that tells one's own file goes into the object's metadata. A
    service whose files carry one in their body gives `nonce_of`, which finds it there (None in a body without
    one); no two bodies that are created may have the same.

    It needs neither Kafka nor an issuer. Raises UsageError for a name, a bucket or a client that cannot be.
    """
    check_bucket(bucket)
    namespace = Namespace(root, name)
    check_keys((namespace.key(MAX_FILE_ID), namespace.boundary_key))
    return SequencedWriter(store_of(s3), bucket, namespace, nonce_of)


def _unavailable(what: str, error: Exception) -> StoreUnavailable:
    return StoreUnavailable(f"{what}: {type(error).__name__}: {error}", hint="call again")
