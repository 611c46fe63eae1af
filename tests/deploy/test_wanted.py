"""What an `up` asks for, how the servers are named, and what is on disk about them."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from sexton.deploy.local import kafka, ports, state
from sexton.deploy.local.servers import Server, port_names, servers
from sexton.deploy.local.wanted import Wanted
from sexton.schemas.errors import EnvironmentFault, UsageError


def test_names_of_several_servers() -> None:
    """The first of a part bears its name, so that what older versions wrote about it stays right."""
    counts = {"kafka": 3, "issuer": 2}

    assert [each.name for each in servers(("kafka", "redis", "issuer"), counts)] == [
        "kafka",
        "kafka-2",
        "kafka-3",
        "redis",
        "issuer",
        "issuer-2",
    ]
    assert port_names(("kafka", "s3"), {}) == ["kafka", "kafka-controller", "s3"]
    assert Server("kafka", 2).controller in port_names(("kafka",), counts)


def test_brokers_with_data_stay_as_many() -> None:
    """Another number of brokers than those that hold data is refused; without data it may be any."""
    with pytest.raises(UsageError, match="another number of brokers: 1, not 3") as refused:
        Wanted(brokers=3).counts({}, formatted=True)
    assert "--wipe" in str(refused.value.hint)
    with pytest.raises(UsageError, match="3, not 1"):
        Wanted(brokers=1).counts({"kafka": 3}, formatted=True)

    assert Wanted(brokers=3).counts({"kafka": 1}, formatted=False) == {"kafka": 3, "issuer": 1}
    assert Wanted().counts({"kafka": 3, "issuer": 2}, formatted=True) == {"kafka": 3, "issuer": 2}
    assert Wanted(issuers=1).counts({"kafka": 3, "issuer": 2}, formatted=True) == {"kafka": 3, "issuer": 1}


@pytest.mark.parametrize("wanted", [{"brokers": 3}, {"issuers": 2}])
def test_servers_of_a_part_that_is_left_out(wanted: dict[str, int]) -> None:
    """Who leaves a part out and gives a number of its servers has meant something else."""
    with pytest.raises(UsageError, match="for a part that is left out: "):
        Wanted(frozenset({"kafka", "issuer"}), **wanted).check({})  # type: ignore[arg-type]


def test_a_state_of_the_first_version_is_read(tmp_path: Path) -> None:
    """A stack that was started before there could be several servers goes on as one of each."""
    old = {"version": 1, "ports": {"kafka": 20001}, "processes": {}, "without": ["s3"], "faults": None}
    (tmp_path / "state.json").write_text(json.dumps(old))

    found = state.load(tmp_path)

    assert found == state.State(ports={"kafka": 20001}, without=frozenset({"s3"}))
    assert Wanted().counts(found.servers, formatted=True) == {"kafka": 1, "issuer": 1}


def test_what_is_written_is_read_and_by_no_older_version(tmp_path: Path) -> None:
    """The numbers of servers are kept, in a version of their own; a version to come is not understood."""
    written = state.State(ports={"kafka-2": 20002}, servers={"kafka": 3, "issuer": 2})
    state.save(tmp_path, written)
    raw = json.loads((tmp_path / "state.json").read_text())

    assert (state.load(tmp_path), raw["version"]) == (written, 2)
    (tmp_path / "state.json").write_text(json.dumps({**raw, "version": 3}))
    with pytest.raises(EnvironmentFault, match="version 3"):
        state.load(tmp_path)


@pytest.mark.parametrize(("number", "replicas", "insync"), [(1, 1, 1), (3, 3, 2)])
def test_a_cluster_keeps_as_many_copies_as_it_can(number: int, replicas: int, insync: int) -> None:
    """Three brokers keep three copies of their own topics and need two; one alone keeps one."""
    cluster = [kafka.Broker(n, 20000 + n, 21000 + n) for n in range(1, number + 1)]
    text = kafka._properties(cluster, cluster[-1], Path("data"))
    lines = dict(line.split("=", 1) for line in text.splitlines())

    assert {value for name, value in lines.items() if "replication.factor" in name} == {str(replicas)}
    assert {value for name, value in lines.items() if "min.i" in name} == {str(insync)}
    assert lines["node.id"] == str(number)
    assert lines["controller.quorum.voters"].count("@127.0.0.1:21") == number


def test_a_port_is_kept_unless_somebody_has_it() -> None:
    """What other programs were told stays true after `down` and `up`, if nobody took the port meanwhile."""
    with socket.socket() as taken, socket.socket() as free:
        for each in (taken, free):
            each.bind(("127.0.0.1", 0))
        taken.listen()
        known = {"s3": taken.getsockname()[1], "redis": free.getsockname()[1]}
        free.close()

        assigned = ports.assign(["s3", "redis", "issuer"], known, running=False)

        assert (assigned["redis"], assigned["s3"] != known["s3"]) == (known["redis"], True)
        assert len(set(assigned.values())) == 3
        assert ports.assign(["s3", "redis"], known, running=True) == known
