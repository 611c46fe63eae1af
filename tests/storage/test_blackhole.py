"""The black hole of the benchmarks: what it keeps is what was sent, and `verify` finds every difference."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from benchmarks.blackhole import verify

from sexton.storage import BatchDeleter, ObjectStore, StoreSettings

PROGRAM = Path(__file__).parents[2] / "benchmarks" / "blackhole.py"
KEYS = [f'tenants/<{i}>&"/é' for i in range(2500)]


@contextmanager
def black_hole(*options: str) -> Iterator[str]:
    """Run the program on a free port and yield its URL."""
    command = [sys.executable, str(PROGRAM), "--port", "0", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(10) == 0


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")


def send(url: str, batches: list[list[str]]) -> dict[str, float]:
    """Delete some batches and return the server's statistics."""
    with BatchDeleter(StoreSettings(url, requests_in_flight=3)) as deleter:
        for future in [deleter.submit("bucket", batch) for batch in batches]:
            future.result(10)
    with urllib.request.urlopen(f"{url}/__stats") as reply:
        return dict(json.load(reply))


def test_what_was_sent_is_kept(tmp_path: Path) -> None:
    """Every clean reply stands for a kept body; the keys are those that were due, whatever they hold."""
    keep = tmp_path / "bodies"
    with black_hole("--keep", str(keep)) as url:
        stats = send(url, [KEYS[:1000], KEYS[1000:2000], KEYS[2000:2499], KEYS[2499:]])
    result = verify(keep, iter(KEYS))

    assert (stats["requests"], stats["keys"]) == (4, 2500)
    assert result.exact
    assert (result.keys, result.missing, result.unexpected, result.duplicated) == (2500, 0, 0, 0)


def test_every_difference_is_counted(tmp_path: Path) -> None:
    """A missing, an unexpected and a repeated key are told apart; the hash does not depend on order."""
    keep, again = tmp_path / "bodies", tmp_path / "again"
    with black_hole("--keep", str(keep)) as url:
        send(url, [KEYS[:10], KEYS[5:12], ["stranger"]])
    with black_hole("--keep", str(again)) as url:
        send(url, [["stranger", *KEYS[11::-1]]])
    result = verify(keep, KEYS[:14])

    assert (result.keys, result.missing, result.unexpected, result.duplicated) == (18, 2, 1, 5)
    assert not result.exact
    assert verify(again, KEYS[:12]).hash == result.hash
    assert verify(again, [*KEYS[:12], "stranger"]).exact


def test_it_answers_anything(tmp_path: Path) -> None:
    """Other calls get an empty answer, also one that waits for a go-ahead, and late if told so."""
    with black_hole("--latency-ms", "20") as url:
        store = ObjectStore(StoreSettings(url))
        store.put("bucket", "key", b"x" * 300_000)

        assert list(store.list_keys("bucket")) == []
        assert send(url, [["a"]])["other_requests"] == 2
