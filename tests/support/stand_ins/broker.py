"""Run a Kafka broker set up by the variables of the public image: `KAFKA_NODE_ID` is `node.id`, and so on."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

_CACHE = Path("/opt/sexton/cache")
_CLUSTER = "c2V4dG9uLXN0YW5kLWluMQ"
_JVM = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dlog4j2.level=WARN")


def properties(environ: dict[str, str]) -> dict[str, str]:
    """Return the broker's properties: what follows `KAFKA_`, with dots."""
    found = {
        name.removeprefix("KAFKA_").lower().replace("_", "."): value
        for name, value in environ.items()
        if name.startswith("KAFKA_")
    }
    return {"log.dirs": "/tmp/kafka", "log.cleaner.dedupe.buffer.size": "16777216", **found}


def main() -> None:
    """Format the storage if it is new, and become the broker."""
    file = Path("/tmp/server.properties")
    file.write_text("".join(f"{name}={value}\n" for name, value in properties(dict(os.environ)).items()))
    (jars,) = _CACHE.glob("kafka-*")
    java = ["java", *_JVM, "-cp", f"{jars}/*"]
    cluster = os.environ.get("CLUSTER_ID", _CLUSTER)
    subprocess.run(
        [
            *java,
            "kafka.tools.StorageTool",
            "format",
            f"--cluster-id={cluster}",
            "-c",
            file,
            "--ignore-formatted",
        ],
        check=True,
    )
    os.execvp("java", [*java[:1], "-Xms64m", "-Xmx512m", *java[1:], "kafka.Kafka", str(file)])


if __name__ == "__main__":
    main()
