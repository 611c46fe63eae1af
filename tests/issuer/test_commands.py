"""`sexton issuer` as a process: one that was started for signals, and forked ones for what it says."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from tests.support.issuing import redis_of, sexton

from sexton.deploy.local import Installation
from sexton.issuer.client import IssuerClient

pytestmark = pytest.mark.real
COMMAND = [sys.executable, "-m", "sexton.deploy.main", "issuer"]


def run(installation: Installation, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run one command of the issuer in an installation."""
    return sexton(installation, "issuer", *arguments)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_serve_until_a_signal(fresh: Installation, number: signal.Signals, code: int) -> None:
    """`serve` says on stderr where it is ready, keeps stdout empty and ends cleanly by a signal."""
    process = subprocess.Popen(
        [*COMMAND, "serve", "--port", "0"],
        env=fresh.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    url = next(line for line in process.stderr if line.startswith("issuer ready: ")).split()[-1]
    with IssuerClient(url) as issuer:
        assert issuer.attach("n", "t").generation == 1
    process.send_signal(number)
    out, _ = process.communicate(timeout=15)

    assert (process.returncode, out) == (code, "")


def test_a_killed_issuer_goes_on_where_it_was(fresh: Installation) -> None:
    """A crash costs nothing: the next process folds the log and counts on; retries get their answer."""
    fresh.start_issuer()
    with IssuerClient(fresh.settings.issuer_url, caller="c") as issuer:
        issuer.attach("n", "t")
        second = issuer.attach("n", "t", request_id="r")
        fresh.kill_issuer()
        fresh.start_issuer()

        assert issuer.attach("n", "t", request_id="r") == second
        assert issuer.attach("n", "t").generation == 3


def test_serve_refuses_an_empty_log(bare: Installation) -> None:
    """An issuer on a log that was never started exits with 1 and says what to do."""
    done = run(bare, "serve")

    assert done.returncode == 1
    assert "sexton topics create" in done.stderr


@pytest.mark.parametrize("missing", ["CERT", "KEY", "neither"])
def test_serve_refuses_tls_files_that_it_cannot_load(
    fresh: Installation, tmp_path: Path, missing: str
) -> None:
    """The setting and the file are named, before anything is said to be ready."""
    env = {}
    for name in ("CERT", "KEY"):
        path = tmp_path / f"{name}.pem"
        env[f"SEXTON_ISSUER_TLS_{name}"] = str(path)
        if name != missing:
            path.write_text("no PEM")

    done = sexton(fresh, "issuer", "serve", "--port", "0", **env)

    assert done.returncode == 2
    assert "ready" not in done.stderr
    assert "internal error" not in done.stderr
    named = "SEXTON_ISSUER_TLS_CERT and" if missing == "neither" else f"SEXTON_ISSUER_TLS_{missing}: "
    assert named in done.stderr


def test_show(shared: Installation, issuer: IssuerClient, unique: str) -> None:
    """`show` prints a tenant's state and history, as text or JSON; an unknown one exits with 1."""
    issuer.attach("n1", unique)
    issuer.attach("n2", unique)

    text = run(shared, "show", unique)
    data = json.loads(run(shared, "show", unique, "--format", "json").stdout)

    over_http = httpx.get(f"{shared.settings.issuer_url}/v1/tenants/{unique}", trust_env=False).json()
    assert {**data, "log_offset": 0} == {**over_http, "log_offset": 0}
    assert [set(span) & {"from", "until", "start"} for span in data["history"]] == [
        {"from"},
        {"from", "until"},
    ]
    assert "holder      n2" in text.stdout
    assert (data["generation"], [span["node"] for span in data["history"]]) == (2, ["n2", "n1"])
    unknown = run(shared, "show", f"{unique}-unknown")
    assert unknown.returncode == 1
    assert "hint: is the name right?" in unknown.stderr


def test_scan_of_a_bucket_that_is_not_there(shared: Installation) -> None:
    """A missing bucket is reported with the setting that says which store was asked."""
    done = run(shared, "scan", "s3://no-such-bucket/tenants/")

    assert done.returncode == 1
    assert "NoSuchBucket" in done.stderr
    assert "hint: is the bucket's name right, and is it in this store? SEXTON_S3_ENDPOINT_URL" in done.stderr


def test_rebuild(shared: Installation, issuer: IssuerClient, unique: str) -> None:
    """`rebuild` brings Redis back from the log while the service runs."""
    issuer.attach("n", unique)
    client = redis_of(shared.settings)
    client.flushdb()

    done = run(shared, "rebuild")

    assert done.returncode == 0, done.stderr
    (key,) = client.keys("*:newest")
    assert client.hget(key, unique).startswith(b"1@")
    assert issuer.attach("n", unique).generation == 2
    client.close()
