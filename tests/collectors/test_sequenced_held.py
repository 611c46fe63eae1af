"""The collector `sequenced`: who says what is held, and what becomes of a database of which it is unknown."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from tests.support.s3_recorder import Recorded, Reply, S3Recorder, recorder_of_this_process
from tests.support.sequenced_listings import DATE, DB, NAMES, SCOPE, folded, listed, manifests

from sexton.schemas.errors import UsageError
from sexton.schemas.sequenced import Namespace
from sexton.storage import BucketAddress, ObjectStore, StoreSettings
from sexton.streaming_jobs.collectors.room import Sources
from sexton.streaming_jobs.collectors.sequenced.checkpoints import (
    CheckpointsUnreadable,
    Held,
    Unknown,
    held_in,
    parse,
)
from sexton.streaming_jobs.collectors.sequenced.engine import held_by, open_store, path_of
from sexton.streaming_jobs.collectors.sequenced.room import ROOM, Sequenced, SequencedPlan, _fact

NOTHING: Any = None


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Recorder]:
    """A recording store with a bucket; its credentials are this process'."""
    with recorder_of_this_process(monkeypatch) as made:
        made.create_bucket("bucket")
        yield made


def test_what_has_expired_holds_until_both_clocks_say_so() -> None:
    """Ours may be ahead, the store's, too; without an expiry it holds for ever, without a name in each."""
    held = [Held(1), Held(2, "manifest"), Held(3, "compactions"), Held(4, "manifest", DATE)]
    ours, late = DATE + timedelta(hours=1), DATE + timedelta(seconds=1)
    assert held_in(held, "manifest", ours, DATE) == {1, 2, 4}
    assert held_in(held, "manifest", DATE, ours) == {1, 2, 4}
    assert held_in(held, "manifest", ours, late) == {1, 2}
    assert held_in(held, "compactions", DATE, DATE) == {1, 3}


def test_b_5_a_checkpoint_of_a_name_that_nobody_looks_for_holds_its_database() -> None:
    """B-5: a misspelt name would hold nothing: nobody takes it for a checkpoint on other files."""
    (files,) = folded(*manifests(1, 2))

    def problem(*held: Held) -> str:
        return _fact(files, held, 0, (DATE, DATE), NAMES).problem

    assert problem(Held(1, "manifest"), Held(1, "compactions"), Held(2)) == ""
    assert "'manifests', which --names does not have" in problem(Held(2), Held(1, "manifests"))


def test_a_file_says_what_is_held() -> None:
    """By the root of each database; the empty list says that nothing is."""
    one = {"id": 7, "name": "manifest", "expires_at": "2026-03-01T12:00:00Z"}
    body = json.dumps({"version": 1, "databases": {"p/db": [one, {"id": 2}], "": []}})
    assert parse(body.encode()) == {"p/db": [Held(7, "manifest", DATE), Held(2)], "": []}


@pytest.mark.parametrize(
    "body",
    [
        "",
        "[]",
        "{}",
        '{"version": 1}',
        '{"version": 2, "databases": {}}',
        '{"version": true, "databases": {}}',
        '{"version": 1, "databases": []}',
        '{"version": 1, "databases": {}, "checkpoints": {}}',
        '{"version": 1, "databases": {"db": null}}',
        '{"version": 1, "databases": {"db": {}}}',
        '{"version": 1, "databases": {"db": [7]}}',
        '{"version": 1, "databases": {"db": [{}]}}',
        '{"version": 1, "databases": {"db": [{"id": "7"}]}}',
        '{"version": 1, "databases": {"db": [{"id": -1}]}}',
        '{"version": 1, "databases": {"db": [{"id": 7.0}]}}',
        '{"version": 1, "databases": {"db": [{"id": 7, "until": null}]}}',
        '{"version": 1, "databases": {"db": [{"id": 7, "expires_at": "2026-03-01T12:00:00"}]}}',
        '{"version": 1, "databases": {"db": [{"id": 7}], "db": []}}',
        "[" * 100_000,
        b"\xff\xfe",
    ],
)
def test_a_file_that_is_not_understood_is_no_empty_one(body: str | bytes) -> None:
    """Whatever is wrong with it is an error with a type: nobody concludes that nothing is held."""
    with pytest.raises(CheckpointsUnreadable):
        parse(body if isinstance(body, bytes) else body.encode())


@dataclass
class _Checkpoint:
    manifest_id: int
    expire_time_secs: int | None


@dataclass
class _Manifest:
    id: int
    checkpoints: Sequence[_Checkpoint]


def test_b_5_what_the_engine_lists_holds_expired_or_not() -> None:
    """B-5: an expired checkpoint can be refreshed as long as it is listed; no manifest is no empty list."""
    newest = _Manifest(9, [_Checkpoint(3, 0), _Checkpoint(5, None)])
    assert held_by(newest, 9) == [Held(3, "manifest"), Held(5, "manifest")]
    assert held_by(newest, 8) == held_by(newest, 9)
    for found, number in ((newest, 10), (None, 9), (newest, None)):
        assert isinstance(held_by(found, number), Unknown)


@pytest.mark.parametrize(
    ("root", "path"),
    [
        ("", ""),
        ("p/db", "p/db"),
        ("p/a b+c=d", "p/a b+c=d"),
        ("p/a%7Eb", "p/a~b"),
        ("p/%C3%BC", "p/\u00fc"),
        ("p/a%25b", "p/a%b"),
        ("p/a%2525b", "p/a%25b"),
        ("p/a~b", None),
        ("p/\u00fc", None),
        ("p/a%b", None),
        ("p/a%7eb", None),
        ("p/a%2Fb", None),
        ("p/a%FFb", None),
    ],
)
def test_b_5_the_engine_is_asked_for_the_database_whose_keys_are_listed(root: str, path: str | None) -> None:
    """B-5: asked for the root as it is listed, it would tell what another database holds."""
    assert path_of(root) == path


@pytest.mark.parametrize(
    ("path", "virtual_hosted", "origin", "http"),
    [("/bucket", "false", "http://s3:1", "true"), ("", "true", "https://bucket.s3", "false")],
)
def test_b_5_the_engine_is_led_to_the_store_that_was_listed(
    path: str, virtual_hosted: str, origin: str, http: str
) -> None:
    """B-5: by the one of all names of an address that no variable of the environment precedes."""
    builder = Mock()
    client = Mock(**{"ObjectStoreBuilder.from_env.return_value": builder})
    address = BucketAddress("", "eu-1", "s3", "", origin, path, "")
    assert open_store(client, address, "bucket") is builder.build.return_value
    assert {call.args for call in builder.with_config.call_args_list} == {
        ("bucket", "bucket"),
        ("aws_endpoint_url_s3", origin),
        ("region", "eu-1"),
        ("virtual_hosted_style_request", virtual_hosted),
        ("allow_http", http),
    }


@pytest.mark.parametrize(
    "given",
    [
        {"min-age": "soon"},
        {"min-age": "0s"},
        {"names": ""},
        {"names": "manifest,"},
        {"names": "a/b"},
        {"names": "gc"},
    ],
)
def test_options_that_cannot_be_right(given: dict[str, str]) -> None:
    """They are refused before anything is listed."""
    with pytest.raises(UsageError):
        Sequenced(given)


@pytest.mark.parametrize(
    "given", [{"checkpoints": "slatdb"}, {"checkpoints": "slatedb", "names": "manifest,journal"}]
)
def test_a_source_that_cannot_tell_is_refused_before_listing(given: dict[str, str]) -> None:
    """A misspelt one is a file that is not there; the engine knows its own names alone."""
    with pytest.raises(UsageError):
        Sequenced(given).plan(SCOPE, NOTHING)


def test_the_engines_client_is_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it the option is refused, and says what to install."""
    monkeypatch.setitem(__import__("sys").modules, "slatedb.uniffi", None)
    with pytest.raises(UsageError) as raised:
        ROOM.configured({"checkpoints": "slatedb"}).plan(SCOPE, NOTHING)
    assert "slatedb" in (raised.value.hint or "")


def completed(s3: S3Recorder, namespaces: Sequence[Namespace], checkpoints: str = "none") -> SequencedPlan:
    """The plan once manifests 1 to 3 of these namespaces are listed."""
    s3.buckets.fill("bucket", {each.key(id): b"x" for each in namespaces for id in (1, 2, 3)})
    room = ROOM.configured({"checkpoints": checkpoints, "min-age": "1h"})
    parts = folded(*(listed(each.key(id)) for each in namespaces for id in (1, 2, 3)))
    with ObjectStore(StoreSettings(s3.url)) as store:
        sources = Sources(NOTHING, NOTHING, store)
        return room.complete(room.plan(SCOPE, sources), SCOPE, parts, sources, DATE)


def asked_for(plan: SequencedPlan, namespaces: Sequence[Namespace]) -> list[str]:
    """The namespaces that are asked for."""
    parts = folded(*(listed(each.key(id)) for each in namespaces for id in (1, 2, 3)))
    return [each.body(DATE).tenant for each in ROOM.decide(plan, SCOPE, parts)]


COMPACTIONS, OTHER = Namespace("p/db", "compactions"), Namespace("p/other", "manifest")
ALL = (COMPACTIONS, DB, OTHER)


@pytest.mark.parametrize("body", [b"12x", b"", b"-1", b"9" * 30, b"1\n2", b"4"])
def test_b_4_a_boundary_that_cannot_be_right_keeps_its_database(s3: S3Recorder, body: bytes) -> None:
    """B-4: nothing of that database is asked for, in no namespace, and it is reported; others go on."""
    s3.buckets.fill("bucket", {DB.boundary_key: body})
    plan = completed(s3, ALL)
    assert asked_for(plan, ALL) == [OTHER.text]
    assert [(each.cause, each.tenant) for each in plan.unresolved] == [("database-unknown", DB.text)]


@pytest.mark.parametrize(
    ("status", "code"),
    [(403, "AccessDenied"), (500, "InternalError"), (404, "NoSuchBucket"), (404, "")],
)
def test_b_4_a_boundary_that_the_store_does_not_tell_is_not_absent(
    s3: S3Recorder, status: int, code: str
) -> None:
    """B-4: refused, or a page of somebody in between, keeps the database; the store's own word is 0."""

    def script(request: Recorded) -> Reply | None:
        is_boundary = request.key == DB.boundary_key
        return Reply(status, f"<Error><Code>{code}</Code></Error>".encode()) if is_boundary else None

    s3.script(script)
    assert asked_for(completed(s3, ALL), ALL) == [OTHER.text]
    s3.script(None)
    assert asked_for(completed(s3, ALL), ALL) == [each.text for each in ALL]


def test_b_5_who_says_nothing_says_not_that_there_are_none(s3: S3Recorder) -> None:
    """B-5: without `--checkpoints` nothing is asked for, and the report says what to give it."""
    plan = completed(s3, ALL, "unknown")
    assert asked_for(plan, ALL) == []
    assert len(plan.unresolved) == 3
    assert "--checkpoints slatedb, a file, or none" in plan.unresolved[0].detail


def test_b_5_a_database_that_the_file_does_not_have_is_unknown(s3: S3Recorder, tmp_path: Path) -> None:
    """B-5: of the others what it holds is kept."""
    path = tmp_path / "held.json"
    path.write_text(json.dumps({"version": 1, "databases": {"p/db": [{"id": 2, "name": "manifest"}]}}))
    plan = completed(s3, ALL, str(path))
    assert [(each.name, list(each.held), bool(each.problem)) for each in plan.facts] == [
        ("compactions", [], False),
        ("manifest", [2], False),
        ("manifest", [], True),
    ]
    assert asked_for(plan, ALL) == [COMPACTIONS.text, DB.text]
