"""Fakes for the tests of services that embed the SDK: no Kafka, no issuer, the same checks and errors.

with FakeSexton("node-7") as sexton:
    service.compact(sexton.attach("tenant-42"))
assert sexton.keys == ["layer-1-00000001"]
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass

from sexton.producers._client import Sexton
from sexton.producers._emitter import Emitter
from sexton.producers._errors import ConnectionClosed, ProducerFailed
from sexton.producers._issuer import Attachment
from sexton.producers._limits import Deadline, Limits
from sexton.producers._transport import Delivered, Record, Report
from sexton.schemas import records
from sexton.schemas.codec import Codec
from sexton.schemas.errors import IssuerUnavailable, RequestRefused
from sexton.schemas.events import DeletionIntent
from sexton.schemas.settings import Settings, load

__all__ = ["FakeIssuer", "FakeSexton", "FakeTransport"]


@dataclass(frozen=True, slots=True)
class _Issued:
    generation: int


class FakeIssuer:
    """Hands out generations from memory, by the rules of the real one; share one between several nodes.

    Set `away` to have every call raise IssuerUnavailable.
    """

    def __init__(self) -> None:
        self.away = False
        self._lock = threading.Lock()
        self._newest: dict[str, int] = {}
        self._holder: dict[str, str] = {}
        self._dropped: set[str] = set()
        self._requests: dict[str, int] = {}

    def attach(self, node: str, tenant: str, request_id: str | None = None) -> Attachment:
        """Hand out the tenant's next generation; a request id that was answered gets the same answer."""
        with self._asked():
            if request_id is not None and request_id in self._requests:
                return _Issued(self._requests[request_id])
            self._refuse_dropped(tenant)
            generation = self._issue(node, tenant)
            if request_id is not None:
                self._requests[request_id] = generation
            return _Issued(generation)

    def re_attach(self, node: str) -> Mapping[str, int]:
        """Hand out the next generation of every tenant that the node holds."""
        with self._asked():
            held = sorted(tenant for tenant, holder in self._holder.items() if holder == node)
            return {tenant: self._issue(node, tenant) for tenant in held}

    def detach(self, node: str, tenant: str) -> int:
        """Take a tenant from the node that holds it; its generation stays the newest."""
        with self._asked():
            if self._holder.get(tenant) != node:
                raise RequestRefused("not-held", f"the tenant is not held by {node}: {tenant}")
            del self._holder[tenant]
            return self._newest[tenant]

    def drop(self, tenant: str) -> int:
        """End a tenant for good."""
        with self._asked():
            self._refuse_dropped(tenant)
            self._dropped.add(tenant)
            self._holder.pop(tenant, None)
            return 0

    def newest(self, tenant: str) -> int | None:
        """Return the newest generation of a tenant, None if it never had one."""
        return self._newest.get(tenant)

    def _issue(self, node: str, tenant: str) -> int:
        self._newest[tenant] = self._newest.get(tenant, 0) + 1
        self._holder[tenant] = node
        return self._newest[tenant]

    def _refuse_dropped(self, tenant: str) -> None:
        if tenant in self._dropped:
            raise RequestRefused("tenant-dropped", f"the tenant was dropped: {tenant}")

    def _asked(self) -> threading.Lock:
        if self.away:
            raise IssuerUnavailable("the issuer is away, as the test wants it")
        return self._lock


class FakeTransport:
    """Keeps records in memory and acknowledges each at once.

    `hold` keeps reports back until `release`; `capacity` is how many unreported records fit before a send
    raises as a full queue does; `refuse` fails every record with that reason; `fatal` ends the client.
    """

    def __init__(self) -> None:
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
        where = Delivered(0, len(self.records))
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
    ) -> None:
        self.issuer = issuer or FakeIssuer()
        self.transport = transport or FakeTransport()
        settings = settings or load({})
        topic = settings.topic(records.INTENTS)
        emitter = Emitter(self.transport, topic, Codec(), limits or Limits())
        super().__init__(node, emitter, settings, self.issuer)

    @property
    def intents(self) -> list[DeletionIntent]:
        """The intents that Kafka would hold, decoded from their bytes."""
        codec = Codec()
        return [codec.decode(record.value, DeletionIntent) for record in self.transport.records]

    @property
    def keys(self) -> list[str]:
        """The keys of all these intents."""
        return [key for intent in self.intents for key in intent.action.keys]
