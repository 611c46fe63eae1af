"""Transactions on a real log: races of issuers, lost answers, a wiped Redis, open Kafka transactions."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka import Producer
from tests.support.issuing import Serve, counter, keys, log_id, redis_of, refused, serving
from tests.support.snapshots import Place

from sexton.deploy.local import Installation
from sexton.issuer.client import IssuerClient, TransactionSubject
from sexton.issuer.deadline import Deadline
from sexton.issuer.operations.acknowledge_transaction import AcknowledgeTransaction
from sexton.issuer.operations.barrier import Barrier, Ends
from sexton.issuer.operations.collect_transaction import CollectTransaction
from sexton.issuer.operations.commit_transaction import CommitTransaction
from sexton.issuer.operations.start_transaction import Started, StartTransaction
from sexton.issuer.operations.validate import Validate
from sexton.issuer.service import Service
from sexton.issuer.snapshots.keeper import take_snapshot
from sexton.issuer.state.transactions import Status
from sexton.schemas import records
from sexton.schemas.errors import KafkaUnavailable, RequestRefused
from sexton.schemas.events import PartitionOffsets

pytestmark = pytest.mark.real


def start(service: Service, node: str, tenant: str, request: str | None = None) -> Started:
    """Start a transaction through a service of this process."""
    asked = StartTransaction(node, tenant, request_id=request, caller="c")
    return service.authority().answer(asked, Deadline.after(20))


def commit(service: Service, node: str, tenant: str, number: int, request: str | None = None) -> int:
    """Commit one through a service of this process."""
    asked = CommitTransaction(tenant, number, node, request_id=request, caller="c")
    return service.authority().answer(asked, Deadline.after(20)).log_offset


def last_committed(service: Service, tenant: str) -> int | None:
    """What a service's fold has as the last committed one."""
    with service.reader.state() as state:
        found = state.tenant(tenant)
        assert found is not None
        assert found.transactions is not None
        return found.transactions.committed


def test_m_2_starts_race_at_two_issuers(fresh: Installation, serve: Serve) -> None:
    """M-2: each start gets a number of its own, without a gap, and only the newest is open."""
    services = [serve(fresh.settings), serve(fresh.settings)]
    with ThreadPoolExecutor(6) as pool:
        started = list(pool.map(lambda i: start(services[i % 2], f"n{i % 4}", f"t{i % 3}"), range(45)))

    for tenant in range(3):
        numbers = sorted(each.transaction for each in started if each.tenant == f"t{tenant}")
        assert numbers == list(range(1, 16))
    with services[0].reader.state() as state:
        for found in state:
            assert found.transactions is not None
            assert [t.number for t in found.transactions if t.status is Status.OPEN] == [15]


def test_m_13_starts_race_commits(fresh: Installation, serve: Serve) -> None:
    """M-13: a start builds on the commit beside it, or that commit is rejected; never both nor neither."""
    services = [serve(fresh.settings), serve(fresh.settings)]
    seen = set()
    with ThreadPoolExecutor(2) as pool:
        for i in range(25):
            tenant = f"t{i}"
            start(services[0], "a", tenant)

            def committed(tenant: str = tenant) -> bool:
                try:
                    commit(services[1], "a", tenant, 1)
                except RequestRefused as error:
                    if error.type != "transaction-rejected":
                        raise
                    return False
                return True

            granted, second = pool.submit(committed), pool.submit(start, services[0], "b", tenant)
            assert second.result().last_committed == (1 if granted.result() else None)
            seen.add(granted.result())

    assert seen  # both ways are right; which of them come is the machine's


def test_m_2_two_commits_and_one_request_id_at_two_issuers(fresh: Installation, serve: Serve) -> None:
    """M-2: of two nodes one is granted; one request at two issuers at once has one answer."""
    one, other = serve(fresh.settings), serve(fresh.settings)
    with ThreadPoolExecutor(4) as pool:
        for i in range(10):
            same = [pool.submit(start, s, "a", f"s{i}", f"r{i}") for s in (one, other) * 2]
            assert {future.result().transaction for future in same} == {1}
            grants = [pool.submit(commit, s, "a", f"s{i}", 1, f"c{i}") for s in (one, other) * 2]
            assert len({future.result() for future in grants}) == 1
    assert counter(one, "events") <= 20 + 40  # void ones are the losers' of a race


def test_m_8_redis_is_wiped_and_the_log_is_read_anew(fresh: Installation, serve: Serve) -> None:
    """M-8: numbers, commits and answers come from the log: after Redis is gone, and in a new process."""
    service = serve(fresh.settings)
    first = start(service, "a", "t", "r1")
    at = commit(service, "a", "t", 1, "r2")
    start(service, "a", "t")
    client, names = redis_of(fresh.settings), keys(fresh.settings, log_id(service))
    expected = client.hget(names["newest"], "t")
    client.delete(*names.values())

    assert start(service, "a", "t").transaction == 3
    client.delete(*names.values())
    again = serve(fresh.settings)
    assert client.hget(names["newest"], "t") is not None
    assert start(again, "a", "t", "r1") == first
    assert commit(again, "a", "t", 1, "r2") == at
    assert last_committed(again, "t") == 1
    assert expected != client.hget(names["newest"], "t")
    client.close()


def test_m_8_a_start_or_commit_that_is_in_the_log_and_was_not_answered(
    fresh: Installation, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """M-8: where the issuer ends between the event and its answer, the retry is told what the log says."""
    service = serve(fresh.settings)
    project = service.projection.project
    monkeypatch.setattr(service.projection, "project", _dies)
    with pytest.raises(KeyboardInterrupt):
        start(service, "a", "t", "r1")
    monkeypatch.setattr(service.projection, "project", project)
    other = serve(fresh.settings)
    assert start(other, "a", "t", "r1").transaction == 1

    monkeypatch.setattr(service.projection, "project", _dies)
    with pytest.raises(KeyboardInterrupt):
        commit(service, "a", "t", 1, "r2")
    monkeypatch.setattr(service.projection, "project", project)
    at = commit(other, "a", "t", 1, "r2")
    assert commit(service, "a", "t", 1, "r3") == at
    assert last_committed(other, "t") == 1


def _dies(*_: object) -> None:
    raise KeyboardInterrupt


def test_the_second_witness_knows_of_commits(fresh: Installation, serve: Serve) -> None:
    """Redis holds number and log offset of the last start or commit; what it holds else is set to the log."""
    service = serve(fresh.settings)
    start(service, "a", "t")
    client, names = redis_of(fresh.settings), keys(fresh.settings, log_id(service))
    started = client.hget(names["newest"], "t")
    at = commit(service, "a", "t", 1)
    assert client.hget(names["newest"], "t") == f"1@{at}".encode() != started

    client.hset(names["newest"], "t", f"7@{at + 50}")
    assert start(service, "a", "t").transaction == 2
    assert counter(service, "disagreements") == 1
    client.close()


def test_a_void_start_is_withdrawn(fresh: Installation, serve: Serve) -> None:
    """A number that was proposed by an issuer that died costs one void event, and is not lost."""
    service = serve(fresh.settings)
    start(service, "a", "t")
    service.witness.propose(["t"], Deadline.after(5))

    assert start(service, "a", "t").transaction == 2
    voids = service.metrics.registry.get_sample_value("sexton_issuer_voids_total", {"reason": "not-newest"})
    assert voids == 1.0


def test_m_15_another_client_holds_a_kafka_transaction_open(fresh: Installation, serve: Serve) -> None:
    """M-15: behind it the deadlist cannot be seen: no grant, nothing appended; after it the commit goes."""
    service, intents = serve(fresh.settings), fresh.settings.topic(records.INTENTS)
    start(service, "a", "t")
    holder = Producer(fresh.settings.kafka(**{"transactional.id": "holds"}))
    holder.init_transactions(20)
    holder.begin_transaction()
    holder.produce(intents, b"x", partition=0)
    holder.flush(10)
    plain = Producer(fresh.settings.kafka(acks="all"))
    plain.produce(intents, b"deadlist", partition=0)
    assert plain.flush(10) == 0
    with service.reader.state() as state:
        assert state.genesis is not None
        deadlist = PartitionOffsets(state.genesis.intents_topic_id, [2])
        events_before = state.next_offset

    asked = CommitTransaction("t", 1, "a", Ends(deadlist.topic_id, [2]), caller="c")
    with pytest.raises(KafkaUnavailable, match="have not reached the deadlist"):
        service.authority().answer(asked, Deadline.after(5))
    with service.reader.state() as state:
        assert state.next_offset == events_before
    holder.commit_transaction(20)
    service.authority().answer(asked, Deadline.after(20))
    subject = TransactionSubject("t", 1, 0)
    with service.reader.state() as state:
        answer = subject.answer(state)
    assert answer is not None
    assert (answer.status, answer.start, answer.until) == ("committed", 0, 3)


@pytest.mark.slow
def test_m_7_the_issuer_is_restarted_between_two_questions(fresh: Installation) -> None:
    """M-7: the client that has lost the answer asks the new process, which says the same."""
    with serving(fresh) as process, IssuerClient(process.url, caller="a service") as issuer:
        issuer.start_transaction("a", "t")
        at = issuer.commit_transaction("a", "t", 1, None, "r")
        issuer.start_transaction("b", "t")
        take_snapshot(fresh.settings, 30)
    with serving(fresh) as process, IssuerClient(process.url, caller="a service") as issuer:
        assert issuer.commit_transaction("a", "t", 1, None, "r") == at
        assert issuer.commit_transaction("a", "t", 1) == at
        with refused("transaction-rejected"):
            issuer.start_transaction("a", "t")
            issuer.commit_transaction("b", "t", 2)


def statuses(service: Service, tenant: str, until: int) -> list[str]:
    """What a service answers a judge about the first transactions, in order, as of a barrier of its own."""
    asked = Validate([], transactions=[TransactionSubject(tenant, n, 0) for n in range(1, until + 1)])
    answers = service.authority().answer(asked, Deadline.after(20)).transactions
    assert [each.transaction for each in answers] == list(range(1, until + 1))
    return [each.status for each in answers]


def end(service: Service, tenant: str, number: int, *, collected: bool) -> None:
    """Let its node give up an open transaction; what it wrote is gone, or not yet."""
    until = Deadline.after(20)
    service.authority().answer(AcknowledgeTransaction(tenant, number, "a", caller="c"), until)
    if collected:
        service.authority().answer(CollectTransaction(tenant, number, caller="c"), until)


@pytest.mark.slow
def test_m_12_the_oldest_deadlist_of_a_cut_history_is_replayed(fresh: Installation, serve: Serve) -> None:
    """M-12: at an issuer that was there, and at one that starts from a snapshot, it is forgotten: no pass."""
    service, count, left = serve(fresh.settings), 301, 3
    producer = Producer(fresh.settings.kafka(acks="all"))

    def emit() -> None:
        producer.produce(fresh.settings.topic(records.INTENTS), b"deadlist", partition=0)
        assert producer.flush(10) == 0

    for number in range(1, count + 1):
        assert start(service, "a", "t").transaction == number
        emit()
        if number % 3:
            commit(service, "a", "t", number)
        else:
            end(service, "t", number, collected=number != left)
    at = service.authority().answer(Barrier(), Deadline.after(20))
    before = statuses(service, "t", count)
    emit()  # number 1's, again
    settled = Barrier(Ends(at.topic_id, list(at.ends)))
    service.authority().answer(settled, Deadline.after(20))
    after = statuses(service, "t", count + 1)
    take_snapshot(fresh.settings, 30)
    assert Place(fresh.settings).start_offset() > 2 * count
    other = serve(fresh.settings)

    assert before[:6] == [
        "committed",
        "committed",
        "reject-acknowledged",
        "committed",
        "committed",
        "collected",
    ]
    kept = {left: "reject-acknowledged", count: "committed", count + 1: "never-started"}
    assert after == [kept.get(number, "forgotten") for number in range(1, count + 2)]
    assert statuses(other, "t", count + 1) == after
    assert start(other, "a", "t").last_committed == count
    with refused("transaction-forgotten"):
        commit(other, "a", "t", 1)
