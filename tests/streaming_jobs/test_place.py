"""Where a checkpoint may lie: not among what intents may delete."""

from __future__ import annotations

import pytest

from sexton.schemas.errors import InvalidSettings
from sexton.streaming_jobs.reaper.preflight import check_place


@pytest.mark.parametrize(
    ("path", "allow"),
    [
        ("s3a://layers/checkpoint", [("layers", "")]),
        ("s3a://layers/a/checkpoint/", [("other", ""), ("layers", "a/")]),
        ("s3a://layers/a", [("layers", "a/b/")]),
        ("s3://layers", [("layers", "tenants/")]),
    ],
)
def test_a_checkpoint_in_a_place_that_intents_may_name_is_refused(
    path: str, allow: list[tuple[str, str]]
) -> None:
    """In, above or at an allowed prefix."""
    with pytest.raises(InvalidSettings, match="the checkpoint lies where intents may delete: layers/"):
        check_place(path, allow)


@pytest.mark.parametrize(
    ("path", "allow"),
    [
        ("/var/lib/sexton", []),
        ("hdfs://nodes/layers/a", [("layers", "")]),
        ("s3a://checkpoints/sexton", [("layers", "")]),
        ("s3a://layers/checkpoint", [("layers", "tenants/")]),
        ("s3a://layers/tenants-of-sexton", [("layers", "tenants/")]),
    ],
)
def test_a_checkpoint_elsewhere_is_taken(path: str, allow: list[tuple[str, str]]) -> None:
    """Another bucket, another prefix, no bucket at all."""
    assert check_place(path, allow) is None


def test_without_an_allow_list_a_checkpoint_in_a_bucket_is_taken_with_a_warning() -> None:
    """Then every bucket is in reach, and nothing says which ones hold data."""
    assert "SEXTON_ALLOW is empty" in str(check_place("s3a://checkpoints/sexton", []))
