"""What an `up` asks for, checked against what its stack is already; nothing is started here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from sexton.schemas.errors import UsageError

__all__ = ["PARTS", "SERVERS", "Wanted", "parts_left_out"]

SERVERS = ("kafka", "redis", "s3", "issuer")
PARTS = (*SERVERS, "topics", "bucket")


@dataclass(frozen=True, slots=True)
class Wanted:
    """The parts to leave out, the file of faults to play, and how many servers the parts that may have
    several are to have; `None` of those is as many as the stack has, one in a new stack.
    """

    without: frozenset[str] = frozenset()
    faults: Path | None = None
    brokers: int | None = None
    issuers: int | None = None

    def check(self, environ: Mapping[str, str]) -> None:
        """Raise UsageError where a part that is asked for needs one that is left out."""
        if self.faults is not None and "s3" in self.without and not environ.get("SEXTON_S3_ENDPOINT_URL"):
            raise UsageError(
                "faults need a store to stand before, and s3 is left out",
                hint="set SEXTON_S3_ENDPOINT_URL to the store that is used instead",
            )
        for part, variable in (("kafka", "SEXTON_KAFKA_BOOTSTRAP_SERVERS"), ("redis", "SEXTON_REDIS_URL")):
            if part in self.without and "issuer" not in self.without and not environ.get(variable):
                raise UsageError(
                    f"the issuer needs a part that is left out: {part}",
                    hint=f"set {variable}, or leave the issuer out too",
                )
        for part, count in self._counts():
            if part in self.without and count is not None:
                raise UsageError(f"a number of servers for a part that is left out: {part}: {count}")

    def counts(self, known: Mapping[str, int], *, formatted: bool) -> dict[str, int]:
        """Return how many servers each part is to have, where `known` are those that the stack has.

        Brokers that hold data (`formatted`) stay as many as they are: their quorum and the copies of each
        partition were fixed with their number, and a broker more would hold none of them. Issuers hold
        nothing, so there may be other many each time. Raises UsageError for another number of brokers.
        """
        there = known.get("kafka", 1)
        if formatted and self.brokers is not None and self.brokers != there:
            raise UsageError(
                f"the stack holds the data of another number of brokers: {there}, not {self.brokers}",
                hint="`sexton local down --wipe` removes that data; --dir names another stack's folder",
            )
        return {part: known.get(part, 1) if count is None else count for part, count in self._counts()}

    def _counts(self) -> tuple[tuple[str, int | None], ...]:
        return ("kafka", self.brokers), ("issuer", self.issuers)


def parts_left_out(names: Iterable[str]) -> frozenset[str]:
    """Return the names as a set; raises UsageError for one that is no part."""
    chosen = frozenset("redis" if name == "valkey" else name for name in names)
    for name in sorted(chosen - set(PARTS)):
        raise UsageError(f"no part of the local stack: {name}", hint=f"parts: {', '.join(PARTS)}")
    return chosen
