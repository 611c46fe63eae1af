"""Fakes for the tests of services that embed the SDK: no Kafka, no issuer, the same checks and errors.

with FakeSexton("node-7") as sexton:
    service.compact(sexton.attach("tenant-42"))
assert sexton.keys == ["layer-1-00000001"]
"""

from __future__ import annotations

import hashlib
import threading
from typing import Any, Literal, Self

from sexton.issuer.testing import FakeIssuer as IssuerInMemory
from sexton.producers._async import AsyncSexton
from sexton.producers._client import Sexton, generation_form
from sexton.producers._emitter import Emitter
from sexton.producers._errors import ConnectionClosed, ProducerFailed
from sexton.producers._issuer import Issuer
from sexton.producers._limits import Deadline, Limits
from sexton.producers._sequenced_store import NoObject, StoredObject
from sexton.producers._settings import with_arguments
from sexton.producers._transport import Delivered, Record, Report
from sexton.schemas import records
from sexton.schemas.codec import Codec
from sexton.schemas.errors import UsageError
from sexton.schemas.events import DeletionIntent
from sexton.schemas.sequenced import Namespace, boundary_text
from sexton.schemas.settings import Settings, load

__all__ = ["FakeAsyncSexton", "FakeIssuer", "FakeSexton", "FakeStore", "FakeTransport"]

_OF_CONNECT = frozenset({"limits", "bucket", "form", "number", "any_key"})  # the rest are settings


class FakeIssuer(IssuerInMemory):
    """The issuer's own fake, with its rules; share one between several nodes.

    Set `away` to have every call raise IssuerUnavailable.
    """

    @property
    def away(self) -> bool:
        """Whether every call fails."""
        return not self.available

    @away.setter
    def away(self, away: bool) -> None:
        self.available = not away

    def newest(self, tenant: str) -> int | None:
        """Return the newest generation of a tenant, None if it never had one."""
        found = self.tenant(tenant)
        return None if found is None else found.generation


class FakeTransport:
    """Keeps records in memory and acknowledges each at once.

    They stand in the intents topic of `issuer`, that of the connection: several may write to the same one.
    `hold` keeps reports back until `release`; `capacity` is how many unreported records fit before a send
    raises as a full queue does; `refuse` fails every record with that reason; `fatal` ends the client.
    """

    def __init__(self) -> None:
        self.issuer = FakeIssuer()
        self.records: list[Record] = []
        self.hold = False
        self.capacity: int | None = None
        self.refuse: str | None = None
        self.fatal: str | None = None
        self._held: list[tuple[Report, Delivered]] = []
        self._closed = False

    def send(self, record: Record, report: Report, deadline: Deadline) -> None:
        """Keep a record."""
        if self._closed:
            raise ConnectionClosed()
        if self.fatal is not None:
            raise ProducerFailed(f"the kafka client cannot continue: {self.fatal}", hint="connect anew")
        if self.capacity is not None and len(self._held) >= self.capacity:
            raise BufferError
        if self.refuse is not None:
            report.failed(self.refuse)
            return
        where = Delivered(0, self.issuer.written(0) - 1)
        self.records.append(record)
        if self.hold:
            self._held.append((report, where))
        else:
            report.delivered(where)

    def release(self) -> None:
        """Acknowledge what was held back."""
        held, self._held = self._held, []
        for report, where in held:
            report.delivered(where)

    def flush(self, deadline: Deadline) -> None:
        """Return at once: what is held back stays so."""

    def close(self, deadline: Deadline) -> None:
        """Take nothing more; what is held back counts as not delivered."""
        self._closed = True

    def topic_id(self, topic: str, deadline: Deadline) -> str:
        """Return that of the issuer's intents topic."""
        return self.issuer.topic_id

    def renew(self) -> None:
        """In a forked child: nothing of the parent's."""
        self.records, self._held = [], []


class FakeSexton(Sexton):
    """A connection without servers; `intents` and `keys` say what was asked for, in order."""

    def __init__(
        self,
        node: str,
        issuer: FakeIssuer | None = None,
        transport: FakeTransport | None = None,
        limits: Limits | None = None,
        settings: Settings | None = None,
        *,
        any_key: bool = False,
        bucket: str | None = None,
        form: str = "final",
        number: int | None = None,
    ) -> None:
        self.issuer = issuer or FakeIssuer()
        self.transport = transport or FakeTransport()
        self.transport.issuer = self.issuer
        settings = settings or load({})
        topic = settings.topic(records.INTENTS)
        emitter = Emitter(self.transport, topic, Codec(), limits or Limits(), any_key=any_key)
        super().__init__(node, emitter, settings, self.issuer, bucket, generation_form(form), number)

    @classmethod
    def connect(
        cls,
        node: str,
        settings: Settings | None = None,
        *,
        issuer: Issuer | None = None,
        **given: Any,
    ) -> Self:
        """Return a fake for the arguments of `Sexton.connect`; raises for settings what that raises.

        `issuer` is a FakeIssuer, one of its own if not given. Raises UsageError for another one.
        """
        if not isinstance(issuer, FakeIssuer | None):
            raise UsageError(f"a fake connects to a FakeIssuer, not to {type(issuer).__name__}")
        named = {name: given.pop(name) for name in _OF_CONNECT & given.keys()}
        return cls(node, issuer, settings=with_arguments(settings, given), **named)

    @property
    def intents(self) -> list[DeletionIntent]:
        """The intents that Kafka would hold, decoded from their bytes."""
        codec = Codec()
        return [codec.decode(record.value, DeletionIntent) for record in self.transport.records]

    @property
    def keys(self) -> list[str]:
        """The keys of all these intents."""
        return [key for intent in self.intents for key in intent.action.keys]


class FakeStore:
    """A store in memory for writers of sequenced metadata, with real conditions; share it between writers.

        store = FakeStore()
        manifest = sequenced(store, "bucket", "db", "manifest")

    Set `away` to have every call fail, `put_fails` to have the next PUT fail: "before" it has an effect,
    "after" it, or "late", after which `land` writes what was sent, under the condition that it carries.
    """

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], StoredObject] = {}
        self.away = False
        self.put_fails: str | None = None
        self._late: list[tuple[str, str, bytes, str | None]] = []
        self._lock = threading.Lock()

    def put_if_absent(self, bucket: str, key: str, body: bytes, nonce: str | None) -> bool:
        """Keep an object if there is none."""
        self._answer()
        how, self.put_fails = self.put_fails, None
        if how == "late":
            self._late.append((bucket, key, body, nonce))
        if how in ("before", "late"):
            raise TimeoutError("the put timed out")
        written = self._put(bucket, key, body, nonce)
        if how == "after":
            raise TimeoutError("the put timed out")
        return written

    def get_if_changed(
        self, bucket: str, key: str, etag: str | None
    ) -> StoredObject | Literal[NoObject.ABSENT, NoObject.UNCHANGED]:
        """Return an object."""
        self._answer()
        found = self.objects.get((bucket, key))
        if found is None:
            return NoObject.ABSENT
        return NoObject.UNCHANGED if found.etag == etag else found

    def list_after(self, bucket: str, prefix: str, after: str) -> list[str]:
        """Return the keys in their order."""
        self._answer()
        with self._lock:
            keys = [key for of, key in self.objects if of == bucket]
        return sorted(key for key in keys if key.startswith(prefix) and key > after)

    def land(self) -> None:
        """Carry out the PUTs that failed late."""
        late, self._late = self._late, []
        for put in late:
            self._put(*put)

    def collect(self, bucket: str, root: str, name: str, boundary: int) -> None:
        """Do what the collector does: raise the boundary, then delete the files up to it."""
        namespace = Namespace(root, name)
        self.set(bucket, namespace.boundary_key, boundary_text(boundary))
        for of, key in list(self.objects):
            id = namespace.id_of(key)
            if of == bucket and id is not None and id <= boundary:
                del self.objects[of, key]

    def set(self, bucket: str, key: str, body: bytes | None) -> None:
        """Put an object whatever is there, or take it away."""
        with self._lock:
            if body is None:
                self.objects.pop((bucket, key), None)
            else:
                self.objects[bucket, key] = _stored(body)

    def _put(self, bucket: str, key: str, body: bytes, nonce: str | None) -> bool:
        with self._lock:
            if (bucket, key) in self.objects:
                return False
            self.objects[bucket, key] = _stored(body, nonce)
            return True

    def _answer(self) -> None:
        if self.away:
            raise ConnectionError("the store is away")


def _stored(body: bytes, nonce: str | None = None) -> StoredObject:
    return StoredObject(body, f'"{hashlib.sha256(body).hexdigest()}"', nonce)


class FakeAsyncSexton(AsyncSexton):
    """A `FakeSexton` for asyncio services, with the same arguments; `sexton` is the fake behind it."""

    sexton: FakeSexton

    def __init__(
        self,
        node: str,
        issuer: FakeIssuer | None = None,
        transport: FakeTransport | None = None,
        limits: Limits | None = None,
        settings: Settings | None = None,
        **named: Any,
    ) -> None:
        super().__init__(FakeSexton(node, issuer, transport, limits, settings, **named))

    @classmethod
    def connect(cls, node: str, settings: Settings | None = None, **given: Any) -> Self:
        """Return a fake for the arguments of `AsyncSexton.connect`, as `FakeSexton.connect` does."""
        made = cls.__new__(cls)
        AsyncSexton.__init__(made, FakeSexton.connect(node, settings, **given))
        return made

    @property
    def issuer(self) -> FakeIssuer:
        """The issuer's fake."""
        return self.sexton.issuer

    @property
    def transport(self) -> FakeTransport:
        """Kafka's fake."""
        return self.sexton.transport

    @property
    def intents(self) -> list[DeletionIntent]:
        """The intents that Kafka would hold, decoded from their bytes."""
        return self.sexton.intents

    @property
    def keys(self) -> list[str]:
        """The keys of all these intents."""
        return self.sexton.keys
