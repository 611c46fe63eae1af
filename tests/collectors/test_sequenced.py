"""The collector `sequenced`, its pure parts: which files are garbage."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.sequenced_listings import DATE, DB, HOUR, NAMES, SCOPE, folded, listed, manifests

from sexton.schemas.actions import DeleteObjects
from sexton.schemas.forms import from_json, to_json
from sexton.schemas.guards import BoundaryGuard
from sexton.schemas.sequenced import Namespace
from sexton.storage import Listed
from sexton.streaming_jobs.collectors.room import Body, Found
from sexton.streaming_jobs.collectors.sequenced.decide import Fact, found_in, problem_of, unresolved_of
from sexton.streaming_jobs.collectors.sequenced.files import Files, ages_of, joined
from sexton.streaming_jobs.collectors.sequenced.room import SequencedPlan


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
