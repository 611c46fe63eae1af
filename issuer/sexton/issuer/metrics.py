"""Every metric of the issuer, in one place."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

__all__ = ["Metrics"]

_FAST = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)


class Metrics:
    """The metrics of one issuer, in a registry of their own.

    Events that this issuer appended: `events_total` = those found valid + `voids_total`.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        r = self.registry
        self.numbers = Counter("sexton_issuer_numbers_issued", "Generations handed out here", registry=r)
        self.events = Counter("sexton_issuer_events", "Events that this issuer appended", registry=r)
        self.voids = Counter("sexton_issuer_voids", "Own events that were void", ["reason"], registry=r)
        self.barriers = Counter("sexton_issuer_barriers", "Barriers appended here", registry=r)
        self.disagreements = Counter(
            "sexton_issuer_disagreements", "Tenants of which Redis and the log said different", registry=r
        )
        self.rebuilds = Counter("sexton_issuer_redis_rebuilds", "Projections built from the log", registry=r)
        self.subjects = Counter(
            "sexton_issuer_subjects",
            "Subjects validated: newest, covered (superseded, has a window), never, unknown",
            ["answer"],
            registry=r,
        )
        self.refused = Counter("sexton_issuer_refused", "Calls refused", ["type"], registry=r)
        self.barrier_seconds = Histogram(
            "sexton_issuer_barrier_seconds", "Time of a barrier", buckets=_FAST, registry=r
        )
        self.issue_seconds = Histogram(
            "sexton_issuer_issue_seconds", "Time of an attach or re-attach", buckets=_FAST, registry=r
        )
        self.calls = Histogram(
            "sexton_issuer_call_seconds", "Time of a call, by path", ["path"], buckets=_FAST, registry=r
        )
        self.fold_lag = Gauge(
            "sexton_issuer_fold_lag_events", "Events not folded in when the log's end was read", registry=r
        )
        self.fold_offset = Gauge("sexton_issuer_fold_log_offset", "Last log offset folded in", registry=r)
        self.tenants = Gauge("sexton_issuer_tenants", "Tenants that the log knows", registry=r)
        self.snapshots = Counter("sexton_issuer_snapshots", "Snapshots taken for this issuer", registry=r)
        self.snapshot_failures = Counter(
            "sexton_issuer_snapshot_failures", "Snapshots that could not be taken", registry=r
        )
        self.snapshot_offset = Gauge(
            "sexton_issuer_snapshot_log_offset", "Log offset of the last snapshot taken", registry=r
        )
        self.ready = Gauge("sexton_issuer_ready", "1 while /readyz is 200", registry=r)

    def text(self) -> bytes:
        """Return the exposition format."""
        return generate_latest(self.registry)
