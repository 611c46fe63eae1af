"""The proxy as operators meet it: `sexton local faults`, and `sexton local up --faults`."""

from __future__ import annotations

import dataclasses
import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
import urllib3
from tests.conftest import Cli
from tests.support import pages
from tests.support.proxied import Logged, read_log

from sexton.deploy.local import LocalStack
from sexton.deploy.local.faults import rules
from sexton.deploy.local.faults.requests import OPERATIONS

S3_ALONE = ("--without", "kafka", "--without", "redis", "--without", "issuer", "--without", "topics")
PAGE = pages.ROOT / "docs" / "faults.md"
SLOW_DOWN = '[[rule]]\noperation = "DeleteObjects"\nerror = "SlowDown"\n'


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file of faults."""
    path = tmp_path / "faults.toml"
    path.write_text(SLOW_DOWN)
    return path


def delete(url: str) -> int:
    """Send a DeleteObjects request and return its status."""
    body = b"<Delete><Object><Key>a/../b</Key></Object><Object><Key>x//y</Key></Object></Delete>"
    signed = {"Authorization": "AWS4-HMAC-SHA256 Credential=AK/20000101/us-east-1/s3/aws4_request"}
    return urllib3.request(
        "POST", f"{url}/sexton-local?delete", body=body, headers=signed, retries=False
    ).status


class TestUp:
    @pytest.mark.slow
    def test_the_proxy_is_a_part_of_the_stack(self, cli: Cli, folder: Path, file: Path) -> None:
        """`up --faults` leads programs to the proxy, `status` shows it, it logs what came, `down` ends it."""
        where = ("--dir", str(folder))
        up = cli("local", "up", *where, *S3_ALONE, "--faults", str(file), "--format", "json")
        assert up.returncode == 0, up.stderr
        url = json.loads(up.stdout)["SEXTON_S3_ENDPOINT_URL"]
        status = json.loads(cli("local", "status", *where, "--format", "json").stdout)
        row = next(part for part in status["parts"] if part["part"] == "faults")

        assert (row["state"], url) == ("ready", f"http://127.0.0.1:{row['port']}")
        assert json.loads(up.stdout)["AWS_ENDPOINT_URL_S3"] == url
        assert delete(url) == 503
        file.write_text("")
        assert delete(url) == 200

        (first, second) = read_log(folder / "logs" / "s3-requests.jsonl")
        assert (first.operation, first.bucket, list(first.keys)) == (
            "DeleteObjects", "sexton-local", ["a/../b", "x//y"],
        )  # fmt: skip
        assert [(first.status, first.forwarded), (second.status, second.forwarded)] == [
            (503, False),
            (200, True),
        ]

        again = cli("local", "up", *where, *S3_ALONE, "--format", "json")
        assert json.loads(again.stdout) == json.loads(up.stdout)

        assert cli("local", "down", *where).returncode == 0
        assert (
            not psutil.pid_exists(row["pid"]) or psutil.Process(row["pid"]).status() == psutil.STATUS_ZOMBIE
        )
        after = json.loads(cli("local", "status", *where, "--format", "json").stdout)
        assert "faults" not in [part["part"] for part in after["parts"]]

    def test_a_bad_file_starts_nothing(self, cli: Cli, folder: Path, file: Path) -> None:
        """A file that cannot be played is wrong usage, said before anything is started."""
        file.write_text("[[rule]]\nlatncy_ms = 5\n")

        up = cli("local", "up", "--dir", str(folder), *S3_ALONE, "--faults", str(file))

        assert (up.returncode, up.stdout) == (2, "")
        assert (
            up.stderr
            == f"error: {file}: rule 1: unknown field: latncy_ms\n\nhint: did you mean latency_ms?\n"
        )
        assert not folder.exists()

    @pytest.mark.slow
    def test_another_file_replaces_the_proxy(self, folder: Path, file: Path, tmp_path: Path) -> None:
        """`up` with another file ends the first proxy and starts one on the same port."""
        other = tmp_path / "other.toml"
        other.write_text("")
        without = {"kafka", "redis", "issuer", "topics"}

        first = LocalStack.start(folder, without=without, faults=file)
        assert delete(first.env["SEXTON_S3_ENDPOINT_URL"]) == 503
        second = LocalStack.start(folder, without=without, faults=other)

        assert second.env["SEXTON_S3_ENDPOINT_URL"] == first.env["SEXTON_S3_ENDPOINT_URL"]
        assert second.pid("faults") != first.pid("faults")
        assert delete(second.env["SEXTON_S3_ENDPOINT_URL"]) == 200

    def test_faults_need_a_store(self, cli: Cli, folder: Path, file: Path) -> None:
        """Without the stack's own store the proxy has to be reported which one it stands before."""
        up = cli("local", "up", "--dir", str(folder), *S3_ALONE, "--without", "s3", "--faults", str(file))

        assert up.returncode == 2
        assert "SEXTON_S3_ENDPOINT_URL" in up.stderr


class TestAlone:
    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
    def test_it_says_where_it_listens_and_logs_to_stdout(self, file: Path, number: signal.Signals) -> None:
        """The address goes to stderr, the request log to stdout; SIGTERM and Ctrl-C end it with 0."""
        command = [sys.executable, "-m", "sexton.deploy.main", "local", "faults", str(file)]
        command += ["--listen", "127.0.0.1:0", "--to", "http://127.0.0.1:9"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as proxy:
            assert proxy.stderr is not None
            line = proxy.stderr.readline()
            match = re.fullmatch(
                r"faults: (http://127\.0\.0\.1:\d+) before http://127\.0\.0\.1:9, 1 rule\n", line
            )
            assert match is not None, line
            assert delete(match[1]) == 503
            proxy.send_signal(number)
            output, _ = proxy.communicate(timeout=20)

        assert proxy.returncode == 0
        assert json.loads(output)["status"] == 503

    @pytest.mark.parametrize(
        ("arguments", "code", "reported"),
        [
            (["--to", "https://127.0.0.1:9"], 2, "must be http://HOST:PORT: https://127.0.0.1:9"),
            (["--to", "http://127.0.0.1:9", "--listen", "9"], 2, "is HOST:PORT: 9"),
            (["--to", "http://127.0.0.1:9", "--listen", "192.0.2.1:1"], 75, "cannot listen on 192.0.2.1:1"),
        ],
    )
    def test_wrong_addresses(
        self, cli: Cli, file: Path, arguments: list[str], code: int, reported: str
    ) -> None:
        """What cannot be listened on or stood before is said at once."""
        done = cli("local", "faults", str(file), *arguments)

        assert done.returncode == code
        assert reported in done.stderr

    def test_a_missing_file(self, cli: Cli, tmp_path: Path) -> None:
        """The file has to be there."""
        done = cli("local", "faults", str(tmp_path / "none.toml"), "--to", "http://127.0.0.1:9")

        assert (done.returncode, "cannot be read" in done.stderr) == (2, True)


class TestThePage:
    def test_its_tables_are_those_of_the_code(self) -> None:
        """docs/faults.md has every field of a rule and of a line of the log, and every operation."""
        fields, logged = (re.findall(r"^\| (`.+?`) \|", table, re.MULTILINE) for table in _tables())

        assert [name.strip("`") for name in fields] == list(rules.Rule.model_fields)
        assert all(f"`{name}`" in PAGE.read_text(encoding="utf-8") for name in OPERATIONS.values())
        assert re.findall(r"\w+", " ".join(logged)) == [field.name for field in dataclasses.fields(Logged)]

    def test_its_examples_can_be_played(self, tmp_path: Path) -> None:
        """Each file on the page is one."""
        examples = pages.blocks(PAGE, "toml")
        assert len(examples) >= 3
        for text in examples:
            file = tmp_path / "faults.toml"
            file.write_text(text)

            assert rules.read(file)


def _tables() -> list[str]:
    page = PAGE.read_text(encoding="utf-8")
    return re.findall(r"(?:^\|.*\n)+", page, re.MULTILINE)
