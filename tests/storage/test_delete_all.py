"""`delete_all` against the recorder: each key's state, odd keys one by one, conditions, refusals, faults."""

from __future__ import annotations

import socket
import unicodedata
from collections.abc import Callable
from dataclasses import replace
from xml.sax.saxutils import escape

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from tests.support.s3_recorder import Recorded, Reply, S3Recorder, Traits

from sexton.storage import (
    ALIASINGS,
    Abilities,
    Ability,
    BatchDeleter,
    BatchResult,
    Delete,
    Effect,
    InvalidBatch,
    Kind,
    StoreSettings,
)

MakeDeleter = Callable[[StoreSettings], BatchDeleter]
ALL = frozenset(aliasing.name for aliasing in ALIASINGS)
FAITHFUL = Abilities(
    "bucket",
    crc32=Ability.YES,
    batch_condition=Ability.YES,
    single_condition=Ability.YES,
    batch_keeps=ALL,
    single_keeps=ALL,
)
ODD = [
    "a/../b", "b", "./b", "..", ".", "/x", "x", "x//y", "x/y", "//", "a%2Fb", "a/b", "t#1", "t", "a+b", "a b",
    "<&>\"'", " lead", "lead", "trail ", "trail", "x/", "q?versionId=1", "semi;colon", "a\\b",
    "tab\tin",     "b\x01c", "x\uffff", "nul\0", "a\rb", "a\nb", "a\r\nb", "ab",
    "\x7f", "\x85", "\u2028", "~", "*", "'", "!",
    unicodedata.normalize("NFC", "é"), unicodedata.normalize("NFD", "é"), "\U0001f5dd", "]]>", "&amp;", "&",
    "%", "%00", "%zz", "k" * 1024,
]  # fmt: skip


@pytest.fixture
def knowing(deleter: BatchDeleter) -> BatchDeleter:
    """A deleter that knows the recorder to be faithful."""
    deleter.learn(FAITHFUL)
    return deleter


def kinds(result: BatchResult) -> list[Kind]:
    """Return the kind of each item."""
    return [result.state(i).kind for i in range(result.count)]


class TestKeys:
    def test_x_2_keys_that_xml_cannot_carry(self, s3: S3Recorder, knowing: BatchDeleter) -> None:
        """X-2: such keys go one by one through the path, their neighbours in one batch."""
        keys = ["a", "b\x01c", "x\uffff", "d"]
        s3.create_bucket("bucket", dict.fromkeys([*keys, "bc", "x"], b""))
        result = knowing.delete_all("bucket", keys).result(10)

        assert result.clean
        assert set(s3.objects("bucket")) == {"bc", "x"}
        assert [request.keys for request in s3.deletes()] == [["a", "d"]]
        assert {request.key for request in s3.singles()} == {"b\x01c", "x\uffff"}
        assert result.requests == len(result.request_ids) == 3

    def test_x_3_cr_and_lf(self, s3: S3Recorder, knowing: BatchDeleter) -> None:
        """X-3: of `a\\rb` and `a\\nb` exactly the one that was named goes, and it is reported by its
        index.
        """
        s3.create_bucket("bucket", {"a\rb": b"", "a\nb": b""})
        result = knowing.delete_all("bucket", ["a\rb"]).result(10)

        assert (kinds(result), set(s3.objects("bucket"))) == ([Kind.GONE], {"a\nb"})
        assert s3.deletes() == []

    def test_x_9_each_spelling_alone(self, s3: S3Recorder, knowing: BatchDeleter) -> None:
        """X-9: a key goes byte for byte as it is spelt, by batch or path; every other aliasing survives."""
        for key in ODD:
            s3.create_bucket("bucket", dict.fromkeys(ODD, b"x"))

            assert knowing.delete_all("bucket", [key]).result(10).clean
            assert set(s3.objects("bucket")) == set(ODD) - {key}

    @pytest.mark.parametrize("reply", [escape, lambda text: "".join(f"&#x{ord(char):x};" for char in text)])
    def test_x_9_all_in_one_batch(
        self, reply: Callable[[str], str], s3: S3Recorder, knowing: BatchDeleter
    ) -> None:
        """X-9: odd keys do not disturb each other, however the store escapes them in its reply."""
        s3.escape = reply
        s3.create_bucket("bucket", dict.fromkeys([*ODD, "stays"], b""))

        assert knowing.delete_all("bucket", ODD).result(10).clean
        assert (set(s3.objects("bucket")), len(s3.deletes())) == ({"stays"}, 1)

    def test_x_9_the_path_on_the_wire(self, s3: S3Recorder, knowing: BatchDeleter) -> None:
        """X-9: nothing on the way normalises a path; each byte arrives as it was meant."""
        for key in ODD:
            knowing.calls.exchange("DELETE", "bucket", key)

        assert [request.key for request in s3.singles()] == ODD
        assert {request.status for request in s3.singles()} == {204}
        assert s3.singles()[0].path == "/bucket/a/../b"

    @hypothesis_settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(
        keys=st.lists(
            st.text(min_size=1, max_size=12)
            | st.text(alphabet="a./%+ \r\n\\\x00\uffff\u0301é", min_size=1, max_size=6),
            min_size=2,
            max_size=12,
            unique=True,
        ),
        data=st.data(),
    )
    @pytest.mark.slow
    def test_x_2_x_3_x_9_all_of_unicode(
        self, s3: S3Recorder, knowing: BatchDeleter, keys: list[str], data: st.DataObject
    ) -> None:
        """X-2, X-3, X-9: whatever the keys hold, exactly those named go, and each is reported to be gone."""
        s3.buckets._buckets.clear()
        s3.create_bucket("bucket", dict.fromkeys(keys, b""))
        due = data.draw(st.lists(st.sampled_from(keys), min_size=1, unique=True))
        result = knowing.delete_all("bucket", due).result(10)

        assert (result.count, result.clean) == (len(due), True)
        assert set(s3.objects("bucket")) == set(keys) - set(due)

    def test_keys_that_cannot_be(self, s3: S3Recorder, knowing: BatchDeleter) -> None:
        """An empty, too long or undecodable key is refused by itself; its neighbour goes."""
        result = knowing.delete_all("bucket", ["", "k" * 1025, "\ud800", "fine"]).result(10)

        assert [state.code for state in map(result.state, range(4))] == [
            "EmptyKey",
            "KeyTooLongError",
            "NotUnicode",
            "",
        ]
        assert [request.keys for request in s3.deletes()] == [["fine"]]

    def test_lists_that_cannot_be(self, s3: S3Recorder, knowing: BatchDeleter) -> None:
        """An empty or too long list, and the same item twice, raise at once."""
        too_many = [str(i) for i in range(1001)]
        lists: list[list[str | Delete]] = [[], ["a", "a"], ["\r", "\r"], [*too_many], [Delete("a"), "a"]]
        for items in lists:
            with pytest.raises(InvalidBatch):
                knowing.delete_all("bucket", items)
        assert s3.requests == []


class TestStates:
    def test_x_1_a_full_batch(self, s3: S3Recorder, knowing: BatchDeleter) -> None:
        """X-1: a thousand plain keys are one request, however they are given."""
        keys = [f"k{i}" for i in range(1000)]
        s3.create_bucket("bucket", dict.fromkeys([*keys, "stays"], b""))

        assert knowing.delete_all("bucket", keys).result(10).clean
        assert knowing.delete_all("bucket", [Delete(key) for key in keys]).result(10).clean
        assert [len(request.keys) for request in s3.deletes()] == [1000, 1000]
        assert set(s3.objects("bucket")) == {"stays"}

    def test_x_4_200_with_errors(self, s3: S3Recorder, knowing: BatchDeleter) -> None:
        """X-4: the keys that failed are reported by index with code and message; the others are gone."""
        entries = "<Deleted><Key>a</Key></Deleted>" + "".join(
            f"<Error><Key>{key}</Key><Code>{code}</Code><Message>m</Message></Error>"
            for key, code in (("b", "InternalError"), ("c", "AccessDenied"))
        )
        s3.script(lambda _: Reply(200, f"<DeleteResult>{entries}</DeleteResult>".encode()))
        result = knowing.delete_all("bucket", ["a", "b", "c"]).result(10)

        assert kinds(result) == [Kind.GONE, Kind.TRANSIENT, Kind.FINAL]
        assert str(result.state(2)) == "final: AccessDenied (m)"
        assert (result.effect, result.fault, result.all_denied) == (Effect.KNOWN, None, False)

    def test_x_5_an_empty_200(self, s3: S3Recorder, knowing: BatchDeleter) -> None:
        """X-5: 200 with nothing in it accounts for no key."""
        s3.script(lambda _: Reply(200))
        result = knowing.delete_all("bucket", ["a", "b\r"]).result(10)

        assert result.state(0).kind is Kind.UNACCOUNTED
        assert (result.state(0).code, result.effect) == ("EmptyReply", Effect.UNKNOWN)

    def test_x_6_slow_down_and_how_long(self, s3: S3Recorder, knowing: BatchDeleter) -> None:
        """X-6: a 503 is about the bucket, did nothing, is sent once, and its Retry-After is handed on."""
        slow = b"<Error><Code>SlowDown</Code><Message>slow</Message></Error>"
        s3.script(lambda _: Reply(503, slow, {"Retry-After": "7"}))
        result = knowing.delete_all("bucket", ["a", "b"]).result(10)
        single = knowing.delete_all("bucket", ["\r"]).result(10)

        assert (kinds(result), result.effect) == ([Kind.BUCKET] * 2, Effect.NONE)
        assert (result.throttled, result.retry_after_s) == (True, 7.0)
        assert (kinds(single), single.throttled, single.retry_after_s) == ([Kind.TRANSIENT], True, 7.0)
        assert len(s3.deletes()) == len(s3.singles()) == 1

    def test_x_7_environment_and_bucket(
        self, s3: S3Recorder, settings: StoreSettings, knowing: BatchDeleter, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """X-7: a missing bucket is the bucket's fault, a wrong secret, and none at all, the environment's."""
        missing = knowing.delete_all("missing", ["a", "\r"]).result(10)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
        with BatchDeleter(settings) as deleter:
            wrong = deleter.delete_all("bucket", ["a", "\r"]).result(10)
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")
        monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
        with BatchDeleter(settings) as deleter:
            none = deleter.delete_all("bucket", ["a", "\r"]).result(10)

        assert kinds(missing) == [Kind.BUCKET] * 2
        assert kinds(wrong) == kinds(none) == [Kind.ENVIRONMENT] * 2
        assert (missing.effect, wrong.effect, none.effect) == (Effect.NONE,) * 3
        assert wrong.fault is not None
        assert (wrong.fault.code, none.state(0).code) == ("SignatureDoesNotMatch", "CredentialsUnavailable")

    def test_every_key_denied(self, s3: S3Recorder, knowing: BatchDeleter) -> None:
        """When every key of a batch is denied the result says so: it is the bucket's policy."""
        denied = "".join(f"<Error><Key>{k}</Key><Code>AccessDenied</Code></Error>" for k in "ab")
        s3.script(lambda _: Reply(200, f"<DeleteResult>{denied}</DeleteResult>".encode()))

        assert knowing.delete_all("bucket", ["a", "b"]).result(10).all_denied

    def test_no_answer(self, s3: S3Recorder, make_deleter: MakeDeleter) -> None:
        """A time-out and a cut connection are of unknown effect; a refused connection did nothing."""
        deleter = make_deleter(StoreSettings(s3.url, read_timeout_s=0.2))
        s3.create_bucket("bucket", {"a": b""})
        s3.script(lambda _: Reply(200, delay_s=0.6, act_first=True))
        late = deleter.delete_all("bucket", ["a", "\r"]).result(10)
        s3.script(lambda _: Reply(drop=True))
        cut = deleter.delete_all("bucket", ["a"]).result(10)
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            url = f"http://127.0.0.1:{unused.getsockname()[1]}"
            nobody = make_deleter(StoreSettings(url)).delete_all("bucket", ["a"]).result(10)

        assert (kinds(late), kinds(cut)) == ([Kind.UNKNOWN] * 2, [Kind.UNKNOWN])
        assert late.state(0).effect_unknown
        assert (kinds(nobody), nobody.effect) == ([Kind.ENVIRONMENT], Effect.NONE)
        assert s3.objects("bucket") == {}

    def test_one_key_spoils_no_batch(self, s3: S3Recorder, knowing: BatchDeleter) -> None:
        """A store that refuses a whole request for one key in it: all others go, the one is final."""
        keys = [f"k{i}" for i in range(100)]
        s3.create_bucket("bucket", dict.fromkeys(keys, b""))

        def spoiled(request: Recorded) -> Reply | None:
            if "k42" in request.keys:
                return Reply(400, b"<Error><Code>InvalidArgument</Code><Message>k42</Message></Error>")
            return None

        s3.script(spoiled)
        result = knowing.delete_all("bucket", keys).result(10)

        assert {i: state.kind for i, state in result.states.items()} == {42: Kind.FINAL}
        assert (set(s3.objects("bucket")), result.fault) == ({"k42"}, None)
        assert result.requests == len(s3.deletes()) < 20

    def test_a_store_that_refuses_everything(self, s3: S3Recorder, knowing: BatchDeleter) -> None:
        """Where every part is refused too it is no matter of the keys: the search ends, the bucket waits."""
        s3.script(lambda _: Reply(400, b"<Error><Code>MalformedXML</Code></Error>"))
        result = knowing.delete_all("bucket", [f"k{i}" for i in range(1000)]).result(10)

        assert len(result.states) == 1000
        assert set(kinds(result)) == {Kind.BUCKET}
        assert result.fault is not None
        assert len(s3.deletes()) < 80

    def test_x_10_a_store_that_wants_md5(self, s3: S3Recorder, deleter: BatchDeleter) -> None:
        """X-10: a store that refuses batches without Content-MD5 gets it, from then on at once."""
        s3.buckets.traits = Traits(wants_md5=True)
        s3.create_bucket("bucket", {"a": b"", "b": b""})

        assert deleter.delete_all("bucket", ["a"]).result(10).clean
        assert deleter.delete_all("bucket", ["b"]).result(10).clean
        assert [request.status for request in s3.deletes()] == [400, 200, 200]


class TestConditions:
    def test_an_etag_in_the_batch(self, s3: S3Recorder, knowing: BatchDeleter) -> None:
        """X-12: what has changed stays and is reported; what has not goes; what is gone is absent."""
        s3.create_bucket("bucket", {"same": b"1", "other": b"2"})
        etag = knowing.calls.put("bucket", "same", b"1").etag
        items = [Delete("same", etag), Delete("other", etag), Delete("none", etag)]
        result = knowing.delete_all("bucket", items).result(10)

        assert kinds(result) == [Kind.GONE, Kind.CHANGED, Kind.ABSENT]
        assert set(s3.objects("bucket")) == {"other"}

    def test_an_etag_in_the_single_call(self, s3: S3Recorder, deleter: BatchDeleter) -> None:
        """Where only the single call checks the condition, conditional items go by it; plain ones do not."""
        deleter.learn(replace(FAITHFUL, batch_condition=Ability.NO))
        s3.buckets.traits = Traits(conditions_ignored=frozenset({"batch"}))
        s3.create_bucket("bucket", {"same": b"1", "other": b"2", "plain": b"3"})
        etag = deleter.calls.put("bucket", "same", b"1").etag
        items = [Delete("same", etag), Delete("other", etag), Delete("plain")]
        result = deleter.delete_all("bucket", items).result(10)

        assert kinds(result) == [Kind.GONE, Kind.CHANGED, Kind.GONE]
        assert [request.keys for request in s3.deletes()] == [["plain"]]
        assert set(s3.objects("bucket")) == {"other"}

    @pytest.mark.parametrize("answer", [Ability.NO, Ability.UNKNOWN])
    def test_x_12_nobody_checks(self, answer: Ability, s3: S3Recorder, deleter: BatchDeleter) -> None:
        """X-12: a condition that nobody is known to check is refused, and no request leaves."""
        deleter.learn(replace(FAITHFUL, batch_condition=answer, single_condition=answer))
        s3.create_bucket("bucket", {"a": b"1"})
        result = deleter.delete_all("bucket", [Delete("a", '"x"'), Delete("b", "")]).result(10)

        assert [state.code for state in result.states.values()] == ["ConditionNotChecked"] * 2
        assert (kinds(result), result.effect, s3.requests) == ([Kind.REFUSED] * 2, Effect.NONE, [])

    def test_an_etag_and_a_version_together(self, s3: S3Recorder, deleter: BatchDeleter) -> None:
        """X-12: no probe has tried both in one delete, so that nothing is sent; its neighbour goes."""
        deleter.learn(FAITHFUL)
        s3.create_bucket("bucket", {"a": b"1", "b": b"2"}, versioning="Enabled")
        version = s3.versions("bucket", "a")[0].version_id
        result = deleter.delete_all("bucket", [Delete("a", '"x"', version), "b"]).result(10)

        assert (kinds(result), result.state(0).code) == ([Kind.REFUSED, Kind.GONE], "ConditionNotChecked")
        assert list(s3.objects("bucket")) == ["a"]

    def test_an_empty_condition(self, s3: S3Recorder, knowing: BatchDeleter) -> None:
        """A store may take an empty condition for none: neither an empty ETag nor version is sent."""
        s3.create_bucket("bucket", {"a": b"1", "b": b"2"})
        result = knowing.delete_all("bucket", [Delete("a", etag=""), Delete("b", version_id="")]).result(10)

        assert kinds(result) == [Kind.REFUSED, Kind.REFUSED]
        assert [result.state(i).code for i in range(2)] == ["ConditionNotChecked"] * 2
        assert (s3.deletes(), s3.singles()) == ([], [])


class TestFolding:
    def test_a_key_that_would_be_folded_is_not_sent(self, s3: S3Recorder, deleter: BatchDeleter) -> None:
        """What a store folds in the batch goes alone where that keeps it apart, else it is refused."""
        deleter.learn(replace(FAITHFUL, batch_keeps=ALL - {"double slash", "leading slash"},
                              single_keeps=ALL - {"leading slash"}))  # fmt: skip
        result = deleter.delete_all("bucket", ["a//b", "/c", "d"]).result(10)

        assert kinds(result) == [Kind.GONE, Kind.REFUSED, Kind.GONE]
        assert (result.state(1).code, "leading slash" in result.state(1).message) == ("FoldedKey", True)
        assert ([r.keys for r in s3.deletes()], [r.key for r in s3.singles()]) == ([["d"]], ["a//b"])

    def test_unknown_is_never_a_yes(self, s3: S3Recorder, deleter: BatchDeleter) -> None:
        """Without a probe no aliasing is sent that stores are known to fold; other keys go."""
        keys = ["a//b", "/c", "a/../b", "./b", "..", "a\\b", "plain", "a.b", "a+b", "é"]
        result = deleter.delete_all("bucket", keys).result(10)

        assert kinds(result) == [Kind.REFUSED] * 6 + [Kind.GONE] * 4

    def test_case(self, deleter: BatchDeleter) -> None:
        """A store that was seen to fold the case of letters gets no key with letters."""
        deleter.learn(replace(FAITHFUL, batch_aliases=frozenset({"letter case"}),
                              single_aliases=frozenset({"letter case"})))  # fmt: skip

        assert kinds(deleter.delete_all("bucket", ["a1", "12"]).result(10)) == [Kind.REFUSED, Kind.GONE]

    @pytest.mark.parametrize("s3", ["http"], indirect=True)
    def test_a_proxy_that_folds_paths(
        self, s3: S3Recorder, knowing: BatchDeleter, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Through a plain HTTP proxy a path with dot segments would be resolved: it is not sent."""
        monkeypatch.setenv("HTTP_PROXY", s3.url)
        monkeypatch.setenv("http_proxy", s3.url)
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.delenv(name, raising=False)
        result = knowing.delete_all("bucket", ["a/../b\r"]).result(10)

        assert (result.state(0).code, s3.singles()) == ("FoldedKey", [])
