"""Answers of a store that tests script: busy, gone, in part, or only about deletes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from xml.sax.saxutils import escape

from tests.support.s3_recorder import Recorded, Reply, S3Recorder, Script

SLOW_DOWN = Reply(503, b"<Error><Code>SlowDown</Code><Message>busy</Message></Error>")
NO_BUCKET = Reply(404, b"<Error><Code>NoSuchBucket</Code><Message>gone</Message></Error>")


def on_deletes(answer: Script) -> Script:
    """A script for the DeleteObjects requests that are no probes."""
    return lambda request: answer(request) if request.is_delete_objects and not request.is_probe else None


def on_bucket(bucket: str, reply: Reply) -> Script:
    """A script that answers everything about a bucket in this way."""
    return lambda request: reply if request.bucket == bucket else None


def partly(s3: S3Recorder, request: Recorded, errors: Mapping[str, str]) -> Reply:
    """Carry a DeleteObjects request out but for some keys, which are answered with these codes."""
    if not errors.keys() >= set(request.keys):
        assert not re.search(b"<(ETag|VersionId)>", request.body)  # it would not keep to them
    parts = []
    with s3.buckets.lock:
        bucket = s3.buckets.of(request.bucket)
        for key in request.keys:
            name = f"<Key>{escape(key)}</Key>"
            if key in errors:
                parts.append(f"<Error>{name}<Code>{errors[key]}</Code><Message>no</Message></Error>")
            else:
                bucket.delete(key, None)
                parts.append(f"<Deleted>{name}</Deleted>")
    return Reply(200, f"<DeleteResult>{''.join(parts)}</DeleteResult>".encode())
