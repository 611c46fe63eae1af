"""The checkpoints of the published engine, as its own client reads them (PyPI `slatedb`)."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from sexton.schemas.errors import UsageError
from sexton.storage import BucketAddress
from sexton.streaming_jobs.collectors.sequenced.checkpoints import Answer, Held, Unknown

__all__ = ["MANIFEST", "FromEngine", "held_by", "open_store"]

MANIFEST = "manifest"
_NAMES = frozenset((MANIFEST, "compactions"))
_AT_ONCE = 8
_ANSWER_S = 30.0
_ENCODED = frozenset('\\{^}%`]">[~<#|*?')
"""What of ASCII the engine encodes in keys as %XX, beside controls (crate object_store, PathPart)."""


@dataclass(frozen=True, slots=True)
class FromEngine:
    """The newest manifest of each database, which has the list of its checkpoints."""

    def check(self, names: Sequence[str]) -> None:
        """Raise UsageError without the client, and for names that the engine does not have."""
        _client()
        if strange := sorted(set(names) - _NAMES):
            raise UsageError(
                f"--checkpoints slatedb: the engine has no files of this name: {strange[0]!r}",
                hint="a JSON file says what is held of others",
            )

    def ask(self, address: BucketAddress, bucket: str, newest: Mapping[str, int | None]) -> dict[str, Answer]:
        """Return what the checkpoints hold that the newest manifests name."""
        return asyncio.run(_ask_all(_client(), address, bucket, newest))


def _client() -> Any:
    try:
        return importlib.import_module("slatedb.uniffi")
    except ImportError as error:
        raise UsageError(
            f"--checkpoints slatedb needs the engine's client: {error}",
            hint='pip install "sexton[collectors,slatedb]"',
        ) from error


async def _ask_all(
    client: Any, address: BucketAddress, bucket: str, newest: Mapping[str, int | None]
) -> dict[str, Answer]:
    store, gate = open_store(client, address, bucket), asyncio.Semaphore(_AT_ONCE)

    async def asked(root: str, listed: int | None) -> Answer:
        async with gate:
            return await _ask(client, store, root, listed)

    found = await asyncio.gather(*(asked(root, listed) for root, listed in newest.items()))
    return dict(zip(newest, found, strict=True))


def open_store(client: Any, address: BucketAddress, bucket: str) -> Any:
    """Return the engine's store at the address that was listed, wherever its environment would lead.

    Credentials are those of the environment, which is all that the engine's client knows.
    """
    builder = client.ObjectStoreBuilder.from_env(client.ObjectStoreType.S3)
    virtual_hosted = not address.path
    for name, value in (
        ("bucket", bucket),
        # Of the names that an address has there this one precedes all: with another one, a variable of the
        # environment would win, and a database of the same name in another store be asked.
        ("aws_endpoint_url_s3", address.origin),
        ("region", address.region),
        ("virtual_hosted_style_request", str(virtual_hosted).lower()),
        ("allow_http", str(address.origin.startswith("http:")).lower()),
    ):
        builder.with_config(name, value)
    return builder.build()


async def _ask(client: Any, store: Any, root: str, listed: int | None) -> Answer:
    path = path_of(root)
    if path is None:
        return Unknown("the engine has no database whose keys begin like this")
    try:
        admin = client.AdminBuilder(path, store).build()
        newest = await asyncio.wait_for(admin.read_manifest(None), _ANSWER_S)
    except (client.Error, client.InternalError, TimeoutError) as error:
        return Unknown(f"the engine reads no manifest: {str(error) or 'no answer'}")
    return held_by(newest, listed)


def path_of(root: str) -> str | None:
    """Return the path that the engine is given for a root as its keys have it, None if none leads there.

    Given the root itself it would encode that once more, and read another database of such a name.
    """
    path = unquote(root)
    return path if "".join(map(_in_key, path)) == root else None


def _in_key(letter: str) -> str:
    plain = letter.isascii() and letter.isprintable() and letter not in _ENCODED
    return letter if plain else "".join(f"%{byte:02X}" for byte in letter.encode())


def held_by(newest: Any, listed: int | None) -> Answer:
    """Return what the checkpoints hold that a manifest names, None for one that the engine does not find.

    Whatever it names holds, expired or not: the engine lets an expired checkpoint be refreshed, and would
    then stand on a manifest that is gone. Its own collector takes the expired ones off the list.
    """
    if newest is None or listed is None:
        return Unknown("the engine finds no manifest, or none is listed")
    if newest.id < listed:
        # What it reads is older than what was listed: another store, or one that is restored right now.
        return Unknown(f"the engine's newest manifest is {newest.id}, and {listed} is listed")
    return [Held(each.manifest_id, MANIFEST) for each in newest.checkpoints]
