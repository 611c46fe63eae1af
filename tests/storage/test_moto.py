"""The storage part against moto, whose replies were not written by us."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from moto.moto_server.werkzeug_app import create_backend_app
from werkzeug.serving import make_server

from sexton.storage import BatchDeleter, ObjectStore, StoreSettings

KEYS = ["a", "a+b", "a b", "a%2Fb", "t#1", "<&>\"'", " lead", "é", "e\u0301", "a/b"]


@pytest.fixture
def moto(monkeypatch: pytest.MonkeyPatch) -> Iterator[StoreSettings]:
    """Settings that lead to an S3 server of moto's in this process."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    server = make_server("127.0.0.1", 0, create_backend_app("s3"), threaded=True)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield StoreSettings(f"http://127.0.0.1:{server.server_port}", requests_in_flight=2)
    server.shutdown()
    server.server_close()


def test_a_batch_against_moto(moto: StoreSettings) -> None:
    """What was put is deleted in one clean batch, what was not named stays, and a missing bucket is
    reported.
    """
    store = ObjectStore(moto)
    store.create_bucket("bucket")
    for key in [*KEYS, "stays"]:
        store.put("bucket", key, b"x")
    with BatchDeleter(moto) as deleter:
        result = deleter.delete_all("bucket", [*KEYS, "was never there"]).result(10)
        missing = deleter.delete_all("missing", ["a"]).result(10)

    assert (result.clean, result.requests) == (True, 1)
    assert missing.state(0).code == "NoSuchBucket"
    assert list(store.list_keys("bucket")) == ["stays"]
