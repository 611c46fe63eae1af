"""F-6: what may not be written is refused with a typed error."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.schemas import events
from sexton.schemas.checks import check_keys, check_tenant
from sexton.schemas.codec import Codec
from sexton.schemas.errors import InvalidEvent
from sexton.schemas.forms import from_json, to_json
from sexton.schemas.intents import check_intent

INTENT = events.DeletionIntent(
    "id",
    "t",
    datetime(2026, 3, 1, tzinfo=UTC),
    "n",
    (events.GenerationGuard("t", 7),),
    events.DeleteObjects("bucket", (("k",),)),
)
TOO_EARLY = datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14)))
TOO_LATE = datetime(9999, 12, 31, 23, tzinfo=timezone(timedelta(hours=-14)))
Changes = dict[str, Any]


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"guards": (events.GenerationGuard("t", 7.9),)}, "GenerationGuard.generation"),  # type: ignore[arg-type]
        ({"guards": (events.GenerationGuard("t", True),)}, "GenerationGuard.generation"),
        ({"guards": ({"generation": 7},)}, "DeletionIntent.guards"),
        ({"guards": "t"}, "DeletionIntent.guards"),
        ({"emitted_at": datetime(2026, 3, 1)}, "time zone"),  # noqa: DTZ001
        ({"emitted_at": TOO_EARLY}, "before the year 1 or after 9999"),
        ({"guards": (events.NotBeforeGuard(TOO_LATE),)}, "before the year 1 or after 9999"),
        ({"vetoes": (events.ExpiresAt(TOO_LATE),)}, "before the year 1 or after 9999"),
        ({"emitted_at": 5}, "DeletionIntent.emitted_at"),
        ({"tenant": None}, "DeletionIntent.tenant"),
        ({"tenant": b"t"}, "DeletionIntent.tenant"),
        ({"tenant": "\ud800"}, "surrogates"),
        ({"action": events.AdvanceHorizon("t", 1.5)}, "AdvanceHorizon.lsn"),  # type: ignore[arg-type]
        ({"action": events.AdvanceHorizon("t", 2**63)}, "AdvanceHorizon.lsn: a number of more than 64 bits"),
        ({"guards": (events.GenerationGuard("t", -(2**63) - 1),)}, "GenerationGuard.generation: a number of"),
        ({"action": events.GenerationGuard("t", 1)}, "DeletionIntent.action"),
        ({"action": events.DeleteObjects("bucket", "abc")}, "DeleteObjects.phases"),
        ({"action": events.DeleteObjects("bucket", ["abc"])}, "DeleteObjects.phases"),
        ({"action": events.DeleteObjects("bucket", [[b"k"]])}, "must be string"),  # type: ignore[list-item]
        ({"action": events.DeleteObjects("bucket", [["\udfff"]])}, "surrogates"),
        ({"action": events.DeleteObjects("bucket", [["k"]], mode="no")}, "not one of"),  # type: ignore[arg-type]
    ],
)
def test_f_6_the_encoder_refuses_what_avro_would_cut_down(changes: Changes, named: str) -> None:
    """F-6: a value of another type than the field's is refused and named, never converted."""
    with pytest.raises(InvalidEvent, match=named):
        Codec().encode(replace(INTENT, **changes))


def test_f_6_the_encoder_refuses_what_is_no_event() -> None:
    """F-6: a plain dictionary is no event."""
    with pytest.raises(InvalidEvent, match="dict"):
        Codec().encode({"intent_id": "x"})  # type: ignore[arg-type]


def _set(path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(plain: dict[str, Any]) -> None:
        *way, last = path.split("/")
        at: Any = plain
        for step in way:
            at = at[int(step) if step.isdigit() else step]
        at[last] = value

    return change


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (_set("tennant", "t"), "unknown field: tennant"),
        (_set("guards/0/GenerationGuard/generatoin", 7), "unknown field: generatoin"),
        (_set("guards/0/GenerationGuard/generation", 7.0), "expected int, not float"),
        (_set("guards/0/GenerationGuard/generation", "7"), "expected int, not str"),
        (_set("guards/0/GenerationGuard/generation", None), "expected int, not null"),
        (_set("guards", [{"MoonGuard": {}}]), "GenerationGuard"),
        (_set("guards", {}), "expected list"),
        (_set("emitted_at", "2026-03-01T12:00:00"), "time zone"),
        (_set("emitted_at", "yesterday"), "ISO 8601"),
        (_set("emitted_at", "0001-01-01T00:00:00+14:00"), "before the year 1 or after 9999"),
        (_set("action/DeleteObjects/phases", ["k"]), "expected list, not str"),
        (_set("action/DeleteObjects/mode", "shred"), "not one of"),
        (_set("action/DeleteObjects/bypass_governance", 1), "expected bool, not int"),
        (_set("action", {"DeleteObjects": {}, "DeletePrefix": {}}), "expected one of"),
        (lambda plain: plain.pop("tenant"), "missing field: tenant"),
    ],
)
def test_f_6_json_lines_are_read_strictly(change: Callable[[dict[str, Any]], Any], named: str) -> None:
    """F-6: a misspelt, missing or mistyped field of a JSON line is refused and named."""
    plain = to_json(INTENT)
    change(plain)

    with pytest.raises(InvalidEvent, match=named):
        from_json(events.DeletionIntent, plain)


@pytest.mark.parametrize(
    "key",
    [
        "",
        "k" * 1_025,
        "é" * 513,
        "\ud800",
        "\udc00x",
        "é\ud83d",
    ],
)
def test_f_6_a_key_that_may_not_be_carried_is_refused(key: str) -> None:
    """F-6: empty, longer than 1,024 bytes, or not UTF-8: no object can have such a key."""
    with pytest.raises(InvalidEvent):
        check_keys(["good", key, "good"])


@pytest.mark.parametrize(
    "key",
    [
        "k" * 1_024,
        "é" * 512,
        "\U0001f480" * 256,
        " ",
        "a\tb",
        "a//b",
        "../x",
        "<&>\"'",
        "\x7f",
        "\x85",
        "\ufffd",
        "a\rb",
        "a\nb",
        "a\x00",
        "a\x1f",
        "a\ufffe",
        "é\uffff",
    ],
)
def test_a_key_that_the_store_can_hold_is_taken(key: str) -> None:
    """Every key up to the store's limit passes, however odd."""
    check_keys([key])


@given(st.lists(st.text(st.characters(codec=None), max_size=30), min_size=1, max_size=20))
def test_the_fast_check_finds_exactly_what_a_look_at_each_key_finds(keys: list[str]) -> None:
    """The check over all keys at once agrees with a look at each key."""
    bad = any(not key or any("\ud800" <= letter <= "\udfff" for letter in key) for key in keys)
    try:
        check_keys(keys)
        refused = False
    except InvalidEvent:
        refused = True

    assert refused == bad


_NO_ETAGS = ["", '""', "*", '"*', '"a", "b"', "a,b", 'a"b', 'W/"a"', "a b", "a\n", "\u00e9"]


@pytest.mark.parametrize(
    "changes",
    [
        {"guards": ()},
        {"intent_id": ""},
        {"intent_id": "i" * 513},
        {"tenant": ""},
        {"tenant": "t" * 513},
        {"guards": (events.GenerationGuard("", 1),)},
        {"guards": (events.GenerationGuard("t" * 513, 1),)},
        {"guards": (events.GenerationGuard("t", 1, "n", -1),)},
        {"guards": (events.GenerationGuard("t", 1, "n", 2**24),)},
        {"guards": (events.TransactionGuard("", 1, events.TransactionState.COMMITTED),)},
        {"guards": (events.BoundaryGuard("", 1),)},
        {"guards": (events.UnchangedGuard((events.KeyCondition("", "e"),)),)},
        {
            "guards": (events.UnchangedGuard((events.KeyCondition("", "e"),)),),
            "action": events.DeletePrefix("bucket", "foo/"),
        },
        {"guards": (events.GenerationGuard("t", 1), events.PromiseGuard(""))},
        {
            "guards": (
                events.GenerationGuard("t", 1),
                events.UnchangedGuard((events.KeyCondition("other", "e"),)),
            )
        },
        {"guards": (events.GenerationGuard("t", -1),)},
        {"guards": (events.GenerationGuard("t", 2**32),)},
        {"guards": (events.PromiseGuard(""),)},
        {"guards": (events.UnchangedGuard((events.KeyCondition("k"),)),)},
        {"guards": (events.UnchangedGuard((events.KeyCondition("k", version_id=""),)),)},
        *({"guards": (events.UnchangedGuard((events.KeyCondition("k", etag),)),)} for etag in _NO_ETAGS),
        {"action": events.DeleteObjects("", (("k",),))},
        {"action": events.DeleteObjects("a/b", (("k",),))},
        {"action": events.DeleteObjects("bucket", ())},
        {"action": events.DeleteObjects("bucket", ((),))},
        {"action": events.DeleteObjects("bucket", (("k",), ()))},
        {"action": events.DeleteObjects("bucket", (("k",), ("",)))},
        {"action": events.DeletePrefix("a/b", "foo/")},
        {"action": events.DeletePrefix("bucket", "//")},
        {"action": events.DeletePrefix("bucket", "p" * 1_024 + "/")},
        {"action": events.DeletePrefix("bucket", "\ud800/")},
        {"action": events.DeletePrefix("bucket", "foo/", tombstone="")},
        {"action": events.AdvanceHorizon("", 1)},
        {"action": events.DeletePrefix("bucket", "")},
        {"action": events.DeletePrefix("bucket", "/")},
        {"action": events.DeletePrefix("bucket", "foo")},
        {"action": events.AdvanceHorizon("t", -1)},
    ],
)
def test_an_intent_outside_its_rules_is_refused(changes: Changes) -> None:
    """No guard, no key, a prefix that is empty or has no slash at its end: refused before it is written."""
    with pytest.raises(InvalidEvent):
        check_intent(replace(INTENT, **changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"intent_id": "i" * 512},
        {"tenant": "t" * 512},
        {"guards": (events.GenerationGuard("t", 0, "n", 0),)},
        {"guards": (events.GenerationGuard("t", 2**32 - 1, "n", 2**24 - 1),)},
        {"guards": (events.BoundaryGuard("n", 1), events.PromiseGuard("o"))},
        {"guards": (events.TransactionGuard("t", 1, events.TransactionState.COMMITTED),)},
        {"guards": (events.UnchangedGuard((events.KeyCondition("k", "e"),)),)},
        {"action": events.DeletePrefix("bucket", "foo/")},
        {
            "guards": (events.UnchangedGuard((events.KeyCondition("foo/k", "e"),)),),
            "action": events.DeletePrefix("bucket", "foo/"),
        },
        {"action": events.DeletePrefix("bucket", "foo/", tombstone="gone")},
        {"action": events.AdvanceHorizon("t", 0)},
    ],
)
def test_an_intent_at_the_end_of_its_rules_is_taken(changes: Changes) -> None:
    """The largest and the smallest of what may be is an intent."""
    check_intent(replace(INTENT, **changes))


@pytest.mark.parametrize("key", [1, None, b"k"])
def test_a_key_that_is_no_text_is_refused(key: Any) -> None:
    """A key is text, and what is none is reported as the caller's fault."""
    with pytest.raises(InvalidEvent, match="a key must be text"):
        check_keys(["good", key])


@pytest.mark.parametrize("tenant", [1, None, b"t"])
def test_a_tenant_that_is_no_text_is_refused(tenant: object) -> None:
    """A tenant's name is text."""
    with pytest.raises(InvalidEvent):
        check_tenant(tenant)  # type: ignore[arg-type]
