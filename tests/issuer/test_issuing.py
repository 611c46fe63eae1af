"""The protocol with several issuers on one log, and with calls of any size."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.support.issuing import (
    Serve,
    attach,
    counter,
    keys,
    log_id,
    newest,
    re_attach,
    redis_of,
    refused,
)

from sexton.deploy.local import Installation
from sexton.issuer.authority import Authority
from sexton.issuer.client import IssuerClient, Subject
from sexton.issuer.deadline import Deadline
from sexton.issuer.operations.attach import Attach
from sexton.issuer.operations.fence_tenant import FenceTenant
from sexton.issuer.operations.import_ import Import, ImportedTenant
from sexton.issuer.operations.issuing import Call, Part, issue_part, next_step
from sexton.issuer.operations.re_attach import ReAttach
from sexton.issuer.operations.register_node import RegisterNode
from sexton.issuer.operations.upcall_validate import UpcallSubject, UpcallValidate
from sexton.issuer.operations.validate import Validate
from sexton.issuer.service import Service
from sexton.schemas.errors import RequestRefused
from sexton.schemas.events import IssueOperation

pytestmark = pytest.mark.real


class TestSeveralIssuers:
    def test_i_2_two_re_attaches_at_the_same_time(self, fresh: Installation, serve: Serve) -> None:
        """I-2: of two concurrent re-attaches no number is given twice, and only the higher validates."""
        one, other = serve(fresh.settings), serve(fresh.settings)
        tenants = [f"t{i}" for i in range(20)]
        for tenant in tenants:
            attach(one, "7", tenant)

        with ThreadPoolExecutor(2) as pool:
            replies = [f.result() for f in [pool.submit(re_attach, s, "7") for s in (one, other)]]

        for tenant in tenants:
            numbers = sorted(reply[tenant] for reply in replies)
            assert numbers == [2, 3]
            assert [newest(other, tenant, number) for number in numbers] == [False, True]

    def test_i3_many_callers_of_few_tenants(self, fresh: Installation, serve: Serve) -> None:
        """I3: concurrent attaches through two issuers give each number once, without a gap."""
        services = [serve(fresh.settings), serve(fresh.settings)]

        with ThreadPoolExecutor(8) as pool:
            futures = [pool.submit(attach, services[i % 2], f"n{i % 5}", f"t{i % 3}") for i in range(120)]
            numbers = [(i % 3, f.result()) for i, f in enumerate(futures)]

        for tenant in range(3):
            assert sorted(n for t, n in numbers if t == tenant) == list(range(1, 41))

    def test_i_15_one_request_id_at_two_issuers(
        self, fresh: Installation, serve: Serve, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """I-15: an issuer that is behind with its fold gives a retried request the first answer."""
        one, behind = serve(fresh.settings), serve(fresh.settings)
        step = behind.reader._step
        monkeypatch.setattr(behind.reader, "_step", lambda: (behind._stopping.wait(0.3), step()))

        first = attach(one, "n", "t", request_id="r", caller="c")
        attach(one, "n", "t")

        assert attach(behind, "n", "t", request_id="r", caller="c") == first == 1
        assert attach(behind, "n", "t") == 3

    def test_j_4_a_verdict_is_never_older_than_its_barrier(
        self, fresh: Installation, serve: Serve, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """J-4: a fold that is behind and a Redis set back agree on the past; the barrier tells better."""
        one, behind = serve(fresh.settings), serve(fresh.settings)
        attach(one, "n", "t")
        assert newest(behind, "t", 1)
        client, names = redis_of(fresh.settings), keys(fresh.settings, log_id(one))
        step = behind.reader._step
        monkeypatch.setattr(behind.reader, "_step", lambda: (behind._stopping.wait(0.3), step()))

        past = client.hget(names["newest"], "t")
        attach(one, "n", "t")
        client.hset(names["newest"], "t", past)
        assert not newest(behind, "t", 1)

        past = client.hget(names["newest"], "t")
        attach(one, "n", "t")
        client.hset(names["newest"], "t", past)
        asked = Validate([Subject("t", 2, 0)])
        (answer,) = behind.authority().answer(asked, Deadline.after(20)).answers
        assert (answer.newest, answer.until) == (False, 0)
        client.close()

    def test_i_15_at_the_same_time(self, fresh: Installation, serve: Serve) -> None:
        """I-15: one request id at two issuers at once is answered with one number."""
        services = [serve(fresh.settings), serve(fresh.settings)]

        with ThreadPoolExecutor(4) as pool:
            for i in range(15):
                same = [pool.submit(attach, s, "n", "t", f"r{i}", "c") for s in services * 2]
                assert {future.result() for future in same} == {i + 1}

    def test_two_callers_never_share_a_number(self, fresh: Installation, serve: Serve) -> None:
        """I-6: a request id that another caller has used is refused."""
        service = serve(fresh.settings)
        attach(service, "n", "t", request_id="r", caller="one")

        with pytest.raises(RequestRefused, match="another call or caller"):
            attach(service, "n", "t", request_id="r", caller="two")

    def test_i_16_attach_races_re_attach(self, fresh: Installation, serve: Serve) -> None:
        """I-16: a re-attach never takes back what has moved to another node while it was under way."""
        seven, eight = serve(fresh.settings), serve(fresh.settings)
        for i in range(15):
            tenant = f"t{i}"
            attach(seven, "7", tenant)
            with ThreadPoolExecutor(2) as pool:
                reply = pool.submit(re_attach, seven, "7")
                moved = pool.submit(attach, eight, "8", tenant)
            with eight.reader.state() as state:
                found = state.tenant(tenant)
            assert found is not None
            assert (found.holder, found.newest) == ("8", moved.result())
            assert reply.result().get(tenant, 0) < moved.result()
            assert tenant not in re_attach(seven, "7")

    def test_a_proposal_that_was_never_appended(self, fresh: Installation, serve: Serve) -> None:
        """A number that was proposed by an issuer that died costs one void event, and is not lost."""
        service = serve(fresh.settings)
        attach(service, "n", "t")
        service.witness.propose(["t"], Deadline.after(5))

        assert attach(service, "n", "t") == 2
        assert (
            service.metrics.registry.get_sample_value("sexton_issuer_voids_total", {"reason": "not-newest"})
            == 1.0
        )


def issue_next(service: Service, authority: Authority, call: Call) -> Part:
    """Carry out the next part of a call and no more, as an issuer that ends in between."""
    soon = Deadline.after(20)
    with service.reader.state() as state:
        part = next_step(state, call)
    assert isinstance(part, Part)
    issue_part(authority, call, part, authority.log.read_ends(soon), soon)
    return part


class TestLargeCalls:
    def test_i_9_ten_thousand_tenants(self, issuer: IssuerClient, shared: Installation, unique: str) -> None:
        """I-9: 10,000 subjects in one call, known and unknown mixed: each answer belongs to its subject."""
        for i in range(3):
            issuer.attach("n", f"{unique}-{i}")
        subjects = [Subject(f"{unique}-{i % 6}", 1 + i % 4, i % 3) for i in range(10_000)]

        windows = issuer.validate(subjects).windows

        assert set(windows) == {s for s in subjects if int(s.tenant[-1]) < 3}
        assert all((windows[s] is not None) == (s.generation == 1) for s in windows)

    def test_a_call_too_large_for_one_event(
        self, fresh: Installation, serve: Serve, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A re-attach of more than one event's grants is answered when all its parts are valid."""
        monkeypatch.setattr("sexton.issuer.operations.issuing.GRANTS_PER_EVENT", 7)
        service = serve(fresh.settings)
        tenants = [f"t{i}" for i in range(20)]
        asked = Attach(node="n", tenants=tenants, request_id="r1")
        granted = service.authority().answer(asked, Deadline.after(20))
        again = service.authority().answer(asked, Deadline.after(20))

        assert granted.generations == again.generations == dict.fromkeys(tenants, 1)
        assert re_attach(service, "n") == dict.fromkeys(tenants, 2)
        assert counter(service, "events") == 6

    def test_a_large_call_that_another_one_overtakes(
        self, fresh: Installation, serve: Serve, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A call that ended half way is not finished over what another one was given whole since."""
        monkeypatch.setattr("sexton.issuer.operations.issuing.GRANTS_PER_EVENT", 7)
        service, soon = serve(fresh.settings), Deadline.after(20)
        authority, tenants = service.authority(), [f"t{i}" for i in range(20)]
        authority.answer(Attach(node="n", tenants=tenants), soon)
        call = Call("r", "c", IssueOperation.RE_ATTACH, "n", None)
        issue_next(service, authority, call)
        second = re_attach(service, "n")

        with refused("overtaken"):
            authority.answer(ReAttach("n", request_id="r", caller="c"), soon)
        with service.reader.state() as state:
            assert second == {tenant: state.newest(tenant) for tenant in tenants}

    def test_two_large_calls_at_once_both_end_and_no_number_is_told_that_is_not_held(
        self, fresh: Installation, serve: Serve, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """I-16: parts of two re-attaches in turns: each is told what it holds, together everything."""
        monkeypatch.setattr("sexton.issuer.operations.issuing.GRANTS_PER_EVENT", 7)
        service, soon = serve(fresh.settings), Deadline.after(20)
        authority, tenants = service.authority(), [f"t{i}" for i in range(20)]
        authority.answer(Attach(node="n", tenants=tenants), soon)
        calls = [Call(name, "c", IssueOperation.RE_ATTACH, "n", None) for name in ("one", "two")]
        for _ in range(3):
            for call in calls:
                issue_next(service, authority, call)
        reported = [
            dict(authority.answer(ReAttach("n", request_id=call.request_id, caller="c"), soon).generations)
            for call in [*calls, *calls]
        ]

        assert reported[:2] == reported[2:]
        with service.reader.state() as state:
            assert {**reported[0], **reported[1]} == {tenant: state.newest(tenant) for tenant in tenants}

    def test_a_large_call_while_tenants_move_leaves_them_out(
        self, fresh: Installation, serve: Serve, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A tenant that another node took between two parts is missing in the answer, and nothing fails."""
        monkeypatch.setattr("sexton.issuer.operations.issuing.GRANTS_PER_EVENT", 7)
        service, soon = serve(fresh.settings), Deadline.after(20)
        authority, tenants = service.authority(), [f"t{i:02d}" for i in range(20)]
        authority.answer(Attach(node="n", tenants=tenants), soon)
        call = Call("r", "c", IssueOperation.RE_ATTACH, "n", None)
        part = issue_next(service, authority, call)
        attach(service, "elsewhere", part.tenants[0])

        reported = authority.answer(ReAttach("n", request_id="r", caller="c"), soon).generations

        assert set(reported) == set(tenants) - {part.tenants[0]}


def test_what_is_handed_out_and_judged_is_counted(fresh: Installation, serve: Serve) -> None:
    """Numbers of tenants and of nodes, by whichever call; subjects and own barriers of both validates."""
    service = serve(fresh.settings)
    authority, soon = service.authority(), Deadline.after(20)
    attach(service, "n", "t")
    re_attach(service, "n")
    authority.answer(FenceTenant("t"), soon)
    authority.answer(RegisterNode("n"), soon)
    authority.answer(Import([ImportedTenant("i", 7)]), soon)
    asked = [UpcallSubject("t", 3), UpcallSubject("t", 2), UpcallSubject("nobody", 1)]
    authority.answer(UpcallValidate(asked), soon)
    authority.answer(Validate([Subject("t", g, 0) for g in (1, 2, 3, 4)]), soon)

    assert counter(service, "numbers_issued") == 4
    assert counter(service, "barriers") == 2
    counted = {
        answer: service.metrics.registry.get_sample_value("sexton_issuer_subjects_total", {"answer": answer})
        for answer in ("newest", "covered", "never", "unknown")
    }
    assert counted == {"newest": 2, "covered": 2, "never": 2, "unknown": 1}
