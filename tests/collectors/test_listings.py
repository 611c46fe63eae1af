"""G-4, the listing: one that leaves anything open decides nothing, and the report says why."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.collecting import Collecting, report_files
from tests.support.s3_recorder import Recorded, Reply, S3Recorder

from sexton.schemas.errors import SextonError
from sexton.storage import ListingFault, ObjectStore, StoreRefused, StoreSettings
from sexton.storage.errors import NoReply
from sexton.storage.listing import folders_of, pages_of
from sexton.streaming_jobs.collectors.driver import EmptyListing

pytestmark = pytest.mark.real


def page(*keys: str, truncated: str = "false", more: str = "", encoding: str = "url") -> Reply:
    """A page of a listing as a store may say it."""
    entries = "".join(f"<Contents><Key>{key}</Key><Size>1</Size></Contents>" for key in keys)
    said = f"<EncodingType>{encoding}</EncodingType>" if encoding else ""
    head = f"<IsTruncated>{truncated}</IsTruncated>" if truncated else ""
    body = f"<ListBucketResult>{head}{said}{more}{entries}</ListBucketResult>"
    return Reply(200, body.encode())


TOKEN = "<NextContinuationToken>x</NextContinuationToken>"
CASES: dict[str, tuple[Reply, type[SextonError], str]] = {
    "empty": (page(), EmptyListing, "the listing is empty"),
    "the same page again": (
        page("data/t/a", "data/t/b", truncated="true", more=TOKEN),
        ListingFault,
        "in their order, or twice",
    ),
    "out of order": (page("data/t/b", "data/t/a"), ListingFault, "in their order, or twice"),
    "in the order of another alphabet": (page("data/t/a", "data/t/B"), ListingFault, "in their order"),
    "outside the prefix": (page("data/t/a", "else/b"), ListingFault, "does not begin with the prefix"),
    "no token": (page("data/t/a", truncated="true"), ListingFault, "no token to continue"),
    "empty, and more follows": (page(truncated="true", more=TOKEN), ListingFault, "more follows"),
    "no word on the end": (page("data/t/a", truncated=""), ListingFault, "whether a page is the last"),
    "another count": (page("data/t/a", more="<KeyCount>2</KeyCount>"), ListingFault, "has 2 keys, and has 1"),
    "encoded, and not said so": (page("data/t/a%20b", encoding=""), ListingFault, "byte for byte"),
    "mangled": (page("data/t/a\ufffd", encoding=""), ListingFault, "byte for byte"),
    "cut off": (Reply(200, b"<ListBucketResult><IsTruncated>fal"), NoReply, "no ListBucketResult"),
    "refused": (Reply(403, b"<Error><Code>AccessDenied</Code></Error>"), StoreRefused, "AccessDenied"),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_g_4_a_listing_that_is_not_exact(
    recorded: tuple[Collecting, S3Recorder],
    case: tuple[Reply, type[SextonError], str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """G-4: nothing is emitted, the run fails, and its report has the reason and no finding."""
    (collecting, s3), (reply, error, words) = recorded, case
    monkeypatch.setattr("sexton.storage.listing._FIRST_WAIT_S", 0.0)
    s3.script(lambda request: reply if "list-type" in request.query else None)

    with pytest.raises(error, match=words):
        collecting.run(emit=True)

    (name,) = [each for each in report_files(tmp_path / "reports") if each.endswith(".jsonl")]
    report = collecting.reports.read(name.removesuffix(".jsonl"))
    assert (report.state, list(report.findings)) == ("failed", [])
    assert words in report.detail
    assert collecting.emitted() == []


def test_g_4_the_exit_code_says_so(recorded: tuple[Collecting, S3Recorder]) -> None:
    """G-4: an empty listing ends the command with 1."""
    collecting, _ = recorded
    assert collecting.command("--emit", code=1) == ""


def test_a_store_without_a_date(
    recorded: tuple[Collecting, S3Recorder], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is deleted goes by the store's clock: without it nothing is decided."""
    collecting, s3 = recorded
    s3.script(lambda request: Reply(200, page("data/t/a").body, {"Date": ""}))
    with pytest.raises(ListingFault, match="no Date"):
        collecting.run()


def test_a_request_that_may_succeed_later_is_repeated(
    recorded: tuple[Collecting, S3Recorder], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A 503 and a lost connection are asked again, some times."""
    collecting, s3 = recorded
    monkeypatch.setattr("sexton.storage.listing._FIRST_WAIT_S", 0.0)
    s3.buckets.fill(collecting.bucket, {"data/t/a": b"1"})
    replies = iter([Reply(503, b"<Error><Code>SlowDown</Code></Error>"), Reply(drop=True), Reply(500)])
    s3.script(lambda request: next(replies, None))

    assert collecting.run().objects == 1


def test_a_slice_of_keys_has_both_its_ends_right(recorder_store: tuple[ObjectStore, S3Recorder]) -> None:
    """A range begins after one key and ends with another one, whatever the pages are."""
    store, s3 = recorder_store
    keys = [f"p/{n:04}" for n in range(2500)]
    s3.create_bucket("b", dict.fromkeys(keys, b""))

    def listed(after: str | None, until: str | None) -> list[str]:
        pages = pages_of(store.calls, "b", "p/", after, until)
        return [entry.key for each in pages for entry in each.objects]

    assert listed(None, None) == keys
    assert listed("p/0003", "p/1200") == keys[4:1201]
    assert listed("p/0999", "p/0999x") == []


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("<IsTruncated>true</IsTruncated>", "whether a page of folders is the last"),
        ("", "whether a page of folders is the last"),
        (f"<IsTruncated>true</IsTruncated>{TOKEN}", "folders are not listed in their order"),
    ],
)
def test_folders_are_checked_too(
    recorder_store: tuple[ObjectStore, S3Recorder], more: str, words: str
) -> None:
    """Ranges are made of folders: a listing of them that does not end well is none."""
    store, s3 = recorder_store
    s3.create_bucket("b")
    body = (
        f"<ListBucketResult>{more}<CommonPrefixes><Prefix>p/a/</Prefix></CommonPrefixes></ListBucketResult>"
    )
    s3.script(lambda request: Reply(200, body.encode()))
    with pytest.raises(ListingFault, match=words):
        folders_of(store.calls, "b", "p/")


@pytest.fixture
def recorder_store(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A store on a recorder alone."""
    with S3Recorder() as recorder:
        for name, value in recorder.environ.items():
            monkeypatch.setenv(name, value)
        with ObjectStore(StoreSettings(recorder.url)) as store:
            yield store, recorder


Script = Callable[[Recorded], Reply | None]
