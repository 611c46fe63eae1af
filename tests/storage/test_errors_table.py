"""The table of error classes: each row is what a reply with that code, or status, makes of its keys."""

from __future__ import annotations

import pytest

from sexton.storage.errors_table import TABLE, Row, Scope, classify, classify_single, table_markdown
from sexton.storage.states import Delete, Effect, ErrorClass, Kind
from sexton.storage.states_of import key_state, read_reply
from sexton.storage.wire import RawReply

ITEMS = [Delete("a"), Delete("b")]
ROWS_OF_KEYS = [row for row in TABLE if row.scope is Scope.KEY]
ROWS_OF_REQUESTS = [row for row in TABLE if row.scope is Scope.REQUEST]
OURS = {"EndpointUnreachable", "BucketHostUnreachable", "CredentialsUnavailable", "ReadTimeout"} | {
    "ConnectionBroken",
    "TornReply",
    "EmptyReply",
    "NotADeleteResult",
    "ProxyFailed",
    "CertificateRejected",
    "BucketCertificateRejected",
}


def name(row: Row) -> str:
    """Return what a row's test is called by."""
    return row.code


@pytest.mark.parametrize("row", ROWS_OF_KEYS, ids=name)
def test_a_code_of_one_key(row: Row) -> None:
    """The key that the code is about has the row's state; its neighbour is gone."""
    body = (
        "<DeleteResult><Deleted><Key>a</Key></Deleted>"
        f"<Error><Key>b</Key><Code>{row.code}</Code><Message>m</Message></Error></DeleteResult>"
    )
    result = read_reply("bucket", ITEMS, RawReply(200, "R", body.encode()))

    assert result.states == {1: key_state(row.code, "m")}
    assert (result.state(0).kind, result.state(1).kind) == (Kind.GONE, row.kind)
    assert (result.state(1).effect, result.fault) == (row.effect, None)


@pytest.mark.parametrize("row", ROWS_OF_REQUESTS, ids=name)
def test_a_code_of_a_whole_request(row: Row) -> None:
    """Every key has the row's state, and the result says that it was the whole request."""
    if row.code.isdigit():
        status, body = int(row.code), b""
    else:
        status, body = 400, f"<Error><Code>{row.code}</Code><Message>m</Message></Error>".encode()
    result = read_reply("bucket", ITEMS, RawReply(status, "R", body))

    assert [result.state(i).kind for i in (0, 1)] == [row.kind] * 2
    assert result.fault is not None
    assert (result.fault.kind, result.effect) == (row.kind, row.effect)


@pytest.mark.parametrize(
    "row", [row for row in ROWS_OF_REQUESTS if not row.code.isdigit() and row.code not in OURS], ids=name
)
def test_a_code_after_a_200_tells_nothing(row: Row) -> None:
    """A store that fails after it has sent its 200 may have deleted a part, whatever it says."""
    body = f"<Error><Code>{row.code}</Code></Error>".encode()
    result = read_reply("bucket", ITEMS, RawReply(200, "R", body))

    assert [result.state(i).kind for i in (0, 1)] == [Kind.UNKNOWN] * 2
    assert result.effect is Effect.UNKNOWN


def test_every_row_is_in_one_class() -> None:
    """An error is in exactly one of the classes; absent and changed are none; no code stands twice."""
    assert len({(row.scope, row.code) for row in TABLE}) == len(TABLE)
    assert {row.kind for row in TABLE if row.kind.error_class is None} == {Kind.ABSENT, Kind.CHANGED}
    assert {row.kind.error_class for row in TABLE} - {None} == set(ErrorClass)


@pytest.mark.parametrize(
    ("code", "status", "kind"),
    [
        ("NewKindOfTrouble", 400, Kind.FINAL),
        ("NewKindOfTrouble", 409, Kind.BUCKET),
        ("", 418, Kind.BUCKET),
        ("", 599, Kind.UNKNOWN),
        ("NewKindOfTrouble", 500, Kind.UNKNOWN),
    ],
)
def test_unknown_codes_of_a_request(code: str, status: int, kind: Kind) -> None:
    """An unknown 400 is about the content, other refusals wait with their bucket, the rest is verified."""
    assert classify(Scope.REQUEST, code, status).kind is kind


@pytest.mark.parametrize("status", [400, 403])
@pytest.mark.parametrize(
    "code", ["SignatureDoesNotMatch", "InvalidAccessKeyId", "ExpiredToken", "InvalidToken"]
)
def test_x_7_credentials_that_are_not_known_are_everybodys_fault(code: str, status: int) -> None:
    """X-7: told by the code, whatever the status: by that alone it would be one bucket's, or one key's."""
    assert classify(Scope.REQUEST, code, status).kind is Kind.ENVIRONMENT


def test_an_unknown_code_of_a_key_is_tried_again() -> None:
    """A key with a code that nobody knows is neither gone nor given up."""
    assert classify(Scope.KEY, "NewKindOfTrouble", 200).kind is Kind.TRANSIENT


@pytest.mark.parametrize(
    ("code", "status", "kind"),
    [
        ("NoSuchKey", 404, Kind.ABSENT),
        ("NoSuchBucket", 404, Kind.BUCKET),
        ("", 404, Kind.BUCKET),
        ("AccessDenied", 403, Kind.FINAL),
        ("SignatureDoesNotMatch", 403, Kind.ENVIRONMENT),
        ("", 503, Kind.TRANSIENT),
        ("PreconditionFailed", 412, Kind.CHANGED),
    ],
)
def test_a_single_call(code: str, status: int, kind: Kind) -> None:
    """The key's rows go first; a bare 404, as a proxy sends it, is not believed to mean the key."""
    assert classify_single(code, status).kind is kind


def test_the_documents_show_every_code() -> None:
    """The table for the documents names each code."""
    page = table_markdown()

    assert all(f"`{row.code}`" in page for row in TABLE)
