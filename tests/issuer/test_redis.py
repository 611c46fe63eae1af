"""A Redis that loses things, or claims what is not so: it can only ever cause a retry."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest
from tests.support.issuing import Serve, attach, counter, keys, log_id, newest, re_attach, redis_of
from tests.support.servers import Server

from sexton.deploy.local import Installation
from sexton.issuer.cli.maintenance import verify_projection
from sexton.issuer.deadline import Deadline
from sexton.issuer.operations.fence_tenant import FenceTenant
from sexton.issuer.operations.import_ import Import, ImportedTenant
from sexton.issuer.redis.projection import entries_of
from sexton.issuer.service import Service
from sexton.schemas.errors import EnvironmentFault

pytestmark = pytest.mark.real


@pytest.mark.parametrize("loss", ["flush", "newest", "field", "proposed", "meta"])
def test_i_4_redis_loses_things(fresh: Installation, serve: Serve, loss: str) -> None:
    """I-4: whatever Redis loses is rebuilt from the log before the next answer."""
    service = serve(fresh.settings)
    for _ in range(5):
        attach(service, "n", "t")
    attach(service, "n", "other")
    client, names = redis_of(fresh.settings), keys(fresh.settings, log_id(service))
    if loss == "flush":
        client.flushdb()
    elif loss == "field":
        client.hdel(names["newest"], "t")
    else:
        client.delete(names[loss])

    assert [newest(service, "t", g) for g in (4, 5, 6)] == [False, True, False]
    assert attach(service, "n", "t") == 6
    assert client.hgetall(names["newest"])[b"t"].startswith(b"6@")
    client.close()


@pytest.mark.slow
def test_i_4_flushed_all_the_time(fresh: Installation, serve: Serve) -> None:
    """I-4: numbers stay unique and in order while Redis is flushed between and during calls."""
    service = serve(fresh.settings)
    client = redis_of(fresh.settings)

    with ThreadPoolExecutor(5) as pool:
        calls = [pool.submit(attach, service, "n", f"t{i % 2}") for i in range(60)]
        while not all(call.done() for call in calls):
            client.flushdb()

    for tenant in range(2):
        assert sorted(c.result() for c in calls[tenant::2]) == list(range(1, 31))
    client.close()


CLAIMS: list[str | bytes] = [
    "4294967294@AT",  # where its newest event stands, and the one before
    "9@BEFORE",
    "4294967294@999999",
    "junk",
    "",
    "7",
    "1@BEFORE",
    "2@0001",
    "2@000000000000001",
    "02@BEFORE",
    b"\xff",
    b"2@\xff",
    b"2@1\x00",
    "1" * 400 + "@1",
]


def test_i_17_redis_claims_another_number(fresh: Installation, serve: Serve) -> None:
    """I-17: whatever Redis claims, the next number is the log's newest plus one, and Redis is corrected."""
    service = serve(fresh.settings)
    client, names = redis_of(fresh.settings), keys(fresh.settings, log_id(service))
    for number, claim in enumerate(CLAIMS):
        tenant, reported = f"t{number}", counter(service, "disagreements")
        attach(service, "n", tenant)
        attach(service, "n", tenant)
        current = client.hget(names["newest"], tenant)
        at, claimed = int(current.partition(b"@")[2]), claim
        if isinstance(claim, str):
            claimed = claim.replace("AT", f"{at}").replace("BEFORE", f"{at - 1}")
        client.hset(names["newest"], tenant, claimed)
        client.hset(names["proposed"], tenant, "4294967294")

        assert newest(service, tenant, 2), claimed
        assert client.hget(names["newest"], tenant) == current
        client.hset(names["newest"], tenant, claimed)
        assert attach(service, "n", tenant) == 3, claimed
        lies = claim not in ("", "9@BEFORE", "1@BEFORE")  # an older entry, or none, is only late
        assert counter(service, "disagreements") - reported == (2 if lies else 0), claimed
    client.close()


def test_a_tenant_that_only_redis_knows(fresh: Installation, serve: Serve) -> None:
    """A tenant that Redis claims and the log does not know starts at 1."""
    service = serve(fresh.settings)
    client, names = redis_of(fresh.settings), keys(fresh.settings, log_id(service))
    client.hset(names["newest"], "t", "7@3")

    assert attach(service, "n", "t") == 1
    client.close()


@dataclass
class Planting:
    """A service that has issued tenants t and u, and whose projection can be damaged."""

    service: Service
    client: Any
    keys: dict[str, str]

    def plant(self, place: str, kind: str = "list") -> None:
        """Let a key be one of another type; with `without meta` the mark of the projection is gone too."""
        name, _, also = place.partition(" ")
        self.client.delete(self.keys[name], *([self.keys["meta"]] if also else []))
        {"list": self.client.rpush, "string": self.client.set, "set": self.client.sadd}[kind](
            self.keys[name], "planted"
        )

    def agrees(self) -> bool:
        """Whether Redis holds just what the log says."""
        with self.service.reader.state() as state:
            return self.service.projection.everything() == entries_of(state)


@pytest.fixture
def planting(fresh: Installation, serve: Serve) -> Iterator[Planting]:
    """An installation of the test's own."""
    service = serve(fresh.settings)
    attach(service, "n", "t")
    attach(service, "n", "u")
    client = redis_of(fresh.settings)
    yield Planting(service, client, keys(fresh.settings, log_id(service)))
    client.close()


def _fence(service: Service) -> object:
    asked = FenceTenant("u")
    return service.authority().answer(asked, Deadline.after(20))


def _import(service: Service) -> object:
    asked = Import([ImportedTenant(f"i{service.reader.next_offset}", 7)])
    return service.authority().answer(asked, Deadline.after(20))


@pytest.mark.parametrize("kind", ["list", "string", "set"])
@pytest.mark.parametrize("place", ["meta", "newest", "proposed", "newest without meta"])
def test_a_list_planted_where_a_hash_should_be(planting: Planting, place: str, kind: str) -> None:
    """A key of another type is replaced by what the log says, by whichever call comes upon it."""
    service = planting.service
    calls: list[Callable[[], object]] = [
        lambda: attach(service, "n", "t"),
        lambda: re_attach(service, "n"),
        lambda: newest(service, "t", 1),
        lambda: _fence(service),
        lambda: _import(service),
        lambda: service.witness.project(["t"], Deadline.after(20)),
        lambda: service.witness.withdraw(["t"], Deadline.after(20)),
    ]
    for call in calls:
        planting.plant(place, kind)
        call()
        assert attach(service, "n", "u")
        assert planting.agrees()


def test_verify_tells_every_difference_of_a_damaged_projection(planting: Planting) -> None:
    """Where a key of another type stands Redis holds nothing of any tenant."""
    planting.plant("newest")

    found = verify_projection(planting.service.settings)

    assert [(each.tenant, each.raw) for each in found] == [("t", ""), ("u", "")]


def test_a_lagging_issuer_sets_nothing_back(fresh: Installation, serve: Serve) -> None:
    """What Redis knows from a later place of the log stays when an earlier place is projected."""
    service = serve(fresh.settings)
    attach(service, "n", "t")
    attach(service, "n", "t")
    service.projection.project({"t": "1@1"})

    client = redis_of(fresh.settings)
    assert client.hget(keys(fresh.settings, log_id(service))["newest"], "t") == b"2@2"
    client.close()


def test_i_10_an_evicting_redis_is_refused(fresh: Installation, own_redis: Server) -> None:
    """I-10: the issuer does not start on a Redis that may evict keys, and says what to set."""
    own_redis.client.config_set("maxmemory-policy", "allkeys-lru")

    with pytest.raises(EnvironmentFault, match="allkeys-lru") as refused:
        Service(own_redis.settings(fresh))

    assert refused.value.hint == "set `maxmemory-policy noeviction`"
