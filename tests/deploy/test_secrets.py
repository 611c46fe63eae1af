"""A secret in the settings is printed by no command, whatever is wrong with the place that it leads to."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

MARKER = "hunter2-0123456789"
ENVIRONMENT = {
    "SEXTON_KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1",
    "SEXTON_KAFKA_EXTRA": json.dumps({"sasl.password": MARKER, "sasl.oauthbearer.config": f"token={MARKER}"}),
    "SEXTON_ISSUER_URL": f"http://a:{MARKER}@127.0.0.1:1",
    "SEXTON_ISSUER_TOKEN": MARKER,
    "SEXTON_S3_ENDPOINT_URL": f"http://a:{MARKER}@127.0.0.1:1",
    "SEXTON_SCHEMA_REGISTRY_URL": f"http://a:{MARKER}@127.0.0.1:1,http://{MARKER}@127.0.0.1:2",
    "SEXTON_CHECKPOINT": f"s3a://KEY:{MARKER}@bucket/path",
    "AWS_ACCESS_KEY_ID": "x",
    "AWS_SECRET_ACCESS_KEY": MARKER,
}
REDIS = [f"redis://u:{MARKER}@127.0.0.1:1/0", f"redis://127.0.0.1:1/0?password={MARKER}"]
COMMANDS = {
    "config show": 0,
    "config show --format json": 0,
    "doctor": 75,
    "issuer show tenant": 75,
    "topics check": 75,
    "tail outcomes --until-end": 75,
    "issuer serve --port 0": 75,
}


@pytest.mark.slow
def test_no_command_prints_a_secret() -> None:
    """With every server away, each says where it asked and nothing that stands in a secret's place."""
    running = {}
    for number, command in enumerate(COMMANDS):
        level = {"SEXTON_REDIS_URL": REDIS[number % 2], "SEXTON_LOG_LEVEL": "DEBUG"}
        running[command] = subprocess.Popen(
            [sys.executable, "-m", "sexton.deploy.main", *command.split()],
            env={**os.environ, **ENVIRONMENT, **level},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
    reported = {command: process.communicate(timeout=250)[0] for command, process in running.items()}

    assert {command: process.returncode for command, process in running.items()} == COMMANDS
    assert [command for command in COMMANDS if MARKER in reported[command]] == []
    for command in ("config show", "doctor", "issuer show tenant"):
        assert "http://********@127.0.0.1:1" in reported[command]
