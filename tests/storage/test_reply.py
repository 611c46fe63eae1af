from __future__ import annotations

from html import escape

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.storage import UncleanReply, xml_unsafe
from sexton.storage.reply import RawReply, check_reply
from sexton.storage.xml_body import build_body

SENT = build_body(["a", 'q"uote', "x<y&z>'"])
KEY = st.text(min_size=1, max_size=8).filter(lambda key: not xml_unsafe(key))
KEYS = st.lists(KEY, min_size=1, max_size=8, unique=True)


def result(*entries: str) -> bytes:
    """Return a reply with these entries."""
    return f'<?xml version="1.0"?>\n<DeleteResult xmlns="urn:s3">{"".join(entries)}</DeleteResult>'.encode()


def deleted(*keys: str) -> str:
    """Return entries that report the keys, as escaped as they are given."""
    return "".join(f"<Deleted><Key>{key}</Key></Deleted>" for key in keys)


def refusal(body: bytes, status: int = 200) -> UncleanReply:
    """Return the error that a reply to SENT raises."""
    with pytest.raises(UncleanReply) as caught:
        check_reply("bucket", SENT, RawReply(status, "REQ1", body))
    return caught.value


class TestClean:
    @pytest.mark.parametrize(
        "quote", ['q"uote', "q&quot;uote", "q&#34;uote", "q&#x22;uote", '<![CDATA[q"uote]]>']
    )
    @pytest.mark.parametrize("apostrophe", ["'", "&apos;", "&#39;", "&#x27;"])
    def test_any_escaping_is_the_same_key(self, quote: str, apostrophe: str) -> None:
        """Stores escape differently; what a parser reads is what counts."""
        body = result(deleted("a", quote, f"x&lt;y&amp;z&gt;{apostrophe}"))

        check_reply("bucket", SENT, RawReply(200, "", body))

    def test_order_gaps_prefixes_and_more_fields_do_not_matter(self) -> None:
        """Entries in another order, with line breaks, a namespace prefix or version fields are clean."""
        entry = "<s:Deleted>\n <s:VersionId>v</s:VersionId>\n <s:Key>{}</s:Key> </s:Deleted>\n"
        keys = ("x&lt;y&amp;z&gt;'", 'q"uote', "a")
        body = f'<s:DeleteResult xmlns:s="urn:s3">{"".join(map(entry.format, keys))}</s:DeleteResult>'

        check_reply("bucket", SENT, RawReply(200, "", body.encode()))
        check_reply("bucket", SENT, RawReply(200, "", b"\n" + result(deleted(*keys)) + b"\n"))

    @given(KEYS, st.booleans())
    def test_a_faithful_store_is_clean(self, keys: list[str], quote: bool) -> None:
        """A reply with exactly the keys sent is clean, whatever they hold."""
        body = result(deleted(*(escape(key, quote=quote) for key in keys)))

        check_reply("bucket", build_body(keys), RawReply(200, "", body))

    @given(KEYS, KEYS)
    def test_any_other_set_is_unclean(self, sent: list[str], told: list[str]) -> None:
        """A reply that names another set of keys never passes."""
        reply = RawReply(200, "", result(deleted(*map(escape, told))))
        if set(sent) == set(told):
            check_reply("bucket", build_body(sent), reply)
        else:
            with pytest.raises(UncleanReply):
                check_reply("bucket", build_body(sent), reply)


class TestUnclean:
    def test_x_5_an_empty_body(self) -> None:
        """X-5: 200 with nothing in it is no success, and the effect is unknown."""
        error = refusal(b"")

        assert "the body is empty" in str(error)
        assert error.effect_unknown

    def test_x_5_a_missing_key_and_a_stranger(self) -> None:
        """X-5: a reply without one of the keys, with a stranger instead, names both."""
        error = refusal(result(deleted("a", 'q"uote', "stranger")))

        assert [(problem.key, problem.code) for problem in error.problems] == [
            ("x<y&z>'", "MissingFromReply"),
            ("stranger", "NotAskedFor"),
        ]
        assert error.problem_count == 2

    def test_a_stranger_beside_all_keys(self) -> None:
        """A store that reports more than was asked for is not believed."""
        error = refusal(result(deleted("a", 'q"uote', "x&lt;y&amp;z&gt;'", "b")))

        assert [problem.code for problem in error.problems] == ["NotAskedFor"]

    def test_an_error_by_key(self) -> None:
        """200 with an error for one key carries its code and message."""
        body = result(
            deleted("a", 'q"uote'),
            "<Error><Key>x&lt;y&amp;z&gt;'</Key><Code>AccessDenied</Code><Message>no</Message></Error>",
        )
        error = refusal(body)

        assert [(p.key, p.code, p.message) for p in error.problems] == [("x<y&z>'", "AccessDenied", "no")]
        assert error.request_id == "REQ1"
        assert "AccessDenied" in str(error)

    def test_a_key_both_deleted_and_failed(self) -> None:
        """An error beside a success for the same key is an error."""
        all_of_them = deleted("a", 'q"uote', "x&lt;y&amp;z&gt;'")
        error = refusal(result(all_of_them, "<Error><Key>a</Key><Code>InternalError</Code></Error>"))

        assert [problem.code for problem in error.problems] == ["InternalError"]

    def test_only_the_first_few_problems_are_listed(self) -> None:
        """Of a thousand failed keys five are shown and all are counted."""
        sent = build_body([f"k{i}" for i in range(1000)])
        with pytest.raises(UncleanReply) as caught:
            check_reply("bucket", sent, RawReply(200, "", result()))

        assert (len(caught.value.problems), caught.value.problem_count) == (5, 1000)

    @pytest.mark.parametrize(
        "body",
        [
            result(deleted("a", 'q"uote', "x&lt;y&amp;z&gt;'"))[:-5],
            b"<html>a proxy's page</html>",
            b"\xff\xfe",
            result().replace(b"DeleteResult", b"ListBucketResult"),
        ],
    )
    def test_a_body_that_is_no_result(self, body: bytes) -> None:
        """A torn body, a proxy's page, noise and the reply to another call are all unclean."""
        assert "no DeleteResult" in str(refusal(body))

    def test_an_error_after_the_200(self) -> None:
        """A store that fails after it has sent its 200 is told by the body, and may have deleted some."""
        error = refusal(b"<Error><Code>InternalError</Code><Message>try again</Message></Error>")

        assert (error.code, error.status) == ("InternalError", 200)
        assert error.effect_unknown

    @pytest.mark.parametrize(("status", "unknown"), [(403, False), (301, False), (500, True), (503, True)])
    def test_a_refused_request(self, status: int, unknown: bool) -> None:
        """An error status carries the store's code; only a 3xx or 4xx says that nothing was done."""
        error = refusal(b"<Error><Code>SomeCode</Code></Error>", status)

        assert ("SomeCode", status, unknown) == (error.code, error.status, error.effect_unknown)

    def test_an_error_status_beats_a_fine_body(self) -> None:
        """A 500 with a complete result is unclean."""
        refusal(result(deleted("a", 'q"uote', "x&lt;y&amp;z&gt;'")), 500)
