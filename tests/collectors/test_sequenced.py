"""The collector `sequenced`, its pure parts: which files are garbage, and who says what is held."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.s3_recorder import Recorded, Reply, S3Recorder, recorder_of_this_process

from sexton.schemas.actions import DeleteObjects
from sexton.schemas.errors import UsageError
from sexton.schemas.forms import from_json, to_json
from sexton.schemas.guards import BoundaryGuard
from sexton.schemas.sequenced import Namespace
from sexton.storage import BucketAddress, Listed, ObjectStore, StoreSettings
from sexton.streaming_jobs.collectors.room import Body, Found, Scope, Sources
from sexton.streaming_jobs.collectors.sequenced.checkpoints import (
    CheckpointsUnreadable,
    Held,
    Unknown,
    held_in,
    parse,
)
from sexton.streaming_jobs.collectors.sequenced.decide import Fact, found_in, problem_of, unresolved_of
from sexton.streaming_jobs.collectors.sequenced.engine import held_by, open_store, path_of
from sexton.streaming_jobs.collectors.sequenced.files import Files, FilesFold, ages_of, joined
from sexton.streaming_jobs.collectors.sequenced.room import ROOM, Sequenced, SequencedPlan, _fact

DATE = datetime(2026, 3, 1, 12, tzinfo=UTC)
SCOPE = Scope("bucket", "p/")
DB = Namespace("p/db", "manifest")
HOUR = 3600.0
NAMES = ("manifest", "compactions")


def listed(key: str, age_s: float | None = 2 * HOUR, size: int = 10) -> Listed:
    """An object as a listing has it, as old as that by the listing's Date."""
    return Listed(key, '"e"', size, written_at=None if age_s is None else DATE - timedelta(seconds=age_s))


def folded(*entries: Listed, cut: Sequence[int] = ()) -> list[Files]:
    """The parts of a listing, which is cut after these numbers of objects."""
    fold, parts = FilesFold(NAMES), list[Files]()
    for number, entry in enumerate(sorted(entries, key=lambda each: each.key.encode())):
        parts += fold.add(entry)
        if number in cut:
            parts += fold.end()
    return [*parts, *fold.end()]


def manifests(*ids: int, age_s: float = 2 * HOUR) -> list[Listed]:
    """Manifests of the database."""
    return [listed(DB.key(id), age_s) for id in ids]


def garbage(entries: Sequence[Listed], *facts: Fact) -> list[tuple[Found, Body]]:
    """What is garbage in the database's manifests."""
    (files,) = [each for each in joined(folded(*entries)) if each.text == DB.text]
    return [(each, each.body(DATE)) for each in found_in(files, facts, SCOPE, DATE, HOUR)]


def fact(boundary: int = 0, held: Sequence[int] = (), problem: str = "", name: str = "manifest") -> Fact:
    """What is known of a namespace of the database."""
    return Fact(DB.root, name, boundary, held, problem)


def ids_of(body: Body) -> list[int | None]:
    """The ids that an intent names."""
    assert isinstance(body.action, DeleteObjects)
    (phase,) = body.action.phases
    return [DB.id_of(key) for key in phase]


def test_what_is_old_and_not_held_is_asked_for_under_its_own_highest_id() -> None:
    """The newest, what is young, and what a checkpoint holds are kept; the boundary may pass what is held."""
    young, untold = listed(DB.key(6), age_s=HOUR - 1), listed(DB.key(7), age_s=None)
    old = manifests(1, 2, 3, 4, 5, 9)

    ((found, body),) = garbage([*old, young, untold], fact(boundary=2, held=(3, 8)))

    assert ids_of(body) == [1, 2, 4, 5]
    assert body.guards == (BoundaryGuard("p/db/manifest", 5, floor=2),)
    assert body.tenant == "p/db/manifest"
    assert (found.objects, found.bytes, found.covers) == (4, 40, "p/db/manifest/")
    assert "kept: newest 9, 2 young, 1 of checkpoints" in found.detail


def test_the_newest_file_is_never_named() -> None:
    """However old it is, and where it is alone, too."""
    assert garbage(manifests(25), fact()) == []
    ((_, body),) = garbage(manifests(24, 25), fact())
    assert ids_of(body) == [24]


def test_the_age_is_by_the_clock_of_the_store() -> None:
    """A file that is as old as the limit, or written after the listing's Date, is young."""
    files = [listed(DB.key(id), age_s) for id, age_s in enumerate((HOUR + 0.001, HOUR, 0, -5, 2 * HOUR), 1)]
    (part,) = folded(*files)
    ages = ages_of(part, DATE, HOUR)
    assert ages is not None
    assert (ages.newest, [id for id, _ in ages.old], ages.young) == (5, [1], 3)


def test_without_what_is_known_nothing_is_asked_for() -> None:
    """A namespace of which nothing was learnt, or whose database has a problem anywhere, is kept whole."""
    old = manifests(1, 2)
    assert garbage(old) == []
    assert garbage(old, fact(problem="unreadable")) == []
    assert garbage(old, fact(), fact(problem="unreadable", name="compactions")) == []
    assert len(garbage(old, fact(), fact(name="compactions"))) == 1


def test_a_boundary_above_the_newest_file_is_a_problem() -> None:
    """The listing is stale, or every writer is locked out: both are told, and nothing is asked for."""
    (files,) = folded(*manifests(1, 2))
    assert problem_of(files, 2) == ""
    assert "3, above the newest file 2" in problem_of(files, 3)


def test_a_namespace_that_no_intent_can_name_fails_nobody_else() -> None:
    """A tenant's name is 512 bytes at most: a longer one is reported, and other databases are collected."""
    long = Namespace("p/" + "\u00fc" * 251, "manifest")
    (files,) = folded(*(listed(long.key(id)) for id in (1, 2)))
    assert len(long.text.encode()) == 513
    assert "longer than a tenant's" in problem_of(files, 0)
    assert problem_of(replace(files, root=long.root[:-1] + "x"), 0) == ""


def test_many_files_are_several_intents_the_lowest_first() -> None:
    """Each has an id of its own, the largest of its keys: a lower one needs no higher boundary."""
    bodies = [body for _, body in garbage(manifests(*range(1, 25_002)), fact(boundary=7))]

    named = [ids_of(body) for body in bodies]
    assert [id for ids in named for id in ids] == list(range(1, 25_001))
    assert len(named) == 3
    for ids, body in zip(named, bodies, strict=True):
        assert body.guards == (BoundaryGuard(DB.text, ids[-1] or 0, floor=7),)


def test_ids_of_intents_are_of_what_is_deleted() -> None:
    """The same files under another boundary are the same; other files up to the same id are not."""

    def identity(ids: Sequence[int], boundary: int = 0) -> Sequence[str]:
        ((found, _),) = garbage(manifests(*ids), fact(boundary))
        return found.identity

    assert identity((1, 2, 9)) == identity((1, 2, 9), boundary=1) == identity((1, 2, 10))
    assert len({tuple(identity(ids)) for ids in ((1, 2, 9), (2, 9), (1, 9), (1, 3, 9))}) == 4


STRANGE = (
    "p/db/manifest/25.manifest",
    "p/db/manifest/00000000000000000003.manifest.bak",
    "p/db/manifest/00000000000000000003.compactions",
    "p/db/manifest/0000000000000000000x.manifest",
    "p/db/manifest/99999999999999999999.manifest",
    "p/db/manifest/09223372036854775808.manifest",
    "p/db/manifest/00000000000000000000.manifest",
    "p/db/manifest/",
)


def test_b_2_unknown_names_are_reported_and_never_named() -> None:
    """B-2: in a namespace's folder; elsewhere, and in folders without any file, they are passed over."""
    others = ("p/db/wal/00000000000000000001.sst", "p/images/manifest/index.json", "p/manifest", "p/gc/x")
    entries = [*manifests(1, 2), *(listed(key) for key in (*STRANGE, *others))]

    ((_, body),) = garbage(entries, fact())

    assert ids_of(body) == [1]
    told = [one for each in joined(folded(*entries)) for one in unresolved_of(each, ())]
    assert [(each.cause, each.tenant) for each in told] == [("unknown-name", "p/db/manifest")]
    assert "8 objects" in told[0].detail


@pytest.mark.parametrize("root", ["p//db", "p/../db", "p/./db"])
def test_a_root_that_readers_take_for_another_one_is_reported(root: str) -> None:
    """No guard can name it: its files are reported, and not asked for."""
    (files,) = folded(*(listed(f"{root}/manifest/{id:020}.manifest") for id in (1, 2)))
    assert ages_of(files, DATE, HOUR) is None
    assert [each.cause for each in unresolved_of(files, ())] == ["unknown-name"]


@given(st.sets(st.integers(0, 60)))
def test_a_listing_may_be_cut_anywhere(cut: set[int]) -> None:
    """Parts of one folder add up, also where a folder of the same name lies in it."""
    nested = Namespace("p/db/manifest/0", "manifest")
    entries = [*manifests(*range(30)), *(listed(nested.key(id)) for id in range(20))]
    entries += [listed(f"p/db/compacted/{number}.sst") for number in range(10)]

    whole, parts = folded(*entries), folded(*entries, cut=sorted(cut))

    assert {each.text: sorted(each.ids) for each in joined(parts)} == {
        each.text: sorted(each.ids) for each in joined(whole)
    }
    assert [from_json(Files, to_json(each)) for each in parts] == parts


def test_a_folder_with_many_files_is_several_parts() -> None:
    """What a fold holds is bounded."""
    parts = folded(*manifests(*range(1, 2501)))
    assert [len(each.ids) for each in parts] == [1000, 1000, 500]


def test_a_plan_is_kept_with_a_listing() -> None:
    """It has a form for JSON."""
    plan = SequencedPlan(NAMES, HOUR)
    assert from_json(SequencedPlan, json.loads(json.dumps(to_json(plan)))) == plan


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


NOTHING: Any = None


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


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Recorder]:
    """A recording store with a bucket; its credentials are this process'."""
    with recorder_of_this_process(monkeypatch) as made:
        made.create_bucket("bucket")
        yield made


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
