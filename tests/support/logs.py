"""Random logs with every kind of event, mostly fitting ones, for properties of the fold."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime

from hypothesis import strategies as st

from sexton.issuer.state import request_ids
from sexton.issuer.state.fold import apply
from sexton.issuer.state.state import State
from sexton.issuer.state.transactions import Transactions
from sexton.schemas import events
from sexton.schemas.events import GenerationForm, Grant, IssueOperation, NumberPlace, PartitionOffsets

__all__ = ["GENESIS", "NOW", "mixed_logs", "timed"]

NOW = datetime(2026, 1, 1, tzinfo=UTC)
GENESIS = events.Genesis(1, "cluster", "log", "intents", NOW)
_TENANTS = ("a", "b", "ü ☃", "d", "e")
_TRANSACTIONAL = ("d", "e", "tx")
_NODES = ("n1", "n2", "n3")
_KINDS = [
    *("issue",) * 4,
    *("barrier",) * 2,
    *("first-form", "register", "detach", "drop", "fence", "import"),
    *("start",) * 3,
    *("commit", "acknowledge", "collect"),
    *("decommission", "import-transactions"),
]


def timed(milliseconds: int, number: int = 0) -> str:
    """A request id that carries this time."""
    raw = bytearray(milliseconds.to_bytes(6, "big") + number.to_bytes(10, "big"))
    raw[6], raw[8] = 0x70, 0x80
    return str(uuid.UUID(bytes=bytes(raw)))


@st.composite
def mixed_logs(draw: st.DrawFn, most: int = 30) -> list[events.GenerationEvent]:
    """A log that starts with Genesis."""
    log: list[events.GenerationEvent] = [GENESIS]
    state = State()
    apply(state, 0, GENESIS)
    written = [0, 0]
    for offset in range(1, draw(st.integers(1, most)) + 1):
        written = [end + draw(st.integers(0, 4)) for end in written]
        event = _event(draw, state, written, offset)
        apply(state, offset, event)
        log.append(event)
    return log


def _event(draw: st.DrawFn, state: State, written: list[int], offset: int) -> events.GenerationEvent:
    ends = PartitionOffsets("intents", list(written))
    request = draw(st.sampled_from((request_ids.new_id(), f"r{offset}", "r1")))
    name, node = draw(st.sampled_from(_TENANTS)), draw(st.sampled_from(_NODES))
    newest = state.newest(name)
    after = 1 if newest is None else newest + 1
    match draw(st.sampled_from(_KINDS)):
        case "issue":
            names = draw(st.lists(st.sampled_from(_TENANTS), min_size=1, max_size=3, unique=True))
            grants = [Grant(n, (state.newest(n) or 0) + 1, state.newest(n)) for n in names]
            parts = draw(st.sampled_from((1, 1, 2)))
            return events.Issued(
                request, "c", IssueOperation.ATTACH, node, parts - 1, parts, grants, ends, NOW
            )
        case "first-form":
            known = state.node(node)
            number = known.newest or 0 if known else 0
            grants = [Grant(name, after, newest)]
            attach = IssueOperation.ATTACH
            return events.IssuedFirstForm(request, "c", attach, node, number, 0, 1, grants, ends, NOW)
        case "register":
            known = state.node(node)
            last = known.newest if known else None
            return events.NodeRegistered(
                request, "c", node, _NODES.index(node), (last or 0) + 1, last, ends, NOW
            )
        case "barrier":
            unsettled = [max(0, end - draw(st.integers(0, 5))) for end in written]
            claim = PartitionOffsets("intents", draw(st.sampled_from((unsettled, list(written)))))
            return events.Barrier(request, ends, draw(st.sampled_from((None, claim, claim))), NOW)
        case "detach":
            found = state.tenant(name)
            return events.Detached(request, "c", (found and found.holder) or node, name, newest or 0, NOW)
        case "drop":
            return events.Dropped(request, "c", name, NOW)
        case "fence":
            return events.Fenced(request, "c", name, after, newest, ends, NOW)
        case "start" | "commit" | "acknowledge" | "collect" | "decommission" | "import-transactions" as kind:
            return _transaction(draw, state, kind, (request, "c"), ends)
        case _:
            form = draw(st.sampled_from((GenerationForm.FINAL, GenerationForm.FIRST)))
            found_at = draw(st.sampled_from((None, 0, 7)))
            row = events.ImportedTenant(name, form, found_at, draw(st.sampled_from((None, node))))
            nodes = [events.ImportedNode(node, _NODES.index(node), 5)]
            return events.Imported(request, "c", 0, 1, [row], draw(st.sampled_from((nodes, []))), ends, NOW)


def _transaction(
    draw: st.DrawFn, state: State, kind: str, who: tuple[str, str], ends: PartitionOffsets
) -> events.GenerationEvent:
    name, node = draw(st.sampled_from(_TRANSACTIONAL)), draw(st.sampled_from(_NODES))
    tenant = state.tenant(name)
    owner = (tenant and tenant.transactions) or Transactions(NumberPlace.FIRST)
    known = sorted(owner, key=lambda each: each.number)
    found = draw(st.sampled_from(known)) if known else None
    number, of = (found.number, found.node) if found else (1, node)
    match kind:
        case "start":
            after = (owner.newest or 0) + 1
            base = draw(st.sampled_from((owner.committed, owner.committed, number)))
            return events.TransactionStarted(
                *who, node, name, after, owner.newest, base, owner.place, ends, NOW
            )
        case "commit":
            newest = known[-1] if known else None
            number, of = (newest.number, newest.node) if newest else (1, node)
            behind = [max(0, end - draw(st.integers(-1, 3))) for end in ends.offsets]
            deadlist = draw(st.sampled_from((None, PartitionOffsets("intents", behind))))
            return events.TransactionCommitted(*who, of, name, number, deadlist, ends, NOW)
        case "acknowledge":
            by, forced_by, why = draw(st.sampled_from(((of, None, None), (None, "c", "why"))))
            return events.TransactionAcknowledged(*who, by, name, number, forced_by, why, NOW)
        case "collect":
            return events.TransactionCollected(*who, name, number, ends, NOW)
        case "decommission":
            return events.NodeDecommissioned(*who, node, NOW, NOW)
        case _:
            rows = [
                events.ImportedTransactions(name, 7, draw(st.sampled_from((None, 5, 7))), NumberPlace.LAST)
            ]
            return events.TransactionsImported(*who, rows, ends, NOW)
