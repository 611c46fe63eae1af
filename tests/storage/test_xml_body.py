from __future__ import annotations

from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.s3_api import keys_of

from sexton.storage import Delete, InvalidBatch, xml_unsafe
from sexton.storage.xml_body import build_body, build_items

KEYS = st.lists(st.text(min_size=1, max_size=40), min_size=1, max_size=50, unique=True)
MARKUP = st.lists(
    st.text("<>&\"'; \t;#lgtamp/.", min_size=1, max_size=12), min_size=1, max_size=30, unique=True
)


class TestBody:
    @given(KEYS | MARKUP)
    def test_every_safe_key_arrives_byte_for_byte(self, keys: list[str]) -> None:
        """A real XML parser reads exactly the keys that were given, or an unsafe one spoils the batch."""
        if any(xml_unsafe(key) for key in keys):
            with pytest.raises(InvalidBatch, match=r"XML cannot carry|no Unicode"):
                build_body(keys)
        else:
            assert keys == keys_of(build_body(keys).data)

    @given(st.text(min_size=1, max_size=10))
    def test_unsafe_means_changed_by_a_parser(self, key: str) -> None:
        """A key that is called safe survives a parser; one that is not holds a CR, LF, control or such."""
        if not xml_unsafe(key):
            assert [key] == keys_of(build_body([key]).data)
        else:
            assert any(ord(c) < 0x20 or 0xD800 <= ord(c) <= 0xDFFF or c in "\ufffe\uffff" for c in key)

    @pytest.mark.parametrize("bad", ["\0", "\r", "\n", "\x01", "\x1f", "\ufffe", "\uffff", "\ud800"])
    def test_what_xml_cannot_carry_is_refused(self, bad: str) -> None:
        """One unsafe key spoils the batch before anything is sent, wherever in the key it stands."""
        for key in (bad, f"a{bad}", f"a{bad}b", f"{bad}b"):
            assert xml_unsafe(key)
            with pytest.raises(InvalidBatch):
                build_body(["fine", key, "fine too"])

    def test_tab_and_higher_controls_are_carried(self) -> None:
        """TAB, DEL, C1 controls, NEL, the line separator and astral characters are text like any other."""
        keys = ["a\tb", "\x7f", "\x80", "\x85", "\u2028", "\U0001f5dd", "\ufffd"]

        assert keys == keys_of(build_body(keys).data)


def reported(body: bytes) -> list[dict[str, str]]:
    """Return the fields of each object of a body, as a parser reads them."""
    entries = ElementTree.fromstring(body).iterfind("{*}Object")
    return [{part.tag.rpartition("}")[2]: part.text or "" for part in entry} for entry in entries]


class TestItems:
    def test_each_item_carries_its_own_conditions(self) -> None:
        """Beside a plain key a condition stays one: left out, what was written since would go with it."""
        items = [Delete("plain"), Delete("etag", '"<e>"'), Delete("version", version_id="v&1")]
        items += [Delete("last"), Delete("version", version_id="v2")]
        body = build_items(items)

        assert reported(body.data) == [
            {"Key": "plain"},
            {"Key": "etag", "ETag": '"<e>"'},
            {"Key": "version", "VersionId": "v&1"},
            {"Key": "last"},
            {"Key": "version", "VersionId": "v2"},
        ]
        assert (body.plain, body.count) == (False, 5)
        assert body.escaped == (b"plain", b"etag", b"version", b"last", b"version")

    @pytest.mark.parametrize(
        "items",
        [
            [Delete(f"k{i}", "e") for i in range(1001)],
            [Delete("a", "e"), Delete("b"), Delete("a", "f")],
            [Delete("a", version_id="1"), Delete("a", version_id="1")],
            [Delete("a", "e"), Delete("b\r")],
            [Delete("a", "e\n")],
            [Delete("a", version_id="\x01")],
            [Delete("", "e")],
            [Delete("a" * 1025, "e")],
        ],
        ids=["many", "key twice", "version twice", "key", "etag", "version", "empty", "long"],
    )
    def test_what_no_batch_can_carry_is_refused(self, items: list[Delete]) -> None:
        """As for plain keys: too many, one twice, or a text that would arrive as another."""
        with pytest.raises(InvalidBatch):
            build_items(items)

    def test_a_thousand_are_carried(self) -> None:
        """The most that a batch holds, and a key with its versions."""
        assert build_items([Delete(f"k{i}", "e") for i in range(1000)]).count == 1000
        assert build_items([Delete("a", version_id=str(i)) for i in range(3)] + [Delete("a")]).count == 4


class TestLimits:
    def test_sizes(self) -> None:
        """1 and 1000 keys are a batch; 0 and 1001 are none."""
        build_body(["a"])
        build_body([str(i) for i in range(1000)])
        for keys in ([], [str(i) for i in range(1001)]):
            with pytest.raises(InvalidBatch, match="1 to 1000 keys"):
                build_body(keys)

    def test_a_repeated_key_is_refused(self) -> None:
        """A key that stands twice is named: its second outcome could not be told from its first."""
        with pytest.raises(InvalidBatch, match="twice: 'b'"):
            build_body(["a", "b", "c", "b"])

    def test_key_length_is_counted_in_bytes(self) -> None:
        """1024 bytes of UTF-8 are a key, 1025 are none, and neither is the empty text."""
        build_body(["é" * 512, "a" * 1024])
        for key in ("é" * 512 + "a", "a" * 1025, ""):
            with pytest.raises(InvalidBatch, match="a key"):
                build_body(["fine", key])
