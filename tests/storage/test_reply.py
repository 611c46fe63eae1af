"""Whether a reply is clean, and what it leaves open: the parser's word, which the quick scans must share."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.storage import BatchResult, Delete, Effect, Kind, xml_unsafe
from sexton.storage.reply import is_clean, scan_errors
from sexton.storage.states_of import read_reply
from sexton.storage.wire import RawReply
from sexton.storage.xml_body import build_body, build_items

SENT = ["a", 'q"uote', "x<y&z>'"]
KEY = st.text(min_size=1, max_size=8).filter(lambda key: not xml_unsafe(key))
KEYS = st.lists(KEY, min_size=1, max_size=8, unique=True)


def result(*entries: str) -> bytes:
    """Return a reply with these entries."""
    return f'<?xml version="1.0"?>\n<DeleteResult xmlns="urn:s3">{"".join(entries)}</DeleteResult>'.encode()


def deleted(*keys: str) -> str:
    """Return entries that report the keys, as escaped as they are given."""
    return "".join(f"<Deleted><Key>{key}</Key></Deleted>" for key in keys)


ALL = deleted("a", 'q"uote', "x&lt;y&amp;z&gt;'")


def read(body: bytes, status: int = 200, keys: Sequence[str] = SENT) -> BatchResult:
    """Return what the parser makes of a reply; a quick scan that has an answer must have the same one."""
    reply = RawReply(status, "REQ1", body)
    found = read_reply("bucket", [Delete(key) for key in keys], reply)
    scanned = scan_errors(build_body(keys), reply)

    assert found.clean or not is_clean(build_body(keys), reply)
    reported = {index: (state.code, state.message) for index, state in found.states.items()}
    assert scanned is None or scanned == reported
    return found


def codes(found: BatchResult) -> list[str]:
    """Return the code of each item, empty for one that is gone."""
    return [found.state(i).code for i in range(found.count)]


class TestClean:
    @pytest.mark.parametrize(
        "quote", ['q"uote', "q&quot;uote", "q&#34;uote", "q&#x22;uote", '<![CDATA[q"uote]]>']
    )
    @pytest.mark.parametrize("apostrophe", ["'", "&apos;", "&#39;", "&#x27;"])
    def test_any_escaping_is_the_same_key(self, quote: str, apostrophe: str) -> None:
        """Stores escape differently; what a parser reads is what counts."""
        assert read(result(deleted("a", quote, f"x&lt;y&amp;z&gt;{apostrophe}"))).clean

    def test_order_gaps_prefixes_and_more_fields_do_not_matter(self) -> None:
        """Entries in another order, with line breaks, a namespace prefix or version fields are clean."""
        entry = "<s:Deleted>\n <s:VersionId>v</s:VersionId>\n <s:Key>{}</s:Key> </s:Deleted>\n"
        keys = ("x&lt;y&amp;z&gt;'", 'q"uote', "a")
        body = f'<s:DeleteResult xmlns:s="urn:s3">{"".join(map(entry.format, keys))}</s:DeleteResult>'

        assert read(body.encode()).clean
        assert read(b"\n" + result(deleted(*keys)) + b"\n").clean

    @given(KEYS, st.booleans())
    def test_a_faithful_store_is_clean(self, keys: list[str], quote: bool) -> None:
        """A reply with exactly the keys sent is clean, whatever they hold."""
        assert read(result(deleted(*(escape(key, quote=quote) for key in keys))), keys=keys).clean

    @given(KEYS, st.lists(KEY, max_size=8), st.booleans())
    def test_any_other_list_is_unclean(self, sent: list[str], more: list[str], others: bool) -> None:
        """A reply that names other keys, fewer, or one of them twice never passes, by scan or parser."""
        reported = more if others else [*sent, *more]
        reply = RawReply(200, "", result(deleted(*(escape(key, quote=False) for key in reported))))
        same = sorted(sent) == sorted(reported)

        assert is_clean(build_body(sent), reply) == same
        assert read(reply.body, keys=sent).clean == same


class TestLeftToTheParser:
    def test_versions_of_one_key(self) -> None:
        """A reply that leaves version ids out is no outcome about any of several versions, failed or gone."""
        items = [Delete("k", version_id="1"), Delete("k", version_id="2")]
        error = "<Error><Key>k</Key><Code>AccessDenied</Code></Error>"
        for body in (
            result(deleted("k", "k")),
            result(deleted("k"), "\n", deleted("k")),
            result(deleted("k"), error),
        ):
            reply = RawReply(200, "", body)

            assert not is_clean(build_items(items), reply)
            assert scan_errors(build_items(items), reply) is None
            assert codes(read_reply("bucket", items, reply)) == ["MissingFromReply"] * 2

    def test_new_markers(self) -> None:
        """The id of a new delete marker stands in the reply alone: no scan may throw it away."""
        hidden = "<Deleted><Key>a</Key><DeleteMarker>true</DeleteMarker></Deleted>"
        error = "<Error><Key>b</Key><Code>AccessDenied</Code></Error>"
        for keys, body in ((["a"], result(hidden)), (["a", "b"], result(hidden, error))):
            reply = RawReply(200, "", body)

            assert not is_clean(build_body(keys), reply)
            assert scan_errors(build_body(keys), reply) is None
            assert dict(read(body, keys=keys).markers) == {0: ""}

    def test_a_key_named_twice(self) -> None:
        """Whatever order the entries have, a key that is named twice was not seen to be gone."""
        for body in (result(deleted("b", "a", "a")), result(deleted("a", "b", "b"))):
            assert not is_clean(build_body(["a", "b"]), RawReply(200, "", body))
            assert "AmbiguousReply" in codes(read(body, keys=["a", "b"]))


class TestUnclean:
    def test_x_5_a_missing_key_and_a_stranger(self) -> None:
        """X-5: a reply without one of the keys, with an unexpected key instead, leaves every key open."""
        found = read(result(deleted("a", 'q"uote', "stranger")))

        assert codes(found) == ["NotAskedFor", "NotAskedFor", "MissingFromReply"]
        assert "'stranger'" in found.state(0).message
        assert found.effect is Effect.UNKNOWN

    def test_a_stranger_beside_all_keys(self) -> None:
        """A store that reports more than was asked for is not believed."""
        assert codes(read(result(ALL, deleted("b")))) == ["NotAskedFor"] * 3

    @pytest.mark.parametrize(
        "more",
        [
            '<Error n="1"><Key>a</Key><Code>InternalError</Code></Error>',
            '<Deleted n="1"><Key>a</Key></Deleted>',
            '<Deleted n="1"><Key>stranger</Key></Deleted>',
            "<Error><Code>InternalError</Code></Error>",
        ],
    )
    def test_an_entry_in_another_form_beside_failed_keys(self, more: str) -> None:
        """What the quick scan does not see is left to the parser: then `a` was not plainly deleted."""
        failed = "<Error><Key>b</Key><Code>AccessDenied</Code></Error>"
        found = read(result(deleted("a"), failed, more), keys=["a", "b"])

        assert (found.state(0).kind, found.effect) == (Kind.UNACCOUNTED, Effect.UNKNOWN)
        assert found.state(1).code == "AccessDenied"

    def test_an_error_by_key(self) -> None:
        """200 with an error for one key carries its code and message; its neighbours are gone."""
        body = result(
            deleted("a", 'q"uote'),
            "<Error><Key>x&lt;y&amp;z&gt;'</Key><Code>AccessDenied</Code><Message>no</Message></Error>",
        )
        found = read(body)

        assert codes(found) == ["", "", "AccessDenied"]
        assert (found.state(2).message, found.request_id) == ("no", "REQ1")

    def test_an_error_without_a_code(self) -> None:
        """An error that names its key alone is no success of that key."""
        found = read(result(deleted("a", 'q"uote'), "<Error><Key>x&lt;y&amp;z&gt;&#39;</Key></Error>"))

        assert codes(found) == ["", "", "Error"]

    @pytest.mark.parametrize("code", ["InternalError", "AccessDenied"])
    def test_x_5_a_key_both_deleted_and_failed(self, code: str) -> None:
        """X-5: an error beside a success for the same key is neither: nobody knows what became of it."""
        error = f"<Error><Key>a</Key><Code>{code}</Code></Error>"

        for found in (read(result(ALL, error)), read(result(error, ALL)), read(result(error, ALL, error))):
            assert codes(found) == ["AmbiguousReply", "", ""]
            assert (found.state(0).effect, found.effect) == (Effect.UNKNOWN, Effect.UNKNOWN)
            assert code in found.state(0).message

    def test_a_result_that_names_nobody(self) -> None:
        """Of a thousand keys that the reply leaves out each one is unaccounted."""
        found = read(result(), keys=[f"k{i}" for i in range(1000)])

        assert codes(found) == ["MissingFromReply"] * 1000
        assert found.effect is Effect.UNKNOWN

    @pytest.mark.parametrize(
        "body",
        [
            result(ALL)[:-5],
            result(ALL).removesuffix(b"</DeleteResult>"),
            b"<html>a proxy's page</html>",
            b"\xff\xfe",
            result(ALL).replace(b"DeleteResult", b"ListBucketResult"),
            ALL.encode(),
        ],
    )
    def test_a_body_that_is_no_result(self, body: bytes) -> None:
        """A torn body, a proxy's page, noise and the reply to another call account for no key."""
        found = read(body)

        assert codes(found) == ["NotADeleteResult"] * 3
        assert (found.state(0).kind, found.effect) == (Kind.UNACCOUNTED, Effect.UNKNOWN)

    @pytest.mark.parametrize(
        ("status", "effect"),
        [
            (200, Effect.UNKNOWN),
            (301, Effect.NONE),
            (403, Effect.NONE),
            (418, Effect.NONE),
            (500, Effect.UNKNOWN),
            (503, Effect.UNKNOWN),
        ],
    )
    def test_a_refused_request(self, status: int, effect: Effect) -> None:
        """An error of the whole carries the store's code; only a 3xx or 4xx says that nothing was done."""
        found = read(b"<Error><Code>SomeCode</Code></Error>", status)

        assert codes(found) == ["SomeCode"] * 3
        assert (found.state(0).status, found.effect) == (status, effect)

    def test_only_an_error_of_the_store_has_a_code(self) -> None:
        """A page of something else is reported as it is; what stands in it is no outcome of the store."""
        page = read(b"<Page><Code>AccessDenied</Code><Message>no</Message></Page>", 403)
        error = read(b"<Error><Code>AccessDenied</Code><Message>no</Message></Error>", 403)

        assert (codes(page), "HTTP 403, b'<Page>" in page.state(0).message) == ([""] * 3, True)
        assert (codes(error), error.state(0).message) == (["AccessDenied"] * 3, "no")

    def test_an_error_status_beats_a_fine_body(self) -> None:
        """A 500 with a complete result is unclean in every key."""
        found = read(result(ALL), 500)

        assert (len(found.states), found.effect) == (3, Effect.UNKNOWN)
