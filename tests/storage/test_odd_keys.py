"""X-2, X-3, X-9 over all of Unicode: long keys too, and beside each what a careless layer makes of it.

The recorder keeps bytes, so it is held to all of it; moto to what it keeps apart itself.
"""

from __future__ import annotations

import html
import os
import posixpath
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from urllib.parse import quote, unquote, unquote_plus

import pytest
from hypothesis import HealthCheck, example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from tests.support import s3_stores
from tests.support.s3_recorder import S3Recorder

from sexton.storage import (
    ALIASINGS,
    MAX_KEY_BYTES,
    Abilities,
    Ability,
    BatchDeleter,
    Kind,
    StoreRefused,
    Versioning,
    xml_unsafe,
)

ALL = frozenset(aliasing.name for aliasing in ALIASINGS)
FAITHFUL = Abilities("bucket", crc32=Ability.YES, batch_keeps=ALL, single_keeps=ALL)
FRAGMENTS = [
    *map(chr, range(0x20)), "\x7f", "\x80", "\x85", "\x9f", "\xa0", "\xad", "\u200b", "\u200f", "\u2028",
    "\u2029", "\ufeff", "\ufffd", "\ufffe", "\uffff", "\ufdd0", "\U0001fffe", "\U0010ffff", "\U0001f5dd",
    "\r\n", "\n\r", ".", "..", "/", "//", "/./", "/../", "\\", " ", "  ", "+", "%", "%%", "%2F", "%2f",
    "%20", "%2B", "%00", "%0D", "%25", "%zz", "%E9", "&", "&amp;", "&#13;", "&#xD;", "&lt;", "<", ">",
    "]]>", "<![CDATA[", "<!--", "<Key>", "</Key>", "'", '"', "?", "?versionId=null", "#", ";", ":", "=",
    "*", "~", "!", "\u00e9", "e\u0301", "\ufb01", "fi", "\u212b", "\u00c5", "\u1e9b\u0323", "I",
    "\u0131", "\u0130", "\u00df", "SS", "a", "A", "b", "0",
]  # fmt: skip


def fitting(text: str) -> str:
    """Return the text cut to the bytes that a key may have."""
    return text.encode()[:MAX_KEY_BYTES].decode(errors="ignore")


any_text = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40).map(fitting)
nasty = st.lists(
    st.sampled_from(FRAGMENTS) | st.characters(exclude_categories=["Cs"]), min_size=1, max_size=10
)
short = any_text | nasty.map("".join).map(fitting)
long = st.builds(lambda part, times: fitting(part * times), short, st.sampled_from([30, 300, 1024]))
# Hypothesis draws texts of the product too, and the recorder keeps a probe's keys apart.
one_key = (short | long).filter(lambda key: ".sexton-probe" not in key)
odd_keys = st.lists(one_key, min_size=1, max_size=5, unique=True)

CARELESS: Sequence[Callable[[str], str]] = (
    lambda key: unicodedata.normalize("NFC", key),
    lambda key: unicodedata.normalize("NFD", key),
    lambda key: unicodedata.normalize("NFKC", key),
    str.strip,
    lambda key: f" {key}",
    lambda key: f"{key} ",
    lambda key: f"/{key}",
    lambda key: f"{key}/",
    lambda key: key.strip("/"),
    lambda key: key.replace("//", "/"),
    lambda key: key.replace("\\", "/"),
    posixpath.normpath,
    lambda key: posixpath.normpath(f"/{key}").lstrip("/"),
    lambda key: unquote(key, errors="replace"),
    lambda key: unquote_plus(key, errors="replace"),
    quote,
    lambda key: key.replace("+", " "),
    lambda key: key.replace(" ", "+"),
    html.unescape,
    html.escape,
    lambda key: key.replace("\r\n", "\n"),
    lambda key: key.replace("\r", "\n"),
    lambda key: key.replace("\n", "\r"),
    lambda key: "".join(key.split()),
    lambda key: "".join(c for c in key if not xml_unsafe(c)),
    lambda key: "".join("\ufffd" if xml_unsafe(c) else c for c in key),
    lambda key: key.replace("\0", ""),
    lambda key: key.partition("\0")[0],
    lambda key: key.partition("?")[0],
    lambda key: key.partition("#")[0],
    str.lower,
    str.upper,
    str.casefold,
    lambda key: key[:-1],
    lambda key: key + key[-1],
    lambda key: key.encode("ascii", "replace").decode(),
)
"""What is done to keys where they are not kept byte for byte."""


def with_siblings(keys: Sequence[str]) -> list[str]:
    """Return the keys and what each could be taken for, every one once."""
    all_keys = dict.fromkeys(keys)
    for key in keys:
        all_keys.update(dict.fromkeys(careless(key) for careless in CARELESS))
    return [key for key in all_keys if 1 <= len(key.encode(errors="surrogatepass")) <= MAX_KEY_BYTES]


def tried(examples: int) -> hypothesis_settings:
    """Return the settings of a test against a server, which takes as long as it takes."""
    return hypothesis_settings(
        max_examples=examples,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )


@pytest.fixture
def knowing(deleter: BatchDeleter) -> BatchDeleter:
    """A deleter that knows the recorder to be faithful."""
    deleter.learn(FAITHFUL)
    return deleter


class TestRecorder:
    @tried(400)
    @given(keys=odd_keys, data=st.data())
    @pytest.mark.slow
    def test_x_2_x_3_x_9_exactly_what_was_named_goes(
        self, s3: S3Recorder, knowing: BatchDeleter, keys: list[str], data: st.DataObject
    ) -> None:
        """X-2, X-3, X-9: of odd keys and their siblings those named go, the rest stands byte for byte."""
        every = with_siblings(keys)
        s3.buckets._buckets.clear()
        s3.create_bucket("bucket", {key: key.encode() for key in every})
        due = data.draw(st.lists(st.sampled_from(every), min_size=1, max_size=40, unique=True))
        result = knowing.delete_all("bucket", due).result(60)

        assert (result.count, result.clean) == (len(due), True)
        assert s3.objects("bucket") == {key: key.encode() for key in every if key not in set(due)}

    @tried(200)
    @given(keys=odd_keys)
    def test_x_2_x_3_x_9_the_odd_ones_alone(
        self, s3: S3Recorder, knowing: BatchDeleter, keys: list[str]
    ) -> None:
        """X-2, X-3, X-9: the odd keys go in one call, no body holds what XML cannot carry, siblings stay."""
        every = with_siblings(keys)
        s3.requests.clear()
        s3.buckets._buckets.clear()
        s3.create_bucket("bucket", {key: key.encode() for key in every})
        result = knowing.delete_all("bucket", keys).result(60)

        assert (result.count, result.clean) == (len(keys), True)
        assert set(s3.objects("bucket")) == set(every) - set(keys)
        batched = [key for request in s3.deletes() for key in request.keys]
        assert (len(s3.deletes()) <= 1, {request.status for request in s3.requests} <= {200, 204}) == (
            True,
            True,
        )
        assert sorted([*batched, *(request.key for request in s3.singles())]) == sorted(keys)
        assert not any(map(xml_unsafe, batched))

    @tried(150)
    @given(keys=odd_keys, data=st.data())
    def test_x_3_x_11_one_marker_for_exactly_this_key(
        self, s3: S3Recorder, knowing: BatchDeleter, keys: list[str], data: st.DataObject
    ) -> None:
        """X-3, X-11: with versions each named key has one marker, told by its index; siblings none."""
        every = with_siblings(keys)
        s3.buckets._buckets.clear()
        s3.create_bucket("bucket", dict.fromkeys(every, b""), versioning="Enabled")
        due = data.draw(st.lists(st.sampled_from(every), min_size=1, max_size=30, unique=True))
        result = knowing.delete_all("bucket", due).result(60)
        markers = {key: [v.version_id for v in s3.versions("bucket", key) if v.is_marker] for key in every}

        assert result.clean
        assert {key: len(found) for key, found in markers.items()} == {key: int(key in due) for key in every}
        # The reply to a clean batch is not parsed: what is reported is what single calls have made.
        assert all(markers[due[index]] == [version] for index, version in result.markers.items())


@pytest.fixture(scope="module")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BatchDeleter]:
    """A deleter against moto."""
    with (
        s3_stores.moto(Path(tmp_path_factory.mktemp("moto"))) as running,
        pytest.MonkeyPatch.context() as environment,
    ):
        for name, value in running.environ.items():
            environment.setenv(name, value)
        # The credentials are read when they are first needed: while they are in the environment.
        with BatchDeleter(running.settings) as deleter:
            deleter.calls.exchange("PUT", "probed")
            assert deleter.probe("probed").versioning is Versioning.OFF
            yield deleter


@tried(30)
@given(keys=odd_keys, data=st.data())
@example(keys=["a\rb", "b\x01c", "x\uffff", "a/../b", "e\u0301"], data=None)
@pytest.mark.slow
def test_x_2_x_3_x_9_on_moto(moto: BatchDeleter, keys: list[str], data: st.DataObject | None) -> None:
    """X-2, X-3, X-9: also on moto, of what it keeps apart: named keys go, or are refused; the rest stands."""
    bucket = f"test-{os.urandom(6).hex()}"
    moto.calls.exchange("PUT", bucket)
    known = moto.abilities("probed")
    moto.learn(Abilities(**{name: getattr(known, name) for name in known.__slots__} | {"bucket": bucket}))
    every = [key for key in with_siblings(keys)[:40] if put(moto, bucket, key)]
    apart = [key for key in every if body(moto, bucket, key) == key.encode()]
    if not apart:
        return
    sampled = st.lists(st.sampled_from(apart), min_size=1, unique=True)
    due = data.draw(sampled) if data is not None else [key for key in keys if key in apart]
    result = moto.delete_all(bucket, due).result(60)
    gone = {key for i, key in enumerate(due) if result.state(i).kind in (Kind.GONE, Kind.ABSENT)}

    assert {state.kind for state in result.states.values()} <= {Kind.REFUSED, Kind.ABSENT}
    left = {key: body(moto, bucket, key) for key in apart}
    assert left == {key: None if key in gone else key.encode() for key in apart}


def put(deleter: BatchDeleter, bucket: str, key: str) -> bool:
    """Write an object whose body is its key; False where the store takes no such key."""
    try:
        deleter.calls.put(bucket, key, key.encode())
    except StoreRefused:
        return False
    return True


def body(deleter: BatchDeleter, bucket: str, key: str) -> bytes | None:
    """Read an object, None when none is there."""
    reply = deleter.calls.exchange("GET", bucket, key)
    return reply.body if reply.status == 200 else None
