"""Buckets that are reached under a host of their own."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import pytest
from tests.storage.conftest import BUCKET
from tests.support.s3_recorder import S3Recorder

from sexton.storage import BatchDeleter, Effect, Kind, StoreSettings
from sexton.storage import connection as connection_module
from sexton.storage.http import Unsent
from sexton.storage.states_of import unavailable
from sexton.storage.wire import Wire

MakeDeleter = Callable[[StoreSettings], BatchDeleter]


@pytest.mark.parametrize(("key", "path"), [("a/b", "/a/b"), ("/a", "//a"), ("", "/")])
def test_x_9_exactly_one_slash_stands_before_a_key(
    key: str, path: str, make_deleter: MakeDeleter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """X-9: one more would name another object; a batch goes to the bucket's root."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    signer = make_deleter(StoreSettings(region="eu-west-3"))._signer
    origin = "https://logs.s3.eu-west-3.amazonaws.com"

    address = signer.address("logs")
    batch = signer.signed(address, "POST", query={"delete": ""}, body=b"x")

    assert signer.signed(address, "DELETE", key).url == origin + path
    assert batch.url.startswith(f"{origin}/?delete")


@pytest.mark.parametrize(
    ("host", "code", "reported", "kind"),
    [
        ("bucket.store.example", "EndpointUnreachable", "BucketHostUnreachable", Kind.BUCKET),
        ("bucket.store.example", "CertificateRejected", "BucketCertificateRejected", Kind.BUCKET),
        ("store.example", "EndpointUnreachable", "EndpointUnreachable", Kind.ENVIRONMENT),
        ("bucket2.store.example", "CertificateRejected", "CertificateRejected", Kind.ENVIRONMENT),
    ],
)
def test_x_13_a_buckets_own_host_holds_up_no_other(host: str, code: str, reported: str, kind: Kind) -> None:
    """X-13: it says nothing about the other buckets; a host of all is everybody's."""
    wire = Wire(StoreSettings(f"http://{host}"), None)

    state = unavailable(wire._no_reply("bucket", f"http://{host}/a", Unsent("away", code, "")))

    assert (state.code, state.kind, state.effect) == (reported, kind, Effect.NONE)


def test_old_connections_to_other_hosts_are_dropped(
    settings: StoreSettings, s3: S3Recorder, make_deleter: MakeDeleter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They come and go with their buckets: what nobody uses is closed, and the search for it ends."""
    deleter = make_deleter(settings)
    wire, signer = deleter._wire, deleter._signer
    wire.exchange(BUCKET, signer.signed(signer.address(BUCKET), "HEAD"))
    (idle,) = wire._idle.values()
    wire._idle["https://other.example"] = other = deque([idle.pop()])
    monkeypatch.setattr(connection_module, "_IDLE_S", 0.0)

    wire.exchange(BUCKET, signer.signed(signer.address(BUCKET), "HEAD"))

    assert len(other) == 0
