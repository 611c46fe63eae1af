"""Judging a DeleteObjects reply: clean means that every key sent, and no other, is reported as deleted.

A store answers 200 before it has deleted anything; what happened stands in the body alone. Most replies
repeat the keys as they were sent, which one scan shows. Only what does not match at sight is parsed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from xml.etree import ElementTree
from xml.sax.saxutils import unescape

from sexton.storage.errors import KeyProblem, UncleanReply
from sexton.storage.wire import RawReply
from sexton.storage.xml_body import DeleteBody

__all__ = [
    "HINTS",
    "SHOWN_PROBLEMS",
    "RawReply",
    "check_reply",
    "child_text",
    "is_clean",
    "local_name",
    "parsed",
    "scan_errors",
]

SHOWN_PROBLEMS = 5
"""Keys that an UncleanReply lists; the rest is counted."""

_DELETED_KEY = re.compile(rb"<Deleted>\s*<Key>([^<]*)</Key>")
_ERROR = re.compile(rb"<Error>.*?</Error>", re.DOTALL)
_KEY = re.compile(rb"<Key>([^<]*)</Key>")
_DELETED = (b"<Deleted><Key>", b"</Key></Deleted>")
HINTS = {
    "SignatureDoesNotMatch": "the secret key is not the one that the store knows for this access key",
    "InvalidAccessKeyId": "the store does not know this access key",
    "AuthorizationHeaderMalformed": "the bucket is in another region: set SEXTON_S3_REGION",
    "PermanentRedirect": "the bucket is in another region: set SEXTON_S3_REGION",
    "RequestTimeTooSkewed": "the clock of this machine is wrong",
    "ExpiredToken": "the credentials have expired",
}


def is_clean(sent: DeleteBody, reply: RawReply) -> bool:
    """Tell by a scan whether the reply names exactly the keys sent as deleted, and nothing else.

    False means only that it has to be parsed: so has a reply with versions, whose markers are of interest.
    """
    if reply.status != 200 or not reply.body.rstrip().endswith(b"</DeleteResult>"):
        return False
    if sent.plain and _repeats(sent, reply.body):
        return True
    if b"<Error" in reply.body or b"DeleteMarker" in reply.body or not sent.plain:
        return False
    told = _DELETED_KEY.findall(reply.body)
    return len(told) == sent.count and set(told) == set(sent.escaped)


def scan_errors(sent: DeleteBody, reply: RawReply) -> dict[int, tuple[str, str]] | None:
    """Return code and message of each failed key by its index, where the reply accounts for every key once.

    Some failed keys are common under load, and parsing the whole reply for them costs as much as all the
    rest. None means that it has to be parsed: keys escaped in another way, versions, anything that does not
    add up.
    """
    body = reply.body
    if reply.status != 200 or not sent.plain or b"DeleteMarker" in body:
        return None
    if not body.rstrip().endswith(b"</DeleteResult>"):
        return None
    errors, deleted = _ERROR.findall(body), _DELETED_KEY.findall(body)
    named = [match[1] for match in map(_KEY.search, errors) if match]
    if len(named) + len(deleted) != sent.count or len(named) != body.count(b"<Error"):
        return None
    escaped = sent.escaped
    if body.count(b"<Deleted") != len(deleted) or {*named, *deleted} != set(escaped):
        return None
    indexes = {key: index for index, key in enumerate(escaped)}
    found = {}
    for key, error in zip(named, errors, strict=True):
        element = parsed(error)
        if element is None:
            return None
        found[indexes[key]] = (child_text(element, "Code"), child_text(element, "Message"))
    return found


def check_reply(bucket: str, sent: DeleteBody, reply: RawReply) -> None:
    """Return when the reply is clean in every key; raise UncleanReply when it is not."""
    if not is_clean(sent, reply):
        _check_parsed(bucket, sent, reply)


def _repeats(sent: DeleteBody, body: bytes) -> bool:
    """Tell whether the entries of a reply are exactly the keys as they were sent, in order and nothing else.

    One comparison of memory. Keys are escaped, so no entry can hide in what is equal; before and after it
    there must be no entry at all.
    """
    entries = _DELETED[0] + sent.joined.replace(b"\0", _DELETED[1] + _DELETED[0]) + _DELETED[1]
    start = body.find(_DELETED[0])
    if start < 0 or not body.startswith(entries, start):
        return False
    around = body[:start] + body[start + len(entries) :]
    return b"<Deleted" not in around and b"<Error" not in around


def _check_parsed(bucket: str, sent: DeleteBody, reply: RawReply) -> None:
    root = parsed(reply.body)
    if reply.status != 200 or root is None or local_name(root) != "DeleteResult":
        raise _refused_whole(bucket, reply, root)
    keys = [unescape(escaped.decode()) for escaped in sent.escaped]
    problems = _problems(keys, root)
    if problems:
        raise UncleanReply(
            f"{len(problems)} problems with {len(keys)} keys: "
            + ", ".join(str(problem) for problem in problems[:SHOWN_PROBLEMS]),
            bucket=bucket,
            status=reply.status,
            request_id=reply.request_id,
            problems=tuple(problems[:SHOWN_PROBLEMS]),
            problem_count=len(problems),
        )


def _problems(keys: Sequence[str], root: ElementTree.Element) -> list[KeyProblem]:
    deleted: set[str] = set()
    failed: dict[str, KeyProblem] = {}
    for entry in root:
        key = child_text(entry, "Key")
        if local_name(entry) == "Deleted":
            deleted.add(key)
        elif local_name(entry) == "Error":
            failed[key] = KeyProblem(key, child_text(entry, "Code") or "Error", child_text(entry, "Message"))
    asked = set(keys)
    missing = [key for key in keys if key not in deleted and key not in failed]
    strangers = sorted(deleted - asked)
    return [
        *failed.values(),
        *(KeyProblem(key, "MissingFromReply") for key in missing),
        *(KeyProblem(key, "NotAskedFor") for key in strangers),
    ]


def _refused_whole(bucket: str, reply: RawReply, root: ElementTree.Element | None) -> UncleanReply:
    code = child_text(root, "Code") if root is not None else ""
    message = child_text(root, "Message") if root is not None else ""
    if code:
        what = f"{code} {message}".strip()
    elif not reply.body:
        what = "the body is empty"
    else:
        what = f"the body is no DeleteResult: {reply.body[:80]!r}"
    return UncleanReply(
        what,
        bucket=bucket,
        status=reply.status,
        code=code,
        request_id=reply.request_id,
        hint=HINTS.get(code),
    )


def parsed(body: bytes) -> ElementTree.Element | None:
    """Return the root of an XML body, None when it is none."""
    # What cannot be parsed has told nothing about any key: the caller reports it as unclean.
    try:
        return ElementTree.fromstring(body.strip())
    except ElementTree.ParseError:
        return None


def local_name(element: ElementTree.Element) -> str:
    """Return the name of an element without its namespace."""
    return element.tag.rpartition("}")[2]


def child_text(element: ElementTree.Element, name: str) -> str:
    """Return the text of the first child of this name, empty when there is none."""
    for child in element:
        if local_name(child) == name:
            return child.text or ""
    return ""
