"""Checkpoints of which a file is missing, empty, cut or changed: each is refused, and nothing is deleted."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.conftest import Cli
from tests.support.chain import Chain
from tests.support.intents import promised
from tests.support.s3_recorder import S3Recorder

from sexton.streaming_jobs.reaper.dry_run import dry_run
from sexton.streaming_jobs.reaper.recovery.binding import CheckpointRefused
from sexton.streaming_jobs.reaper.recovery.checkpoint import check_log_file

DAMAGED: list[tuple[str, str | None, bool]] = [
    ("metadata", None, False),
    ("metadata", "", False),
    ("metadata", '{"id":', True),
    ("offsets/0", None, False),
    ("offsets/1", "", True),
    ("offsets/1", 'v1\n{"batchWatermarkMs":0}', False),
    ("commits/1", "", False),
    ("commits/1", 'v1\n{"nextBatch', True),
    ("sources/0/0", None, False),
    ("sources/0/0", "\0v1\n{", True),
    ("sexton-binding.json", None, False),
    ("sexton-binding.json", "", True),
    ("sexton-waiting/0", "", False),
]
"""Files, what is left of each (None: it is gone), and whether the sum beside it stays as it was."""


def damage(file: Path, left: str | None, *, with_sum: bool) -> None:
    """Leave only so much of a file."""
    assert file.exists(), file
    if not with_sum:
        file.with_name(f".{file.name}.crc").unlink()
    file.unlink()
    if left is not None:
        file.write_text(left)


@pytest.mark.real
@pytest.mark.spark
@pytest.mark.slow
def test_a_damaged_checkpoint_is_refused_and_its_file_is_named(
    chain: Chain, s3: S3Recorder, tmp_path: Path, cli: Cli
) -> None:
    """Any file that is read at a start: exit 1 with its name and what to do; no request, no receipt."""
    s3.create_bucket("bucket", dict.fromkeys("abc", b""))
    for name in "ab":
        chain.emit(promised(chain, name))
        chain.reap(s3_endpoint_url=s3.url)
    chain.emit(promised(chain, "c"))
    requests, outcomes, good = len(s3.requests), len(chain.outcomes()), Path(str(chain.settings.checkpoint))

    for number, (name, left, with_sum) in enumerate(DAMAGED):
        copy = tmp_path / str(number)
        shutil.copytree(good, copy)
        damage(copy / name, left, with_sum=with_sum)
        with pytest.raises(CheckpointRefused, match=name.replace("waiting/0", "waiting")) as caught:
            chain.reap(s3_endpoint_url=s3.url, checkpoint=str(copy))
        assert "docs/operating.md" in str(caught.value.hint), name

    copy = tmp_path / "0"
    with pytest.raises(CheckpointRefused, match="metadata"):
        list(dry_run(chain.settings.model_copy(update={"checkpoint": str(copy)}), chain.spark))
    reported = cli(
        "reaper", "run", "--once", "--checkpoint", str(copy), env={"SEXTON_S3_ENDPOINT_URL": s3.url}
    )
    assert reported.returncode == 1, reported.stderr
    assert "error: the checkpoint is damaged: metadata: it is missing\n" in reported.stderr
    assert "hint: docs/operating.md, 'A damaged checkpoint'" in reported.stderr
    assert (len(s3.requests), len(chain.outcomes())) == (requests, outcomes)

    # Whole, it continues where it was, also when it ended before its first micro-batch.
    for name in ("offsets", "commits"):
        shutil.rmtree(copy / name)
    shutil.copy(good / "metadata", copy)
    chain.reap(s3_endpoint_url=s3.url, checkpoint=str(copy))
    assert (len(s3.requests) > requests, s3.objects("bucket")) == (True, {})


def test_a_file_of_spark_is_its_version_and_json() -> None:
    """Whole ones pass; what was cut anywhere does not."""
    whole = '\0v1\n{"batchWatermarkMs":0}\n{"t":{"0":1}}\n'
    check_log_file(whole, "x")
    check_log_file('v1\n{"nextBatchWatermarkMs":0}', "commits/1")
    for cut in range(len('\0v1\n{"batchWatermarkMs":0}') - 1):
        with pytest.raises(CheckpointRefused, match="damaged: x"):
            check_log_file(whole[:cut], "x")
