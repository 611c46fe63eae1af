"""The Lua scripts: their headers, and that they are the same rules as the ones in Python."""

from __future__ import annotations

from importlib import resources
from typing import Any

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support import lua_rules as rules
from tests.support.issuing import redis_of
from tests.support.lua_rules import Hashes
from tests.support.servers import Server

from sexton.deploy.local import Installation
from sexton.issuer.redis.connection import RedisUnavailable, _script
from sexton.issuer.redis.projection import MAX_AHEAD, Difference, Projection

SCRIPTS = ("compare_v2", "project_v1", "propose_v1", "repair_v1", "withdraw_v1")
TAG = "{sexton:lua-test}"
KEYS = [f"{TAG}:meta", f"{TAG}:newest", f"{TAG}:proposed"]
ODD = (
    "",
    "x",
    "5",
    "@",
    "5@",
    "@5",
    "1@x",
    "-1@2",
    "4294967294",
    "4294967294@7",
    "1@99999999999999999999",
    "1@2 1@3",
    "9@07",
    "09@7",
    "5@\udcff",
    "\udcff",
    " ",
)


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_script_says_what_it_takes_and_returns(name: str) -> None:
    """Each script starts with a comment that tells its keys, arguments and answer."""
    header = [line for line in _script(name)[0].splitlines() if line.startswith("--")]

    assert all(any(word in line for line in header) for word in ("KEYS", "ARGV", "returns"))


def test_every_script_is_known_here() -> None:
    """No script is left out of these tests."""
    folder = resources.files("sexton.issuer.redis") / "lua"

    assert sorted(f.name for f in folder.iterdir()) == [f"{name}.lua" for name in SCRIPTS]


NAMES = st.sampled_from(("a", "{}", "a{b}c", "é\n", "}{"))
NUMBERS = st.sampled_from((0, 1, 2, 8, 9, 10, 999, 1000, 4294967295, 2**53 - 1, 2**53, 2**53 + 1, 2**63 - 1))
GENERATIONS = st.sampled_from((1, 2, 9, 10, 999, 1000, 4294967294, 4294967295))
ENTRIES = st.builds(lambda g, o: f"{g}@{o}", GENERATIONS, NUMBERS)
TRIPLES = st.lists(st.tuples(NAMES, GENERATIONS.map(str), NUMBERS.map(str)), max_size=5)
STEPS = st.one_of(
    st.tuples(st.just("propose"), st.lists(st.tuples(NAMES, ENTRIES | st.just("")), max_size=4)),
    st.tuples(st.just("compare"), st.lists(st.tuples(NAMES, ENTRIES | st.just("")), max_size=6)),
    st.tuples(st.just("project"), TRIPLES),
    st.tuples(st.just("repair"), st.lists(st.tuples(NAMES, ENTRIES | st.sampled_from(ODD), ENTRIES))),
    st.tuples(st.just("withdraw"), st.lists(NAMES, max_size=3)),
    st.tuples(st.just("plant newest"), st.tuples(NAMES, ENTRIES | st.sampled_from(ODD))),
    st.tuples(st.just("plant proposed"), st.tuples(NAMES, GENERATIONS.map(str) | st.sampled_from(ODD))),
    st.tuples(st.just("mark"), st.sampled_from(("log", "other"))),
    st.tuples(st.just("agree"), st.tuples(NAMES, ENTRIES)),
)


@pytest.mark.real
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(STEPS, max_size=25))
def test_lua_rules_are_the_pure_rules(shared: Installation, steps: list[tuple[str, Any]]) -> None:
    """Any sequence of calls and of planted damage gives the same answers and the same hashes in both."""
    client: Any = redis.Redis.from_url(
        shared.settings.redis_url.get_secret_value(), encoding_errors="surrogateescape"
    )
    client.delete(*KEYS)
    model = Hashes({"log": "log"})
    client.hset(KEYS[0], "log", "log")

    def lua(name: str, keys: list[str], *arguments: str) -> Any:
        reply = client.eval(_script(name)[0], len(keys), *keys, *arguments)
        return text_of(reply)

    def text_of(reply: Any) -> Any:
        return [text_of(item) for item in reply] if isinstance(reply, list) else text(reply)

    def text(raw: bytes) -> str:
        return raw.decode("utf-8", "surrogateescape")

    def flat(rows: list[tuple[str, ...]]) -> list[str]:
        return [word for row in rows for word in row]

    for kind, given_rows in steps:
        rows: Any = given_rows
        if kind == "propose":
            rows = [(name, model.newest.get(name, entry)) for name, entry in rows]
            found = lua("propose_v1", KEYS, "log", str(MAX_AHEAD), *flat(rows))
            assert found == rules.propose(model, "log", MAX_AHEAD, rows)
        elif kind == "compare":
            chunks = [rows[at : at + 2] for at in range(0, len(rows), 2)]
            arguments = [
                word
                for chunk in chunks
                for word in (str(len(chunk)), " ".join(e for _, e in chunk), *(n for n, _ in chunk))
            ]
            assert lua("compare_v2", KEYS[:2], "log", *arguments) == rules.compare(model, "log", chunks)
        elif kind == "project":
            assert lua("project_v1", KEYS[1:], *flat(rows)) == rules.project(model, rows)
        elif kind == "repair":
            rows = [(name, model.newest.get(name, seen), due) for name, seen, due in rows]
            assert lua("repair_v1", KEYS[1:], *flat(rows)) == rules.repair(model, rows)
        elif kind == "withdraw":
            assert lua("withdraw_v1", KEYS[2:], *rows) == rules.withdraw(model, rows)
        elif kind == "plant newest":
            client.hset(KEYS[1], rows[0], rows[1])
            model.newest[rows[0]] = rows[1]
        elif kind == "plant proposed":
            client.hset(KEYS[2], rows[0], rows[1])
            model.proposed[rows[0]] = rows[1]
        elif kind == "agree":
            name, expected = rows
            seen = Difference(name, expected, model.newest.get(name, ""))
            if seen.only_late:
                generation, offset = expected.split("@")
                assert lua("project_v1", KEYS[1:], name, generation, offset) == "1"
                rules.project(model, [(name, generation, offset)])
            elif seen.raw != expected:
                assert lua("repair_v1", KEYS[1:], name, seen.raw, expected) == "1"
                rules.repair(model, [(name, seen.raw, expected)])
            assert model.newest[name] == expected
        elif kind == "mark":
            client.hset(KEYS[0], "log", rows)
            model.meta["log"] = rows
        for key, hash_ in zip(KEYS, (model.meta, model.newest, model.proposed), strict=True):
            assert {text(k): text(v) for k, v in client.hgetall(key).items()} == hash_
    client.close()


@pytest.mark.real
def test_i_9_answers_in_order_at_any_size(shared: Installation) -> None:
    """I-9: 10,000 tenants in one call, known and unknown mixed: each answer belongs to its tenant."""
    projection = Projection(shared.settings, "i-9")
    projection.rebuild({f"t{i}": f"{i + 1}@{i}" for i in range(0, 10_000, 2)})
    expected = {f"t{i}": f"{i + 1}@{i}" for i in range(10_000)}

    differences = projection.compare(expected)

    assert [(d.tenant, d.raw) for d in differences] == [(f"t{i}", "") for i in range(1, 10_000, 2)]
    projection.close()


@pytest.mark.real
def test_i_7_scripts_flushed_between_calls(shared: Installation, own_redis: Server) -> None:
    """I-7: a server that has forgotten its scripts is reported them again, and the call counts once."""
    projection = Projection(own_redis.settings(shared), "i-7")
    projection.rebuild({"t": "4@10"})

    for proposed in (5, 6, 7):
        own_redis.client.script_flush()
        (grant,) = projection.propose({"t": "4@10"})
        assert (grant.supersedes, grant.generation) == (proposed - 1, proposed)

    projection.close()


@pytest.mark.real
@pytest.mark.parametrize("planted", ["4294967294", "0", "-1", "x", "99999999999999999999", "1e3", ""])
def test_i_17_damaged_proposals_are_ignored(shared: Installation, planted: str) -> None:
    """I-17: a proposal that cannot have come from issuers at work does not count."""
    client = redis_of(shared.settings)
    projection = Projection(shared.settings, "i-17")
    projection.rebuild({"t": "4@10"}, from_nothing=True)
    client.hset("{sexton:i-17}:proposed", "t", planted)

    (grant,) = projection.propose({"t": "4@10"})

    assert (grant.supersedes, grant.generation) == (4, 5)
    projection.close()
    client.close()


def test_i_13_redis_away_is_an_environment_fault() -> None:
    """I-13: a server that does not answer is a fault of the environment, told as such."""
    from sexton.schemas.settings import load

    projection = Projection(load({"SEXTON_REDIS_URL": "redis://127.0.0.1:1/0"}), "away")

    with pytest.raises(RedisUnavailable):
        projection.compare({"t": "1@1"})
    projection.close()
