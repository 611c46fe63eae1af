"""The local stack as its users meet it: the `sexton local` command in a process of its own."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from tests.support.waits import until

from sexton.deploy.local import ports, state
from sexton.deploy.local.process import alive, started
from sexton.deploy.main import run
from sexton.schemas.errors import EnvironmentFault

Cli = Callable[..., "subprocess.CompletedProcess[str]"]
SERVERS_ONLY = ("--without", "issuer", "--without", "topics")
NO_SERVER = [part for name in ("kafka", "redis", "s3", "issuer") for part in ("--without", name)]


def _states(cli: Cli, folder: Path) -> tuple[int, dict[str, tuple[str, int | None]]]:
    done = cli("local", "status", "--dir", str(folder), "--format", "json")
    return done.returncode, {
        row["part"]: (row["state"], row["pid"]) for row in json.loads(done.stdout)["parts"]
    }


def _processes_of(folder: Path) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if process.status() != psutil.STATUS_ZOMBIE and Path(process.cwd()).is_relative_to(folder):
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
            continue
    return found


class TestUpAndDown:
    @pytest.mark.slow
    def test_up_prints_variables_and_down_leaves_nothing(self, cli: Cli, folder: Path) -> None:
        """`up` prints export lines alone on stdout; `down` ends every process that `up` started."""
        up = cli("local", "up", "--dir", str(folder))

        assert up.returncode == 0, up.stderr
        lines = up.stdout.splitlines()
        assert all(line.startswith("export ") for line in lines)
        assert {line.split("=")[0] for line in lines} >= {
            "export SEXTON_KAFKA_BOOTSTRAP_SERVERS",
            "export SEXTON_ISSUER_URL",
            "export SEXTON_REDIS_URL",
            "export SEXTON_S3_ENDPOINT_URL",
            "export AWS_ACCESS_KEY_ID",
        }
        assert len(_processes_of(folder)) == 4

        down = cli("local", "down", "--dir", str(folder))

        assert (down.returncode, down.stdout) == (0, "")
        assert _processes_of(folder) == []

    @pytest.mark.slow
    def test_a_second_up_finds_the_first_and_repairs_it(self, cli: Cli, folder: Path) -> None:
        """A part that was killed is seen by `status`, and started again by `up` on its old port."""
        first = cli("local", "up", "--dir", str(folder), *SERVERS_ONLY, "--format", "json")
        before = _states(cli, folder)[1]
        redis = before["redis"][1]
        assert redis is not None
        os.kill(redis, signal.SIGKILL)
        psutil.wait_procs([p for p in _processes_of(folder) if p.pid == redis], timeout=5)

        code, states = _states(cli, folder)
        assert (code, states["redis"]) == (1, ("dead", redis))

        second = cli("local", "up", "--dir", str(folder), *SERVERS_ONLY, "--format", "json")
        code, after = _states(cli, folder)

        assert (first.returncode, second.returncode, code) == (0, 0, 0)
        assert json.loads(second.stdout) == json.loads(first.stdout)
        assert after["redis"][0] == "ready"
        assert after["redis"][1] != redis
        assert (after["kafka"], after["s3"]) == (before["kafka"], before["s3"])

    @pytest.mark.slow
    def test_kafka_keeps_its_data_over_down_and_up(self, cli: Cli, folder: Path) -> None:
        """Topics are still there after `down` and `up`."""
        leave_out = ("--without", "issuer", "--without", "s3")
        for expected in ("topics: 8 created", "topics: all there"):
            up = cli("local", "up", "--dir", str(folder), *leave_out)

            assert up.returncode == 0, up.stderr
            assert expected in up.stderr
            cli("local", "down", "--dir", str(folder))

    def test_wipe_leaves_nothing(self, cli: Cli, folder: Path) -> None:
        """`down --wipe` removes all that `up` wrote and no other file; an empty folder goes too."""
        up = cli("local", "up", "--dir", str(folder), "--without", "kafka", "--without", "issuer")
        assert up.returncode == 0, up.stderr
        (folder / "notes").write_text("mine")

        assert cli("local", "down", "--wipe", "--dir", str(folder)).returncode == 0
        assert [path.name for path in folder.iterdir()] == ["notes"]
        assert _processes_of(folder) == []
        (folder / "notes").unlink()
        assert cli("local", "down", "--wipe", "--dir", str(folder)).returncode == 0
        assert not folder.exists()

    @pytest.mark.parametrize("arguments", [("up", *NO_SERVER), ("down",), ("down", "--wipe")])
    def test_a_disk_that_is_full(
        self,
        folder: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
        arguments: tuple[str, ...],
    ) -> None:
        """The file is named, and nothing half written stays; `down --wipe`, which makes room, needs none."""
        with subprocess.Popen(["sleep", "60"], start_new_session=True) as server:
            servers = {"redis": started(server.pid)}
            folder.mkdir()
            state.save(folder, state.State(processes=servers))
            before = sorted(path.name for path in folder.iterdir())

            def full(path: Path, *_: object, **__: object) -> None:
                path.touch()
                raise OSError(errno.ENOSPC, "No space left on device")

            monkeypatch.setattr(Path, "write_text", full)
            code = run(["local", *arguments, "--dir", str(folder)])
            ended = not alive(servers["redis"])
            server.kill()

        if "--wipe" in arguments:
            assert (code, folder.exists(), ended) == (0, False, True)
        else:
            named = f"state cannot be written: {folder}/state.json: No space left on device"
            assert (code, named in capsys.readouterr().err) == (75, True)
            assert sorted(path.name for path in folder.iterdir()) == sorted([*before, "lock"])

    def test_a_lock_that_was_removed_locks_nobody_out(self, folder: Path) -> None:
        """Who waits for a stack that is wiped meanwhile gets the lock that is there then, and alone."""
        begun, order, said = threading.Event(), list[str](), list[str]()

        def wait() -> None:
            begun.set()
            with state.locked(folder, said.append):
                order.append("waiter")

        with state.locked(folder, said.append):
            waiter = threading.Thread(target=wait)
            waiter.start()
            begun.wait(10)
            time.sleep(0.2)
            state.forget(folder)
            order.append("first")
        waiter.join(10)

        assert order == ["first", "waiter"]
        assert (folder / "lock").is_file()

    @pytest.mark.parametrize("arguments", [("up", *NO_SERVER), ("down",), ("down", "--wipe")])
    def test_who_waits_for_another_command_says_so(
        self, cli: Cli, folder: Path, arguments: tuple[str, ...]
    ) -> None:
        """A command that waits for the folder's lock names the folder while it waits, not afterwards."""
        with state.locked(folder, print):
            command = [sys.executable, "-m", "sexton.deploy.main", "local", *arguments, "--dir", str(folder)]
            with subprocess.Popen(
                command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
            ) as second:
                assert second.stderr is not None
                first_line = second.stderr.readline()
                second.send_signal(signal.SIGINT)
                rest = second.communicate(timeout=60)[1]

        assert first_line == f"waiting for another command that works on {folder}\n"
        assert (second.returncode, rest) == (130, "")

    @pytest.mark.parametrize("below", ["file", "file/deeper"])
    @pytest.mark.parametrize("verb", ["up", "down", "status"])
    def test_a_folder_that_cannot_be(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], verb: str, below: str
    ) -> None:
        """A path that no folder can have is wrong usage, told with the option that names it."""
        (tmp_path / "file").touch()
        code = run(["local", verb, "--dir", str(tmp_path / below)])
        reported = capsys.readouterr().err

        assert code == 2
        assert reported.startswith(
            f"error: the folder of the local stack cannot be used: {tmp_path / below}: "
        )
        assert "hint: --dir or SEXTON_STATE_DIR" in reported

    def test_down_without_up_is_fine(self, cli: Cli, folder: Path) -> None:
        """`down` and `status` of a stack that was never started do nothing and say so."""
        down = cli("local", "down", "--dir", str(folder))
        assert (down.returncode, f"no stack in {folder}: --dir" in down.stderr) == (0, True)
        assert not folder.exists()
        code, states = _states(cli, folder)

        assert code == 0
        assert {state for state, _ in states.values()} == {"down"}


class TestNothingIsLeftBehind:
    # One handler for all three, whatever is being started: each signal once, each moment once.
    @pytest.mark.parametrize(
        ("number", "after"),
        [(signal.SIGINT, "redis: ready"), (signal.SIGTERM, "s3: ready"), (signal.SIGHUP, "bucket: ")],
    )
    @pytest.mark.slow
    def test_a_signal_in_the_middle_of_up(self, folder: Path, number: signal.Signals, after: str) -> None:
        """Ctrl-C, SIGTERM and SIGHUP in the middle of `up` end what it has started, and exit 130."""
        command = [sys.executable, "-m", "sexton.deploy.main", "local", "up", "--dir", str(folder)]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        ) as up:
            assert up.stderr is not None
            for line in up.stderr:
                if line.startswith(after):
                    break
            up.send_signal(number)
            time.sleep(0.1)
            up.send_signal(number)  # an impatient second one must not cut the clean-up short
            output, _ = up.communicate(timeout=150)

        assert (up.returncode, output) == (130, "")
        assert _processes_of(folder) == []

    @pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
    def test_a_signal_while_storage_is_formatted(
        self, cli: Cli, folder: Path, number: signal.Signals
    ) -> None:
        """Ctrl-C is heeded; after SIGKILL `down` ends what formats, or it fills a folder that was wiped."""
        command = [sys.executable, "-m", "sexton.deploy.main", "local", "up", "--dir", str(folder)]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as up:
            assert up.stderr is not None
            for line in up.stderr:
                if line.startswith("kafka: formats"):
                    break
            until(lambda: "kafka-format" in (folder / "state.json").read_text())
            up.send_signal(number)

        assert up.returncode == {signal.SIGKILL: -9, signal.SIGINT: 130}[number]
        assert cli("local", "down", "--wipe", "--dir", str(folder)).returncode == 0
        assert _processes_of(folder) == []
        assert not folder.exists()

    def test_storage_that_cannot_be_formatted(self, cli: Cli, folder: Path) -> None:
        """The error shows what Kafka's own tool said, and where its log is."""
        (folder / "kafka").mkdir(parents=True)
        (folder / "kafka" / "data").touch()

        up = cli("local", "up", "--dir", str(folder))

        assert up.returncode == 75
        assert "error: Kafka's storage was not formatted\n" in up.stderr
        assert f"hint: its log: {folder}/logs/kafka-format.log" in up.stderr
        assert _processes_of(folder) == []

    def test_a_part_that_does_not_start(self, cli: Cli, folder: Path, tmp_path: Path) -> None:
        """The error shows the end of the part's log, and the parts that did start are ended."""
        broken = tmp_path / "bin" / "valkey-server"
        broken.parent.mkdir()
        broken.write_text(
            '#!/bin/sh\n[ "$1" = --version ] && echo "v=9.0.0" && exit\necho "no luck today"; exit 3\n'
        )
        broken.chmod(0o755)

        up = cli(
            "local",
            "up",
            "--dir",
            str(folder),
            *SERVERS_ONLY,
            env={"PATH": f"{broken.parent}:{os.environ['PATH']}"},
        )

        assert up.returncode == 75
        assert "redis ended while starting\nno luck today" in up.stderr
        assert _processes_of(folder) == []

    def test_a_reused_pid_is_not_killed(self, cli: Cli, folder: Path) -> None:
        """A pid whose process began at another time than the one noted is somebody else's."""
        with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as stranger:
            folder.mkdir()
            entry = {"pid": stranger.pid, "start": "an earlier boot:17"}
            state = {"version": 1, "ports": {}, "processes": {"redis": entry}, "without": []}
            (folder / "state.json").write_text(json.dumps(state))

            assert cli("local", "down", "--dir", str(folder)).returncode == 0
            assert stranger.poll() is None
            stranger.kill()


class TestUsage:
    def test_an_unknown_part(self, cli: Cli, folder: Path) -> None:
        """`--without` names a part, or it is an error that lists them."""
        done = cli("local", "up", "--dir", str(folder), "--without", "zookeeper")

        assert done.returncode == 2
        assert "no part of the local stack: zookeeper" in done.stderr
        assert "kafka, redis, s3, issuer" in done.stderr

    @pytest.mark.parametrize("option", ["--brokers", "--issuers"])
    @pytest.mark.parametrize(("number", "needed"), [("0", "at least 1"), ("100000000", "at most 20")])
    def test_odd_numbers_of_servers(
        self, folder: Path, capsys: pytest.CaptureFixture[str], option: str, number: str, needed: str
    ) -> None:
        """A number that no machine can run is wrong usage, told at once; nothing is written."""
        code = run(["local", "up", "--dir", str(folder), option, number])

        assert code == 2
        assert f"'{option}': a number of {needed} is needed: '{number}'" in capsys.readouterr().err
        assert not folder.exists()

    def test_ports_that_cannot_be_had(self) -> None:
        """Where ports run out the error says how many there are, and where they are looked for."""
        with pytest.raises(EnvironmentFault, match=r"too few free ports on 127.0.0.1: \d+ of 5000") as told:
            ports.choose(5000)

        assert told.value.hint is not None
        assert "20000" in told.value.hint

    def test_the_issuer_needs_its_servers(self, cli: Cli, folder: Path) -> None:
        """Without Kafka the issuer has to be reported which one to use instead."""
        done = cli("local", "up", "--dir", str(folder), "--without", "kafka")

        assert done.returncode == 2
        assert "SEXTON_KAFKA_BOOTSTRAP_SERVERS" in done.stderr

    def test_a_damaged_state_file_is_said(self, cli: Cli, folder: Path) -> None:
        """A state that cannot be read is an error: its processes are unknown, not absent."""
        folder.mkdir()
        (folder / "state.json").write_text("{")

        done = cli("local", "status", "--dir", str(folder))
        (folder / "state.json").unlink()

        assert done.returncode == 75
        assert "state cannot be read" in done.stderr
