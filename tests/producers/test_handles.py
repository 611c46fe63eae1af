"""Attachments, keys and the names that are used once."""

from __future__ import annotations

from typing import Any

import pytest

from sexton.producers import (
    ConnectionClosed,
    DeliveryFailed,
    Detached,
    InvalidEvent,
    IssuerUnavailable,
    KeyReused,
    Limits,
    QueueFull,
    RequestRefused,
    Superseded,
)
from sexton.producers.testing import FakeIssuer, FakeSexton, FakeTransport
from sexton.schemas.events import DeleteObjects, GenerationGuard


def test_an_attachment_has_a_generation_of_its_own(fake: FakeSexton) -> None:
    """Attaching gives the issuer's generation, and keys end in it."""
    tenant = fake.attach("tenant-42")

    assert (tenant.name, tenant.generation) == ("tenant-42", 1)
    assert tenant.key("timelines/ab12/layer-1") == "timelines/ab12/layer-1-00000001"


def test_an_intent_is_guarded_by_the_attachments_generation(fake: FakeSexton) -> None:
    """K-4: the guard has the handle's generation, whatever generation the key was written in."""
    fake.issuer.attach("other", "t")
    tenant = fake.attach("t")
    receipt = tenant.delete("bucket", ["old-deadbeef", tenant.key("new")])

    (intent,) = fake.intents
    assert intent.guards == [GenerationGuard("t", 2)]
    assert intent.action == DeleteObjects("bucket", [["old-deadbeef", "new-00000002"]])
    assert (intent.tenant, intent.emitter) == ("t", "node-7")
    assert receipt.intent_ids == (intent.intent_id,)


def test_re_attach_gives_new_handles_of_all_that_the_node_holds(fake: FakeSexton) -> None:
    """Each tenant that the issuer names gets a new handle, also one that this process never attached."""
    fake.attach("x")
    fake.issuer.attach("node-7", "y")
    handles = fake.re_attach()

    assert {name: handle.generation for name, handle in handles.items()} == {"x": 2, "y": 2}


def test_an_old_handle_is_refused_after_attach_and_re_attach(fake: FakeSexton) -> None:
    """A handle is bound to its generation: once a newer one exists here it emits nothing more."""
    first = fake.attach("t")
    second = fake.attach("t")
    with pytest.raises(Superseded):
        first.delete("bucket", ["k"])
    third = fake.re_attach()["t"]
    with pytest.raises(Superseded):
        second.delete("bucket", ["k"])
    third.delete("bucket", ["k"])

    assert [guard.generation for intent in fake.intents for guard in intent.guards] == [3]  # type: ignore[union-attr]


def test_a_handle_of_a_tenant_that_moved_away_is_refused_after_re_attach(fake: FakeSexton) -> None:
    """A tenant that is not in the answer is held by another node."""
    tenant = fake.attach("t")
    fake.issuer.attach("node-8", "t")

    assert fake.re_attach() == {}
    with pytest.raises(Superseded, match="no longer held"):
        tenant.delete("bucket", ["k"])


def test_a_detached_handle_emits_nothing_more(fake: FakeSexton) -> None:
    """Detaching ends the handle; what it emitted before stays."""
    tenant = fake.attach("t")
    tenant.delete("bucket", ["k"])
    tenant.detach()
    for call in (lambda: tenant.delete("bucket", ["l"]), tenant.detach):
        with pytest.raises(Detached):
            call()

    assert fake.keys == ["k"]
    assert fake.re_attach() == {}


def test_the_issuers_errors_come_through(fake: FakeSexton) -> None:
    """An issuer that is away and one that refuses are told apart, and the old handle stays good."""
    tenant = fake.attach("t")
    fake.issuer.away = True
    with pytest.raises(IssuerUnavailable):
        fake.attach("t")
    fake.issuer.away = False
    fake.issuer.drop("u")
    with pytest.raises(RequestRefused) as caught:
        fake.attach("u")

    assert caught.value.type == "tenant-dropped"
    tenant.delete("bucket", ["k"])


def test_k_6_a_name_given_to_an_intent_is_never_handed_out_again(fake: FakeSexton) -> None:
    """K-6: after an intent has named a key, `key` refuses to make it again in this attachment."""
    tenant = fake.attach("t")
    key = tenant.key("layer")
    assert tenant.key("layer") == key
    tenant.delete("bucket", [key])
    with pytest.raises(KeyReused, match="layer-00000001"):
        tenant.key("layer")

    assert fake.re_attach()["t"].key("layer") == "layer-00000002"


def test_k_6_a_key_is_named_once(fake: FakeSexton) -> None:
    """K-6: naming a key in a second call, or twice in one, is refused as a whole."""
    tenant = fake.attach("t")
    tenant.delete("bucket", ["a", "b"])
    for keys in (["c", "b"], ["c", "c"]):
        with pytest.raises(KeyReused):
            tenant.delete("bucket", keys)
    tenant.delete("bucket", ["c"])
    tenant.delete("other-bucket", ["a"])

    assert fake.keys == ["a", "b", "c", "a"]


def test_a_key_whose_intent_failed_may_be_named_again_but_not_written() -> None:
    """A failed delivery leaks no key: another intent may name it, but `key` does not hand it out."""
    sexton = FakeSexton("n")
    tenant = sexton.attach("t")
    sexton.transport.refuse = "Local: Message timed out"
    receipt = tenant.delete("bucket", [tenant.key("a")])
    with pytest.raises(DeliveryFailed, match="timed out") as caught:
        receipt.wait(1)
    sexton.transport.refuse = None
    with pytest.raises(KeyReused):
        tenant.key("a")
    tenant.delete("bucket", ["a-00000001"])
    with pytest.raises(KeyReused):
        tenant.delete("bucket", ["a-00000001"])

    assert caught.value.intent_ids == receipt.intent_ids
    assert sexton.keys == ["a-00000001"]
    assert sexton.close() == receipt.intent_ids


@pytest.mark.parametrize(
    ("key", "reported"),
    [
        (b"x", "a key must be text, not bytes: b'x'"),
        (None, "a key must be text, not None"),
        (5, "not int: 5"),
    ],
)
@pytest.mark.parametrize("others", [1, 20_000])
def test_a_key_that_is_no_text_is_shown(fake: FakeSexton, key: object, reported: str, others: int) -> None:
    """The message names the value and its type, in a short call and in one that is split."""
    tenant = fake.attach("t")
    keys: Any = [*(f"k{n}" for n in range(others)), key]
    with pytest.raises(InvalidEvent) as caught:
        tenant.delete("bucket", keys)
    assert reported in str(caught.value)
    with pytest.raises(InvalidEvent) as caught:
        tenant.key(keys[-1])
    assert reported in str(caught.value)
    assert fake.intents == []


@pytest.mark.parametrize("bucket", ["", "a/b", None, 5])
def test_a_bad_bucket_is_refused(fake: FakeSexton, bucket: object) -> None:
    """What cannot be a bucket's name is a typed error at the call."""
    with pytest.raises(InvalidEvent):
        fake.attach("t").delete(bucket, ["k"])  # type: ignore[arg-type]

    assert fake.intents == []


def test_one_text_is_not_a_list_of_keys(fake: FakeSexton) -> None:
    """A single key given as text is refused, not taken for the letters that it is made of."""
    with pytest.raises(InvalidEvent, match="list of keys"):
        fake.attach("t").delete("bucket", "abc")

    assert fake.intents == []


def test_a_bad_name_gives_no_key(fake: FakeSexton) -> None:
    """`key` refuses a name that could not be deleted later."""
    with pytest.raises(InvalidEvent):
        fake.attach("t").key("a\ud800")


@pytest.mark.parametrize("tenant", ["", "t" * 513, "\ud800", None])
def test_a_bad_tenant_is_refused_before_the_issuer_is_asked(fake: FakeSexton, tenant: object) -> None:
    """A tenant without a usable name is a typed error."""
    with pytest.raises(InvalidEvent):
        fake.attach(tenant)  # type: ignore[arg-type]


def test_no_keys_are_no_intent(fake: FakeSexton) -> None:
    """An empty list is done at once."""
    receipt = fake.attach("t").delete("bucket", [])

    assert receipt.intent_ids == ()
    assert receipt.done()
    assert receipt.wait(1) == {}


def test_many_keys_are_split_into_several_intents() -> None:
    """No intent has more keys than the limit, none is lost, the order stays."""
    sexton = FakeSexton("n", limits=Limits(keys_per_intent=10))
    keys = [f"k{i}" for i in range(95)]
    receipt = sexton.attach("t").delete("bucket", keys)

    assert sexton.keys == keys
    assert len(receipt.intent_ids) == len(sexton.intents) == 10
    assert len(receipt.wait(1)) == 10


@pytest.mark.parametrize("letter", ["k", "é", "\U0001f480"])
def test_large_keys_are_split_by_size(letter: str) -> None:
    """Every message stays below the limit, whatever the characters, also when sizes differ much."""
    width = 1_000 // len(letter.encode())
    sexton = FakeSexton("n", limits=Limits(message_bytes=100_000))
    keys = [f"s{i}" for i in range(900)] + [f"{i:04}{letter * width}" for i in range(900)]
    sexton.attach("t").delete("bucket", keys)

    assert sexton.keys == keys
    assert max(len(record.value) for record in sexton.transport.records) < 96_000
    assert len(sexton.intents) < 40


def test_queue_full_tells_what_was_sent_and_what_was_not() -> None:
    """No room before the deadline: a typed error, and keys that were not sent may be named again."""
    transport = FakeTransport()
    transport.hold, transport.capacity = True, 2
    sexton = FakeSexton("n", transport=transport, limits=Limits(keys_per_intent=10))
    tenant = sexton.attach("t")
    keys = [f"k{i}" for i in range(40)]
    with pytest.raises(QueueFull) as caught:
        tenant.delete("bucket", keys, timeout=0.05)

    assert (len(caught.value.accepted), len(caught.value.intent_ids)) == (2, 2)
    transport.capacity = None
    tenant.delete("bucket", keys[20:])
    assert sexton.keys == keys
    with pytest.raises(KeyReused):
        tenant.delete("bucket", keys[:1])


def test_counters_add_up() -> None:
    """Emitted is delivered and failed and pending, at any moment."""
    sexton = FakeSexton("n")
    tenant = sexton.attach("t")
    tenant.delete("bucket", ["a"])
    sexton.transport.refuse = "no"
    tenant.delete("bucket", ["b"])
    sexton.transport.refuse, sexton.transport.hold = None, True
    tenant.delete("bucket", ["c"])
    counts = sexton.statistics()

    assert (counts.emitted, counts.delivered, counts.failed, counts.pending) == (3, 1, 1, 1)


def test_after_close_every_call_is_refused() -> None:
    """A closed connection takes nothing, and says the same about what was not delivered."""
    sexton = FakeSexton("n")
    tenant = sexton.attach("t")
    sexton.transport.hold = True
    receipt = tenant.delete("bucket", ["a"])

    assert sexton.close(1) == sexton.close(1) == receipt.intent_ids
    with pytest.raises(DeliveryFailed):
        receipt.wait(1)
    for call in (
        lambda: tenant.delete("bucket", ["b"]),
        lambda: sexton.attach("t"),
        sexton.re_attach,
        tenant.detach,
        lambda: sexton.promise_delete("bucket", ["b"], operation="op"),
    ):
        with pytest.raises(ConnectionClosed):
            call()


def test_leaving_the_block_with_undelivered_intents_is_an_error() -> None:
    """Nothing is dropped in silence at the end of the `with` block."""
    transport = FakeTransport()
    transport.hold = True
    with pytest.raises(DeliveryFailed), FakeSexton("n", transport=transport) as sexton:
        sexton.attach("t").delete("bucket", ["a"])


def test_two_nodes_share_an_issuer() -> None:
    """I-1: a node's re-attach leaves another node's tenants alone."""
    issuer = FakeIssuer()
    seven, eight = FakeSexton("node-7", issuer), FakeSexton("node-8", issuer)
    seven.attach("x")
    eight.attach("z")

    assert {name: handle.generation for name, handle in seven.re_attach().items()} == {"x": 2}
    assert issuer.newest("z") == 1
