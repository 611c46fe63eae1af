"""What becomes of a request that was refused as a whole: by another way, or in parts.

Every key is told of by what was sent of it last: a try that broke off may have deleted, so its keys are of
unknown effect, and what was tried is not sent again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from sexton.storage.errors_table import Scope, classify
from sexton.storage.states import BatchResult, Delete, KeyState, Kind, merge_results
from sexton.storage.states_of import fault_result
from sexton.storage.ways import NOT_TAKEN, Way, Ways, is_taken, is_unsure, may_be_of_form

__all__ = ["SIGNATURE", "Narrowing", "Send"]

SIGNATURE = "SignatureDoesNotMatch"
"""What a store says of a request that was changed on its way, too."""

Send = Callable[[Sequence[Delete], Way], BatchResult]
_MOST_HALVINGS = 64


@dataclass(slots=True)
class Narrowing:
    """One request that was refused as a whole; `send` sends items in a way, `is_there` asks for the bucket.

    `sent_by` is the way in which it was refused. `parts` are the results of what was sent since, each with
    the indexes of its items; `requests` counts all that went over the wire.
    """

    bucket: str
    items: Sequence[Delete]
    refused: BatchResult
    sent_by: Way
    ways: Ways
    send: Send
    is_there: Callable[[], bool]
    parts: list[tuple[list[int], BatchResult]] = field(default_factory=list)
    requests: int = 0
    _stop: KeyState | None = None

    def result(self) -> BatchResult:
        """Return what became of each item."""
        self.requests = self.refused.requests
        if may_be_of_form(self._fault):
            self._try_other_ways()
        left = self._left()
        if not left:
            return self._whole()
        if self._stop is not None:
            return self._with(left, self._stop)
        if not self._is_of_content():
            return self._with(left, self._fault)
        if len(self.items) > 1:
            return self._halved(left)
        # Without a code no store said this: a proxy, or the wrong port. Is it about the key? Nobody knows.
        return self._with(left, self._fault if self._fault.code else self._waiting)

    @property
    def _fault(self) -> KeyState:
        assert self.refused.fault is not None
        return self.refused.fault

    @property
    def _waiting(self) -> KeyState:
        """The state of what is not sent now: nothing has happened to it, and it waits with its bucket."""
        return replace(self._fault, kind=Kind.BUCKET)

    def _try_other_ways(self) -> None:
        """Try the checksum of the old kind, then one key alone, then that key by a call of its own.

        Some stores refuse the newer checksum in words of their own, some have no DeleteObjects.
        """
        every, known, way = self._left(), self.ways.of(self.bucket), self.sent_by
        if known is Way.SINGLE:  # another request has found it out meanwhile
            self.parts.append((every, self._send(every, known)))
            return
        if known in (way, Way.CRC32) and not self.ways.may_ask(self.bucket):
            return
        if way is Way.CRC32:
            refusal = self._try(every, Way.MD5)
            if refusal is None:
                return
            # In other words than before: then the checksum was a fault, and something else is one, too.
            said = (self._fault.code, self._fault.message)
            way = way if (refusal.code, refusal.message) == said else Way.MD5
        first, rest = every[:1], every[1:]
        if known is Way.MD5 or (rest and self._try(first, way) is None):
            return
        if self._try(first, Way.SINGLE) is not None:
            self.ways.asked_in_vain(self.bucket)
        elif rest and self._stop is None:
            self.parts.append((rest, self._send(rest, Way.SINGLE)))

    def _try(self, indexes: list[int], way: Way) -> KeyState | None:
        """Send some items in a way; return why it was refused, None where nothing else is to be tried.

        Then either the store took it, or it did not say, and nothing more is sent to find out.
        """
        result = self._send(indexes, way)
        if is_taken(way, result):
            self.ways.learn(self.bucket, way)
        elif is_unsure(result):
            # Here a key could die twice: were this reported as refused, a second marker would be made, or
            # nobody would look whether the object is gone.
            self._stop, result = self._waiting, replace(result, fault=None)
        else:
            refusal = result.fault or result.state(0)
            if refusal.kind is Kind.FINAL or refusal.status in NOT_TAKEN:
                return refusal
            self._stop = refusal  # throttled, or not at all for now: that is news of its own
            return None
        self.parts.append((indexes, result))
        return None

    def _send(self, indexes: list[int], way: Way) -> BatchResult:
        result = self.send([self.items[i] for i in indexes], way)
        self.requests += result.requests
        return result

    def _is_of_content(self) -> bool:
        """Return whether a part of the request may pass: its content was refused, by the store or on its way.

        A filter answers 403 in words of its own for a body that it dislikes, and a proxy that rewrites a
        path spoils one signature. Where the bucket is there for the same credentials these are not at fault.
        """
        fault = self._fault
        if classify(Scope.REQUEST, fault.code, fault.status).content:
            return True
        odd = fault.code == SIGNATURE or (not fault.code and fault.status in (403, 406))
        return odd and self.is_there()

    def _halved(self, left: list[int]) -> BatchResult:
        """Return the states of all, after the halves of what is left were sent, and the halves of those.

        Bounded: what is left when the bound is reached waits with its bucket. So does everything when every
        part is refused: that is no matter of the keys.
        """
        known = self.ways.of(self.bucket)
        way = self.sent_by if known is Way.CRC32 else known  # as a probe has found, or as was shown
        waiting = _halves(left)
        while waiting:
            indexes = waiting.pop()
            if self.requests > _MOST_HALVINGS:
                self.parts.append((indexes, fault_result(self.bucket, len(indexes), self._waiting)))
                continue
            result = self._send(indexes, way)
            alike = result.fault is not None and _is_alike(result.fault, self._fault)
            if alike and len(indexes) > 1:
                waiting += _halves(indexes)
            elif alike:
                # Its neighbours pass, so that it is this key that does not: for good.
                assert result.fault is not None
                state = replace(result.fault, kind=Kind.FINAL)
                self.parts.append((indexes, replace(result, states={0: state}, fault=None)))
            else:
                if is_taken(way, result):
                    self.ways.learn(self.bucket, way)  # it is the content: no other way has to be looked for
                self.parts.append((indexes, replace(result, fault=None)))
        if all(_is_refused(part) for _, part in self.parts):
            return fault_result(self.bucket, len(self.items), self._waiting, requests=self.requests)
        return self._whole()

    def _left(self) -> list[int]:
        sent = {index for indexes, _ in self.parts for index in indexes}
        return [index for index in range(len(self.items)) if index not in sent]

    def _with(self, left: list[int], state: KeyState) -> BatchResult:
        """Return the result in which all that is left has this state."""
        if len(left) == len(self.items):
            name = self.refused.request_id
            return fault_result(self.bucket, len(left), state, name, requests=self.requests)
        self.parts.append((left, fault_result(self.bucket, len(left), state)))
        return self._whole()

    def _whole(self) -> BatchResult:
        merged = merge_results(self.bucket, len(self.items), self.parts, {})
        return replace(merged, requests=self.requests)


def _is_alike(fault: KeyState, refused: KeyState) -> bool:
    """Return whether a part was refused as the whole was."""
    content = classify(Scope.REQUEST, fault.code, fault.status).content
    return content or (fault.code, fault.status) == (refused.code, refused.status)


def _is_refused(part: BatchResult) -> bool:
    return len(part.states) == part.count and all(
        state.kind in (Kind.FINAL, Kind.BUCKET) for state in part.states.values()
    )


def _halves(indexes: Sequence[int]) -> list[list[int]]:
    middle = len(indexes) // 2
    return [list(half) for half in (indexes[:middle], indexes[middle:]) if half]
