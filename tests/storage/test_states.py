"""Reading unclean replies: one state per item, and nothing believed that the reply does not say."""

from __future__ import annotations

from datetime import UTC, datetime
from random import Random
from xml.sax.saxutils import escape

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.storage import BatchResult, Delete, Effect, KeyState, Kind, xml_unsafe
from sexton.storage.reply import scan_errors
from sexton.storage.states import merge_results
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
        reported = [entry("Deleted", Key=str(i)) for i in (0, 5, 6, 7, 8, 9)]

        found = kinds(items, *errors, *reported)
        assert found == [Kind.GONE] + [Kind.TRANSIENT] * 3 + [Kind.FINAL] + [Kind.GONE] * 5

    def test_x_5_one_of_two_and_a_stranger(self) -> None:
        """X-5: beside an unexpected key that nothing explains no key is accepted to be gone."""
        items = [Delete("one"), Delete("two")]
        found = kinds(items, entry("Deleted", Key="one"), entry("Deleted", Key="somebody"))

        assert found == [Kind.UNACCOUNTED] * 2

    def test_a_key_that_is_left_out(self) -> None:
        """A key that the reply does not name is unaccounted; its neighbours are gone."""
        items = [Delete("one"), Delete("two")]

        assert kinds(items, entry("Deleted", Key="two")) == [Kind.UNACCOUNTED, Kind.GONE]

    def test_what_is_no_entry_is_passed_over(self) -> None:
        """Elements beside the entries name no key: they are no unexpected keys."""
        items = [Delete("one")]

        assert kinds(items, "<RequestCharged>requester</RequestCharged>", entry("Deleted", Key="one")) == [
            Kind.GONE
        ]

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
        """X-3: where the echo of a key stands under its sibling's name, neither is accepted to be gone."""
        items = [Delete(" a"), Delete("a"), Delete("b")]
        found = kinds(items, entry("Deleted", Key="a"), entry("Deleted", Key="b"))
        twice = kinds(items, *[entry("Deleted", Key="a")] * 2, entry("Deleted", Key="b"))

        assert found == [Kind.UNACCOUNTED, Kind.UNACCOUNTED, Kind.GONE]
        assert twice == [Kind.UNACCOUNTED, Kind.UNACCOUNTED, Kind.GONE]

    @pytest.mark.parametrize("sent", ["KEY", "k-e-y", "\uff4bey", "\u212aey"])
    def test_an_echo_may_be_that_of_any_spelling(self, sent: str) -> None:
        """Case, marks and compatible letters may all be folded: then neither of two such keys is gone."""
        assert kinds([Delete(sent), Delete("key")], entry("Deleted", Key="key")) == [Kind.UNACCOUNTED] * 2

    def test_an_echo_that_is_explained_harms_no_neighbour(self) -> None:
        """An unexpected key that is a folded aliasing of a missing key leaves the other keys believed."""
        items = [Delete("e\u0301t\u00e9"), Delete("other")]
        found = kinds(items, entry("Deleted", Key="\u00e9t\u00e9"), entry("Deleted", Key="other"))

        assert found == [Kind.UNACCOUNTED, Kind.GONE]

    @given(st.lists(KEY, min_size=1, max_size=6, unique=True), st.lists(KEY, max_size=6))
    def test_only_what_is_told_is_gone(self, sent: list[str], reported: list[str]) -> None:
        """Whatever a reply names: a key is gone only if the reply names exactly it, exactly once."""
        found = kinds([Delete(key) for key in sent], *(entry("Deleted", Key=key) for key in reported))

        for key, kind in zip(sent, found, strict=True):
            assert kind in (Kind.GONE, Kind.UNACCOUNTED)
            assert kind is Kind.UNACCOUNTED or reported.count(key) == 1
        if sorted(sent) == sorted(reported):
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

    def test_an_entry_without_its_version(self) -> None:
        """Some stores leave the version id out: of the one item of its key such an entry is true."""
        items = [Delete("k", version_id="1"), Delete("m", version_id="2")]
        failed = entry("Error", Key="m", Code="AccessDenied")

        assert kinds(items, entry("Deleted", Key="k"), failed) == [Kind.GONE, Kind.FINAL]

    def test_markers_are_told(self) -> None:
        """A new marker is given with its version id; the erasing of an old one is reported as such."""
        items = [Delete("hidden"), Delete("marker", version_id="m1"), Delete("plain")]
        items.append(Delete("version", version_id="v1"))
        marker = entry("Deleted", Key="hidden", DeleteMarker="true", DeleteMarkerVersionId="m9")
        erased = entry(
            "Deleted", Key="marker", VersionId="m1", DeleteMarker="true", DeleteMarkerVersionId="m1"
        )
        rest = entry("Deleted", Key="plain") + entry("Deleted", Key="version", VersionId="v1")
        body = f"<DeleteResult>{marker}{erased}{rest}</DeleteResult>"
        result = read_reply("bucket", items, RawReply(200, "R", body.encode()))

        assert (dict(result.markers), result.erased_markers) == ({0: "m9"}, frozenset({1}))
        assert (result.clean, result.effect, result.request_id) == (True, Effect.KNOWN, "R")


class TestMerging:
    @pytest.mark.parametrize(
        ("effects", "whole"),
        [
            ([Effect.KNOWN, Effect.UNKNOWN, Effect.NONE], Effect.UNKNOWN),
            ([Effect.NONE, Effect.KNOWN], Effect.KNOWN),
            ([Effect.NONE], Effect.NONE),
            ([], Effect.NONE),
        ],
    )
    def test_of_several_requests_the_least_known_effect_counts(
        self, effects: list[Effect], whole: Effect
    ) -> None:
        """A list of which one request may have had an effect may have had one."""
        parts = [([i], BatchResult("b", 1, effect=effect)) for i, effect in enumerate(effects)]

        assert merge_results("b", 4, parts, {}).effect is whole

    def test_each_item_keeps_what_its_request_told(self) -> None:
        """States, markers and waits of the parts stand under the indexes of the whole."""
        denied, busy, refused = (
            KeyState(Kind.FINAL),
            KeyState(Kind.BUCKET, "SlowDown"),
            KeyState(Kind.REFUSED),
        )
        one = BatchResult("b", 2, {1: denied}, {0: "m"}, frozenset({0}), ("r1",), retry_after_s=2.0)
        other = BatchResult("b", 1, {0: busy}, fault=busy, request_ids=("r2",), retry_after_s=7.0, requests=3)
        whole = merge_results("b", 5, [([4, 2], one), ([0], other)], {1: refused})

        assert dict(whole.states) == {0: busy, 1: refused, 2: denied}
        assert (dict(whole.markers), whole.erased_markers) == ({4: "m"}, frozenset({4}))
        assert (whole.fault, whole.retry_after_s, whole.requests) == (busy, 7.0, 4)
        assert whole.request_ids == ("r1", "r2")
        assert (whole.throttled, whole.all_denied, whole.state(3).kind) == (True, False, Kind.GONE)

    @pytest.mark.parametrize(
        ("states", "denied"),
        [
            ([KeyState(Kind.FINAL, "AccessDenied")] * 2, True),
            ([KeyState(Kind.FINAL, "AccessDenied")], False),
            ([KeyState(Kind.FINAL, "AccessDenied"), KeyState(Kind.FINAL, "Other")], False),
            (
                [KeyState(Kind.FINAL, "AccessDenied"), KeyState(Kind.FINAL, "AccessDenied", legal_hold=True)],
                False,
            ),
            (
                [
                    KeyState(Kind.FINAL, "AccessDenied"),
                    KeyState(Kind.FINAL, "AccessDenied", retain_until=datetime(2027, 1, 1, tzinfo=UTC)),
                ],
                False,
            ),
        ],
    )
    def test_a_policy_of_the_bucket_denies_every_key_of_several(
        self, states: list[KeyState], denied: bool
    ) -> None:
        """A lock, another code, or a single key is about keys: those are final, not the bucket's."""
        assert BatchResult("b", len(states), dict(enumerate(states))).all_denied is denied
        assert not BatchResult("b", len(states) + 1, dict(enumerate(states))).all_denied


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
        reported = [
            (key, random.choice(["Deleted", "InternalError"])) for key in sent if random.random() < 0.95
        ]
        entries = [
            entry("Deleted", Key=key)
            if what == "Deleted"
            else entry("Error", Key=key, Code=what, Message="<m>")
            for key, what in reported + more[: random.randint(0, 1) * 3]
        ]
        random.shuffle(entries)
        reply = RawReply(200, "R", f"<DeleteResult>{''.join(entries)}</DeleteResult>".encode())
        scanned = scan_errors(build_body(sent), reply)
        if scanned is not None:
            states = read_reply("bucket", [Delete(key) for key in sent], reply).states
            assert scanned == {index: (state.code, state.message) for index, state in states.items()}
        if sorted(reported) == sorted(reported + more) and len(reported) == len(sent):
            assert scanned is not None
