"""Reading unclean replies: one state per item, and nothing believed that the reply does not say."""

from __future__ import annotations

from random import Random
from xml.sax.saxutils import escape

from hypothesis import given
from hypothesis import strategies as st

from sexton.storage import Delete, Effect, Kind, xml_unsafe
from sexton.storage.reply import scan_errors
from sexton.storage.states_of import read_reply
from sexton.storage.wire import RawReply
from sexton.storage.xml_body import build_body

KEY = st.text(min_size=1, max_size=6).filter(lambda key: not xml_unsafe(key))


def entry(tag: str, **fields: str) -> str:
    """Return one entry of a reply."""
    return f"<{tag}>{''.join(f'<{n}>{escape(v)}</{n}>' for n, v in fields.items())}</{tag}>"


def kinds(items: list[Delete], *entries: str) -> list[Kind]:
    """Return the kinds of all items after a reply with these entries."""
    body = f"<DeleteResult>{''.join(entries)}</DeleteResult>".encode()
    result = read_reply("bucket", items, RawReply(200, "R", body))
    return [result.state(i).kind for i in range(len(items))]


class TestAccounting:
    def test_x_4_each_key_has_its_own_state(self) -> None:
        """X-4: of ten keys three may be tried again, one is final, six are gone."""
        items = [Delete(str(i)) for i in range(10)]
        errors = [entry("Error", Key=str(i), Code="InternalError") for i in (1, 2, 3)]
        errors.append(entry("Error", Key="4", Code="AccessDenied", Message="no"))
        told = [entry("Deleted", Key=str(i)) for i in (0, 5, 6, 7, 8, 9)]

        found = kinds(items, *errors, *told)
        assert found == [Kind.GONE] + [Kind.TRANSIENT] * 3 + [Kind.FINAL] + [Kind.GONE] * 5

    def test_x_5_one_of_two_and_a_stranger(self) -> None:
        """X-5: beside a stranger that nothing explains no key is believed to be gone."""
        items = [Delete("one"), Delete("two")]
        found = kinds(items, entry("Deleted", Key="one"), entry("Deleted", Key="somebody"))

        assert found == [Kind.UNACCOUNTED] * 2

    def test_a_key_that_is_left_out(self) -> None:
        """A key that the reply does not name is unaccounted; its neighbours are gone."""
        items = [Delete("one"), Delete("two")]

        assert kinds(items, entry("Deleted", Key="two")) == [Kind.UNACCOUNTED, Kind.GONE]

    def test_x_8_absent(self) -> None:
        """X-8: a store that says NoSuchKey means absent, which is no error."""
        items = [Delete("one"), Delete("two", version_id="v")]
        found = kinds(
            items,
            entry("Error", Key="one", Code="NoSuchKey"),
            entry("Error", Key="two", VersionId="v", Code="NoSuchVersion"),
        )

        assert found == [Kind.ABSENT] * 2

    def test_x_3_a_folded_echo_is_not_matched(self) -> None:
        """X-3: where the echo of a key stands under its sibling's name, neither is believed to be gone."""
        items = [Delete(" a"), Delete("a"), Delete("b")]
        found = kinds(items, entry("Deleted", Key="a"), entry("Deleted", Key="b"))
        twice = kinds(items, *[entry("Deleted", Key="a")] * 2, entry("Deleted", Key="b"))

        assert found == [Kind.UNACCOUNTED, Kind.UNACCOUNTED, Kind.GONE]
        assert twice == [Kind.UNACCOUNTED, Kind.UNACCOUNTED, Kind.GONE]

    def test_an_echo_that_is_explained_harms_no_neighbour(self) -> None:
        """A stranger that is a folded spelling of a missing key leaves the other keys believed."""
        items = [Delete("e\u0301t\u00e9"), Delete("other")]
        found = kinds(items, entry("Deleted", Key="\u00e9t\u00e9"), entry("Deleted", Key="other"))

        assert found == [Kind.UNACCOUNTED, Kind.GONE]

    @given(st.lists(KEY, min_size=1, max_size=6, unique=True), st.lists(KEY, max_size=6))
    def test_only_what_is_told_is_gone(self, sent: list[str], told: list[str]) -> None:
        """Whatever a reply names: a key is gone only if the reply names exactly it, exactly once."""
        found = kinds([Delete(key) for key in sent], *(entry("Deleted", Key=key) for key in told))

        for key, kind in zip(sent, found, strict=True):
            assert kind in (Kind.GONE, Kind.UNACCOUNTED)
            assert kind is Kind.UNACCOUNTED or told.count(key) == 1
        if sorted(sent) == sorted(told):
            assert set(found) == {Kind.GONE}


class TestVersions:
    def test_versions_of_one_key_are_told_apart(self) -> None:
        """Two versions of a key in one batch have a state each."""
        items = [Delete("k", version_id="1"), Delete("k", version_id="2"), Delete("k")]
        found = kinds(
            items,
            entry("Deleted", Key="k", VersionId="1"),
            entry("Error", Key="k", VersionId="2", Code="AccessDenied"),
            entry("Deleted", Key="k", DeleteMarker="true", DeleteMarkerVersionId="m"),
        )

        assert found == [Kind.GONE, Kind.FINAL, Kind.GONE]

    def test_another_version_is_a_stranger(self) -> None:
        """A reply about another version of the key says nothing about the one that was named."""
        items = [Delete("k", version_id="1")]

        assert kinds(items, entry("Deleted", Key="k", VersionId="9")) == [Kind.UNACCOUNTED]

    def test_markers_are_told(self) -> None:
        """A new marker is given with its version id; the erasing of an old one is told as such."""
        items = [Delete("hidden"), Delete("marker", version_id="m1"), Delete("plain")]
        marker = entry("Deleted", Key="hidden", DeleteMarker="true", DeleteMarkerVersionId="m9")
        erased = entry(
            "Deleted", Key="marker", VersionId="m1", DeleteMarker="true", DeleteMarkerVersionId="m1"
        )
        body = f"<DeleteResult>{marker}{erased}{entry('Deleted', Key='plain')}</DeleteResult>"
        result = read_reply("bucket", items, RawReply(200, "R", body.encode()))

        assert (dict(result.markers), result.erased_markers) == ({0: "m9"}, frozenset({1}))
        assert (result.clean, result.effect, result.request_id) == (True, Effect.KNOWN, "R")


class TestScan:
    @given(
        st.lists(KEY, min_size=1, max_size=8, unique=True),
        st.lists(st.tuples(KEY, st.sampled_from(["Deleted", "InternalError", "AccessDenied"])), max_size=3),
        st.randoms(use_true_random=False),
    )
    def test_the_scan_and_the_parser_agree(
        self, sent: list[str], more: list[tuple[str, str]], random: Random
    ) -> None:
        """Where the quick scan of a reply with failed keys has an answer, the parser has the same one."""
        told = [(key, random.choice(["Deleted", "InternalError"])) for key in sent if random.random() < 0.95]
        entries = [
            entry("Deleted", Key=key)
            if what == "Deleted"
            else entry("Error", Key=key, Code=what, Message="<m>")
            for key, what in told + more[: random.randint(0, 1) * 3]
        ]
        random.shuffle(entries)
        reply = RawReply(200, "R", f"<DeleteResult>{''.join(entries)}</DeleteResult>".encode())
        scanned = scan_errors(build_body(sent), reply)
        if scanned is not None:
            states = read_reply("bucket", [Delete(key) for key in sent], reply).states
            assert scanned == {index: (state.code, state.message) for index, state in states.items()}
        if sorted(told) == sorted(told + more) and len(told) == len(sent):
            assert scanned is not None
