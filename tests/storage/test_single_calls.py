"""Keys that go one by one: locks, conditions, credentials and odd answers are told as in a batch."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from tests.support.s3_recorder import Reply, S3Recorder

from sexton.storage import Ability, BatchDeleter, Delete, Effect, Kind, StoreRefused

UNTIL = datetime(2100, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"<html>log in</html>", Kind.UNACCOUNTED),
        (b"x", Kind.UNACCOUNTED),
        (b"<Error><Code>NoSuchKey</Code></Error>", Kind.UNACCOUNTED),
        (b"<Error><Code>AccessDenied</Code></Error>", Kind.UNKNOWN),
    ],
)
def test_x_5_a_200_with_something_in_it(
    body: bytes, kind: Kind, s3: S3Recorder, deleter: BatchDeleter
) -> None:
    """X-5: who deletes one object answers 204; a page, or an error behind a 200, says nothing of the key."""
    s3.script(lambda _: Reply(200, body))

    state = deleter.delete_all("bucket", ["a\x01"]).result(10).state(0)

    assert (state.kind, state.effect) == (kind, Effect.UNKNOWN)


def test_locked_versions_of_keys_that_go_alone(s3: S3Recorder, deleter: BatchDeleter) -> None:
    """As in a batch: final with the date or hold, and governance is bypassed only when asked."""
    s3.create_bucket("locked", locks=True)
    deleter.probe("locked")
    keys = ("gov\r", "held\r")
    made = [deleter.calls.put("locked", key, b"") for key in keys]
    governed, held = (s3.versions("locked", key)[0] for key in keys)
    governed.mode, governed.retain_until, held.legal_hold = "GOVERNANCE", UNTIL, True
    items = [Delete(key, version_id=put.version_id) for key, put in zip(keys, made, strict=True)]

    refused = deleter.delete_all("locked", items).result(10)
    bypassed = deleter.delete_all("locked", items, bypass_governance=True).result(10)

    assert [refused.state(i).kind for i in (0, 1)] == [Kind.FINAL] * 2
    assert [refused.state(i).retain_until for i in (0, 1)] == [UNTIL, None]
    assert (refused.fault, refused.state(1).legal_hold) == (None, True)
    assert [bypassed.state(i).kind for i in (0, 1)] == [Kind.GONE, Kind.FINAL]


def test_a_condition_stays_with_its_own_call(s3: S3Recorder, deleter: BatchDeleter) -> None:
    """What one bypassing call carried is not carried by the next one, for another key."""
    known = deleter.abilities("bucket")
    deleter.learn(replace(known, single_condition=Ability.YES, batch_condition=Ability.YES))
    etag = deleter.calls.put("bucket", "a\x01", b"1").etag
    deleter.calls.put("bucket", "b\x01", b"2")

    first = deleter.delete_all("bucket", [Delete("a\x01", etag)], bypass_governance=True).result(10)
    second = deleter.delete_all("bucket", ["b\x01"], bypass_governance=True).result(10)

    assert (first.state(0).kind, second.state(0).kind) == (Kind.GONE, Kind.GONE)
    assert s3.objects("bucket") == {}
    assert "if-match" not in s3.requests[-1].headers


def test_plain_keys_that_a_lock_keeps(s3: S3Recorder, deleter: BatchDeleter) -> None:
    """Where a store refuses a plain delete for a lock, the lock is told: it is no policy of the bucket."""
    s3.create_bucket("locked", dict.fromkeys("ab", b""), locks=True)
    deleter.probe("locked")
    for key in "ab":
        s3.versions("locked", key)[0].legal_hold = True
    errors = "".join(f"<Error><Key>{key}</Key><Code>AccessDenied</Code></Error>" for key in "ab")
    s3.script(lambda r: Reply(200, f"<DeleteResult>{errors}</DeleteResult>".encode()) if r.keys else None)

    result = deleter.delete_all("locked", ["a", "b"]).result(10)

    assert [(result.state(i).kind, result.state(i).legal_hold) for i in (0, 1)] == [(Kind.FINAL, True)] * 2
    assert not result.all_denied


@pytest.mark.parametrize(
    "code", ["ExpiredToken", "InvalidToken", "InvalidAccessKeyId", "TokenRefreshRequired"]
)
def test_each_code_of_old_credentials_renews_them(
    code: str, s3: S3Recorder, deleter: BatchDeleter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever a store calls it, the source is asked anew: for a batch, a key by itself, any other call."""
    asked: list[str] = []
    monkeypatch.setattr(deleter._signer, "forget_credentials", lambda: asked.append(code))
    s3.script(lambda _: Reply(403, f"<Error><Code>{code}</Code></Error>".encode()))

    deleter.delete_all("bucket", ["a"]).result(10)
    deleter.delete_all("bucket", ["a\x01"]).result(10)
    with pytest.raises(StoreRefused):
        deleter.calls.put("bucket", "a", b"")

    assert asked == [code] * 3
