"""Judging a DeleteObjects reply: clean means that every key sent, and no other, is reported as deleted.

A store answers 200 before it has deleted anything; what happened stands in the body alone. Most replies
repeat the keys as they were sent, which one scan shows. Only what does not match at sight is parsed.
"""

from __future__ import annotations

import re
from xml.etree import ElementTree

from sexton.storage.wire import RawReply
from sexton.storage.xml_body import DeleteBody

__all__ = ["child_text", "code_of", "is_clean", "local_name", "parsed", "scan_errors"]

_LONGEST_CODE = 100  # it becomes a reason in records, and a label of metrics

_DELETED_KEY = re.compile(rb"<Deleted>\s*<Key>([^<]*)</Key>")
_ERROR = re.compile(rb"<Error>.*?</Error>", re.DOTALL)
_ONE_RESULT = re.compile(rb"\s*(?:<\?xml[^>]*\?>\s*)?<DeleteResult[\s>]")
_END = b"</DeleteResult>"
_KEY = re.compile(rb"<Key>([^<]*)</Key>")
_DELETED = (b"<Deleted><Key>", b"</Key></Deleted>")


def is_clean(sent: DeleteBody, reply: RawReply) -> bool:
    """Tell by a scan whether the reply names exactly the keys sent as deleted, and nothing else.

    False means only that it has to be parsed: so has a reply with versions, whose markers are of interest.
    """
    if reply.status != 200:
        return False
    if sent.plain and _repeats(sent, reply.body):
        return True
    if not _is_one_result(reply.body):
        return False
    if b"<Error" in reply.body or b"DeleteMarker" in reply.body or not sent.plain:
        return False
    message = _DELETED_KEY.findall(reply.body)
    return len(message) == sent.count and set(message) == set(sent.escaped)


def scan_errors(sent: DeleteBody, reply: RawReply) -> dict[int, tuple[str, str]] | None:
    """Return code and message of each failed key by its index, where the reply accounts for every key once.

    Some failed keys are common under load, and parsing the whole reply for them costs as much as all the
    rest. None means that it has to be parsed: keys escaped in another way, versions, anything that does not
    add up.
    """
    body = reply.body
    if reply.status != 200 or not sent.plain or b"DeleteMarker" in body:
        return None
    if not _is_one_result(body):
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
        found[indexes[key]] = (code_of(element), child_text(element, "Message"))
    return found


def _is_one_result(body: bytes) -> bool:
    """Return whether a body is a DeleteResult from its start to its end, without comments or sections."""
    return _ONE_RESULT.match(body) is not None and body.rstrip().endswith(_END) and b"<!" not in body


def _repeats(sent: DeleteBody, body: bytes) -> bool:
    """Return whether the entries of a reply are exactly the keys as they were sent, in order and nothing
    else.

    One comparison of memory. Keys are escaped, so nothing can hide in what is equal; what stands around it
    must be one result, and no entry at all.
    """
    entries = _DELETED[0] + sent.joined.replace(b"\0", _DELETED[1] + _DELETED[0]) + _DELETED[1]
    start = body.find(_DELETED[0])
    if start < 0 or not body.startswith(entries, start):
        return False
    around = body[:start] + body[start + len(entries) :]
    return _is_one_result(around) and b"<Deleted" not in around and b"<Error" not in around


def parsed(body: bytes) -> ElementTree.Element | None:
    """Return the root of an XML body, None when it is none."""
    # What cannot be parsed has told nothing about any key: the caller reports it as unclean. An encoding
    # that the parser does not know is a ValueError, or a LookupError: the pages of some proxies name one.
    try:
        return ElementTree.fromstring(body.strip())
    except (ElementTree.ParseError, ValueError, LookupError):
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


def code_of(element: ElementTree.Element) -> str:
    """Return the code of an error."""
    return child_text(element, "Code")[:_LONGEST_CODE]
