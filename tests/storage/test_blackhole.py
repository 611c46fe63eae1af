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
from benchmarks.certificates import make_certificate

from sexton.storage import Ability, BatchDeleter, ObjectStore, StoreSettings, Versioning

PROGRAM = Path(__file__).parents[2] / "benchmarks" / "blackhole.py"
KEYS = [f'tenants/<{i}>&"/é' for i in range(2500)]


class Url(str):
    """A URL on plain HTTP, with the one over TLS if there is one."""

    tls: str


@contextmanager
def black_hole(*options: str) -> Iterator[Url]:
    """Run the program on a free port and yield its URL."""
    command = [sys.executable, str(PROGRAM), "--port", "0", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            url = Url(f"http://127.0.0.1:{int(process.stdout.readline())}")
            if "--certificate" in options:
                url.tls = f"https://127.0.0.1:{int(process.stdout.readline())}"
            yield url
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
        for future in [deleter.delete_all("bucket", batch) for batch in batches]:
            assert future.result(10).clean
    with urllib.request.urlopen(f"{url}/__stats") as reply:
        return dict(json.load(reply))


def test_single_calls_are_kept_too(tmp_path: Path) -> None:
    """Keys that XML cannot carry go by calls of their own, and are among those that were sent."""
    keys = [*KEYS[:50], "a\x01b", "c\rd", "<&\x02>é"]
    keep = tmp_path / "bodies"
    with black_hole("--keep", str(keep)) as url:
        with BatchDeleter(StoreSettings(url)) as deleter:
            result = deleter.delete_all("bucket", keys).result(10)
            looked = deleter.look_up("bucket")
        with urllib.request.urlopen(f"{url}/__stats") as reply:
            stats = json.load(reply)

    assert result.clean
    assert (stats["keys"], stats["singles"]) == (50, 3)
    assert verify(keep, keys).exact
    assert (looked.versioning, looked.object_lock) == (Versioning.OFF, Ability.NO)


def test_a_share_fails_once(tmp_path: Path) -> None:
    """Of 2,000 keys 20 get InternalError inside a 200; sent again they are gone, and no key fails twice."""
    keys = [f"tenants/{number}" for number in range(2000)]
    keep = tmp_path / "bodies"
    with black_hole("--keep", str(keep)) as url, BatchDeleter(StoreSettings(url)) as deleter:
        with urllib.request.urlopen(f"{url}/__set?transient_share=0.01&latency_ms=30"):
            pass
        failed = []
        for batch in (keys[:1000], keys[1000:]):
            result = deleter.delete_all("bucket", batch).result(10)
            assert result.seconds >= 0.03
            assert {str(state.kind) for state in result.states.values()} == {"transient"}
            failed += [batch[index] for index in result.states]
        again = deleter.delete_all("bucket", failed).result(10)
        with urllib.request.urlopen(f"{url}/__stats") as reply:
            stats = json.load(reply)

    assert len(failed) == stats["failed_once"] == 20
    assert again.clean
    kept = verify(keep, keys)
    assert (kept.exact, kept.duplicated) == (True, 20)


def test_what_was_sent_is_kept_over_tls_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every clean reply stands for a kept body, by either port; the keys are those that were due."""
    (trusted, server), keep = make_certificate(tmp_path), tmp_path / "bodies"
    options = ("--keep", str(keep), "--certificate", str(server))
    with black_hole(*options) as url:
        send(url, [KEYS[:1000], KEYS[1000:2000]])
        # Who does not trust the authority of this run does not get through.
        with BatchDeleter(StoreSettings(url.tls, requests_in_flight=1)) as deleter:
            assert not deleter.delete_all("bucket", ["stranger"]).result(10).clean
        monkeypatch.setenv("AWS_CA_BUNDLE", str(trusted))
        with BatchDeleter(StoreSettings(url.tls, requests_in_flight=3)) as deleter:
            for future in [
                deleter.delete_all("bucket", KEYS[2000:2499]),
                deleter.delete_all("bucket", KEYS[2499:]),
            ]:
                assert future.result(10).clean
        with urllib.request.urlopen(f"{url}/__stats") as reply:
            stats = json.load(reply)
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
