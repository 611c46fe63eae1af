"""Read the log with the oracle, and hold everything that clients were told against it."""

from __future__ import annotations

from collections import defaultdict
from contextlib import closing
from typing import cast

from tests.chaos.journal import Answered, Barred, Journal, Judged
from tests.chaos.oracle import Oracle, Span
from tests.chaos.transaction_replay import both_ways, facts, open_at_once, steps

from sexton.issuer.deadline import Deadline
from sexton.issuer.log.ranges import RangeReader
from sexton.issuer.log.reader import decode_event
from sexton.schemas import events, records
from sexton.schemas.settings import Settings
from sexton.schemas.windows import Window

__all__ = ["violations"]


def violations(settings: Settings, journal: Journal) -> list[str]:
    """Return every answer that the log contradicts."""
    oracle, found, log = Oracle(), [f"refused: {why}" for why in journal.refused], []
    judged = defaultdict(list)
    for reported in journal.judged:
        judged[reported.log_offset].append(reported)
    with closing(RangeReader(settings, settings.topic(records.GENERATIONS))) as reader:
        bounds = reader.bounds(Deadline.after(30))
        assert bounds is not None
        for message in reader.read(*bounds, Deadline.after(120)):
            event, offset = decode_event(message), cast(int, message.offset())
            log.append(event)
            oracle.read(offset, event)
            for reported in judged.pop(offset, ()):
                found += _verdicts(oracle, reported) + facts(oracle.transactions, reported)
    found += [f"judged as of an offset that the log does not have: {offset}" for offset in judged]
    found += _numbers(oracle, log, journal.answered)
    found += steps(oracle.transactions, log, journal.stepped)
    found += both_ways(journal.stepped, journal.judged)
    for barred in journal.barred:
        found += _barrier(log, barred)
    for judgement in journal.judged:
        found += _stable(oracle, judgement) + open_at_once(judgement)
    return found


def _verdicts(oracle: Oracle, reported: Judged) -> list[str]:
    """The judge's rule (I1): as of its log offset, an answer is what the log says."""
    found = []
    if reported.log_offset < max(reported.at_least, reported.seen):
        found.append(f"behind: as of {reported.log_offset}, known: {reported.at_least}, {reported.seen}")
    for subject in reported.asked:
        if oracle.knows(subject.tenant) != (subject in reported.windows):
            found.append(f"known or not: {subject} as of {reported.log_offset}")
        elif oracle.knows(subject.tenant):
            due = oracle.span(subject.tenant, subject.generation, subject.partition)
            if _span(reported.windows[subject]) != due:
                found.append(f"verdict: {subject} {reported.windows[subject]}, the log: {due}")
    return found


def _numbers(oracle: Oracle, log: list[events.GenerationEvent], answered: list[Answered]) -> list[str]:
    """I3: each number for one request, one answer for each request, both as in the log."""
    found: list[str] = []
    owner: dict[tuple[str, int], str] = {}
    first: dict[str, dict[str, int]] = {}
    for answer in answered:
        asked, granted = answer.asked, dict(answer.granted)
        if first.setdefault(asked.request_id, granted) != granted and first[asked.request_id]:
            found.append(f"two answers: {asked} {first[asked.request_id]} and {granted}")
        for number in granted.items():
            if owner.setdefault(number, asked.request_id) != asked.request_id:
                found.append(f"given twice: {number} to {owner[number]} and {asked.request_id}")
        if not granted:
            continue
        if oracle.requests.get(asked.request_id) != (asked.caller, granted):
            found.append(f"not in the log: {asked} {granted}")
        elif (event := log[answer.log_offset]) and isinstance(event, events.Issued):
            found += _ends(f"issued at {answer.log_offset}", event.ends.offsets, asked.written, answer.sent)
    return found


def _barrier(log: list[events.GenerationEvent], barred: Barred) -> list[str]:
    event = log[barred.log_offset] if barred.log_offset < len(log) else None
    if not isinstance(event, events.Barrier) or tuple(event.ends.offsets) != barred.ends:
        return [f"no such barrier in the log: {barred}"]
    return _ends(f"barrier at {barred.log_offset}", barred.ends, barred.written, barred.sent)


def _ends(what: str, ends: object, written: tuple[int, ...], sent: tuple[int, ...]) -> list[str]:
    """End offsets were read between the beginning of the call and its answer."""
    offsets = tuple(cast("list[int]", ends))
    if all(low <= end <= high for low, end, high in zip(written, offsets, sent, strict=True)):
        return []
    return [f"end offsets of another moment: {what}: {offsets}, written {written}, sent {sent}"]


def _stable(oracle: Oracle, reported: Judged) -> list[str]:
    """What passed below a barrier passes for ever, and what did not never does."""
    found = []
    for subject, window in reported.windows.items():
        if reported.ends:
            end = reported.ends[subject.partition]
            now = oracle.span(subject.tenant, subject.generation, subject.partition)
            if _below(now, end) != _below(_span(window), end):
                found.append(f"changed: {subject} {window} is {now} now, below {end}")
    return found


def _span(window: Window | None) -> Span | None:
    return None if window is None else (window.start, window.until)


def _below(span: Span | None, end: int) -> Span | None:
    """The positions below `end` that pass, None for none."""
    if span is None:
        return None
    start, until = span
    until = end if until is None else min(end, until)
    return (start, until) if start < until else None
