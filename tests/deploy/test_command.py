"""The `sexton` command itself: help, errors, exit codes, settings."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from sexton.deploy.main import NOUNS, Noun, _load, run
from sexton.schemas.errors import LogBroken

Cli = Callable[..., "subprocess.CompletedProcess[str]"]


class TestErrors:
    def test_an_unknown_noun_suggests_the_nearest(self, capsys: pytest.CaptureFixture[str]) -> None:
        """A misspelt noun is wrong usage, told with the nearest one."""
        assert run(["topic"]) == 2

        assert (
            capsys.readouterr().err == "error: unknown noun: topic\n\nhint: did you mean `sexton topics`?\n"
        )

    @pytest.mark.parametrize(
        ("arguments", "reported", "hint"),
        [
            ("topics chek", "no such command 'chek'. Did you mean 'check'?", "sexton topics --help"),
            ("config show --nope", "no such option: --nope", "sexton config show --help"),
            ("tail", "missing argument 'topic'", "sexton tail --help"),
            ("intents emit", "missing option '--file'", "sexton intents emit --help"),
            ("tail a b", "got unexpected extra argument(s) (b)", "sexton tail --help"),
            (
                "config show --format yaml",
                "invalid value for '--format': 'yaml' is not one of 'text', 'json'",
                "sexton config show --help",
            ),
            (
                "issuer serve --port x",
                "invalid value for '--port': a whole number is needed: 'x'",
                "sexton issuer serve --help",
            ),
            (
                "topics create --partitions 0",
                "invalid value for '--partitions': a number of at least 1 is needed: '0'",
                "sexton topics create --help",
            ),
        ],
    )
    def test_wrong_usage_has_the_form_of_every_error(
        self, arguments: str, reported: str, hint: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """What cannot be parsed is one plain sentence and a hint on stderr, and exits 2."""
        assert run(arguments.split()) == 2

        shown = capsys.readouterr()
        assert shown.out == ""
        assert shown.err == f"error: {reported}\n\nhint: `{hint}` says how it is called\n"

    @pytest.mark.parametrize("arguments", [["local"], []])
    def test_a_missing_verb_shows_the_help(
        self, arguments: list[str], capsys: pytest.CaptureFixture[str]
    ) -> None:
        """Without a verb the help comes, on stderr, and the exit code is 2."""
        assert run(arguments) == 2

        shown = capsys.readouterr()
        assert shown.out == ""
        assert "up" in shown.err

    @pytest.mark.parametrize(
        ("error", "code", "reported"),
        [
            (
                LogBroken("the log has a gap: 17", hint="restore it"),
                1,
                "error: the log has a gap: 17\n\nhint: restore it\n",
            ),
            (KeyboardInterrupt(), 130, ""),
            (ZeroDivisionError("x"), 2, "error: internal error: ZeroDivisionError: x"),
        ],
    )
    def test_each_kind_of_error_has_its_code(
        self,
        error: BaseException,
        code: int,
        reported: str,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        """Errors of a verb are reported on stderr in one form, and no traceback is shown."""

        def explode(**_: object) -> None:
            raise error

        monkeypatch.setattr("sexton.deploy.main._load", lambda noun: explode)

        assert run(["topics", "check"]) == code
        shown = capsys.readouterr()
        assert shown.out == ""
        assert shown.err.startswith(reported)
        assert "Traceback" not in shown.err

    @pytest.mark.parametrize("unbuffered", ["", "1"])
    def test_an_output_that_is_full(self, unbuffered: str) -> None:
        """What cannot be written is an environment fault, also if only the last flush tells it."""
        with Path("/dev/full").open("w") as full:
            done = subprocess.run(
                [sys.executable, "-m", "sexton.deploy.main", "--help"],
                stdout=full,
                stderr=subprocess.PIPE,
                text=True,
                env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
            )

        assert done.returncode == 75
        assert done.stderr == (
            "error: cannot be written: the output, or a file: No space left on device\n\n"
            "hint: what was written so far is not whole\n"
        )

    def test_a_reader_that_has_seen_enough(self) -> None:
        """A pipe that nobody reads any more ends a command with 1 and no word, also at the last flush."""
        ours, theirs = os.pipe()
        os.close(ours)
        done = subprocess.run(
            [sys.executable, "-m", "sexton.deploy.main", "--help"],
            stdout=theirs,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONUNBUFFERED": ""},
        )
        os.close(theirs)

        assert (done.returncode, done.stderr) == (1, b"")

    def test_a_missing_package_names_the_extra(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """A noun whose packages are not installed prints the line that installs them, and exits 2."""
        broken = Noun("broken", "no_such_package:app", "streaming", "")
        monkeypatch.setattr("sexton.deploy.main.NOUNS", (broken,))

        assert run(["broken"]) == 2
        assert 'hint: pip install "sexton[streaming]"' in capsys.readouterr().err


class TestHelp:
    def test_help_imports_nothing_heavy(self) -> None:
        """`sexton --help` starts at once: none of the nouns' code is imported."""
        code = (
            "import sys; from sexton.deploy.main import run; run(['--help']);"
            "heavy = {'typer', 'pyspark', 'redis', 'boto3', 'pydantic', 'confluent_kafka'};"
            "print(sorted(heavy & sys.modules.keys()))"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

        assert done.stdout.splitlines()[-1] == "[]"
        assert all(f"  {noun.name} " in done.stdout for noun in NOUNS)

    def test_help_lists_the_verbs_that_there_are(self, capsys: pytest.CaptureFixture[str]) -> None:
        """`sexton --help` names each noun's verbs, all of them and no other."""
        assert run(["--help"]) == 0
        reported = " ".join(capsys.readouterr().out.split())
        for noun in NOUNS:
            verbs = getattr(_load(noun), "commands", {})
            assert set(noun.verbs) == set(verbs)
            assert all(verb in reported for verb in noun.verbs)

    @pytest.mark.parametrize(
        "command", [" ".join((noun.name, verb)).strip() for noun in NOUNS for verb in noun.verbs or ("",)]
    )
    def test_every_verb_ends_with_examples(self, command: str, capsys: pytest.CaptureFixture[str]) -> None:
        """The help of a verb fits into 80 columns and ends with examples of it, a line each."""
        assert run([*command.split(), "--help"]) == 0

        reported = capsys.readouterr().out
        examples = [line for line in reported.partition("\n  Examples:\n")[2].splitlines() if line.strip()]
        assert examples
        assert all(f"sexton {command}" in line for line in examples)
        assert all(len(line) <= 80 for line in reported.splitlines())

    @pytest.mark.parametrize("noun", ["", *(noun.name for noun in NOUNS if noun.verbs)])
    def test_no_noun_is_told_by_half(self, noun: str, capsys: pytest.CaptureFixture[str]) -> None:
        """The help of a noun fits into 80 columns, and no verb's line is cut off."""
        assert run([*noun.split(), "--help"]) == 0

        reported = capsys.readouterr().out.splitlines()
        assert not [line for line in reported if line.endswith("...") and not line.startswith("Usage:")]
        assert all(len(line) <= 80 for line in reported)

    def test_help_works_with_wrong_settings(self, cli: Cli) -> None:
        """Help does not need valid settings: it may be what is asked for because of them."""
        assert cli("topics", "--help", env={"SEXTON_NOPE": "1"}).returncode == 0


class TestConfigShow:
    def test_sources_are_named_and_secrets_masked(self, cli: Cli, tmp_path: Path) -> None:
        """Each value comes with its source, and passwords are shown nowhere."""
        file = tmp_path / "sexton.toml"
        file.write_text('topic_prefix = "from-file."\nlog_level = "WARNING"\n')
        env = {
            "SEXTON_CONFIG": str(file),
            "SEXTON_LOG_LEVEL": "ERROR",
            "SEXTON_REDIS_URL": "redis://user:hunter2@127.0.0.1:6379/0",
            "SEXTON_KAFKA_EXTRA": '{"sasl.password": "hunter2", "client.id": "me"}',
        }
        text = cli("config", "show", env=env)
        rows = json.loads(cli("config", "show", "--format", "json", env=env).stdout)

        found = {row["variable"]: (row["value"], row["source"]) for row in rows}
        assert found["SEXTON_TOPIC_PREFIX"] == ("from-file.", f"file {file}")
        assert found["SEXTON_LOG_LEVEL"] == ("ERROR", "environment")
        assert found["SEXTON_S3_REGION"] == ("us-east-1", "default")
        assert "hunter2" not in text.stdout + json.dumps(rows)
        assert "redis://********@127.0.0.1" in text.stdout

    def test_an_unknown_setting_is_an_error(self, cli: Cli) -> None:
        """A misspelt safety setting is never ignored."""
        done = cli("config", "show", env={"SEXTON_ALOW": '["bucket/prefix"]'})

        assert (done.returncode, done.stdout) == (2, "")
        assert "unknown environment variable: SEXTON_ALOW" in done.stderr


@pytest.mark.parametrize("cores", ["abc", "0", "-1", "2.5", "٣", "2,", "2,0", "2,3,4", "2\n"])
def test_cores_that_are_no_number_are_refused(cli: Cli, cores: str) -> None:
    """A bad setting is one line, before any JVM starts."""
    done = cli("reaper", "run", "--once", env={"SEXTON_REAPER_CORES": cores})

    assert done.returncode == 2
    assert done.stderr.startswith("error: SEXTON_REAPER_CORES (environment): ")
    assert "hint: docs/settings.md" in done.stderr


@pytest.mark.slow
def test_brokers_that_are_away_are_told_soon() -> None:
    """Every command that begins with Kafka gives up after 10 s, and says which brokers it asked and why."""
    commands = ["reaper run --once", "reaper run --dry-run", "issuer serve --port 0"]
    commands += ["issuer rebuild", "issuer snapshot", "topics create"]
    running = {}
    for command in commands:
        running[command] = subprocess.Popen(
            [sys.executable, "-m", "sexton.deploy.main", *command.split()],
            env={**os.environ, "SEXTON_KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1,127.0.0.1:2"},
            stderr=subprocess.PIPE,
            text=True,
        )
    begun = time.monotonic()
    reported = {command: process.communicate(timeout=150)[1] for command, process in running.items()}

    assert time.monotonic() - begun < 30  # six programs start at once, on a machine that may be busy
    for command, process in running.items():
        assert process.returncode == 75, command
        assert reported[command].startswith("error: the brokers do not answer: 127.0.0.1:1,127.0.0.1:2: "), (
            reported[command]
        )
        assert "\n\nhint: are the brokers up, and SEXTON_KAFKA_BOOTSTRAP_SERVERS right?" in reported[command]


@pytest.mark.parametrize("address", ["127.0.0.1:{port}", "nowhere.invalid:1"])
def test_an_address_that_cannot_be_had(address: str, cli: Cli) -> None:
    """A port that is taken and a host that is not this one are faults of the environment, with a hint."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = cli("issuer", "serve", "--bind", address.format(port=taken.getsockname()[1]))

    assert done.returncode == 75
    assert done.stderr.startswith("error: cannot listen on ")
    assert "hint: --bind or SEXTON_ISSUER_BIND" in done.stderr
