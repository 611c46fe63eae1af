"""Building the Go stores: once, whole or not at all."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from tests.support import stores

from sexton.schemas.errors import EnvironmentFault


def fake_go(folder: Path, script: str) -> dict[str, str]:
    """Put a `go` on a path of its own and return the environment that leads to it."""
    folder.mkdir(exist_ok=True)
    program = folder / "go"
    reported = '[ "$1" = version ] && { echo go version go1.26.6 linux/amd64; exit; }'
    program.write_text(f"#!/bin/sh\n{reported}\n{script}\n", encoding="utf-8")
    program.chmod(0o755)
    return {"PATH": f"{folder}:/usr/bin:/bin"}


def test_a_store_is_built_once(tmp_path: Path) -> None:
    """Four callers at the same time start one build; it lies in the cache under its version."""
    cache = tmp_path / "cache"
    environ = fake_go(tmp_path / "bin", f'echo x >> {tmp_path}/runs; sleep 0.2; cat go.mod > "$3"')
    threads = [
        threading.Thread(target=stores.build, args=(stores.VERSITYGW, cache, environ)) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = stores.built(stores.VERSITYGW, cache)

    assert (tmp_path / "runs").read_text() == "x\n"
    assert found == cache / "stores" / "versitygw"
    assert "github.com/versity/versitygw v1.8.0" in found.read_text()
    assert stores.built(stores.SEAWEEDFS, cache) is None


def test_another_version_is_built_anew(tmp_path: Path) -> None:
    """A binary of another version, or without its stamp, does not count."""
    binary = stores.build(stores.SEAWEEDFS, tmp_path, fake_go(tmp_path / "bin", 'cat go.mod > "$3"'))
    assert stores.built(stores.SEAWEEDFS, tmp_path) == binary
    binary.with_name("weed.mod").write_text("another")

    assert stores.built(stores.SEAWEEDFS, tmp_path) is None


def test_a_build_that_fails(tmp_path: Path) -> None:
    """The last line of the compiler is reported, and nothing is left that looks like a store."""
    environ = fake_go(tmp_path / "bin", 'echo half > "$3"; echo "no such module" >&2; exit 1')
    with pytest.raises(EnvironmentFault, match="weed could not be built: no such module"):
        stores.build(stores.SEAWEEDFS, tmp_path, environ)

    assert [path.name for path in (tmp_path / "stores").iterdir()] == [".weed.lock"]
