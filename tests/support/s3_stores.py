"""S3 servers for the store suite: the recorder, moto in this process, and those that were built from Go.

Each is started on free ports of 127.0.0.1 and yields how it is reached and as whom.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from moto.moto_server.werkzeug_app import create_backend_app
from tests.support import stores
from tests.support.s3_recorder import S3Recorder
from werkzeug.serving import make_server

from sexton.schemas.settings import load
from sexton.storage import StoreSettings

__all__ = ["STORES", "Running", "binary_of"]

_READY_SECONDS = 60
_KEY, _SECRET = "test-access-key", "test-secret-key"
_AS_OURSELVES: Mapping[str, str] = {"AWS_ACCESS_KEY_ID": _KEY, "AWS_SECRET_ACCESS_KEY": _SECRET}


@dataclass(frozen=True, slots=True)
class Running:
    """A store that answers: its name, the settings that lead to it, and its credentials."""

    name: str
    settings: StoreSettings
    environ: Mapping[str, str]


def binary_of(store: stores.StoreBuild) -> Path | None:
    """Return the binary of a store that was built, None when it was not."""
    return stores.built(store, load().cache_dir.expanduser())


@contextmanager
def recorder(folder: Path) -> Iterator[Running]:
    """Our own strict server."""
    with S3Recorder() as s3:
        yield Running("recorder", _settings(s3.url), s3.environ)


@contextmanager
def moto(folder: Path) -> Iterator[Running]:
    """The server of moto, in this process."""
    server = make_server("127.0.0.1", 0, create_backend_app("s3"), threaded=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield Running("moto", _settings(f"http://127.0.0.1:{server.server_port}"), _AS_OURSELVES)
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def versitygw(folder: Path) -> Iterator[Running]:
    """The gateway of Versity over a folder of files."""
    port, admin = _free_ports(2)
    for name in ("iam", "versions", "buckets"):
        (folder / name).mkdir()
    command = [str(binary_of(stores.VERSITYGW)), "--port", f"127.0.0.1:{port}", "--keep-alive", "--quiet"]
    command += ["--admin-port", f"127.0.0.1:{admin}", "--iam-dir", str(folder / "iam"), "posix"]
    command += ["--versioning-dir", str(folder / "versions"), str(folder / "buckets")]
    environ = {"ROOT_ACCESS_KEY": _KEY, "ROOT_SECRET_KEY": _SECRET}
    with _process(command, folder, environ, lambda: _listens(port)):
        yield Running("versitygw", _settings(f"http://127.0.0.1:{port}"), _AS_OURSELVES)


@contextmanager
def seaweedfs(folder: Path) -> Iterator[Running]:
    """SeaweedFS: master, volume server, filer and S3 gateway in one process."""
    # Each port opens a second one, ten thousand above.
    master, volume, filer, s3 = _free_ports(4, below=55_000)
    identity = {
        "name": "test",
        "credentials": [{"accessKey": _KEY, "secretKey": _SECRET}],
        "actions": ["Admin", "Read", "List", "Tagging", "Write"],
    }
    config = folder / "s3.json"
    config.write_text(json.dumps({"identities": [identity]}), encoding="utf-8")
    (folder / "data").mkdir()
    command = [str(binary_of(stores.SEAWEEDFS)), "server", f"-dir={folder / 'data'}", "-ip=127.0.0.1"]
    command += ["-ip.bind=127.0.0.1", "-master.telemetry=false", f"-master.port={master}"]
    command += ["-master.volumeSizeLimitMB=64", f"-volume.port={volume}", "-volume.max=4000"]
    command += ["-volume.preStopSeconds=0", "-filer", f"-filer.port={filer}", "-s3", f"-s3.port={s3}"]
    command += [f"-s3.config={config}", "-s3.port.iceberg=0", "-s3.port.lance=0"]
    command += [
        "-s3.allowBackslashInKey=true",
        "-s3.autoCreateBucket=false",
        "-s3.allowDeleteBucketNotEmpty=true",
    ]
    url = f"http://127.0.0.1:{s3}"
    environ = {"WEED_MASTER_VOLUME_GROWTH_COPY_1": "1"}
    with _process(command, folder, environ, lambda: _answers(f"{url}/healthz")):
        yield Running("seaweedfs", _settings(url), _AS_OURSELVES)


STORES: Mapping[str, tuple[Callable[[Path], AbstractContextManager[Running]], stores.StoreBuild | None]] = {
    "recorder": (recorder, None),
    "moto": (moto, None),
    "versitygw": (versitygw, stores.VERSITYGW),
    "seaweedfs": (seaweedfs, stores.SEAWEEDFS),
}
"""How each store is started, and what it is built from."""


def _settings(url: str) -> StoreSettings:
    return StoreSettings(url, requests_in_flight=4, connect_timeout_s=5, read_timeout_s=30)


@contextmanager
def _process(
    command: Sequence[str], folder: Path, environ: Mapping[str, str], ready: Callable[[], bool]
) -> Iterator[None]:
    log = folder / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=folder, stdout=output, stderr=output, env={**os.environ, **environ}
        )
    try:
        deadline = time.monotonic() + _READY_SECONDS
        while not ready():
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{command[0]} does not answer: {log.read_text(errors='replace')[-2000:]}")
            time.sleep(0.1)
        yield
    finally:
        # What it keeps goes with its folder: there is nothing that it would have to end well.
        process.kill()
        process.wait()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as reply:
            return bool(reply.status == 200)
    except OSError:
        return False


def _free_ports(count: int, below: int = 65_536) -> list[int]:
    held: list[socket.socket] = []
    ports: list[int] = []
    try:
        while len(ports) < count:
            held.append(socket.socket())
            held[-1].bind(("127.0.0.1", 0))
            port = held[-1].getsockname()[1]
            if port < below:
                ports.append(port)
    finally:
        for one in held:
            one.close()
    return ports
