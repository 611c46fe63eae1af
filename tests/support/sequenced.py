"""Buckets for writers of sequenced metadata: the fake, and S3 servers behind a service's own boto3 client."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config
from tests.support.s3_recorder import S3Recorder
from tests.support.s3_stores import STORES, Running

from sexton.producers import SequencedWriter, sequenced
from sexton.producers.testing import FakeStore
from sexton.schemas.sequenced import Namespace, boundary_text
from sexton.storage import StoreSettings

__all__ = ["MANIFESTS", "SERVERS", "OnFake", "OnS3", "client_of", "running_of"]

MANIFESTS = Namespace("db", "manifest")


@dataclass(slots=True)
class OnFake:
    """The fake store, with one bucket."""

    s3: FakeStore
    bucket: str = "bucket"

    def writer(self, **given: Any) -> SequencedWriter:
        """Make a writer of the manifests."""
        return sequenced(self.s3, self.bucket, MANIFESTS.root, MANIFESTS.name, **given)

    def get(self, key: str) -> bytes | None:
        """Return an object's bytes."""
        found = self.s3.objects.get((self.bucket, key))
        return None if found is None else found.body

    def set(self, key: str, body: bytes | None) -> None:
        """Write an object, or delete it."""
        self.s3.set(self.bucket, key, body)

    def collect(self, boundary: int) -> None:
        """Raise the boundary, then delete the files up to it."""
        self.s3.collect(self.bucket, MANIFESTS.root, MANIFESTS.name, boundary)


@dataclass(slots=True)
class OnS3:
    """A bucket of its own on an S3 server; `make` gives each writer a client of its own."""

    make: Callable[[], Any]
    s3: Any
    bucket: str

    @classmethod
    def on(cls, running: Running) -> OnS3:
        """Make a bucket."""
        made = cls(lambda: client_of(running), client_of(running), f"b-{uuid.uuid4().hex[:12]}")
        made.s3.create_bucket(Bucket=made.bucket)
        return made

    def writer(self, **given: Any) -> SequencedWriter:
        """Make a writer of the manifests."""
        return sequenced(self.make(), self.bucket, MANIFESTS.root, MANIFESTS.name, **given)

    def get(self, key: str) -> bytes | None:
        """Return an object's bytes."""
        try:
            body: bytes = self.s3.get_object(Bucket=self.bucket, Key=key)["Body"].read()
        except self.s3.exceptions.NoSuchKey:
            return None
        return body

    def set(self, key: str, body: bytes | None) -> None:
        """Write an object, or delete it."""
        if body is None:
            self.s3.delete_object(Bucket=self.bucket, Key=key)
        else:
            self.s3.put_object(Bucket=self.bucket, Key=key, Body=body)

    def collect(self, boundary: int) -> None:
        """Do what the collector does: raise the boundary, then delete the files up to it."""
        self.set(MANIFESTS.boundary_key, boundary_text(boundary))
        for entry in self.s3.list_objects_v2(Bucket=self.bucket, Prefix=MANIFESTS.folder)["Contents"]:
            id = MANIFESTS.id_of(entry["Key"])
            if id is not None and id <= boundary:
                self.set(entry["Key"], None)


@contextmanager
def _recorder(folder: Path) -> Iterator[Running]:
    """Our own server, on plain HTTP: over TLS boto3 sends chunks with a trailer, which it does not know."""
    with S3Recorder(plain=True) as s3:
        yield running_of(s3)


def running_of(s3: S3Recorder) -> Running:
    """Return how a recorder is reached."""
    return Running("recorder", StoreSettings(s3.url), s3.environ)


SERVERS = {name: each for name, each in STORES.items() if name != "moto"} | {"recorder": (_recorder, None)}
"""How each store is started, and what it is built from; of writers that race at moto several may win."""


def client_of(running: Running, **config: Any) -> Any:
    """Make a boto3 client as a service would, of what it is given alone."""
    defaults = {"retries": {"total_max_attempts": 1}, "connect_timeout": 5, "read_timeout": 30}
    return boto3.client(
        "s3",
        endpoint_url=running.settings.endpoint_url,
        region_name="us-east-1",
        aws_access_key_id=running.environ["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=running.environ["AWS_SECRET_ACCESS_KEY"],
        verify=running.environ.get("AWS_CA_BUNDLE"),
        config=Config(s3={"addressing_style": "path"}, **{**defaults, **config}),
    )
