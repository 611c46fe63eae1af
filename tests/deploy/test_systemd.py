"""The units for systemd: what systemd says of them, and that they fit how the programs end."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.support.pages import ROOT

from sexton.deploy.main import run
from sexton.schemas.settings import load

UNITS = sorted((ROOT / "deploy" / "systemd").glob("*.service"))
_PROGRAM = "/opt/sexton/bin/sexton"
_EXPOSURE = 20  # tenths, as `systemd-analyze security` counts; a unit without any bound has 96


def directives(unit: Path) -> dict[str, list[str]]:
    """Every directive of a unit with its values, in their order."""
    found: dict[str, list[str]] = {}
    for name, value in re.findall(r"^(\w+)=(.*)$", unit.read_text(encoding="utf-8"), re.MULTILINE):
        found.setdefault(name, []).append(value)
    return found


def analyzed(unit: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `systemd-analyze` on a copy whose program is one that every machine has."""
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("there is no systemd-analyze: Debian has it in the package systemd")
    copy = folder / unit.name
    copy.write_text(unit.read_text(encoding="utf-8").replace(_PROGRAM, "/bin/true"), encoding="utf-8")
    command = [program, arguments[0], "--no-pager", *arguments[1:], str(copy)]
    return subprocess.run(command, capture_output=True, text=True, timeout=150, check=False)


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_systemd_takes_the_unit_without_a_word(unit: Path, tmp_path: Path) -> None:
    """No directive is unknown, misspelt or in the wrong section: of those systemd only warns."""
    done = analyzed(unit, tmp_path, "verify", "--man=no")

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_unit_is_bounded(unit: Path, tmp_path: Path) -> None:
    """What the process may do beside its work is little."""
    done = analyzed(unit, tmp_path, "security", "--offline=yes", f"--threshold={_EXPOSURE}")

    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_restarts_follow_the_exit_codes(unit: Path) -> None:
    """75, a crash and a kill are tried again, for ever; 1 and 2 are not, and 130 is an end as asked."""
    found = directives(unit)

    assert found["Restart"] == ["on-failure"]
    assert found["RestartPreventExitStatus"] == ["1 2"]
    assert found["SuccessExitStatus"] == ["130"]
    assert found["StartLimitIntervalSec"] == ["0"]


def test_a_stop_is_given_the_time_that_it_may_take() -> None:
    """SIGTERM first, to the main process; systemd's limit is far above what each takes at most by default."""
    settings = load({})
    at_most = {
        "sexton-issuer": settings.issuer_timeout_s + 1,
        "sexton-reaper": settings.reaper_grace_s,
    }
    found = {unit.stem: directives(unit) for unit in UNITS}

    assert found.keys() == at_most.keys()
    for name, limit_s in at_most.items():
        assert (found[name]["KillMode"], found[name]["KillSignal"]) == (["mixed"], ["SIGTERM"])
        assert int(found[name]["TimeoutStopSec"][0]) >= 2 * limit_s


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_the_unit_starts_a_command_that_exists(unit: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is started is a noun and verb of `sexton`."""
    ((program, *words),) = (line.split() for line in directives(unit)["ExecStart"])

    assert program == _PROGRAM
    assert run([*words, "--help"]) == 0
    assert capsys.readouterr().out
