"""The probe finds out what a store does, whatever it departs in, and leaves nothing behind."""

from __future__ import annotations

import posixpath
import re
import threading
import unicodedata
from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.support.s3_recorder import Recorded, Reply, S3Recorder, Traits

import sexton.storage.deleter
from sexton.storage import (
    ALIASINGS,
    Abilities,
    Ability,
    BatchDeleter,
    NoReply,
    StoreRefused,
    Versioning,
)
from sexton.storage.probing import PREFIX

YES, NO, UNKNOWN = Ability.YES, Ability.NO, Ability.UNKNOWN
IN_BATCHES = {aliasing.name for aliasing in ALIASINGS if aliasing.xml}


def probed(s3: S3Recorder, deleter: BatchDeleter, traits: Traits | None = None) -> Abilities:
    """Return what the probe finds; assert that it has touched nothing else and cleaned up."""
    s3.buckets.traits = traits or Traits()
    s3.create_bucket("bucket", {"theirs": b"x"})
    found = deleter.probe("bucket")

    assert set(s3.buckets.of("bucket").versions) == {"theirs"}
    assert all(key.removeprefix("/").startswith(PREFIX) for request in s3.requests for key in request.keys)
    return found


def test_a_faithful_store(s3: S3Recorder, deleter: BatchDeleter) -> None:
    """Everything that the S3 API documents is found to be so."""
    assert probed(s3, deleter) == Abilities(
        "bucket",
        crc32=YES,
        md5=YES,
        refuses_1001=YES,
        batch_condition=YES,
        single_condition=YES,
        batch_keeps=frozenset(IN_BATCHES),
        single_keeps=frozenset(aliasing.name for aliasing in ALIASINGS),
        versioning=Versioning.OFF,
        object_lock=NO,
        lists_in_order=YES,
        lists_exactly=YES,
        keeps_folders=YES,
    )


def test_it_is_asked_once(s3: S3Recorder, deleter: BatchDeleter) -> None:
    """The answer is kept for the process; until then nothing is known."""
    assert deleter.abilities("bucket").why_unknown == ("not probed",)
    first = probed(s3, deleter)
    asked = len(s3.requests)

    assert deleter.probe("bucket") is first
    assert deleter.abilities("bucket") is first
    assert len(s3.requests) == asked


def test_x_10_md5(s3: S3Recorder, deleter: BatchDeleter) -> None:
    """X-10: a store that wants Content-MD5 is found, and everything else is tried with it."""
    found = probed(s3, deleter, Traits(wants_md5=True))

    assert (found.crc32, found.md5, found.batch_condition) == (NO, YES, YES)
    assert deleter.delete_all("bucket", ["theirs"]).result(10).clean
    assert "content-md5" in [r for r in s3.requests if r.is_delete_objects][-1].headers


@pytest.mark.parametrize(
    ("ignored", "batch", "single"),
    [({"batch"}, NO, YES), ({"single"}, YES, NO), ({"batch", "single"}, NO, NO)],
)
def test_x_12_conditions(
    ignored: set[str], batch: Ability, single: Ability, s3: S3Recorder, deleter: BatchDeleter
) -> None:
    """X-12: a condition that is ignored in the batch, in the single call or in both is found out."""
    found = probed(s3, deleter, Traits(conditions_ignored=frozenset(ignored)))

    assert (found.batch_condition, found.single_condition) == (batch, single)


def test_a_store_that_folds_paths(s3: S3Recorder, deleter: BatchDeleter) -> None:
    """A file system's paths: what it folds is found out, and no such key is sent afterwards."""
    found = probed(s3, deleter, Traits(fold=lambda key: posixpath.normpath(key).lstrip("/")))
    sent = len(s3.requests)
    result = deleter.delete_all("bucket", ["x/../theirs", "//theirs", "/theirs"]).result(10)

    folded = frozenset({"dot segments", "double slash", "leading slash", "trailing slash"})
    assert (found.batch_aliases, found.single_aliases) == (folded, folded)
    assert {state.code for state in result.states.values()} == {"FoldedKey"}
    assert (len(s3.requests), set(s3.objects("bucket"))) == (sent, {"theirs"})


@pytest.mark.parametrize(
    ("name", "fold"),
    [
        ("dot segments", lambda key: re.sub(r"/[^/.]+/\.\./", "/", key)),
        ("dot segments", lambda key: key.replace("/./", "/")),
        ("double slash", lambda key: key.replace("//", "/")),
        ("leading slash", lambda key: key.removeprefix("/")),
        ("backslash", lambda key: key.replace("\\", "/")),
        ("trailing slash", lambda key: key.removesuffix("/")),
        ("percent", lambda key: key.replace("%2F", "/")),
        ("plus and space", lambda key: key.replace("+", " ")),
        ("plus and space", lambda key: key.replace(" ", "+")),
        ("outer space", str.strip),
        ("normal form", lambda key: unicodedata.normalize("NFC", key)),
        ("letter case", str.lower),
        ("line ends", lambda key: key.replace("\r", "\n")),
        ("line ends", lambda key: key.replace("\r", "")),
    ],
)
def test_x_9_each_way_to_fold_is_found_out(
    name: str, fold: Callable[[str], str], s3: S3Recorder, deleter: BatchDeleter
) -> None:
    """X-9: of a store that takes one kind of keys for others the probe names that kind, and no other."""
    s3.buckets.traits = Traits(fold=fold)
    found = deleter.probe("bucket")

    assert found.single_aliases == {name}
    assert found.batch_aliases == ({name} & IN_BATCHES)
    assert name not in found.batch_keeps | found.single_keeps


@pytest.mark.parametrize("versioning", ["Enabled", "Suspended"])
def test_a_versioned_bucket(versioning: str, s3: S3Recorder, deleter: BatchDeleter) -> None:
    """The probe leaves neither a version nor a marker."""
    s3.buckets._buckets.clear()
    s3.create_bucket("bucket", versioning=versioning)
    found = probed(s3, deleter)

    assert found.versioning == {"Enabled": Versioning.ON, "Suspended": Versioning.SUSPENDED}[versioning]
    assert (found.refuses_1001, found.batch_condition, found.lists_exactly) == (UNKNOWN, YES, YES)


def test_no_right_to_put(s3: S3Recorder, deleter: BatchDeleter) -> None:
    """Who may only delete learns what needs no object; the rest is unknown, with the reason."""

    def deny(request: Recorded) -> Reply | None:
        if request.method == "PUT" or "versioning" in request.query or "object-lock" in request.query:
            return Reply(403, b"<Error><Code>AccessDenied</Code></Error>")
        return None

    s3.script(deny)
    found = probed(s3, deleter)

    assert (found.crc32, found.batch_condition, found.versioning) == (YES, UNKNOWN, Versioning.UNKNOWN)
    assert (found.object_lock, found.batch_keeps) == (UNKNOWN, frozenset())
    assert "put: AccessDenied" in found.why_unknown


def test_listing_order(s3: S3Recorder, deleter: BatchDeleter) -> None:
    """A listing that is not in the order of UTF-8 bytes is found out."""
    assert probed(s3, deleter, Traits(lists_reversed=True)).lists_in_order is NO


@pytest.mark.parametrize("versioning", ["", "Enabled"])
@pytest.mark.parametrize("listed_as", ["encoded", "bare"])
def test_p_3_a_listing_that_is_not_exact_is_found_out_and_nothing_is_left_behind(
    listed_as: str, versioning: str, s3: S3Recorder, deleter: BatchDeleter
) -> None:
    """P-3: keys percent-encoded unsaid, or with a plus sign as it is; what was made goes by its name."""
    s3.buckets._buckets.clear()
    s3.create_bucket("bucket", versioning=versioning)
    found = probed(s3, deleter, Traits(listed_as=listed_as))

    assert (found.lists_exactly, found.lists("a/b-c_d.e"), found.lists("a+b")) == (NO, True, False)


def test_p_5_what_a_proxy_keeps_from_single_calls_is_removed_by_a_batch(
    s3: S3Recorder, deleter: BatchDeleter
) -> None:
    """P-5: a path that is spoilt on its way leaves behind only what XML cannot carry, and that is told."""
    spoilt = Reply(403, b"<Error><Code>SignatureDoesNotMatch</Code></Error>")
    s3.script(lambda request: spoilt if request.method == "DELETE" and "%" in request.path else None)

    found = deleter.probe("bucket")

    assert {key.rpartition("/")[2] for key in s3.objects("bucket")} == {"line\nb"}
    assert any(reason.startswith(f"clean up: left under {PREFIX}") for reason in found.why_unknown)


def test_a_store_that_cannot_be_asked_now(s3: S3Recorder, deleter: BatchDeleter) -> None:
    """Throttled or missing: the probe raises, and is made again the next time."""
    s3.script(lambda r: Reply(503, b"<Error><Code>SlowDown</Code></Error>") if r.method == "PUT" else None)
    with pytest.raises(StoreRefused, match="SlowDown"):
        deleter.probe("bucket")
    with pytest.raises(StoreRefused, match="no such bucket"):
        deleter.probe("missing")
    s3.script(None)

    assert probed(s3, deleter).batch_condition is YES


@pytest.mark.parametrize("what", ["versioning", "object-lock"])
@pytest.mark.parametrize(
    "answer",
    [
        Reply(500, b"<Error><Code>InternalError</Code></Error>"),
        Reply(503, b"<Error><Code>Unheard</Code></Error>"),
        Reply(429, b"<Error><Code>Unheard</Code></Error>"),
        Reply(drop=True),
    ],
    ids=["failed", "unavailable", "throttled", "cut"],
)
def test_what_a_bucket_could_not_say_now_is_not_kept(
    what: str, answer: Reply, s3: S3Recorder, deleter: BatchDeleter
) -> None:
    """What says nothing of the bucket raises, and the next answer counts: nothing is unknown for ever."""
    s3.script(lambda request: answer if what in request.query else None)
    for ask in (deleter.look_up, deleter.probe):
        with pytest.raises((StoreRefused, NoReply)):
            ask("bucket")
    s3.script(None)

    found = deleter.look_up("bucket")
    assert (found.versioning, found.object_lock, found.why_unknown) == (Versioning.OFF, NO, ())


@pytest.mark.parametrize("what", ["versioning", "object-lock"])
@pytest.mark.parametrize(
    "page",
    [b"<html></html>", b"<ListBucketResult></ListBucketResult>", b"hello"],
    ids=["html", "list", "text"],
)
def test_an_answer_that_is_none_leaves_it_unknown(
    what: str, page: bytes, s3: S3Recorder, deleter: BatchDeleter
) -> None:
    """What is said instead of the answer tells nothing; the other question is asked all the same."""
    s3.script(lambda request: Reply(200, page) if what in request.query else None)
    found = deleter.look_up("bucket")

    unknown = what == "versioning"
    assert found.versioning is (Versioning.UNKNOWN if unknown else Versioning.OFF)
    assert found.object_lock is (NO if unknown else UNKNOWN)
    assert len(found.why_unknown) == 1


@pytest.mark.parametrize("root", ["VersioningConfiguration", "GetBucketVersioningResponse"])
def test_stores_name_their_answer_in_their_own_ways(root: str, s3: S3Recorder, deleter: BatchDeleter) -> None:
    """What is about versioning is believed, whatever its element is called, with a namespace or without."""
    body = f'<{root} xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Status>Suspended</Status></{root}>'
    s3.script(lambda request: Reply(200, body.encode()) if "versioning" in request.query else None)

    assert deleter.look_up("bucket").versioning is Versioning.SUSPENDED


@pytest.mark.parametrize(
    ("retention", "tried"),
    [("<Days>1</Days>", False), ("<Years>2</Years>", False), ("<Days>0</Days>", True), ("", True)],
)
def test_nothing_is_put_where_the_bucket_itself_would_keep_it(
    retention: str, tried: bool, s3: S3Recorder, deleter: BatchDeleter
) -> None:
    """A probe's own objects would stay for as long as the bucket's default retention says."""
    rule = f"<Rule><DefaultRetention><Mode>GOVERNANCE</Mode>{retention}</DefaultRetention></Rule>"
    root = "ObjectLockConfiguration"
    body = f"<{root}><ObjectLockEnabled>Enabled</ObjectLockEnabled>{rule}</{root}>".encode()
    s3.script(lambda request: Reply(200, body) if "object-lock" in request.query else None)
    found = deleter.probe("bucket")

    assert found.object_lock is YES
    assert any(request.method == "PUT" for request in s3.requests) is tried
    assert ("put: the bucket has a default retention" in found.why_unknown) is not tried


def test_a_store_that_takes_folder_objects_along_is_found_out(s3: S3Recorder, deleter: BatchDeleter) -> None:
    """Where deleting `k` removes `k/`, which nobody named, that is seen, and a plain key is looked at."""

    def take_along(request: Recorded) -> None:
        for key in request.keys:
            with s3.buckets.lock:
                s3.buckets.of("bucket").delete(f"{key}/", None)

    s3.script(take_along)

    assert deleter.probe("bucket").keeps_folders is NO


def test_x_13_a_bucket_that_hangs_holds_up_no_other(s3: S3Recorder, deleter: BatchDeleter) -> None:
    """X-13: while one bucket's store is slow to answer, another bucket is probed."""
    s3.create_bucket("slow")
    reached, go_on = threading.Event(), threading.Event()

    def hang(request: Recorded) -> None:
        if request.bucket == "slow":
            reached.set()
            go_on.wait(10)

    s3.script(hang)
    thread = threading.Thread(target=deleter.probe, args=("slow",))
    thread.start()
    assert reached.wait(10)
    try:
        assert deleter.probe("bucket").crc32 is YES
        assert thread.is_alive()
    finally:
        go_on.set()
        thread.join()


def test_look_up_asks_the_bucket_and_writes_nothing(s3: S3Recorder, deleter: BatchDeleter) -> None:
    """Two requests tell versioning and object lock; odd aliasings are refused until a probe."""
    s3.create_bucket("versioned", dict.fromkeys(["a b", "plain", "a%2Fb", "é"], b""), versioning="Enabled")

    found = deleter.look_up("versioned")

    assert (found.versioning, found.object_lock) == (Versioning.ON, NO)
    assert [request.method for request in s3.requests] == ["GET", "GET"]
    states = deleter.delete_all("versioned", ["plain", "a b", "a%2Fb", "é"]).result().states
    codes = {index: state.code for index, state in states.items()}
    assert codes == dict.fromkeys([1, 2, 3], "FoldedKey")
    deleter.probe("versioned")
    assert deleter.delete_all("versioned", ["a b", "a%2Fb", "é"]).result().clean
    assert deleter.look_up("versioned").batch_condition is YES


@pytest.mark.parametrize("tried", [False, True], ids=["looked up", "probed"])
def test_versioning_that_is_switched_on_later_is_seen(
    s3: S3Recorder, deleter: BatchDeleter, monkeypatch: pytest.MonkeyPatch, tried: bool
) -> None:
    """What a bucket says of itself is asked again after a while; what a probe has found stays."""
    s3.create_bucket("bucket", {})
    before = deleter.probe("bucket") if tried else deleter.look_up("bucket")
    s3.buckets.of("bucket").versioning = "Enabled"
    assert deleter.look_up("bucket") == before

    monkeypatch.setattr(sexton.storage.deleter, "_ASK_AGAIN_S", 0.0)

    assert deleter.look_up("bucket") == replace(before, versioning=Versioning.ON)
    assert deleter.abilities("bucket").versioning is Versioning.ON


def test_a_probe_keeps_to_its_prefix(s3: S3Recorder, deleter: BatchDeleter) -> None:
    """X-18: with an allow-list nothing is made outside of it; what lies outside is not known."""
    s3.create_bucket("bucket", {"theirs": b"x"})

    found = deleter.probe("bucket", "tenants/")

    keys = [key for request in s3.requests for key in (*request.keys, request.key) if key]
    assert keys
    assert all(key.startswith("tenants/.sexton-probe/") for key in keys)
    assert "leading slash" not in found.batch_keeps | found.single_keeps
    assert list(s3.objects("bucket")) == ["theirs"]


def test_what_was_found_is_told_in_a_line(s3: S3Recorder, deleter: BatchDeleter) -> None:
    """`sexton doctor` prints what the store can do, and which aliasings are refused."""
    reported = probed(s3, deleter, Traits(conditions_ignored=frozenset(["batch"]))).summary()

    assert "conditional batch: no; conditional delete: yes" in reported
    assert "aliasings refused: none" in reported
