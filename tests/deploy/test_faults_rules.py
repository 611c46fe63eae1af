"""Files of faults, and what their rules decide: no request is sent here."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree
from xml.sax.saxutils import escape

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.pages import ROOT

from sexton.deploy.local.faults.requests import OPERATIONS, S3Request, describe, without
from sexton.deploy.local.faults.rules import InvalidFaults, Memory, Plan, Rule, decide, read

EXAMPLE = ROOT / "docs" / "examples" / "faults.toml"
# What XML can carry: a CR only as a reference.
XML_TEXT = st.text(
    st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\ufffe\uffff")
    | st.sampled_from("\r\n\t"),
    min_size=1,
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file of faults that is to be written."""
    return tmp_path / "faults.toml"


class Playing:
    """Rules that have seen nothing yet."""

    def __init__(self, file: Path, text: str) -> None:
        file.write_text(text)
        self.rules = {rule: Memory() for rule in read(file)}

    def decide(self, request: S3Request, now: float = 0) -> Plan:
        """What they play on a request."""
        return decide(self.rules, request, now)

    def failed(self, *keys: str) -> list[str]:
        """The keys of a batch that they fail."""
        return [keys[index] for index in sorted(self.decide(batch(*keys)).keys)]


def body_of(*keys: str) -> bytes:
    """The body of a DeleteObjects request."""
    inner = "".join(f"<Object><Key>{escape(key, {chr(13): '&#13;'})}</Key></Object>" for key in keys)
    return f"<Delete>{inner}</Delete>".encode()


def batch(*keys: str, bucket: str = "bucket") -> S3Request:
    """A DeleteObjects request."""
    return describe("POST", f"/{bucket}?delete", {}, body_of(*keys))


def single(key: str) -> S3Request:
    """A DeleteObject request."""
    return describe("DELETE", f"/bucket/{key}", {}, b"")


class TestRequests:
    @pytest.mark.parametrize(
        ("method", "target", "operation"),
        [
            ("POST", "/b?delete=", "DeleteObjects"),
            ("DELETE", "/b/k?versionId=v", "DeleteObject"),
            ("HEAD", "/b/k", "HeadObject"),
            ("HEAD", "/b/", "HeadBucket"),
            ("GET", "/b?list-type=2&prefix=a", "ListObjectsV2"),
            ("GET", "/b?versions", "ListObjectVersions"),
            ("GET", "/b?prefix=a", "ListObjects"),
            ("GET", "/b?versioning", "GetBucketVersioning"),
            ("GET", "/b/k?retention", "GetObjectRetention"),
            ("PUT", "/b/k", "PutObject"),
            ("PUT", "/b", "CreateBucket"),
            ("PUT", "/b/k?partNumber=1&uploadId=u", "UploadPart"),
            ("DELETE", "/b/k?uploadId=u", "AbortMultipartUpload"),
            ("GET", "/", "ListBuckets"),
            ("DELETE", "/b/k?tagging", "DeleteObjectTagging"),
        ],
    )
    def test_operations_have_the_names_of_the_api(self, method: str, target: str, operation: str) -> None:
        """A rule names operations as the S3 API does."""
        assert describe(method, target, {}, b"<Delete/>").operation == operation
        assert operation in OPERATIONS.values()

    @pytest.mark.parametrize(
        ("path", "key"),
        [("a/../b", "a/../b"), ("/x", "/x"), ("x//y", "x//y"), ("a%252Fb", "a%2Fb"), ("a+b", "a+b"),
         ("a%20b", "a b"), ("%C3%A9", "é"), ("e%CC%81", "e\u0301"), ("%0D%0A", "\r\n"), ("..", ".."),
         ("t%231", "t#1"), ("%FF", "\\xff")],
    )  # fmt: skip
    def test_keys_in_paths_are_exact(self, path: str, key: str) -> None:
        """A path is decoded once and nothing in it is normalised; what is no UTF-8 is shown as bytes."""
        assert describe("DELETE", f"/bucket/{path}", {}, b"").keys == [key]

    def test_a_copy_is_no_upload(self) -> None:
        """A header tells them apart."""
        assert describe("PUT", "/b/k", {"X-Amz-Copy-Source": "/b/a"}, b"").operation == "CopyObject"

    @given(st.lists(XML_TEXT, min_size=1, max_size=5))
    def test_keys_in_bodies_are_exact(self, keys: list[str]) -> None:
        """Keys are read from a body as they were written, in order, whatever they hold."""
        assert batch(*keys).keys == keys

    def test_references_and_versions(self) -> None:
        """Numeric references, CDATA, namespaces and version ids are understood."""
        body = (
            b'<d:Delete xmlns:d="http://s3.amazonaws.com/doc/2006-03-01/"><d:Object><d:Key>a&#13;&#xA;b&amp;lt;'
            b"<![CDATA[<c>]]></d:Key><d:VersionId>v1</d:VersionId></d:Object></d:Delete>"
        )
        request = describe("POST", "/b?delete", {}, body)

        assert (request.keys, request.versions) == (["a\r\nb&lt;<c>"], ["v1"])


class TestShortenedBodies:
    @given(st.lists(XML_TEXT, min_size=2, max_size=6), st.data())
    def test_what_is_left_is_exact(self, keys: list[str], data: st.DataObject) -> None:
        """A batch without some keys names each other key as it was: no key becomes another."""
        withheld = data.draw(st.sets(st.integers(0, len(keys) - 1), min_size=1))

        left = describe("POST", "/b?delete", {}, without(body_of(*keys), withheld))

        assert left.keys == [key for index, key in enumerate(keys) if index not in withheld]

    def test_a_cr_stays_a_reference(self) -> None:
        """A bare CR in XML is a LF for the store: the delete of another key, which nobody has asked for."""
        assert without(body_of("a", "x\ry"), {0}) == body_of("x\ry")

    def test_conditions_and_versions_stay(self) -> None:
        """All else that an entry or the batch says is still there: a delete never loses its condition."""
        body = (
            b'<Delete xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Quiet>true</Quiet>'
            b"<Object><Key>a</Key></Object><Object><Key>b</Key><VersionId>v</VersionId><ETag>&quot;e&quot;</ETag>"
            b"<Size>3</Size></Object></Delete>"
        )

        assert without(body, {0}) == body.replace(b"<Object><Key>a</Key></Object>", b"").replace(
            b"&quot;", b'"'
        )

    def test_no_batch_without_keys_that_are_known(self) -> None:
        """What is no XML has no keys that a rule could keep from the store."""
        with pytest.raises(ElementTree.ParseError):
            describe("POST", "/b?delete", {}, b"<Delete><Object><Key>a</Key>")


class TestWholeRequests:
    def test_times_and_after_count_matches(self, file: Path) -> None:
        """`after` leaves the first matches alone, `times` ends it; what does not match is not counted."""
        playing = Playing(file, '[[rule]]\nbucket = "bucket"\nerror = "SlowDown"\nafter = 1\ntimes = 2\n')

        answers = []
        for bucket in ("bucket", "other", "bucket", "bucket", "bucket"):
            answers.append(playing.decide(batch("a", bucket=bucket)).answer is not None)

        assert answers == [False, False, True, True, False]

    def test_the_first_answer_ends_it_and_waits_add_up(self, file: Path) -> None:
        """Rules play in their order until one gives the whole answer; what comes after it sees nothing."""
        playing = Playing(
            file,
            "[[rule]]\nlatency_ms = 20\n[[rule]]\nlatency_ms = 30\nwhen = 'after'\n"
            "[[rule]]\ncut = true\nlatency_ms = 50\n[[rule]]\nerror = 'SlowDown'\n",
        )

        plan = playing.decide(batch("a"))

        assert plan.answer is not None
        assert (plan.waits_ms, plan.answer.cut) == ({"before": 70, "after": 30}, True)
        assert [memory.seen[None] for memory in playing.rules.values()] == [1, 1, 1, 0]

    def test_a_batch_matches_by_one_of_its_keys(self, file: Path) -> None:
        """Exact keys, prefixes and patterns choose requests that name such a key."""
        text = '[[rule]]\nkey = "a*"\nprefix = "p/"\nglob = "*.tmp"\nerror = "InternalError"\n'
        playing = Playing(file, text)

        for keys, hit in {("x", "a*"): 1, ("p/q",): 1, ("q/r.tmp", "y"): 1, ("ab", "xp/", "tmp"): 0}.items():
            assert (playing.decide(batch(*keys)).answer is not None) == hit, keys

    def test_probability_is_a_share_and_the_same_again(self, file: Path) -> None:
        """The share of requests is about what was asked for, and depends on the seed alone."""
        chosen = [
            [playing.decide(batch("a")).answer is not None for _ in range(2000)]
            for playing in (
                Playing(file, f"[[rule]]\nprobability = 0.1\nseed = {seed}\nerror = 'SlowDown'")
                for seed in (1, 1, 2)
            )
        ]

        assert chosen[0] == chosen[1] != chosen[2]
        assert 150 < sum(chosen[0]) < 250


class TestKeys:
    def test_each_key_is_counted_by_itself(self, file: Path) -> None:
        """`times = 1` fails each matching key once, in whatever request it comes."""
        playing = Playing(file, '[[rule]]\nprefix = "x"\nkey_error = "InternalError"\ntimes = 1\n')

        assert playing.failed("x1", "a", "x2") == ["x1", "x2"]
        assert playing.failed("x2", "x3", "a") == ["x3"]
        assert playing.failed("x1", "a", "x2") == []

    def test_probability_chooses_keys(self, file: Path) -> None:
        """The same keys are chosen however they are spread over requests."""
        text = "[[rule]]\nkey_error = 'InternalError'\nprobability = 0.05\n"
        keys = [f"k{number}" for number in range(1000)]

        chosen = Playing(file, text).failed(*keys)

        halves = [half for part in (keys[500:], keys[:500]) for half in Playing(file, text).failed(*part)]
        assert sorted(chosen) == sorted(halves)
        assert 30 < len(chosen) < 70

    def test_the_first_rule_about_a_key_counts(self, file: Path) -> None:
        """Several rules may each fail other keys of one request."""
        playing = Playing(
            file,
            "[[rule]]\nkey = 'a'\nkey_error = 'AccessDenied'\n"
            "[[rule]]\nglob = '[ab]'\nkey_error = 'InternalError'\n",
        )

        plan = playing.decide(batch("a", "b", "c"))

        assert {i: rule.key_error for i, rule in plan.keys.items()} == {0: "AccessDenied", 1: "InternalError"}
        assert plan.withheld == {0, 1}

    def test_a_single_call_gets_it_as_its_answer(self, file: Path) -> None:
        """A failed key that is deleted by itself gets the code as the error of its request, unasked."""
        plan = Playing(file, "[[rule]]\nkey_error = 'AccessDenied'\n").decide(single("a"))

        assert plan.answer is not None
        assert (plan.answer.key_error, plan.unasked) == ("AccessDenied", True)

    @pytest.mark.parametrize("play", ["leave_out = true", "unexpected_key = 'x'"])
    def test_a_single_call_has_no_list_of_keys(self, file: Path, play: str) -> None:
        """What is played on a list of keys passes a call about one key by, whatever `operation` says."""
        for operation in ("", "operation = 'DeleteObject'\n"):
            plan = Playing(file, f"[[rule]]\n{operation}{play}\n").decide(single("a"))

            assert (plan.answer, plan.keys, plan.played) == (None, {}, [])


class TestThrottling:
    def test_a_whole_request_is_refused_until_there_is_room(self, file: Path) -> None:
        """Each key is a write; refused requests cost nothing; the budget fills up to that of a second."""
        playing = Playing(file, "[[rule]]\nwrites_per_s = 20\nretry_after = 1\n")
        keys = [f"p/{number}" for number in range(15)]

        answers = [playing.decide(batch(*keys), now).answer is None for now in (0, 0, 0.45, 0.55, 60, 60)]

        assert answers == [True, False, False, True, True, False]

    def test_buckets_are_apart_and_reads_pass(self, file: Path) -> None:
        """One bucket that is throttled leaves the others alone; so do reads, and keys that do not match."""
        playing = Playing(file, "[[rule]]\nprefix = 'p/'\nwrites_per_s = 1\n")

        assert playing.decide(batch("p/1")).answer is None
        assert playing.decide(batch("p/1")).answer is not None
        assert playing.decide(batch("p/1", bucket="other")).answer is None
        assert playing.decide(batch("q/1")).answer is None
        assert playing.decide(describe("GET", "/bucket/p/1", {}, b"")).answer is None

    def test_a_batch_above_the_rate_passes_on_a_full_budget(self, file: Path) -> None:
        """It leaves a debt: the rate holds in the long run."""
        playing = Playing(file, "[[rule]]\nwrites_per_s = 10\n")
        keys = [f"p/{number}" for number in range(30)]

        answers = [playing.decide(batch(*keys), now).answer is None for now in (0, 1, 2.9, 3)]

        assert answers == [True, False, False, True]


class TestFiles:
    @pytest.mark.parametrize(
        ("text", "reported", "hint"),
        [
            ("[[rule]]\nlatncy_ms = 5\n", "rule 1: unknown field: latncy_ms", "latency_ms"),
            ("[[rules]]\ncut = true\n", "should be 'rule': rules", "[[rule]]"),
            ("[[rule]]\nbucket = 'b'\n", "rule 1: plays one of error, key_error", "[[rule]]"),
            ("[[rule]]\ncut = true\nerror = 'SlowDown'\n", "plays one of", "[[rule]]"),
            ("[[rule]]\ncut = false\n", "input should be true: cut", None),
            ("[[rule]]\ncut = true\n[[rule]]\nlatency_ms = '5'\n", "rule 2: input should be a valid", None),
            ("[[rule]]\nlatency_ms = -1\n", "greater than or equal to 0: latency_ms", None),
            ("[[rule]]\nlatency_ms = nan\n", "finite number: latency_ms", None),
            ("[[rule]]\ncut = true\ntimes = true\n", "valid integer: times", None),
            ("[[rule]]\ncut = true\nprobability = 1.5\n", "less than or equal to 1: probability", None),
            ("[[rule]]\ncut = true\nkey = []\n", "at least 1 item after validation, not 0: key", None),
            ("[[rule]]\ncut = true\nwhen = 'during'\n", "should be 'before' or 'after': when", None),
            ("[[rule]]\ncut = true\noperation = 'DeleteObject5'\n", "no such operation: DeleteObject5", None),
            ("[[rule]]\nerror = 'Slowdown'\n", "this error, give it one: Slowdown", None),
            ("[[rule]]\nwrites_per_s = 0\n", "greater than 0: writes_per_s", None),
            ("[rule]\ncut = true\n", "should be a valid list: rule", "[[rule]]"),
            ("rule = 5\nx", "cannot be read", None),
        ],
    )  # fmt: skip
    def test_what_cannot_be_played_is_said(
        self, file: Path, text: str, reported: str, hint: str | None
    ) -> None:
        """Anything unknown, misspelt or at odds is an error that names the file, the rule and the field."""
        file.write_text(text)

        with pytest.raises(InvalidFaults) as raised:
            read(file)

        assert reported in str(raised.value)
        assert str(file) in str(raised.value)
        assert hint is None or hint in str(raised.value.hint)

    def test_every_field_is_taken(self, file: Path) -> None:
        """A value of each field's kind is taken, one or a list where the field holds texts."""
        plays = ["error = 'X'\nstatus = 599\nmessage = ''\nretry_after = 1.5", "key_error = 'X'",
                 "leave_out = true",
                 "unexpected_key = 'x'", "cut = true", "torn_after = 0", "writes_per_s = 0.5",
                 "latency_ms = 1\njitter_ms = 2"]  # fmt: skip
        criteria = (
            "name = 'n'\nbucket = 'b'\noperation = ['List*']\nkey = ['a', 'b']\nprefix = 'p'\nglob = '*'\n"
        )
        criteria += "times = 0\nafter = 1\nprobability = 1\nseed = -1\nwhen = 'after'\n"
        file.write_text("".join(f"[[rule]]\n{criteria}{play}\n" for play in plays))

        rules = read(file)

        assert {name for rule in rules for name in rule.model_fields_set} == set(Rule.model_fields)
        assert (rules[0].bucket, rules[0].key) == (("b",), ("a", "b"))

    def test_the_file_to_copy_is_one(self, file: Path) -> None:
        """docs/examples/faults.toml is taken, also with what is commented out, and plays what it says."""
        text = EXAMPLE.read_text(encoding="utf-8")
        whole = re.sub(r"^# (\[\[rule|\w+ = )", r"\1", text, flags=re.MULTILINE)
        keys = ["locked/a", *(f"layers/{number}" for number in range(900))]

        assert len(Playing(file, whole).rules) == len(read(EXAMPLE)) + 1
        playing = Playing(file, text)
        hit = playing.failed(*keys)
        assert hit[0] == "locked/a"
        assert 30 < len(hit) < 200
        assert playing.failed(*keys) == ["locked/a"]
