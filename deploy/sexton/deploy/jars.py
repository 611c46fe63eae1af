"""Jars of the Kafka broker and of Spark's connectors, fetched once by the Ivy that pyspark bundles.

Folders in the cache: `kafka-<version>`, `spark-kafka-<version>` and, for checkpoints on `s3a:` only,
`spark-s3a-<version>`, each exactly as `jars.lock` lists it.

    python -m sexton.deploy.jars [s3a]
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.resources
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache as memoized
from pathlib import Path

from sexton.deploy import java
from sexton.schemas.errors import EnvironmentFault, SextonError, ToolMissing
from sexton.schemas.reporting import report_error

__all__ = [
    "BROKER",
    "CONNECTOR",
    "S3A",
    "JarSet",
    "broker_classpath",
    "fetch",
    "main",
    "missing",
    "spark_jars",
]

KAFKA_VERSION = "4.3.1"
SPARK_VERSION = "4.2.0"
HADOOP_VERSION = "3.5.0"  # pyspark's
SDK_VERSION = "2.35.4"  # the one that this Hadoop is built with
_RETRIEVE = "lib/[artifact]-[revision](-[classifier]).[ext]"
_FETCH_SECONDS = 900
_ARCHIVES = ("pyspark", "sexton.streaming_jobs.class_archive", "sexton.streaming_jobs.spark")
_NOTE = ".sexton-jars"  # in the virtual environment, whose Spark the archive fits


@dataclass(frozen=True, slots=True)
class JarSet:
    """Jars that are fetched and checked together; `folder` is their place below the cache."""

    folder: str
    coordinates: tuple[str, ...]
    transitive: bool


BROKER = JarSet(
    f"kafka-{KAFKA_VERSION}",
    # Without a logging binding the broker is mute, also about why it does not start.
    (f"org.apache.kafka:kafka_2.13:{KAFKA_VERSION}", "org.apache.logging.log4j:log4j-slf4j-impl:2.25.4"),
    transitive=True,
)
CONNECTOR = JarSet(
    f"spark-kafka-{SPARK_VERSION}",
    # What the connector needs and pyspark does not bring; the rest would be 50 MB of Hadoop a second time.
    (
        f"org.apache.spark:spark-sql-kafka-0-10_2.13:{SPARK_VERSION}",
        f"org.apache.spark:spark-token-provider-kafka-0-10_2.13:{SPARK_VERSION}",
        "org.apache.kafka:kafka-clients:3.9.2",
        "org.apache.commons:commons-pool2:2.13.1",
    ),
    transitive=False,
)
# Hadoop asks for the AWS SDK as one jar of 600 MB. These are its parts for S3, without what pyspark has.
_SDK = (
    "annotations apache-client arns auth aws-core aws-query-protocol aws-xml-protocol checksums checksums-spi"
    " crt-core endpoints-spi http-auth http-auth-aws http-auth-aws-eventstream http-auth-spi http-client-spi"
    " identity-spi json-utils metrics-spi netty-nio-client profiles protocol-core regions retries retries-spi"
    " s3 s3-transfer-manager sdk-core sts third-party-jackson-core utils utils-lite"
)
S3A = JarSet(
    f"spark-s3a-{SPARK_VERSION}",
    (
        f"org.apache.hadoop:hadoop-aws:{HADOOP_VERSION}",
        *(f"software.amazon.awssdk:{part}:{SDK_VERSION}" for part in _SDK.split()),
        "software.amazon.s3.analyticsaccelerator:analyticsaccelerator-s3:1.3.1",
        "software.amazon.eventstream:eventstream:1.0.1",
        "org.reactivestreams:reactive-streams:1.0.4",
    ),
    transitive=False,
)


@dataclass(frozen=True, slots=True)
class _Jar:
    sha256: str
    size: int


def broker_classpath(cache: Path) -> str:
    """Return the class path of the Kafka broker; the jars are fetched if the cache lacks them.

    Raises ToolMissing or EnvironmentFault when they cannot be had.
    """
    return str(fetch(BROKER, cache) / "*")


def spark_jars(cache: Path) -> list[Path]:
    """Return the jars that Spark's Kafka source needs on top of pyspark's own, fetched like the broker's."""
    return sorted(fetch(CONNECTOR, cache).glob("*.jar"))


def missing(jars: JarSet, cache: Path) -> list[str]:
    """Return what is wrong with the cached set: one line per jar that is absent or of another size."""
    folder = cache / jars.folder
    problems = []
    for name, jar in _locked()[jars.folder].items():
        path = folder / name
        if not path.is_file():
            problems.append(f"absent: {path}")
        elif path.stat().st_size != jar.size:
            problems.append(f"damaged: {path}")
    return problems


def fetch(jars: JarSet, cache: Path) -> Path:
    """Return the folder of a jar set, downloading it first unless it is there and whole.

    Two processes that find it missing do not disturb each other: the second waits for the first.
    """
    folder = cache / jars.folder
    if not missing(jars, cache):
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    with _lock(cache / f".{jars.folder}.lock"):
        if not missing(jars, cache):
            return folder
        megabytes = sum(jar.size for jar in _locked()[jars.folder].values()) / 1e6
        print(f"fetching {jars.folder} into {cache} (once, {megabytes:.0f} MB)", file=sys.stderr)
        with tempfile.TemporaryDirectory(prefix=f".{jars.folder}-", dir=cache) as temporary:
            downloaded = _download(jars, cache, Path(temporary))
            _verify(jars, downloaded)
            # The whole folder is swapped in, so a reader finds the old set or the new one, never half of it.
            shutil.rmtree(folder, ignore_errors=True)
            downloaded.replace(folder)
    return folder


def _download(jars: JarSet, cache: Path, directory: Path) -> Path:
    (directory / "ivy.xml").write_text(_ivy_module(jars), encoding="utf-8")
    command = java.find(cache).command("-jar", str(_ivy()), "-cache", str(directory / "ivy"))
    command += ["-ivy", "ivy.xml", "-confs", "default", "-retrieve", _RETRIEVE]
    try:
        done = subprocess.run(
            command, cwd=directory, capture_output=True, text=True, timeout=_FETCH_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise EnvironmentFault(f"{jars.folder} was not fetched within {_FETCH_SECONDS} s") from error
    if done.returncode != 0 or not (directory / "lib").is_dir():
        raise EnvironmentFault(
            f"{jars.folder} could not be fetched: {_cause(done.stdout + done.stderr)}",
            hint="the machine must reach a Maven repository once; a private CA is taken from SSL_CERT_FILE",
        )
    return directory / "lib"


def _cause(output: str) -> str:
    """Return the line that says why; Ivy's own last line is only that a module was not found."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    for sign in ("Exception", "access error", "error", "not found"):
        for line in lines:
            if sign in line:
                return line
    return lines[-1] if lines else "no output"


def _ivy_module(jars: JarSet) -> str:
    dependencies = []
    for coordinate in jars.coordinates:
        organisation, name, revision = coordinate.split(":")
        dependencies.append(
            f'<dependency org="{organisation}" name="{name}" rev="{revision}"'
            f' conf="default->{"default" if jars.transitive else "master"}"'
            f' transitive="{str(jars.transitive).lower()}"/>'
        )
    return (
        f'<ivy-module version="2.0"><info organisation="sexton" module="{jars.folder}"/>'
        '<configurations><conf name="default"/></configurations>'
        f"<dependencies>{''.join(dependencies)}</dependencies></ivy-module>\n"
    )


def _ivy() -> Path:
    spec = importlib.util.find_spec("pyspark")
    folder = Path(spec.origin).parent / "jars" if spec is not None and spec.origin else None
    found = sorted(folder.glob("ivy-*.jar")) if folder else []
    if not found:
        raise ToolMissing("pyspark, which brings the fetcher of jars", hint='pip install "sexton[local]"')
    return found[-1]


def _verify(jars: JarSet, folder: Path) -> None:
    locked = _locked()[jars.folder]
    found = {path.name: path for path in folder.iterdir()}
    for name in sorted(locked.keys() ^ found.keys()):
        raise EnvironmentFault(f"{jars.folder} is not the locked set: {name}")
    for name, path in found.items():
        if hashlib.sha256(path.read_bytes()).hexdigest() != locked[name].sha256:
            raise EnvironmentFault(f"a downloaded jar is not the one that was locked: {name}")


@memoized
def _locked() -> Mapping[str, dict[str, _Jar]]:
    sets: dict[str, dict[str, _Jar]] = {each.folder: {} for each in (BROKER, CONNECTOR, S3A)}
    text = importlib.resources.files("sexton.deploy").joinpath("jars.lock").read_text(encoding="utf-8")
    for line in text.splitlines():
        sha256, size, path = line.split()
        folder, _, name = path.partition("/")
        sets[folder][name] = _Jar(sha256, int(size))
    return sets


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _given(environ: Mapping[str, str]) -> str:
    """Return a digest of what decides where the cache is, and which Java archives the classes of which Spark.

    Of settings the names: a wrong one is reported by who loads them, and a value may be a password.
    """
    names = sorted(name for name in environ if name.startswith("SEXTON_"))
    where = [environ.get(name, "") for name in ("SEXTON_CACHE_DIR", "SEXTON_CONFIG", "HOME", "JAVA_HOME")]
    home = Path(environ.get("JAVA_HOME") or os.devnull) / "bin" / "java"
    found = shutil.which("java", path=environ.get("PATH", os.defpath))
    files = [home, Path(found or os.devnull), Path(environ.get("SEXTON_CONFIG") or os.devnull)]
    specs = map(importlib.util.find_spec, _ARCHIVES)
    files += [Path(spec.origin) for spec in specs if spec is not None and spec.origin]
    found_text = [*names, *where, *(f"{file.resolve()} {_changed_at(file)}" for file in files)]
    return hashlib.sha256("\n".join([os.getcwd(), *found_text]).encode()).hexdigest()


def _changed_at(file: Path) -> int:
    return file.stat().st_mtime_ns if file.is_file() else 0


def _is_made(note: Path, given: str) -> bool:
    """Return whether all is there that was when the note was written, without verification at Java and
    Spark.
    """
    try:
        noted, cache, archive = note.read_text(encoding="utf-8").split("\n")
    except (OSError, ValueError):
        return False
    whole = not missing(BROKER, Path(cache)) and not missing(CONNECTOR, Path(cache))
    return noted == given and whole and Path(archive).is_file()


def _fetch_s3a() -> int:
    from sexton.schemas import settings

    try:
        fetch(S3A, settings.load().cache_dir.expanduser())
    except SextonError as error:
        return report_error(error)
    return 0


def main() -> int:
    """Fetch both jar sets into the cache, and archive Spark's classes; exit code 75 if it fetches none.

    With the argument `s3a` it fetches what a checkpoint on `s3a:` needs, and nothing else. Silent where all
    is there, as each call of make finds it.
    """
    if sys.argv[1:] == ["s3a"]:
        return _fetch_s3a()
    note, given = Path(sys.prefix) / _NOTE, _given(os.environ)
    if _is_made(note, given):
        return 0
    from sexton.schemas import settings
    from sexton.streaming_jobs import class_archive
    from sexton.streaming_jobs.spark import archive_path

    try:
        cache = settings.load().cache_dir.expanduser()
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda jars: fetch(jars, cache), (BROKER, CONNECTOR)))
        os.environ["JAVA_HOME"] = str(java.find(cache).home)
        if wrong := class_archive.make(cache):
            print(f"no archive of Spark's classes, so it takes longer to start: {wrong}", file=sys.stderr)
        else:
            with suppress(OSError):  # then the next call looks at everything again
                note.unlink(missing_ok=True)
                note.write_text("\n".join((given, str(cache), str(archive_path(cache)))), encoding="utf-8")
    except SextonError as error:
        return report_error(error)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
