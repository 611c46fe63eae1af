"""Fakes that a service makes by the call by which it connects."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sexton.producers import AsyncSexton, InvalidSettings, Limits, Sexton, UsageError
from sexton.producers.testing import FakeAsyncSexton, FakeIssuer, FakeSexton
from sexton.schemas.settings import load

ARGUMENTS: dict[str, Any] = {
    "limits": Limits(keys_per_intent=1),
    "bucket": "layers",
    "any_key": True,
    "topic_prefix": "mine.",
}


def service(kind: type[Sexton], **arguments: Any) -> Sexton:
    """A service that is given its class."""
    sexton = kind.connect("node-7", **arguments)
    sexton.attach("t").replace_index(lambda: None, unlinked=["/a", "b"])
    return sexton


def test_a_fake_connects_with_the_arguments_of_a_connection() -> None:
    """Limits, bucket, keys of any kind and settings count; nothing is contacted, of the issuer neither."""
    sexton = service(FakeSexton, **ARGUMENTS)

    assert isinstance(sexton, FakeSexton)
    assert sexton.node == "node-7"
    assert sexton.keys == ["/a", "b"]
    assert [intent.action.place for intent in sexton.intents] == ["layers", "layers"]
    assert sexton.transport.records[0].topic == "mine.intents"


def test_p_2_the_asyncio_fake_connects_too() -> None:
    """P-2: the call is inherited from the front, and once made no fake."""

    async def work(kind: type[AsyncSexton]) -> AsyncSexton:
        async with kind.connect("node-7", **ARGUMENTS) as sexton:
            tenant = await sexton.attach("t")
            await (await tenant.delete("layers", ["/a"])).wait(1)
        return sexton

    made = asyncio.run(work(FakeAsyncSexton))
    assert isinstance(made, FakeAsyncSexton)
    assert (made.node, made.keys) == ("node-7", ["/a"])


@pytest.mark.parametrize("kind", [FakeSexton, FakeAsyncSexton])
def test_fakes_that_connect_may_share_an_issuer(kind: Any) -> None:
    """One that is none of the fakes is refused: a test would ask a real one."""
    issuer = FakeIssuer()
    one, two = kind.connect("n", issuer=issuer), kind.connect("m", load({}), issuer=issuer)
    assert one.issuer is two.issuer is issuer
    with pytest.raises(UsageError, match="a fake connects to a FakeIssuer, not to object"):
        kind.connect("n", issuer=object())


@pytest.mark.parametrize("kind", [FakeSexton, FakeAsyncSexton])
def test_a_fake_refuses_what_a_connection_refuses(kind: Any) -> None:
    """A misspelt argument, a form that there is not, a node without a name."""
    with pytest.raises(InvalidSettings, match=r"of this name: issuer_ur$"):
        kind.connect("n", issuer_ur="x")
    with pytest.raises(UsageError, match="form must be final or first"):
        kind.connect("n", form="second")
    with pytest.raises(UsageError):
        kind.connect("")


def test_a_fake_of_the_first_form_registers() -> None:
    """With a number of its own, as the connection does."""
    sexton = FakeSexton.connect("n", form="first", number=9)
    assert sexton.attach("t").packed is not None
