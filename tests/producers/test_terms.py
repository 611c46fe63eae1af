"""What a call may say of its keys beside their names: order, pauses, instants, conditions and vetoes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sexton.producers import (
    ExpiresAt,
    IndexNotWritten,
    InvalidEvent,
    KeyCondition,
    KeyReused,
    Limits,
    OnlyWhileExists,
    UnlessWhole,
    UsageError,
)
from sexton.producers.testing import FakeAsyncSexton, FakeSexton
from sexton.schemas.events import (
    DeleteObjects,
    DeletePrefix,
    GenerationGuard,
    NotBeforeGuard,
    PromiseGuard,
    UnchangedGuard,
)

NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)
DAY = timedelta(days=1)
NAIVE = NOW.replace(tzinfo=None)
BLOCK = [["u/meta.json"], ["u/index", "u/chunks/000001"]]
ALL: dict[str, Any] = {
    "phases": BLOCK,
    "pause_s": 900,
    "unchanged": {"u/index": '"9b2c"'},
    "not_before": NOW,
    "expires_at": NOW + DAY,
    "vetoes": [OnlyWhileExists("v/meta.json", [0]), UnlessWhole("u/meta.json", [1])],
}
GUARDS = [NotBeforeGuard(NOW), UnchangedGuard([KeyCondition("u/index", '"9b2c"')])]
VETOES = [ExpiresAt(NOW + DAY), OnlyWhileExists("v/meta.json", [0]), UnlessWhole("u/meta.json", [1])]


def _asked(sexton: FakeSexton, **terms: Any) -> None:
    """Ask by every call that names keys."""
    sexton.attach("t").delete("bucket", **terms)
    sexton.attach("t").replace_index(lambda: None, bucket="bucket", **terms)
    sexton.promise_delete("bucket", operation="op", **terms)


def test_every_call_says_all_of_it_in_one_intent(fake: FakeSexton) -> None:
    """Phases, pause, conditions, instants and vetoes stand in the intent, beside what makes it safe."""
    _asked(fake, **ALL)

    assert [intent.action for intent in fake.intents] == [DeleteObjects("bucket", BLOCK, pause_s=900)] * 3
    assert [intent.vetoes for intent in fake.intents] == [VETOES] * 3
    owners = [GenerationGuard("t", 1), GenerationGuard("t", 2), PromiseGuard("op")]
    assert [intent.guards for intent in fake.intents] == [[owner, *GUARDS] for owner in owners]


def test_a_call_without_them_is_as_it_was(fake: FakeSexton) -> None:
    """What is left out, or None, leaves the intent in its plain form."""
    nothing: dict[str, Any] = dict.fromkeys(("phases", "unchanged", "not_before", "expires_at"))
    fake.attach("t").delete("bucket", ["k"], **nothing)

    (intent,) = fake.intents
    assert (intent.guards, intent.vetoes) == ([GenerationGuard("t", 1)], [])
    assert intent.action == DeleteObjects("bucket", [["k"]])


def test_the_asyncio_calls_take_the_same() -> None:
    """By the same code, with the same intents."""

    async def ask() -> FakeAsyncSexton:
        async with FakeAsyncSexton("n") as sexton:
            await (await sexton.attach("t")).delete("bucket", **ALL)
            tenant = await sexton.attach("t")
            await tenant.replace_index(lambda: asyncio.sleep(0), bucket="bucket", **ALL)
            await sexton.promise_delete("bucket", operation="op", **ALL)
            await sexton.promise_delete_prefix(
                "bucket", "p/", operation="op", suffix=".23", written_before=NOW, not_before=NOW
            )
        return sexton

    *keys, prefix = asyncio.run(ask()).intents
    assert [intent.action for intent in keys] == [DeleteObjects("bucket", BLOCK, pause_s=900)] * 3
    assert [intent.vetoes for intent in keys] == [VETOES] * 3
    assert [list(intent.guards[1:]) for intent in keys] == [GUARDS] * 3
    assert prefix.action == DeletePrefix("bucket", "p/", suffix=".23", written_before=NOW)
    assert list(prefix.guards) == [PromiseGuard("op"), NotBeforeGuard(NOW)]


def test_a_prefix_has_terms_of_its_own(fake: FakeSexton) -> None:
    """Names' ends, age, instants and vetoes; an instant of another zone is the same instant."""
    local = NOW.astimezone(datetime.fromisoformat("2026-11-01T00:00+05:30").tzinfo)
    fake.promise_delete_prefix(
        "bucket", "p/", operation="op", tombstone="p/gone", suffix=".23", written_before=local,
        not_before=local, expires_at=NOW + DAY, vetoes=[OnlyWhileExists("v")],
    )  # fmt: skip

    (intent,) = fake.intents
    assert intent.action == DeletePrefix("bucket", "p/", tombstone="p/gone", suffix=".23", written_before=NOW)
    assert intent.guards == [PromiseGuard("op"), NotBeforeGuard(NOW)]
    assert intent.vetoes == [ExpiresAt(NOW + DAY), OnlyWhileExists("v")]


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "naive expiry": ({"keys": ["k"], "expires_at": NAIVE}, "expires_at needs a time zone"),
    "naive start": ({"keys": ["k"], "not_before": NAIVE}, "not_before needs a time zone"),
    "naive veto": ({"keys": ["k"], "vetoes": [ExpiresAt(NAIVE)]}, "time zone"),
    "a number for an instant": ({"keys": ["k"], "expires_at": 5}, "expires_at must be a datetime"),
    "another key's condition": ({"keys": ["k"], "unchanged": {"l": "e"}}, "not to be deleted: 'l'"),
    "a phase's condition": ({"phases": [["k"]], "unchanged": {"l": "e"}}, "not to be deleted: 'l'"),
    "no condition": ({"keys": ["k"], "unchanged": {"k": None}}, "an ETag or a version id"),
    "any ETag": ({"keys": ["k"], "unchanged": {"k": "*"}}, "not the ETag of one object"),
    "no text": ({"keys": ["k"], "unchanged": {"k": 5}}, "must be text, not int"),
    "two keys": ({"keys": ["k"], "unchanged": {"k": KeyCondition("l", "e")}}, "another key than its own"),
    "no mapping": ({"keys": ["k"], "unchanged": ["k"]}, "must map keys"),
    "no phases": ({"phases": []}, "at least one key in each phase"),
    "an empty phase": ({"phases": [["k"], []]}, "at least one key in each phase"),
    "letters for phases": ({"phases": ["ab", "cd"]}, "a phase must be a list"),
    "letters for a list": ({"phases": "ab"}, "phases must be a list"),
    "a pause of keys": ({"keys": ["k"], "pause_s": 5}, "between phases"),
    "a negative pause": ({"phases": BLOCK, "pause_s": -1}, "a pause has 0 to"),
    "an endless pause": ({"phases": BLOCK, "pause_s": 10**9}, "a pause has 0 to"),
    "half a second": ({"phases": BLOCK, "pause_s": 0.5}, "expected int"),
    "a phase that is not there": ({"keys": ["k"], "vetoes": [OnlyWhileExists("v", [1])]}, "1 of 1"),
    "a veto of no phase": ({"keys": ["k"], "vetoes": [OnlyWhileExists("v", [])]}, "names no phase"),
    "a veto's empty key": ({"keys": ["k"], "vetoes": [UnlessWhole("")]}, "a key is empty"),
    "a veto's URI": ({"keys": ["k"], "vetoes": [UnlessWhole("s3://b/meta.json")]}, "a key is a URI"),
    "what goes itself": ({"keys": ["k"], "vetoes": [OnlyWhileExists("k")]}, "the intent itself deletes"),
    "a text as veto": ({"keys": ["k"], "vetoes": ["v"]}, "not a veto: str"),
    "a single veto": ({"keys": ["k"], "vetoes": OnlyWhileExists("v")}, "vetoes must be a list"),
}  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG)
def test_what_the_schema_refuses_is_refused_at_the_call(fake: FakeSexton, wrong: str) -> None:
    """A typed error before the index is written; nothing is sent, and the keys are free for the next."""
    terms, said = WRONG[wrong]
    keys: Any = terms.get("keys")
    rest = {name: value for name, value in terms.items() if name != "keys"}
    tenant, put = fake.attach("t"), []
    calls: tuple[Callable[[], object], ...] = (
        lambda: tenant.delete("bucket", keys, **rest),
        lambda: tenant.replace_index(lambda: put.append(1), keys, bucket="bucket", **rest),
        lambda: fake.promise_delete("bucket", keys, operation="op", **rest),
    )
    for call in calls:
        with pytest.raises(InvalidEvent, match=said):
            call()
    assert (fake.intents, put) == ([], [])
    tenant.delete("bucket", ["k", "u/index"])


@pytest.mark.parametrize("name", ["written_before", "not_before", "expires_at"])
def test_a_prefix_refuses_a_naive_instant_before_anything_is_dropped(fake: FakeSexton, name: str) -> None:
    """The tenant is still there."""
    with pytest.raises(InvalidEvent, match=f"{name} needs a time zone"):
        fake.promise_delete_prefix(
            "bucket",
            "p/",
            operation="op",
            tenant="t",
            drop=True,
            **{name: NAIVE},  # type: ignore[arg-type]
        )
    fake.attach("t")
    with pytest.raises(InvalidEvent, match="empty"):
        fake.promise_delete_prefix("bucket", "p/", operation="op", suffix="")
    assert fake.intents == []


def test_keys_or_phases_are_named_and_not_both(fake: FakeSexton) -> None:
    """Neither, both, and a word that no call has, are the caller's mistakes."""
    tenant = fake.attach("t")
    for keys, terms in ((None, {}), (["k"], {"phases": [["l"]]}), ([], {"phases": [["l"]]})):
        with pytest.raises(UsageError, match="either keys are to be named or phases"):
            tenant.delete("bucket", keys, **terms)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="expire_at"):
        tenant.delete("bucket", ["k"], expire_at=NOW)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="pause_s"):
        fake.promise_delete_prefix("b", "p/", operation="op", pause_s=5)  # type: ignore[call-arg]
    assert fake.intents == []


def test_parts_of_a_call_have_their_own_conditions_and_all_vetoes() -> None:
    """A long list is split, each part with the conditions on its keys, the instants and the vetoes."""
    sexton = FakeSexton("n", limits=Limits(keys_per_intent=10))
    keys = [f"k{n}" for n in range(25)]
    unchanged: dict[str, str | KeyCondition] = {key: f"etag-of-{key}" for key in keys[:15]}
    unchanged["k3"] = KeyCondition("k3", version_id="v3")
    sexton.attach("t").delete(
        "bucket", keys, unchanged=unchanged, not_before=NOW, vetoes=[OnlyWhileExists("v")]
    )

    assert sexton.keys == keys
    assert [len(intent.action.keys) for intent in sexton.intents] == [9, 9, 7]
    for intent in sexton.intents:
        own = [
            KeyCondition("k3", version_id="v3") if key == "k3" else KeyCondition(key, f"etag-of-{key}")
            for key in intent.action.keys
            if key in unchanged
        ]
        conditions = [UnchangedGuard(own)] if own else []
        assert intent.guards == [GenerationGuard("t", 1), NotBeforeGuard(NOW), *conditions]
        assert intent.vetoes == [OnlyWhileExists("v")]


@pytest.mark.parametrize("text", ["e" * 900, "é" * 400])
def test_conditions_and_vetoes_count_when_a_call_is_split(text: str) -> None:
    """Every message stays below the limit, however long conditions and what vetoes name are."""
    sexton = FakeSexton("n", limits=Limits(message_bytes=100_000))
    keys = [f"{n:04}" for n in range(600)]
    unchanged = {key: KeyCondition(key, version_id=text) for key in keys}
    vetoes = [OnlyWhileExists(f"{text}{n}", [0]) for n in range(10)]
    sexton.attach("t").delete("bucket", keys, unchanged=unchanged, vetoes=vetoes)

    assert sexton.keys == keys
    assert max(len(record.value) for record in sexton.transport.records) < 96_000
    assert len(sexton.intents) < 40


def test_phases_are_never_split() -> None:
    """Two intents know no order: phases that one cannot carry are refused, and nothing is sent."""
    sexton = FakeSexton("n", limits=Limits(keys_per_intent=10, message_bytes=12_000))
    tenant = sexton.attach("t")
    with pytest.raises(InvalidEvent, match="at most 10 keys: 11"):
        tenant.delete("bucket", phases=[["first"], [f"k{n}" for n in range(10)]])
    with pytest.raises(InvalidEvent, match="does not fit into a message"):
        tenant.delete("bucket", phases=[["first"], [f"{n}" + "k" * 1_000 for n in range(8)] + ["m" * 1_024]])
    with pytest.raises(KeyReused):
        tenant.delete("bucket", phases=[["first"], ["first"]])
    tenant.delete("bucket", phases=[["first"], [f"k{n}" for n in range(9)]])

    (intent,) = sexton.intents
    assert intent.action.key_phases == [["first"], [f"k{n}" for n in range(9)]]


def test_phases_of_an_index_that_was_not_written_may_be_asked_for_again(fake: FakeSexton) -> None:
    """Names of all phases are given back, and taken once the index is there."""

    def put() -> None:
        raise IndexNotWritten("412")

    tenant = fake.attach("t")
    with pytest.raises(IndexNotWritten):
        tenant.replace_index(put, bucket="bucket", phases=BLOCK)
    tenant.replace_index(lambda: None, bucket="bucket", phases=BLOCK)
    with pytest.raises(KeyReused, match="u/index"):
        tenant.delete("bucket", ["u/index"])
    assert fake.keys == [key for phase in BLOCK for key in phase]


def test_a_veto_may_name_what_is_really_called_so(fake: FakeSexton) -> None:
    """`any_key` says so, for a veto's key too."""
    fake.promise_delete("bucket", ["k"], operation="op", any_key=True, vetoes=[OnlyWhileExists("s3://b/k")])
    assert fake.intents[0].vetoes == [OnlyWhileExists("s3://b/k")]
