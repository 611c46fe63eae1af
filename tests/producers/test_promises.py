"""What the owner has given up for good."""

from __future__ import annotations

import pytest

from sexton.producers import Detached, InvalidEvent, IssuerUnavailable, UsageError
from sexton.producers.testing import FakeSexton
from sexton.schemas.events import DeleteObjects, DeletePrefix, PromiseGuard


def test_a_prefix_is_promised_without_a_generation(fake: FakeSexton) -> None:
    """The intent has the promise alone as its guard, and the operation in it."""
    fake.promise_delete_prefix("bucket", "tenants/42/", operation="drop-42").wait(1)

    (intent,) = fake.intents
    assert intent.guards == [PromiseGuard("drop-42")]
    assert intent.action == DeletePrefix("bucket", "tenants/42/")
    assert intent.tenant == "drop-42"


def test_keys_are_promised(fake: FakeSexton) -> None:
    """Single keys may be promised too, in the name of a tenant."""
    fake.promise_delete("bucket", ["a", "b"], operation="op", tenant="t").wait(1)

    (intent,) = fake.intents
    assert (intent.tenant, intent.guards) == ("t", [PromiseGuard("op")])
    assert intent.action == DeleteObjects("bucket", [["a", "b"]])


@pytest.mark.parametrize("prefix", ["", "/", "foo", "foo/bar", "a\ud800/"])
def test_x_16_a_prefix_that_matches_too_much_is_refused(fake: FakeSexton, prefix: str) -> None:
    """X-16: empty, or without a slash at its end: a typed error, and nothing is sent or dropped."""
    with pytest.raises(InvalidEvent):
        fake.promise_delete_prefix("bucket", prefix, operation="op", tenant="t", drop=True)

    assert fake.intents == []
    fake.attach("t")


@pytest.mark.parametrize("prefix", ["/", "//"])
def test_a_prefix_of_slashes_is_told_as_one(fake: FakeSexton, prefix: str) -> None:
    """It is not empty and ends in a slash: what it lacks is a name."""
    with pytest.raises(InvalidEvent, match=f"must name something before its '/': '{prefix}'"):
        fake.promise_delete_prefix("bucket", prefix, operation="op")


def test_an_operation_is_needed(fake: FakeSexton) -> None:
    """A promise names the decision behind it; what is wrong is reported of the operation, not of a tenant."""
    for operation in ("", "o" * 513, "\ud800"):
        with pytest.raises(InvalidEvent, match="operation must be text of 1 to 512 bytes in UTF-8"):
            fake.promise_delete_prefix("bucket", "a/", operation=operation)


def test_dropping_a_tenant_comes_before_its_prefix(fake: FakeSexton) -> None:
    """With `drop` nothing is ever issued for the tenant again, and its handle here ends."""
    tenant = fake.attach("t")
    fake.promise_delete_prefix("bucket", "t/", operation="op", tenant="t", drop=True)
    with pytest.raises(Detached):
        tenant.delete("bucket", ["a"])

    assert len(fake.intents) == 1


def test_a_tenant_that_cannot_be_dropped_keeps_its_objects(fake: FakeSexton) -> None:
    """Without the issuer's word no intent is sent."""
    fake.issuer.away = True
    with pytest.raises(IssuerUnavailable):
        fake.promise_delete_prefix("bucket", "t/", operation="op", tenant="t", drop=True)
    with pytest.raises(UsageError):
        fake.promise_delete_prefix("bucket", "t/", operation="op", drop=True)

    assert fake.intents == []
