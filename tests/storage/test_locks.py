"""Which lock keeps a version: told by its headers, or only where it is asked for by name."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from tests.support.s3_recorder import Recorded, Reply, S3Recorder

from sexton.storage import StoreSettings
from sexton.storage.exchange import Exchange
from sexton.storage.locks import Lock, lock_of
from sexton.storage.signing import RequestSigner
from sexton.storage.wire import Wire

UNTIL = datetime(2100, 1, 2, 3, 4, 5, tzinfo=UTC)
DATE = "2100-01-02T03:04:05"
RETAINED = f"<Retention><Mode>GOVERNANCE</Mode><RetainUntilDate>{DATE}Z</RetainUntilDate></Retention>"
HELD = "<LegalHold><Status>ON</Status></LegalHold>"
FREE = "<LegalHold><Status>OFF</Status></LegalHold>"
NONE = "<Error><Code>NoSuchObjectLockConfiguration</Code></Error>"


def lock(
    s3: S3Recorder,
    settings: StoreSettings,
    headers: dict[str, str],
    version: str | None = None,
    **by_name: str,
) -> Lock | None:
    """The lock of a key whose HEAD has these headers; `by_name` are the answers of its subresources."""

    def answer(request: Recorded) -> Reply:
        if request.method == "HEAD":
            return Reply(200, headers=headers)
        body = by_name["retention" if "retention" in request.query else "hold"]
        return Reply(404 if body is NONE else 200, body.encode())

    s3.script(answer)
    signer = RequestSigner(settings)
    return lock_of(Exchange(signer, Wire(settings, signer.ca_bundle)), "bucket", "k", version)


@pytest.mark.parametrize("zone", ["Z", "+00:00", ""])
def test_a_lock_is_read_from_the_headers(zone: str, s3: S3Recorder, settings: StoreSettings) -> None:
    """One request; a date without a zone is in UTC, so that it can be compared."""
    headers = {
        "x-amz-object-lock-mode": "COMPLIANCE",
        "x-amz-object-lock-retain-until-date": f"{DATE}{zone}",
    }

    assert lock(s3, settings, headers, "v") == Lock(UNTIL, legal_hold=False, mode="COMPLIANCE")
    assert [(r.method, r.query.get("versionId")) for r in s3.requests] == [("HEAD", "v")]


def test_a_legal_hold_alone_is_read_from_the_headers(s3: S3Recorder, settings: StoreSettings) -> None:
    """It has no date and no mode."""
    assert lock(s3, settings, {"x-amz-object-lock-legal-hold": "ON"}) == Lock(None, legal_hold=True)


@pytest.mark.parametrize("headers", [{}, {"x-amz-object-lock-retain-until-date": "soon"}])
def test_of_the_current_version_the_headers_tell_all(
    headers: dict[str, str], s3: S3Recorder, settings: StoreSettings
) -> None:
    """Without a lock that can be read there is none, and nothing else is asked."""
    assert lock(s3, settings, headers) is None
    assert [request.method for request in s3.requests] == ["HEAD"]


@pytest.mark.parametrize(
    ("retention", "hold", "expected"),
    [
        (RETAINED, NONE, Lock(UNTIL, legal_hold=False, mode="GOVERNANCE")),
        (NONE, HELD, Lock(None, legal_hold=True)),
        (RETAINED, HELD, Lock(UNTIL, legal_hold=True, mode="GOVERNANCE")),
        (RETAINED, FREE, Lock(UNTIL, legal_hold=False, mode="GOVERNANCE")),
        (NONE, FREE, None),
        ("<html>", "", None),
    ],
    ids=["retained", "held", "both", "hold is over", "none", "no answer"],
)
def test_of_an_older_version_it_is_asked_by_name(
    retention: str, hold: str, expected: Lock | None, s3: S3Recorder, settings: StoreSettings
) -> None:
    """Where the headers are silent its retention and its legal hold are asked for, of this very version."""
    assert lock(s3, settings, {}, "v", retention=retention, hold=hold) == expected
    assert [(r.method, r.query.get("versionId")) for r in s3.requests] == [
        ("HEAD", "v"),
        ("GET", "v"),
        ("GET", "v"),
    ]
    assert ["retention" in r.query for r in s3.requests] == [False, True, False]
    assert ["legal-hold" in r.query for r in s3.requests] == [False, False, True]


def test_a_lock_that_nobody_tells_is_none(s3: S3Recorder, settings: StoreSettings) -> None:
    """The refusal stands without its date: a connection that breaks raises nothing here."""
    signer = RequestSigner(settings)
    s3.script(lambda _: Reply(drop=True))

    assert lock_of(Exchange(signer, Wire(settings, signer.ca_bundle)), "bucket", "k", "v") is None
