"""The same behaviour from the fakes and from the real parts."""

from __future__ import annotations

import os
import uuid
from contextlib import closing
from datetime import UTC, datetime
from typing import NoReturn

import pytest
from tests.support.producing import Fake, Real

from sexton.deploy.local import Installation
from sexton.producers import (
    ExpiresAt,
    IndexFateUnknown,
    InvalidEvent,
    KeyCondition,
    KeyReused,
    Limits,
    OnlyWhileExists,
    RequestRefused,
    Sexton,
    UnlessWhole,
)
from sexton.schemas.events import (
    DeleteObjects,
    DeletePrefix,
    DeletionIntent,
    GenerationGuard,
    NotBeforeGuard,
    PromiseGuard,
    UnchangedGuard,
)


def _name() -> str:
    return f"tenant {uuid.uuid4()}"


def test_generations_go_up_by_one(world: Fake | Real) -> None:
    """I-1: attach, re-attach, and attach by another node each give the next number, of that tenant only."""
    x, y = _name(), _name()
    with world.connect("node-7") as seven, world.connect("node-8") as eight:
        assert [seven.attach(x).generation, seven.attach(x).generation] == [1, 2]
        assert eight.attach(y).generation == 1
        assert {name: handle.generation for name, handle in seven.re_attach().items()} == {x: 3}
        assert eight.attach(x).generation == 4
        assert seven.re_attach() == {}


def test_a_detached_tenant_is_not_re_attached(world: Fake | Real) -> None:
    """Detaching takes the tenant off the node; the next attach still continues counting."""
    x = _name()
    with world.connect("node-7") as seven:
        seven.attach(x).detach()

        assert seven.re_attach() == {}
        assert seven.attach(x).generation == 2


def test_another_nodes_tenant_cannot_be_detached(world: Fake | Real) -> None:
    """A node that has lost the tenant is refused."""
    x = _name()
    with world.connect("node-7") as seven, world.connect("node-8") as eight:
        old = seven.attach(x)
        eight.attach(x)
        with pytest.raises(RequestRefused) as caught:
            old.detach()

    assert caught.value.type == "not-held"


def test_a_dropped_tenant_is_never_issued_again(world: Fake | Real) -> None:
    """After the promise with `drop` an attach is refused for ever."""
    x = _name()
    with world.connect("node-7") as seven:
        seven.attach(x)
        seven.promise_delete_prefix("bucket", "x/", operation="op", tenant=x, drop=True).wait(10)
        with pytest.raises(RequestRefused) as caught:
            seven.attach(x)

    assert caught.value.type == "tenant-dropped"


def test_intents_arrive_with_the_attachments_guard(world: Fake | Real) -> None:
    """What `delete` and `replace_index` emit stands in the topic once the receipt says so."""
    x = _name()
    with world.connect("node-7") as seven:
        tenant = seven.attach(x)
        first = tenant.delete("bucket", [tenant.key("a")])
        second = tenant.replace_index(lambda: None, unlinked=["b-00000000"], bucket="bucket")
        first.wait(10)
        second.wait(10)
        emitted = world.emitted(seven)

    assert [intent.intent_id for intent in emitted] == [*first.intent_ids, *second.intent_ids]
    assert [intent.guards for intent in emitted] == [[GenerationGuard(x, 1)]] * 2
    assert [_keys(intent) for intent in emitted] == [["a-00000001"], ["b-00000000"]]


def test_what_a_call_says_beside_keys_arrives(world: Fake | Real) -> None:
    """Order, pause, conditions, instants and vetoes; what is refused is nowhere."""
    x, at = _name(), datetime(2027, 1, 1, tzinfo=UTC)
    with world.connect("node-7") as seven:
        tenant = seven.attach(x)
        with pytest.raises(InvalidEvent, match="not_before needs a time zone"):
            tenant.delete("bucket", ["a"], not_before=at.replace(tzinfo=None))
        tenant.delete(
            "bucket", phases=[["u/meta.json"], ["u/index"]], pause_s=900, unchanged={"u/index": "9b2c"},
            not_before=at, expires_at=at, vetoes=[OnlyWhileExists("v", [0]), UnlessWhole("u/meta.json", [1])],
        ).wait(10)  # fmt: skip
        seven.promise_delete_prefix(
            "bucket", "p/", operation="op", tenant=x, suffix=".23", written_before=at, expires_at=at
        ).wait(10)
        keys, prefix = world.emitted(seven)

    assert keys.action == DeleteObjects("bucket", [["u/meta.json"], ["u/index"]], pause_s=900)
    unchanged = UnchangedGuard([KeyCondition("u/index", "9b2c")])
    assert keys.guards == [GenerationGuard(x, 1), NotBeforeGuard(at), unchanged]
    assert keys.vetoes == [ExpiresAt(at), OnlyWhileExists("v", [0]), UnlessWhole("u/meta.json", [1])]
    assert prefix.action == DeletePrefix("bucket", "p/", suffix=".23", written_before=at)
    assert (prefix.guards, prefix.vetoes) == ([PromiseGuard("op")], [ExpiresAt(at)])


def test_j_10_after_a_put_of_unknown_fate_only_a_new_attachment_emits(world: Fake | Real) -> None:
    """J-10: nothing stands in the topic until the service has re-attached."""
    x = _name()

    def put() -> NoReturn:
        raise TimeoutError("read timed out")

    with world.connect("node-7") as seven:
        tenant = seven.attach(x)
        with pytest.raises(IndexFateUnknown):
            tenant.replace_index(put, unlinked=["a"], bucket="bucket")
        with pytest.raises(IndexFateUnknown):
            tenant.delete("bucket", ["a"])
        assert seven.flush(10) == 0
        assert world.emitted(seven) == []
        seven.re_attach()[x].replace_index(lambda: None, unlinked=["a"], bucket="bucket").wait(10)
        emitted = world.emitted(seven)

    assert [intent.guards for intent in emitted] == [[GenerationGuard(x, 2)]]


def test_k_6_a_name_is_given_to_one_intent(world: Fake | Real) -> None:
    """K-6: neither `delete` nor `key` takes a name that an intent of this attachment has."""
    x = _name()
    with world.connect("node-7") as seven:
        tenant = seven.attach(x)
        tenant.delete("bucket", [tenant.key("a")]).wait(10)
        with pytest.raises(KeyReused):
            tenant.delete("bucket", ["b", "a-00000001"])
        with pytest.raises(KeyReused):
            tenant.key("a")
        emitted = world.emitted(seven)

    assert [_keys(intent) for intent in emitted] == [["a-00000001"]]


@pytest.mark.slow
def test_f_7_a_queue_of_three_loses_nothing(world: Fake | Real) -> None:
    """F-7: 10,000 emits through a queue of 3 wait for room and all arrive, in order."""
    x = _name()
    with world.connect("node-7", Limits(queue_messages=3, linger=0, call_timeout=60)) as seven:
        tenant = seven.attach(x)
        receipts = [tenant.delete("bucket", [f"k{number}"]) for number in range(10_000)]
        for receipt in receipts:
            receipt.wait(60)
        emitted = world.emitted(seven)

    assert [_keys(intent) for intent in emitted] == [[f"k{number}"] for number in range(10_000)]


@pytest.mark.real
def test_f_7_a_forked_child_has_its_own_connection(installation: Installation) -> None:
    """F-7: parent and child attach and emit side by side; exactly their own intents arrive."""
    with Sexton.connect("node-7", installation.settings) as sexton:
        sexton.attach("parent").delete("bucket", ["before"])
        child = os.fork()
        if child == 0:
            code = 1
            try:
                sexton.attach("child").delete("bucket", ["child"]).wait(10)
                code = len(sexton.close(5))
            finally:
                os._exit(code)
        sexton.attach("other").delete("bucket", ["parent"]).wait(10)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert sexton.flush(10) == 0
    with closing(Real(installation)) as world:
        emitted = world.emitted(sexton)

    assert sorted(key for intent in emitted for key in _keys(intent)) == ["before", "child", "parent"]


def _keys(intent: DeletionIntent) -> list[str]:
    assert isinstance(intent.action, DeleteObjects)
    return [key for phase in intent.action.phases for key in phase]
