"""The verdict on transactions: every status, on either side of the window, for both wanted states."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.support.execute_stage import DENIED, Store
from tests.support.task_work import TOPIC_ID, Issuer, copied, work_of, written

from sexton.issuer.answers import Validation
from sexton.issuer.client import TransactionFact, TransactionStatus, TransactionSubject
from sexton.schemas import events
from sexton.schemas.codec import Codec
from sexton.schemas.events import TransactionState, VerdictResult
from sexton.schemas.tenant_prefix import TenantPrefix
from sexton.schemas.windows import Window
from sexton.streaming_jobs.reaper.decode import Record
from sexton.streaming_jobs.reaper.judge import Facts, NotYet, Rules, judge, subjects
from sexton.streaming_jobs.reaper.work import settle, take

NOW = datetime(2026, 1, 2, tzinfo=UTC)
RULES = Rules(tenant_prefix=TenantPrefix.parse("tenants/{tenant}/"))
SUBJECT = TransactionSubject("t", 23, 0)
OWN = events.DeletePrefix("bucket", "tenants/t/23/")
ANY = events.DeleteObjects("bucket", (("elsewhere/x.22",),))
COMMITTED, REJECTED = TransactionState.COMMITTED, TransactionState.REJECTED
KEPT = ("open", "committed", "reject-pending", "reject-acknowledged", "collected")
# By wanted state and status: the reason below the window, in it, and above it where the window has an end.
TABLE: dict[tuple[str, str], tuple[str, ...]] = {
    ("committed", "open"): ("claimed-early", "transaction-open"),
    ("committed", "committed"): ("claimed-early", "pass", "deadlist-closed"),
    ("committed", "reject-pending"): ("claimed-early", "transaction-rejected"),
    ("committed", "reject-acknowledged"): ("claimed-early", "transaction-rejected"),
    ("committed", "collected"): ("claimed-early", "transaction-rejected"),
    ("committed", "never-started"): ("never-started",) * 2,
    ("committed", "imported"): ("imported",) * 2,
    ("committed", "forgotten"): ("transaction-forgotten",) * 2,
    ("rejected", "open"): ("transaction-open",) * 2,
    ("rejected", "committed"): ("transaction-committed",) * 3,
    ("rejected", "reject-pending"): ("transaction-reject-pending",) * 2,
    ("rejected", "reject-acknowledged"): ("pass",) * 2,
    ("rejected", "collected"): ("pass",) * 2,
    ("rejected", "never-started"): ("never-started",) * 2,
    ("rejected", "imported"): ("imported",) * 2,
    ("rejected", "forgotten"): ("transaction-forgotten",) * 2,
}
WAITS = ("transaction-open", "transaction-reject-pending")
PLACES = (9, 10, 20)  # below the window 10..19, at its first offset, and right behind its last one


def fact(status: str, *, dropped: bool = False, place: str = "first") -> TransactionFact:
    """What the log says of transaction 23 of `t`, that got its status at log offset 70."""
    window = Window(10, 20 if status == "committed" else None) if status in KEPT else None
    return TransactionFact(TransactionStatus(status), place, 70, dropped, window)


def decide(
    state: TransactionState,
    known: TransactionFact | None,
    offset: int = 15,
    *,
    action: events.Action | None = None,
    tenant: str = "t",
    topic_id: str = "topic",
    rules: Rules = RULES,
    passed: bool = False,
) -> Any:
    """Judge an intent under this guard at an offset of partition 0."""
    guard = events.TransactionGuard(tenant, 23, state)
    given = action or (OWN if state is REJECTED else ANY)
    intent = events.DeletionIntent("id", tenant, NOW, "test", (guard,), given)
    found = {} if known is None else dict.fromkeys(asked(intent), known)
    facts = Facts("topic", 77, NOW, transactions=found)
    return judge(intent, events.Position(topic_id, 0, offset), facts, rules, passed)


def asked(intent: events.DeletionIntent) -> list[TransactionSubject]:
    """The transactions that the issuer is asked about."""
    return [subject for subject in subjects(intent, 0) if isinstance(subject, TransactionSubject)]


def result_of(reason: str) -> VerdictResult:
    """What a reason comes to, of those that are no wait."""
    if reason == "pass":
        return VerdictResult.PASS
    return VerdictResult.REFUSED if reason == "transaction-forgotten" else VerdictResult.NEVER


@pytest.mark.parametrize(("wanted", "status"), TABLE)
def test_m_3_m_5_a_transaction_guard_follows_the_table(wanted: str, status: str) -> None:
    """M-3, M-5: each status lets pass, ends or holds an intent, in the window and on both sides of it."""
    for offset, reason in zip(PLACES, TABLE[wanted, status], strict=False):
        found = decide(TransactionState(wanted), fact(status), offset)

        assert found.reason == reason
        if reason in WAITS:
            assert isinstance(found, NotYet)
            assert found.retry_at is None
            assert found.detail == f"transaction 23 of 't' is {status} since log offset 70"
        else:
            assert (found.result, found.log_offset) == (result_of(reason), 77)


def test_the_table_has_every_status() -> None:
    """A status that is added is decided about here, for both states."""
    every = itertools.product(TransactionState, TransactionStatus)
    assert set(TABLE) == {(state.value, status.value) for state, status in every}


@pytest.mark.parametrize("status", ["open", "reject-pending"])
def test_what_was_open_when_its_tenant_was_dropped_is_never_committed(status: str) -> None:
    """No commit is valid any more; an acknowledgement still is."""
    ended = decide(COMMITTED, fact(status, dropped=True))
    waits = decide(REJECTED, fact(status, dropped=True))

    assert (ended.result, isinstance(waits, NotYet)) == (VerdictResult.NEVER, True)
    assert decide(COMMITTED, fact("committed", dropped=True)).result is VerdictResult.PASS
    assert decide(REJECTED, fact("reject-acknowledged", dropped=True)).result is VerdictResult.PASS


@pytest.mark.parametrize("state", TransactionState)
def test_an_unknown_tenants_transaction_is_refused(state: TransactionState) -> None:
    """I-3: nobody can be asked about it: refused, neither passed nor stale."""
    found = decide(state, None)

    assert (found.result, found.reason) == (VerdictResult.REFUSED, "unknown-tenant")


@pytest.mark.parametrize("state", TransactionState)
def test_a_transactions_window_is_of_one_topic(state: TransactionState) -> None:
    """J-13: what stood in another topic never passes, whatever became of the transaction."""
    for status in KEPT:
        found = decide(state, fact(status), topic_id="old")
        assert (found.result, found.reason) == (VerdictResult.NEVER, "another-topic")


@pytest.mark.parametrize("status", ["open", "reject-pending", "reject-acknowledged", "collected"])
def test_m_6_rejected_needs_the_number_in_what_it_deletes(status: str) -> None:
    """M-6: another number's prefix is refused, also before anybody knows how the transaction ends."""
    found = decide(REJECTED, fact(status), action=events.DeletePrefix("bucket", "tenants/t/24/"))

    assert (found.result, found.reason) == (VerdictResult.REFUSED, "not-its-own")
    assert "tenants/t/24/" in found.detail
    assert decide(REJECTED, fact(status, place="?")).reason == "not-its-own"


def test_m_16_rejected_needs_the_tenants_prefix() -> None:
    """M-16: without the setting, and of a tenant that has no prefix of its own, nothing is deleted."""
    unset = decide(REJECTED, fact("reject-acknowledged"), rules=Rules())
    nested = decide(
        REJECTED,
        fact("reject-acknowledged"),
        tenant="t/5",
        action=events.DeletePrefix("bucket", "tenants/t/5/23/"),
    )

    assert (unset.result, unset.reason) == (VerdictResult.REFUSED, "tenant-prefix-unset")
    assert (nested.result, nested.reason) == (VerdictResult.REFUSED, "tenant-without-prefix")
    assert decide(COMMITTED, fact("committed"), rules=Rules()).result is VerdictResult.PASS


def test_a_deadlist_names_keys_of_any_form() -> None:
    """Its keys come from the index: they are not bound to the prefix, and no whole prefix is among them."""
    found = decide(COMMITTED, fact("committed"), action=OWN)

    assert (found.result, found.reason) == (VerdictResult.REFUSED, "prefix-needs-promise")
    assert decide(COMMITTED, fact("committed"), action=ANY).result is VerdictResult.PASS


@pytest.mark.parametrize("offset", [*PLACES, 10**9])
def test_what_has_passed_passes_again(offset: int) -> None:
    """A pass stays a pass: what was acknowledged is collected one day, and nothing else follows."""
    acknowledged = decide(REJECTED, fact("reject-acknowledged"), offset)
    assert decide(REJECTED, fact("collected"), offset) == acknowledged
    assert acknowledged.result is VerdictResult.PASS


class Knowing(Issuer):
    """Knows of every transaction what the test says."""

    def __init__(self, known: TransactionFact) -> None:
        super().__init__()
        self.known = known

    def validate(self, asked: list[Any], *, at_least: int) -> Validation:
        """Answer about transactions and generations alike."""
        self.asked.append(len(asked))
        facts = {each: self.known for each in asked if isinstance(each, TransactionSubject)}
        windows = {each: Window(0) for each in asked if not isinstance(each, TransactionSubject)}
        return Validation(at_least, TOPIC_ID, windows, transactions=facts)


def test_one_question_asks_about_all_and_forgotten_ones_are_counted() -> None:
    """Generations and transactions go in one call; a transaction that is forgotten raises the alarm."""
    issuer, codec = Knowing(fact("forgotten")), Codec()
    work = work_of(issuer, rules=RULES)
    guards: list[events.Guard] = [events.TransactionGuard("t", 23, COMMITTED), events.GenerationGuard("u", 1)]
    intents = [
        events.DeletionIntent(f"intent-{n}", "t", NOW, "test", (guard,), ANY)
        for n, guard in enumerate([*guards, *guards])
    ]
    take(work, [Record(0, n, 0, None, codec.encode(intent)) for n, intent in enumerate(intents)])

    rows = [codec.decode(row.value, events.Outcome) for row in settle(work)]

    assert issuer.asked == [2]
    assert sorted(row.outcome.value for row in rows) == ["deleted", "deleted", "refused", "refused"]
    assert work.counts.forgotten == 2


@pytest.mark.parametrize(("wanted", "status"), TABLE)
@pytest.mark.parametrize("offset", PLACES)
def test_a_recorded_pass_counts_where_the_log_has_forgotten(wanted: str, status: str, offset: int) -> None:
    """What the log still knows is never overruled by a dead letter that is replayed."""
    state = TransactionState(wanted)
    replayed, asked_anew = (decide(state, fact(status), offset, passed=passed) for passed in (True, False))

    if status == "forgotten":
        assert (replayed.result, asked_anew.result) == (VerdictResult.PASS, VerdictResult.REFUSED)
    else:
        assert replayed == asked_anew


def test_a_recorded_pass_is_for_what_is_the_transactions_own() -> None:
    """The reaper's own rules hold for it as for any other: which topic, and whose objects."""
    other = events.DeletePrefix("bucket", "tenants/t/24/")

    assert decide(REJECTED, fact("forgotten"), action=other, passed=True).reason == "not-its-own"
    assert decide(REJECTED, fact("forgotten"), rules=Rules(), passed=True).reason == "tenant-prefix-unset"
    assert decide(COMMITTED, fact("forgotten"), topic_id="old", passed=True).reason == "another-topic"
    assert decide(COMMITTED, None, passed=True).reason == "unknown-tenant"


@pytest.mark.parametrize("passed", [None, 41])
def test_a_dead_letter_keeps_the_first_pass_through_every_copy(passed: int | None) -> None:
    """Deferred, held, dead again: the pass of the first letter goes with the intent."""
    guards = (events.TransactionGuard("t", 23, COMMITTED),)
    two = events.DeleteObjects("bucket", (("a", "b"),))
    raw = Codec().encode(events.DeletionIntent("intent", "t", NOW, "test", guards, two))
    copy = copied(raw, first=events.Position(TOPIC_ID, 0, 15), passed_as_of=passed)
    refusing = Store({"bucket": {"a", "b"}}, lambda _, bucket, key: DENIED if key == "a" else None)
    (letter, _) = written(refusing, copy, issuer=Knowing(fact("committed")), rules=RULES)
    (again,) = written(None, copy, issuer=Knowing(fact("open")), rules=RULES)
    (lost,) = written(None, copy, issuer=Knowing(fact("forgotten")), rules=RULES)

    assert (letter.reason, letter.passed_as_of) == ("AccessDenied", passed or 7)
    assert (again.reason, again.passed_as_of) == ("transaction-open", passed)
    assert lost.verdict.result is (VerdictResult.REFUSED if passed is None else VerdictResult.PASS)
