"""The projection in a real cluster of slots: one node has a log's keys, whatever its tenants are called."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from tests.support.issuing import Serve, attach, counter, keys, newest
from tests.support.servers import Server

from sexton.deploy.local import Installation, ports
from sexton.issuer.deadline import Deadline
from sexton.issuer.log.positions import Positions
from sexton.issuer.operations.attach import Attach

pytestmark = pytest.mark.real

_SLOTS, _NODES = 16_384, 3
NAMES = ["{", "}", "{}", "}{", "{{}}", "a{b}c", "a{x}c", "{b}", "b", "a b", " ", "  ", "日本", "é", "e\u0301"]


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[list[Server]]:
    """Three nodes that share the slots."""
    started = []
    for number, bus in enumerate(ports.choose(_NODES)):
        folder = tmp_path / str(number)
        folder.mkdir()
        options = ("--cluster-enabled", "yes", "--cluster-port", str(bus), "--cluster-node-timeout", "5000")
        started.append(Server(folder, *options))
        first, last = number * _SLOTS // _NODES, (number + 1) * _SLOTS // _NODES - 1
        started[-1].client.execute_command("CLUSTER", "ADDSLOTSRANGE", first, last)
        if number:
            started[0].client.execute_command("CLUSTER", "MEET", "127.0.0.1", started[-1].port, bus)
    until = time.monotonic() + 30
    while not all(_is_whole(each) for each in started):
        assert time.monotonic() < until
        time.sleep(0.05)
    yield started
    for each in started:
        each.kill()
        each.client.close()


def _is_whole(node: Server) -> bool:
    return b"cluster_state:ok" in node.client.execute_command("CLUSTER", "INFO")


def test_i_14_tenant_names_in_a_cluster_of_slots(
    fresh: Installation, serve: Serve, nodes: list[Server]
) -> None:
    """I-14: no cross-slot error, no collision, exact names; the node is found, also after its slot moved."""
    positions = Positions(fresh.settings)
    ours = keys(fresh.settings, positions.describe(Deadline.after(20))[positions.log].topic_id)
    slots = {int(nodes[0].client.execute_command("CLUSTER", "KEYSLOT", key)) for key in ours.values()}
    assert len(slots) == 1
    owner = next(number for number in range(_NODES) if _owns(number, *slots))
    elsewhere, entrance = nodes[owner - 2], nodes[owner - 1]
    service = serve(entrance.settings(fresh))

    asked = Attach(node="n", tenants=NAMES)
    assert service.authority().answer(asked, Deadline.after(20)).generations == dict.fromkeys(NAMES, 1)
    for count, name in enumerate(NAMES, 2):
        for number in range(2, count + 1):
            assert attach(service, "n", name) == number
    issued = {name: count for count, name in enumerate(NAMES, 2)}
    assert [newest(service, name, number) for name, number in issued.items()] == [True] * len(NAMES)
    assert not any(newest(service, name, number + 1) for name, number in issued.items())
    assert _held(nodes[owner], ours) == issued
    assert [node.client.dbsize() for node in (elsewhere, entrance)] == [0, 0]
    assert counter(service, "disagreements") == 0

    identity = elsewhere.client.execute_command("CLUSTER", "MYID")
    for node in (nodes[owner], elsewhere, entrance):  # the slot gets another owner, and its keys are lost
        _flush_until(node, lambda each: each.execute_command("CLUSTER", "SETSLOT", *slots, "NODE", identity))
    assert attach(service, "n", "{}") == issued["{}"] + 1
    assert not newest(service, "{}", issued["{}"])
    assert _held(elsewhere, ours) == issued | {"{}": issued["{}"] + 1}


def _owns(number: int, slot: int) -> bool:
    return number * _SLOTS // _NODES <= slot < (number + 1) * _SLOTS // _NODES


def _flush_until(node: Server, done: Callable[[Any], object]) -> None:
    """Flush a node until something is done: the issuer looks after its Redis meanwhile, and writes to it."""
    while True:
        node.client.flushall()
        try:
            done(node.client)
            return
        except redis.ResponseError as error:
            if "hold keys" not in str(error):
                raise


def _held(node: Server, ours: dict[str, str]) -> dict[str, int]:
    """The generations that a node's projection has, by the names as their bytes stand there."""
    found = node.client.hgetall(ours["newest"])
    return {name.decode(): int(entry.partition(b"@")[0]) for name, entry in found.items()}
