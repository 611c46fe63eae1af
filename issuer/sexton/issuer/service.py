"""One issuer process: what it checks before it serves, and when it is ready."""

from __future__ import annotations

import gc
import logging
import threading

from sexton.issuer.access import Access
from sexton.issuer.authority import Authority
from sexton.issuer.deadline import Deadline
from sexton.issuer.log.genesis import await_topics, check_genesis, read_genesis
from sexton.issuer.log.positions import Positions, WrongTopic
from sexton.issuer.log.reader import LogReader
from sexton.issuer.log.writer import LogWriter
from sexton.issuer.metrics import Metrics
from sexton.issuer.redis.connection import RedisUnavailable
from sexton.issuer.redis.projection import EvictingRedis, Projection
from sexton.issuer.redis.witness import Witness
from sexton.issuer.snapshots.keeper import SnapshotKeeper
from sexton.issuer.snapshots.store import Snapshots
from sexton.schemas import records
from sexton.schemas.errors import EnvironmentFault, LogBroken, SextonError
from sexton.schemas.events import Genesis
from sexton.schemas.settings import Settings
from sexton.schemas.topics import TOPICS, compare

__all__ = ["NotReady", "Service", "check_topics"]

_RETRY_S = 0.5
_CHECK_S = 2.0
_LOOK_S = 4.0
_log = logging.getLogger("sexton.issuer.service")


class NotReady(EnvironmentFault):
    """The issuer has not read the whole log yet."""


class Service:
    """Owns the log's reader and writer, the projection and the authority.

    The constructor refuses what must not be served at all: an empty log, another cluster's or topic's log,
    a log that was set back, topic settings under which offsets prove nothing, a Redis that evicts. Raises
    SextonError. What takes long, the reading of a snapshot and the fold, continues after it; until `ready` no
    call is answered.
    """

    def __init__(self, settings: Settings, start_s: float = 30.0) -> None:
        self.settings = settings
        tokens = settings.issuer_tokens
        self.access = Access.parse(tokens.get_secret_value() if tokens else None)
        self.metrics = Metrics()
        self.ready = threading.Event()
        self._settled = threading.Event()  # ready, or known that it never will be
        self._refusal: LogBroken | None = None
        self._stopping = threading.Event()
        deadline = Deadline.after(start_s)
        self._positions = Positions(settings)
        await_topics(self._positions, deadline)
        check_topics(self._positions, deadline)
        genesis = self._read_genesis(deadline)
        self.projection = Projection(settings, genesis.generations_topic_id)
        self.projection.check_server()
        self.reader = LogReader(settings)
        self._writer = LogWriter(settings)
        self._keeper = SnapshotKeeper(settings, self.reader, self.metrics)
        self.witness = Witness(self.projection, self.reader, self._catch_up, self.metrics)
        self._authority = Authority(
            self._positions,
            self.reader,
            self._writer,
            self.witness,
            self.metrics,
            settings.issuer_revocation_delay_s,
        )
        self._evicting: RedisUnavailable | None = None
        self._fault: EnvironmentFault | None = None
        self._watcher = threading.Thread(target=self._watch, name="sexton-watch", daemon=True)
        self._watcher.start()
        self._thread = threading.Thread(target=self._get_ready, name="sexton-ready", daemon=True)
        self._thread.start()

    def _read_genesis(self, deadline: Deadline) -> Genesis:
        genesis = read_genesis(self.settings, deadline)
        if genesis is None:
            raise SextonError(
                "the generations log is empty: it was never started, or it was lost",
                hint="a new installation: `sexton topics create`; else restore the log",
            )
        check_genesis(genesis, self._positions, deadline)
        return genesis

    def _catch_up(self, deadline: Deadline) -> None:
        self._authority.catch_up(deadline)

    def _get_ready(self) -> None:
        """Fold the log to its end, then bring Redis up to it; environment faults are waited out."""
        while not self._stopping.is_set():
            deadline = Deadline.after(_START_ATTEMPT_S, self._stopping)
            try:
                self._start_fold(deadline)
                self._authority.catch_up(deadline)
                with self.reader.state() as state:
                    names = [tenant.name for tenant in state if tenant.proposed_after]
                self.witness.agree(names, deadline)
            except LogBroken as error:  # nothing can make it ready again
                if self._stopping.is_set():
                    return
                self.reader.fail(str(error))
                self._refusal = error
                self._settled.set()
                return
            except EnvironmentFault as error:
                _log.warning("not ready yet: %s", error)
                self._stopping.wait(_RETRY_S)
                continue
            if len(names) > _MANY:
                gc.freeze()  # else every full collection walks millions of objects while calls wait
            self.ready.set()
            self._settled.set()
            self._keeper.start()
            _log.info("ready: %d tenants, log offset %d", len(names), self.reader.next_offset - 1)
            return

    def _start_fold(self, deadline: Deadline) -> None:
        """Start at the newest good snapshot, or at the log's beginning, unless that was done."""
        if self.reader.started:
            return
        snapshots = Snapshots(self.settings, self._positions)
        self.reader.start(deadline, snapshots.start(snapshots.facts(deadline), deadline))

    def _watch(self) -> None:
        """Look at what calls need: it can go away, or be changed, while this runs."""
        while not self._stopping.wait(_CHECK_S):
            fault = self._look()
            if fault is not None and type(fault) is not type(self._fault):
                _log.error("not ready: %s", fault)
            elif fault is None and self._fault is not None:
                _log.info("ready again")
            self._fault = fault

    def _look(self) -> EnvironmentFault | None:
        """Return what would fail calls that change the log: Redis, its policy, Kafka, the topics' ids."""
        try:
            self.projection.check_server()
            self._evicting = None
            self.projection.check_writable()
            self._positions.read(Deadline.after(_LOOK_S))
        except EvictingRedis as error:
            self._evicting = error
            return error
        except EnvironmentFault as error:
            return error
        return None

    def wait_ready(self, timeout_s: float | None = None) -> bool:
        """Return whether calls are answered, as soon as they are; raises LogBroken when they never will
        be.
        """
        self._settled.wait(timeout_s)
        if self._refusal is not None:
            raise self._refusal
        return self.ready.is_set()

    def authority(self) -> Authority:
        """Return who answers calls.

        Raises LogBroken, NotReady or RedisUnavailable (it evicts keys) while none may be answered.
        """
        if self.reader.failure is not None:
            raise LogBroken(self.reader.failure)
        if not self.ready.is_set():
            raise NotReady
        if (evicting := self._evicting) is not None:
            raise RedisUnavailable(str(evicting), hint=evicting.hint)
        return self._authority

    def check_ready(self) -> None:
        """Raise what calls would be refused with, as of the last look at what they need.

        Calls themselves do not ask here: each finds out by itself, and the first one after a fault is served.
        """
        self.authority()
        if (fault := self._fault) is not None:
            raise type(fault)(str(fault), hint=fault.hint)

    def deadline(self) -> Deadline:
        """Return the deadline of a call that arrives now: a little before its client gives up."""
        return Deadline.after(self.settings.issuer_timeout_s * 0.8)

    def refresh_gauges(self) -> None:
        """Set the gauges to what is so now."""
        try:
            self.check_ready()
        except SextonError:
            self.metrics.ready.set(0)
        else:
            self.metrics.ready.set(1)
        self.metrics.fold_offset.set(self.reader.next_offset - 1)
        self.metrics.tenants.set(self.reader.tenants)

    def stop(self) -> None:
        """Stop every thread and close the connections."""
        self._stopping.set()
        self.ready.clear()
        self._settled.set()
        self.reader.fail("the issuer is stopping")  # who waits for the fold waits no longer
        self._thread.join()
        self._watcher.join()
        self._keeper.stop()
        self._writer.close()
        self.reader.stop()
        self.projection.close()


_START_ATTEMPT_S = 600.0
_MANY = 50_000


def check_topics(positions: Positions, deadline: Deadline) -> None:
    """Raise WrongTopic when the log or the intents topic is missing or wrongly set up."""
    names = {records.GENERATIONS: positions.log, records.INTENTS: positions.intents}
    found = positions.cluster.topics(list(names.values()), deadline.require("settings of topics"))
    brokers = positions.cluster.brokers()
    faults = [
        problem
        for need in TOPICS
        if (name := names.get(need.name)) is not None
        for problem in compare(name, need, found[name].found if name in found else None, brokers)
        if problem.fatal
    ]
    if faults:
        message = "; ".join(f"{p.topic}: {p.setting} is {p.found}, needed: {p.needed}" for p in faults)
        raise WrongTopic(message, hint="`sexton topics check` lists every difference")
