"""What the suite for all stores works with: a store that runs, and what it is known to depart in."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import boto3
import pytest
from tests.support.s3_stores import Running

from sexton.storage import Abilities, Ability, BatchDeleter, Versioning

__all__ = ["EXPECTED", "Expected", "Store", "keys_in", "opened", "probed", "put"]

YES, NO = Ability.YES, Ability.NO
SLASHES = {"dot segments", "double slash", "leading slash"}


@dataclass(frozen=True, slots=True)
class Expected:
    """What the probe finds of a store where it departs from the S3 API."""

    batch_condition: Ability = YES
    refuses_1001: Ability = YES
    batch_aliases: frozenset[str] = frozenset()
    single_aliases: frozenset[str] = frozenset()
    lists_versioned: Ability = YES


EXPECTED = {
    "recorder": Expected(),
    "moto": Expected(batch_condition=NO, refuses_1001=NO),
    "versitygw": Expected(NO, NO, frozenset(SLASHES), frozenset(SLASHES)),
    "seaweedfs": Expected(
        batch_aliases=frozenset({"double slash", "leading slash"}),
        single_aliases=frozenset({"double slash", "leading slash"}),
        lists_versioned=NO,
    ),
}


@dataclass(frozen=True, slots=True)
class Store:
    """A running store with a deleter, and a plain client that is not ours for what tests set up."""

    name: str
    deleter: BatchDeleter
    client: Any
    new_bucket: Callable[..., str]


@contextmanager
def opened(running: Running) -> Iterator[Store]:
    """The store, with new buckets for whoever asks; clients keep the credentials of their making."""
    with pytest.MonkeyPatch.context() as environment:
        for name, value in running.environ.items():
            environment.setenv(name, value)
        client = boto3.session.Session().client(
            "s3", endpoint_url=running.settings.endpoint_url, region_name=running.settings.region
        )
        deleter = BatchDeleter(running.settings)

    def new_bucket(*, versioned: bool = False, locks: bool = False) -> str:
        name = f"test-{os.urandom(6).hex()}"
        client.create_bucket(Bucket=name, **({"ObjectLockEnabledForBucket": True} if locks else {}))
        if versioned:
            client.put_bucket_versioning(Bucket=name, VersioningConfiguration={"Status": "Enabled"})
        return name

    with deleter:
        yield Store(running.name, deleter, client, new_bucket)
    client.close()


def keys_in(store: Store, bucket: str) -> set[str]:
    """Return all keys of a bucket."""
    keys: set[str] = set()
    after: str | None = None
    while True:
        page = store.deleter.calls.list_slice(bucket, "", after)
        keys |= {entry.key for entry in page.objects}
        after = page.after
        if after is None:
            return keys


def put(store: Store, bucket: str, *keys: str) -> None:
    """Put a small object under each key."""
    for key in keys:
        store.deleter.calls.put(bucket, key, key.encode())


def probed(store: Store, bucket: str) -> Abilities:
    """Return what the probe finds; it leaves nothing behind."""
    found = store.deleter.probe(bucket)

    assert keys_in(store, bucket) == set()
    if found.versioning is not Versioning.OFF:
        assert store.deleter.calls.version_slice(bucket, "").versions == ()
    return found
