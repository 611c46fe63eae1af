"""Answers of a store's kind: made from nothing, or the store's own with some keys' outcome changed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from email.utils import formatdate
from xml.sax.saxutils import escape

from sexton.deploy.local.faults.http import Reply, Request
from sexton.deploy.local.faults.request import Entry, S3Request, key_of
from sexton.deploy.local.faults.rules import CODES, Error, KeyFailure, KeyPlay, LeftOut

__all__ = ["delete_result", "empty_reply", "error_reply", "mended", "without_entries"]

_XML = b'<?xml version="1.0" encoding="UTF-8"?>\n'
_NAMESPACE = b'xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'
_TOLD = re.compile(rb"\s*<(Deleted|Error)>(.*?)</\1>", re.DOTALL)
_END = re.compile(rb"</(?:[\w.-]+:)?DeleteResult\s*>|<(?:[\w.-]+:)?DeleteResult(?P<rest>[^>]*)/>")


def error_reply(error: Error, request: S3Request, request_id: str) -> Reply:
    """Return an S3 error document; without a body for HEAD, as S3 does."""
    resource = f"/{request.bucket}" + (f"/{request.key}" if request.key is not None else "")
    fields = {
        "Code": error.code,
        "Message": error.message or CODES.get(error.code, (0, error.code))[1],
        "Resource": resource,
        "RequestId": request_id,
    }
    inner = "".join(f"<{name}>{escape(text)}</{name}>" for name, text in fields.items())
    body = b"" if request.method == "HEAD" else _XML + f"<Error>{inner}</Error>".encode("utf-8", "replace")
    more = {} if error.retry_after is None else {"Retry-After": f"{error.retry_after:g}"}
    return _reply(error.status, body, request_id, more)


def empty_reply(request_id: str) -> Reply:
    """Return a 200 that says nothing."""
    return _reply(200, b"", request_id, {})


def delete_result(request_id: str) -> Reply:
    """Return a reply to DeleteObjects that names no key yet."""
    return _reply(200, _XML + b"<DeleteResult " + _NAMESPACE + b"></DeleteResult>", request_id, {})


def mended(reply: Reply, request: S3Request, keys: Mapping[int, KeyPlay]) -> Reply:
    """Return a reply to DeleteObjects in which the keys of these entries have the outcome that is played.

    A reply that is no DeleteResult is returned as it is.
    """
    end = _END.search(reply.body)
    if reply.status != 200 or end is None:
        return reply
    concerned = {request.entries[index].key for index in keys}

    def kept(match: re.Match[bytes]) -> bytes:
        return b"" if key_of(match[2])[0] in concerned else match[0]

    described = b"".join(_described(request.entries[index], play) for index, play in sorted(keys.items()))
    if end["rest"] is not None:
        body = (
            reply.body[: end.start()] + b"<DeleteResult" + end["rest"] + b">" + described + b"</DeleteResult>"
        )
    else:
        body = _TOLD.sub(kept, reply.body[: end.start()]) + described + reply.body[end.start() :]
    return reply.with_body(body)


def without_entries(request: Request, described: S3Request, withheld: Iterable[int]) -> Request:
    """Return a DeleteObjects request without some of its entries; its checksums are those of the old body."""
    body, last = [], 0
    for index in sorted(withheld):
        entry = described.entries[index]
        body.append(request.body[last : entry.start])
        last = entry.end
    return request.with_body(b"".join(body) + request.body[last:])


def _described(entry: Entry, play: KeyPlay) -> bytes:
    version = b"" if entry.version is None else f"<VersionId>{escape(entry.version)}</VersionId>".encode()
    if isinstance(play, LeftOut):
        return b""
    if isinstance(play, KeyFailure):
        code, message = escape(play.code).encode(), escape(play.message).encode()
        return b"<Error><Key>%b</Key>%b<Code>%b</Code><Message>%b</Message></Error>" % (
            entry.raw_key, version, code, message,
        )  # fmt: skip
    return b"<Deleted><Key>%b</Key></Deleted>" % escape(play.key).encode()


def _reply(status: int, body: bytes, request_id: str, more: Mapping[str, str]) -> Reply:
    headers = {
        "x-amz-request-id": request_id,
        "Server": "sexton-faults",
        "Date": formatdate(usegmt=True),
        "Content-Type": "application/xml",
        "Content-Length": str(len(body)),
        **more,
    }
    return Reply(status, b"", [(name.encode(), value.encode()) for name, value in headers.items()], body)
