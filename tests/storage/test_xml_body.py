from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.s3_api import keys_of

from sexton.storage import InvalidBatch, xml_unsafe
from sexton.storage.xml_body import build_body

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
