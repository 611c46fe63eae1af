"""The cached jars: whole or fetched again."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from sexton.deploy import jars, java
from sexton.schemas import settings
from sexton.schemas.errors import EnvironmentFault
from sexton.streaming_jobs import class_archive, spark

CACHE = settings.load().cache_dir.expanduser()


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """A cache of its own that holds the connector's jars."""
    shutil.copytree(jars.fetch(jars.CONNECTOR, CACHE), tmp_path / jars.CONNECTOR.folder)
    return tmp_path


def test_a_whole_cache_is_used_as_it_is(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is fetched when every jar is there with its size."""
    monkeypatch.setattr(jars, "_download", None)

    assert [path.parent.parent for path in jars.spark_jars(cache)] == [cache] * 4


@pytest.mark.parametrize("damage", ["cut short", "removed"])
def test_a_damaged_cache_is_noticed(cache: Path, damage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A jar that was cut short or removed is named, and the set is swapped for a whole one."""
    victim = next((cache / jars.CONNECTOR.folder).glob("kafka-clients-*.jar"))
    if damage == "removed":
        victim.unlink()
    else:
        victim.write_bytes(victim.read_bytes()[:-1])

    def download(_: jars.JarSet, __: Path, directory: Path) -> Path:
        return Path(shutil.copytree(CACHE / jars.CONNECTOR.folder, directory / "lib"))

    assert [str(victim) in problem for problem in jars.missing(jars.CONNECTOR, cache)] == [True]
    monkeypatch.setattr(jars, "_download", download)
    jars.spark_jars(cache)
    assert jars.missing(jars.CONNECTOR, cache) == []


def test_another_jar_than_the_locked_one_is_refused(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A download whose bytes differ is not put into the cache, and the old set stays."""
    folder = cache / jars.CONNECTOR.folder
    victim = next(folder.glob("commons-pool2-*.jar"))
    victim.unlink()

    def download(_: jars.JarSet, __: Path, directory: Path) -> Path:
        copied = Path(shutil.copytree(CACHE / jars.CONNECTOR.folder, directory / "lib"))
        (copied / victim.name).write_bytes(b"something else")
        return copied

    monkeypatch.setattr(jars, "_download", download)
    with pytest.raises(EnvironmentFault, match="not the one that was locked"):
        jars.fetch(jars.CONNECTOR, cache)

    assert not victim.exists()
    assert len(list(folder.iterdir())) == 3


def test_a_failed_fetch_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cause is reported, not Ivy's final outcome that some module was not found; nothing stays behind."""
    output = (
        "\tmodule not found: org.apache.kafka#kafka_2.13;4.3.1\n"
        "Server access error at url x (javax.net.ssl.SSLHandshakeException: PKIX path building failed)\n"
    )
    assert "PKIX path building failed" in jars._cause(output)

    java = tmp_path / "home" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(
        "#!/bin/sh\n[ $1 = -XshowSettings:properties ] &&"
        " echo 'java.home = /x\njava.specification.version = 17' && exit\n"
        "echo 'java.net.UnknownHostException: repository'; exit 1\n"
    )
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(java.parent.parent))

    with pytest.raises(EnvironmentFault, match="UnknownHostException"):
        jars.fetch(jars.CONNECTOR, tmp_path / "cache")

    assert [path.name for path in (tmp_path / "cache").iterdir()] == [f".{jars.CONNECTOR.folder}.lock"]


def test_a_set_up_that_is_whole_is_looked_at_again_only_when_something_changed(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither Java nor Spark is looked for unless a jar, the archive or what decides on them is another."""
    (cache / jars.BROKER.folder).symlink_to(jars.fetch(jars.BROKER, CACHE), target_is_directory=True)
    archive = tmp_path / "classes.jsa"
    looked: list[Path] = []
    archive.touch()
    monkeypatch.setenv("SEXTON_CACHE_DIR", str(cache))
    monkeypatch.setenv("JAVA_HOME", str(java.find(CACHE).home))
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(class_archive, "make", looked.append)
    monkeypatch.setattr(spark, "archive_path", lambda _: archive)

    def looks() -> bool:
        looked.clear()
        assert jars.main() == 0
        return bool(looked)

    def bring_back(each: jars.JarSet, _: Path) -> None:
        if each is jars.CONNECTOR:
            (tmp_path / "away").rename(cache / each.folder)

    assert (looks(), looks()) == (True, False)
    archive.unlink()
    assert looks()
    archive.touch()
    assert not looks()
    monkeypatch.setenv("SEXTON_LOG_LEVEL", "INFO")
    assert (looks(), looks()) == (True, False)
    (tmp_path / "java").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "java").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert (looks(), looks()) == (True, False)
    (cache / jars.CONNECTOR.folder).rename(tmp_path / "away")
    monkeypatch.setattr(jars, "fetch", bring_back)
    assert (looks(), looks()) == (True, False)
    assert capsys.readouterr().err == ""

    monkeypatch.setenv("SEXTON_ALOW", "x")
    assert jars.main() == 2
