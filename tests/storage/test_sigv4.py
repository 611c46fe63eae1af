"""Our signature is botocore's, byte for byte."""

from __future__ import annotations

from datetime import UTC, datetime
from unittest import mock
from urllib.parse import quote

import botocore.auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from hypothesis import given
from hypothesis import strategies as st

from sexton.storage.sigv4 import Signing, signed_headers

KEYS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
VALUES = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), max_size=30)
HEADERS = st.dictionaries(
    st.sampled_from(
        ["Content-Type", "If-Match", "x-amz-checksum-crc32", "x-amz-bypass-governance-retention"]
    ),
    VALUES,
)
QUERY = st.dictionaries(st.sampled_from(["delete", "versionId", "list-type", "prefix"]), KEYS)
HOSTS = st.sampled_from(["127.0.0.1:9000", "bucket.s3.eu-central-1.amazonaws.com", "[::1]:9000"])
METHODS = st.sampled_from(["GET", "HEAD", "PUT", "POST", "DELETE"])
MOMENTS = st.datetimes(min_value=datetime(2000, 1, 1), max_value=datetime(2099, 1, 1))  # noqa: DTZ001


@given(
    METHODS,
    HOSTS,
    KEYS,
    QUERY,
    HEADERS,
    st.binary(max_size=300),
    st.one_of(st.none(), st.just("a/token+")),
    MOMENTS,
)
def test_the_signature_is_botocores(
    method: str,
    host: str,
    key: str,
    query: dict[str, str],
    headers: dict[str, str],
    body: bytes,
    token: str | None,
    moment: datetime,
) -> None:
    """For any method, key, query, header, body, session token and moment the headers are the same."""
    path = "/bucket/" + quote(key, safe="/~")
    pairs = "&".join(sorted(f"{quote(name)}={quote(value, safe='')}" for name, value in query.items()))
    signing = Signing("AKID", "a/secret+key", token, "eu-central-1", "s3")
    request = AWSRequest(
        method=method, url=f"http://{host}{path}" + (f"?{pairs}" if pairs else ""), headers=headers, data=body
    )
    with mock.patch.object(botocore.auth, "get_current_datetime", return_value=moment):
        credentials = Credentials("AKID", "a/secret+key", token)
        botocore.auth.S3SigV4Auth(credentials, "s3", "eu-central-1").add_auth(request)

    ours = signed_headers(method, host, path, pairs, headers, body, signing, moment.replace(tzinfo=UTC))

    assert {n.lower(): v for n, v in ours.items()} == {n.lower(): v for n, v in request.headers.items()}
