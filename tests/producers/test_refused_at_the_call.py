"""What may not be written is a typed error at the call, and a real broker's topic holds nothing of it."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from sexton.consumers.topics import read
from sexton.deploy.local import Installation
from sexton.deploy.main import run
from sexton.producers import InvalidEvent, Sexton
from sexton.schemas.codec import Codec
from sexton.schemas.events import DeleteObjects, DeletionIntent

pytestmark = pytest.mark.real

GOOD: dict[str, Any] = {
    "tenant": "t",
    "guards": [{"GenerationGuard": {"tenant": "t", "generation": 8}}],
    "action": {"DeleteObjects": {"bucket": "bucket", "phases": [["k-00000008"]]}},
}
BAD_LINES = [
    *((json.dumps(GOOD | {f"{field}x": GOOD[field]}), f"{field}x") for field in GOOD),
    (json.dumps(GOOD).replace('"generation"', '"generatoin"'), "generatoin"),
    (json.dumps(GOOD).replace('"phases"', '"phase"'), "phase"),
    (json.dumps(GOOD).replace("8}", "8.0}"), "float"),
    (json.dumps(GOOD).replace("8}", "NaN}"), "NaN"),
    (json.dumps(GOOD | {"emitted_at": "2026-01-01T00:00:00"}), "time zone"),
    (json.dumps(GOOD | {"guards": [{"NotBeforeGuard": {"instant": "2026-01-01T00:00:00"}}]}), "time zone"),
    (json.dumps(GOOD).replace("k-00000008", "\\ud800"), "surrogates"),
    (json.dumps(GOOD).replace("k-00000008", ""), "empty"),
    (json.dumps(GOOD).replace("k-00000008", "k" * 1_025), "1024 bytes"),
    (json.dumps(GOOD).replace('"tenant": "t",', '"tenant": "t", "tenant": "u",', 1), "twice"),
    (json.dumps(GOOD | {"guards": []}), "guard"),
    ("{", "JSON"),
    ("[" * 100_000, "JSON"),
    ("\xff", "UTF-8"),
    ("[]", "object"),
]
BAD_KEYS: list[Any] = ["", "k" * 1_025, "é" * 513, "\ud800", "a\udc00", b"bytes", 5, None]


def test_f_6_a_typed_error_at_the_call_and_nothing_in_kafka(
    installation: Installation, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """F-6: misspelt fields, wrong types and keys that no object has; then one good call arrives, alone."""
    file = tmp_path / "f.jsonl"
    for line, named in BAD_LINES:
        file.write_bytes(json.dumps(GOOD).encode() + b"\n" + line.encode("latin-1") + b"\n")
        assert run(["intents", "emit", "--file", str(file)]) == 2, line[:200]
        printed = capsys.readouterr()
        assert printed.out == ""
        assert "line 2: " in printed.err
        assert named in printed.err
    written: list[str] = []
    with Sexton.connect("n", installation.settings, bucket="bucket") as sexton:
        tenant = sexton.attach("t")
        for key in BAD_KEYS:
            keys = [*(f"good-{i}" for i in range(25_000)), key]
            for call in (
                partial(tenant.delete, "bucket", keys),
                partial(tenant.replace_index, lambda: written.append("index"), keys),
                partial(sexton.promise_delete, "bucket", [key], operation="op"),
                partial(sexton.promise_delete_prefix, "bucket", key, operation="op"),
            ):
                with pytest.raises(InvalidEvent):
                    call()
        with pytest.raises(TypeError, match="kyes"):
            tenant.delete("bucket", kyes=["k"])  # type: ignore[call-arg]
        assert sexton.flush(10) == 0
        assert written == []
        assert list(read(installation.settings, "intents", timeout=10)) == []
        tenant.delete("bucket", ["good-0"]).wait(10)

    (record,) = read(installation.settings, "intents", timeout=10)
    assert Codec().decode(record.value, DeletionIntent).action == DeleteObjects("bucket", [["good-0"]])
