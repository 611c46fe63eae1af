"""`deploy/compose.yaml` on the engine that docker finds, for as long as it is needed.

    python -m tests.support.composed

plays the demo's story on it, and takes it down again. Where no registry of images can be reached, stand-ins
for the public images are made here.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support import engine, images
from tests.support.prometheus import program

from sexton.deploy.local import ports
from sexton.schemas import settings
from sexton.schemas.errors import EnvironmentFault, SextonError, ToolMissing
from sexton.schemas.reporting import report_error

__all__ = ["Composed", "composed", "main", "public_or_stand_ins"]

FILE = images.ROOT / "deploy" / "compose.yaml"
PROMETHEUS = "sexton-test-prometheus:latest"
_PUBLIC = "valkey/valkey:9"  # one of the public images, and the smallest
_START_SECONDS = 1500
_STOP_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Composed:
    """A project that is up; `prometheus_url` is where the host reaches its Prometheus."""

    command: tuple[str, ...]
    environment: Mapping[str, str]
    prometheus_url: str

    def tools(self, *arguments: str, capture: bool = False) -> subprocess.CompletedProcess[str]:
        """Run the `sexton` command in it; what it depends on is started first, and waited for."""
        return subprocess.run(
            [*self.command, "run", "--rm", "-T", "tools", *arguments],
            env=self.environment,
            capture_output=capture,
            text=True,
            timeout=_START_SECONDS,
            check=False,
        )


@contextmanager
def composed(project: str, variables: Mapping[str, str]) -> Iterator[Composed]:
    """Yield a project that is not started yet; it is taken down afterwards, whatever has come of it."""
    issuer, prometheus = ports.choose(2)
    chosen = {"ISSUER_PORT": str(issuer), "PROMETHEUS_PORT": str(prometheus)}
    environment = {**os.environ, **chosen, **variables}
    command = (*_program(), "-p", project, "-f", str(FILE))
    try:
        yield Composed(command, environment, f"http://127.0.0.1:{prometheus}")
    finally:
        down = ["down", "--volumes", "--remove-orphans", "--timeout", str(_STOP_SECONDS)]
        subprocess.run(
            [*command, "--profile", "tools", *down],
            env=environment,
            capture_output=True,
            timeout=_START_SECONDS,
            check=True,
        )


def public_or_stand_ins() -> dict[str, str]:
    """Build Sexton's images, and stand-ins for the public ones unless those can be had; the variables for it.

    Raises EnvironmentFault when one cannot be built, ToolMissing without what is needed for it.
    """
    cache = settings.load().cache_dir.expanduser()
    if _reachable():
        environment = {**os.environ, "PYTHON": sys.executable}
        subprocess.run([images.ROOT / "deploy" / "images" / "build"], env=environment, check=True)
        return {}
    images.build(cache)
    return stand_ins(cache)


def stand_ins(cache: Path) -> dict[str, str]:
    """Build the stand-in for Prometheus, and return the variables that name all of them."""
    server = program("prometheus")
    if server is None:
        raise ToolMissing("there is no prometheus", hint="Debian has it in the package prometheus")
    dockerfile = Path(__file__).with_name("stand_ins") / "prometheus.Dockerfile"
    command = ["docker", "build", "--quiet", "--network=none", "--tag", PROMETHEUS, "--file", str(dockerfile)]
    made = subprocess.run(
        [*command, "--build-arg", f"BASE={images.base(cache)}", str(server.parent)],
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode != 0:
        raise EnvironmentFault(f"the image of Prometheus cannot be built: {made.stderr[-300:]}")
    names = {"KAFKA": images.BROKER, "VALKEY": images.VALKEY, "S3": images.S3, "PROMETHEUS": PROMETHEUS}
    return {f"{name}_IMAGE": image for name, image in names.items()}


def _reachable() -> bool:
    """Return whether images can be pulled here."""
    try:
        done = subprocess.run(["docker", "pull", "-q", _PUBLIC], capture_output=True, timeout=60, check=False)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def _program() -> tuple[str, ...]:
    """Return Compose's command: version 2, else what Debian has, installed if need be and allowed."""
    if subprocess.run(["docker", "compose", "version"], capture_output=True, check=False).returncode == 0:
        return ("docker", "compose")
    if shutil.which("docker-compose") is None:
        engine.install("docker-compose")
    return ("docker-compose",)


def main() -> int:
    """Play the story; its exit code, or 75 where what it needs cannot be had."""
    try:
        with composed(f"sexton-demo-{os.getpid()}", public_or_stand_ins()) as project:
            return project.tools("demo", "--bucket", "sexton-demo").returncode
    except SextonError as error:
        return report_error(error)


if __name__ == "__main__":
    raise SystemExit(main())
