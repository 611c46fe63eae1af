"""Named stores for the recording server to play: `personalities.toml` says what they answer, here is how.

with S3Recorder() as s3:
    store = PERSONALITIES["Garage"]
    store.play(s3)
"""

from __future__ import annotations

import itertools
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.support.replies import partly
from tests.support.s3_recorder import Recorded, Reply, S3Recorder, Traits

__all__ = ["PERSONALITIES", "Answer", "Personality", "call_of"]

_FILE = Path(__file__).with_suffix(".toml")
_NAMESPACE = "http://s3.amazonaws.com/doc/2006-03-01/"
_DECLARES = '<?xml version="1.0" encoding="UTF-8"?>'
_DELETED = re.compile(rb"<Deleted>.*?</Deleted>", re.DOTALL)


@dataclass(slots=True)
class Answer:
    """One answer, and to which requests it is given; the file's head says what each field means."""

    to: Sequence[str] = ()
    with_: str = ""
    without: str = ""
    more_than: int = 0
    keys: str = ""
    first: int = 0
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: str = ""
    acts: bool = False
    entries: bool = False
    code: str = ""
    message: str = ""
    given: int = 0

    def to_request(self, s3: S3Recorder, request: Recorded) -> Reply | None:
        """Return the reply to a request that it is for, None for any other."""
        named = (
            [key for key in (*request.keys, request.key) if re.search(self.keys, key)] if self.keys else []
        )
        value = next((v for n, v in request.headers.items() if self.with_ and n.startswith(self.with_)), "")
        if (
            (self.to and call_of(request) not in self.to)
            or (self.with_ and not value)
            or (self.without and any(name.startswith(self.without) for name in request.headers))
            or len(request.keys) < self.more_than
            or (self.keys and not named)
            or (self.first and self.given >= self.first)
        ):
            return None
        self.given += 1
        if self.entries:
            reply = partly(s3, request, dict.fromkeys(named, self.code))
            return replace(
                reply, body=reply.body.replace(b"<Message>no<", f"<Message>{self.message}<".encode())
            )
        body = self.body.replace("{value}", value).replace("{key}", next(iter(request.keys), request.key))
        return Reply(self.status, body.encode(), self.headers, act_first=self.acts)


@dataclass(slots=True)
class Personality:
    """A named store; see the head of the file."""

    name: str
    sources: Sequence[str]
    departs: str
    headers: Mapping[str, str] = field(default_factory=dict)
    bucket: str = "bucket"
    region: str = "us-east-1"
    versioning: str = ""
    traits: Mapping[str, Any] = field(default_factory=dict)
    quiet: bool = False
    namespace: str = _NAMESPACE
    declares: str = _DECLARES
    ends: str = "gone"
    elsewhere: Mapping[str, Any] | None = None
    answers: Sequence[Mapping[str, Any]] = ()

    def play(self, s3: S3Recorder, objects: Mapping[str, bytes] | None = None) -> None:
        """Let a server be this store, with its bucket and some objects in it."""
        answers = [Answer(**{_field(name): value for name, value in each.items()}) for each in self.answers]
        s3.region, s3.elsewhere = self.region, _reply(self.elsewhere) if self.elsewhere else None
        s3.buckets.traits = Traits(**self.traits)
        s3.create_bucket(self.bucket, objects, versioning=self.versioning)
        s3.script(lambda request: next(filter(None, (a.to_request(s3, request) for a in answers)), None))
        s3.voice = self._voiced

    def _voiced(self, reply: Reply) -> Reply:
        """Return a reply as this store says it."""
        body = reply.body.replace(_NAMESPACE.encode(), self.namespace.encode())
        body = body.replace(_DECLARES.encode(), self.declares.encode())
        if self.quiet:
            body = _DELETED.sub(b"", body)
        return replace(reply, body=body, headers={**self.headers, **reply.headers})


def call_of(request: Recorded) -> str:
    """Return the name of the call in the S3 API."""
    if not request.key:
        for query, name in _OF_BUCKETS.items():
            if query in request.query:
                return name
        return {"HEAD": "HeadBucket", "PUT": "CreateBucket"}.get(request.method, "ListObjects")
    return {"HEAD": "HeadObject", "PUT": "PutObject", "GET": "GetObject"}.get(request.method, "DeleteObject")


_OF_BUCKETS = {
    "delete": "DeleteObjects",
    "versioning": "GetBucketVersioning",
    "object-lock": "GetObjectLockConfiguration",
    "versions": "ListObjectVersions",
    "list-type": "ListObjectsV2",
}


def _field(name: str) -> str:
    return "with_" if name == "with" else name


def _reply(given: Mapping[str, Any]) -> Reply:
    return Reply(given["status"], given.get("body", "").encode(), given.get("headers", {}))


def _read() -> Mapping[str, Personality]:
    stores = [Personality(**given) for given in tomllib.loads(_FILE.read_text(encoding="utf-8"))["store"]]
    assert not [a.name for a, b in itertools.combinations(stores, 2) if a.name == b.name]
    return {store.name: store for store in stores}


PERSONALITIES = _read()
"""All of them, by name."""
