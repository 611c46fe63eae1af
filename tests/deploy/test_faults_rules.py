"""Files of faults, and what their rules decide: no request is sent here."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from xml.sax.saxutils import escape

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.pages import ROOT

from sexton.deploy.local.faults import InvalidFaults, fields
from sexton.deploy.local.faults.decisions import Plan, Presence, carried_over, decide
from sexton.deploy.local.faults.request import OPERATIONS, S3Request, describe
from sexton.deploy.local.faults.rules import Cut, Error, KeyFailure, Rule
from sexton.deploy.local.faults.throttling import prefix_of

Remembering = list[tuple[Rule, Presence]]


def rules(text: str) -> Remembering:
    """Rules that have seen nothing yet."""
    return carried_over([], fields.parse(tomllib.loads(text)))


def batch(*keys: str, bucket: str = "bucket") -> S3Request:
    """A DeleteObjects request."""
    inner = "".join(f"<Object><Key>{escape(key)}</Key></Object>" for key in keys)
    return describe("POST", f"/{bucket}?delete", {}, f"<Delete>{inner}</Delete>".encode())


def single(key: str) -> S3Request:
    """A DeleteObject request."""
    return describe("DELETE", f"/bucket/{key}", {}, b"")


def failed(plan: Plan, request: S3Request) -> list[str]:
    """The keys that the plan fails."""
    return [request.entries[index].key for index in sorted(plan.keys)]


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
            ("GET", "/", "ListBuckets"),
            ("OPTIONS", "/b/k", "Other"),
        ],
    )
    def test_operations_have_the_names_of_the_api(self, method: str, target: str, operation: str) -> None:
        """A rule names operations as the S3 API does."""
        assert describe(method, target, {}, b"").operation == operation
        assert operation in OPERATIONS

    @pytest.mark.parametrize(
        ("path", "key"),
        [("a/../b", "a/../b"), ("/x", "/x"), ("x//y", "x//y"), ("a%252Fb", "a%2Fb"), ("a+b", "a+b"),
         ("a%20b", "a b"), ("%C3%A9", "é"), ("e%CC%81", "e\u0301"), ("%0D%0A", "\r\n"), ("..", ".."),
         ("t%231", "t#1"), ("%FF", "\udcff")],
    )  # fmt: skip
    def test_keys_in_paths_are_exact(self, path: str, key: str) -> None:
        """A path is decoded once and nothing in it is normalised; what is no UTF-8 is kept."""
        assert describe("DELETE", f"/bucket/{path}", {}, b"").keys == [key]

    @given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), min_size=1, max_size=5))
    def test_keys_in_bodies_are_exact(self, keys: list[str]) -> None:
        """Keys are read from a body as they were written, in order, whatever they hold."""
        assert batch(*keys).keys == keys

    def test_references_and_versions(self) -> None:
        """Numeric references, namespaces and version ids are understood."""
        body = (
            b'<d:Delete xmlns:d="http://s3.amazonaws.com/doc/2006-03-01/"><d:Object><d:Key>a&#13;&#xA;b&amp;lt;'
            b"</d:Key><d:VersionId>v1</d:VersionId></d:Object></d:Delete>"
        )
        (entry,) = describe("POST", "/b?delete", {}, body).entries

        assert (entry.key, entry.version) == ("a\r\nb&lt;", "v1")


class TestWholeRequests:
    def test_times_and_after_count_matches(self) -> None:
        """`after` leaves the first matches alone, `times` ends it; what does not match is not counted."""
        playing = rules('[[rule]]\nbucket = "bucket"\nerror = "SlowDown"\nafter = 1\ntimes = 2\n')

        answers = []
        for bucket in ("bucket", "other", "bucket", "bucket", "bucket"):
            answers.append(decide(playing, batch("a", bucket=bucket), 0).answer is not None)

        assert answers == [False, False, True, True, False]

    def test_the_first_answer_ends_it_and_waits_add_up(self) -> None:
        """Rules play in their order until one gives the whole answer; what comes after it sees nothing."""
        playing = rules(
            "[[rule]]\nlatency_ms = 20\n[[rule]]\nlatency_ms = 30\nwhen = 'after'\n"
            "[[rule]]\ncut = true\nlatency_ms = 50\n[[rule]]\nerror = 'SlowDown'\n"
        )

        plan = decide(playing, batch("a"), 0)

        assert (plan.wait_before_s, plan.wait_after_s, plan.answer) == (0.07, 0.03, Cut())
        assert playing[3][1].requests == 0

    def test_a_batch_matches_by_one_of_its_keys(self) -> None:
        """Exact keys, prefixes and patterns choose requests that name such a key."""
        playing = rules('[[rule]]\nkey = "a*"\nprefix = "p/"\nglob = "*.tmp"\nerror = "InternalError"\n')

        for keys, hit in {("x", "a*"): 1, ("p/q",): 1, ("q/r.tmp", "y"): 1, ("ab", "xp/", "tmp"): 0}.items():
            assert (decide(playing, batch(*keys), 0).answer is not None) == hit, keys

    def test_probability_is_a_share_and_the_same_again(self) -> None:
        """The share of requests is about what was asked for, and depends on the seed alone."""
        chosen = [
            [decide(playing, batch("a"), 0).answer is not None for _ in range(2000)]
            for playing in (
                rules(f"[[rule]]\nprobability = 0.1\nseed = {seed}\nerror = 'SlowDown'") for seed in (1, 1, 2)
            )
        ]

        assert chosen[0] == chosen[1] != chosen[2]
        assert 150 < sum(chosen[0]) < 250


class TestKeys:
    def test_each_key_is_counted_by_itself(self) -> None:
        """`times = 1` fails each matching key once, in whatever request it comes."""
        playing = rules('[[rule]]\nprefix = "x"\nkey_error = "InternalError"\ntimes = 1\n')

        first, second = batch("x1", "a", "x2"), batch("x2", "x3", "a")

        assert failed(decide(playing, first, 0), first) == ["x1", "x2"]
        assert failed(decide(playing, second, 0), second) == ["x3"]
        assert failed(decide(playing, first, 0), first) == []

    def test_probability_chooses_keys(self) -> None:
        """The same keys are chosen however they are spread over requests."""
        text = "[[rule]]\nkey_error = 'InternalError'\nprobability = 0.05\n"
        keys = [f"k{number}" for number in range(1000)]
        whole = batch(*keys)
        halves = [batch(*keys[500:]), batch(*keys[:500])]

        chosen = failed(decide(rules(text), whole, 0), whole)

        assert sorted(chosen) == sorted(
            k for half in halves for k in failed(decide(rules(text), half, 0), half)
        )
        assert 30 < len(chosen) < 70

    def test_the_first_rule_about_a_key_counts(self) -> None:
        """Several rules may each fail other keys of one request."""
        playing = rules(
            "[[rule]]\nkey = 'a'\nkey_error = 'AccessDenied'\n"
            "[[rule]]\nglob = '[ab]'\nkey_error = 'InternalError'\n"
        )
        request = batch("a", "b", "c")

        plan = decide(playing, request, 0)

        assert {
            request.entries[i].key: play.code for i, play in plan.keys.items() if isinstance(play, KeyFailure)
        } == {
            "a": "AccessDenied",
            "b": "InternalError",
        }
        assert plan.withheld == {0, 1}

    def test_a_single_call_gets_it_as_its_answer(self) -> None:
        """A failed key that is deleted by itself gets the code as the error of its request."""
        plan = decide(rules("[[rule]]\nkey_error = 'AccessDenied'\n"), single("a"), 0)

        assert isinstance(plan.answer, Error)
        assert (plan.answer.code, plan.answer.status) == ("AccessDenied", 403)


class TestThrottling:
    def test_a_whole_request_is_refused_until_there_is_room(self) -> None:
        """Each key is a write; refused requests cost nothing; the budget fills with time, up to the burst."""
        playing = rules("[[rule]]\nthrottle = {writes_per_s = 10, burst = 20, retry_after = 1}\n")
        keys = [f"p/{number}" for number in range(15)]

        answers = [decide(playing, batch(*keys), now).answer is None for now in (0, 0, 0.9, 1.0, 60, 60)]

        assert answers == [True, False, False, True, True, False]

    def test_prefixes_are_apart(self) -> None:
        """One prefix that is throttled leaves the others alone; so do reads."""
        playing = rules("[[rule]]\nthrottle = {writes_per_s = 1}\n")

        assert decide(playing, single("a/1"), 0).answer is None
        assert decide(playing, single("a/2"), 0).answer is not None
        assert decide(playing, single("b/1"), 0).answer is None
        assert decide(playing, describe("GET", "/bucket/a/1", {}, b""), 0).answer is None

    def test_keys_that_are_too_many_are_refused_alone(self) -> None:
        """With `refuse = "key"` a batch goes through as far as there is room."""
        playing = rules('[[rule]]\nthrottle = {writes_per_s = 2, refuse = "key"}\n')
        request = batch("a/1", "a/2", "a/3", "b/1")

        assert failed(decide(playing, request, 0), request) == ["a/3"]
        assert failed(decide(playing, request, 0.5), request) == ["a/2", "a/3"]

    def test_a_batch_above_the_burst_passes_on_a_full_budget(self) -> None:
        """It leaves a debt: the rate holds in the long run."""
        playing = rules("[[rule]]\nthrottle = {writes_per_s = 10, burst = 10}\n")
        keys = [f"p/{number}" for number in range(30)]

        answers = [decide(playing, batch(*keys), now).answer is None for now in (0, 1, 2.9, 3)]

        assert answers == [True, False, False, True]

    def test_a_prefix_ends_at_a_slash(self) -> None:
        """Keys with fewer slashes belong to the prefix that they have."""
        assert [prefix_of(key, 2) for key in ("a/b/c", "a/b", "a", "/x/y")] == ["a/b/", "a/", "", "/x/"]
        assert prefix_of("a/b", 0) == ""


class TestFiles:
    @pytest.mark.parametrize(
        ("text", "reported", "hint"),
        [
            ("[[rule]]\nlatncy_ms = 5\n", "rule 1: unknown field: latncy_ms", "latency_ms"),
            ("[[rules]]\ncut = true\n", "unknown field: rules", "[[rule]]"),
            ("[[rule]]\nbucket = 'b'\n", "rule 1: plays nothing", "key_error"),
            ("[[rule]]\ncut = true\nempty = true\n", "plays one thing: empty, cut", "two rules"),
            ("[[rule]]\ncut = false\n", "cut must be true", None),
            ("[[rule]]\nname = 'late'\nlatency_ms = '5'\n", "rule 1 (late): latency_ms must be number", None),
            ("[[rule]]\nlatency_ms = -1\n", "latency_ms must be", None),
            ("[[rule]]\nlatency_ms = nan\n", "latency_ms must be", None),
            ("[[rule]]\ncut = true\ntimes = true\n", "times must be", None),
            ("[[rule]]\ncut = true\nprobability = 1.5\n", "probability must be 0 to 1", None),
            ("[[rule]]\ncut = true\nkey = []\n", "key must be", None),
            ("[[rule]]\ncut = true\nwhen = 'during'\n", "when must be", None),
            ("[[rule]]\ncut = true\noperation = 'DeleteObject5'\n", "no such operation", "DeleteObject"),
            ("[[rule]]\ncut = true\nstatus = 500\n", "no sense without error: status", None),
            ("[[rule]]\nerror = 'Slowdown'\n", "no status is known for error: Slowdown", "SlowDown"),
            ("[[rule]]\ntorn_after = 5\nwhen = 'before'\n", "torn_after needs the store's answer", None),
            ("[[rule]]\nthrottle = {}\n", "throttle: writes_per_s must be above 0", None),
            ("[[rule]]\nthrottle = {writes_per_s = 1, brust = 2}\n", "unknown field: brust", "burst"),
            ("[[rule]]\nthrottle = {writes_per_s = 1}\ntimes = 2\n", "no sense without", None),
            ("[rule]\ncut = true\n", "rules are [[rule]] tables", None),
            ("rule = 5\nx", "cannot be parsed", None),
        ],
    )  # fmt: skip
    def test_what_cannot_be_played_is_said(
        self, tmp_path: Path, text: str, reported: str, hint: str | None
    ) -> None:
        """Anything unknown, misspelt or at odds is an error that names the file, the rule and the field."""
        file = tmp_path / "faults.toml"
        file.write_text(text)

        with pytest.raises(InvalidFaults) as raised:
            fields.read(file)

        assert reported in str(raised.value)
        assert str(file) in str(raised.value)
        assert hint is None or hint in str(raised.value.hint)

    def test_every_field_is_taken(self) -> None:
        """No field of the table is refused by the reader, each with one it goes with."""
        values = {"text": "x", "texts": ["x"], "count": 1, "whole": 1, "number": 1.5, "share": 0.5,
                  "status": 503, "true": True, "when": "after", "refuse": "key",
                  "throttle": {"writes_per_s": 5}}  # fmt: skip
        for field in fields.FIELDS:
            raw = {field.name: values[field.kind]}
            if field.name in ("bucket", "key", "prefix", "glob", "name", "seed"):
                raw["cut"] = True
            elif field.name == "operation":
                raw = {"operation": "List*", "cut": True}
            elif field.goes_with:
                raw[field.goes_with[0]] = 5 if field.goes_with[0] == "latency_ms" else "SlowDown"
            if field.name == "error":
                raw["status"] = 500
            assert len(fields.parse({"rule": [raw]})) == 1

    def test_the_file_to_copy_is_one(self) -> None:
        """docs/examples/faults.toml is taken, also with what is commented out, and plays what it says."""
        file = ROOT / "docs" / "examples" / "faults.toml"
        text = file.read_text(encoding="utf-8")
        whole = re.sub(r"^# (\[\[rule|\w+ = )", r"\1", text, flags=re.MULTILINE)
        keys = ["locked/a", *(f"layers/{number}" for number in range(900))]
        seen = rules(text)
        first, again = batch(*keys), batch(*keys)

        assert len(fields.parse(tomllib.loads(whole))) == len(fields.read(file)) + 1
        hit = failed(decide(seen, first, 0), first)
        assert hit[0] == "locked/a"
        assert 30 < len(hit) < 200
        assert "locked/a" in failed(decide(seen, again, 1), again)
        assert set(hit[1:]).isdisjoint(failed(decide(seen, again, 2), again))

    def test_json_is_taken_too(self, tmp_path: Path) -> None:
        """A file whose name ends in .json holds the same fields."""
        file = tmp_path / "faults.json"
        file.write_text('{"rule": [{"cut": true, "times": 1}]}')

        assert [rule.play for rule in fields.read(file)] == [Cut()]

    def test_an_unchanged_rule_goes_on_counting(self) -> None:
        """After the file has changed, rules that are still there verbatim keep what they have seen."""
        before = rules("[[rule]]\nerror = 'SlowDown'\ntimes = 1\n[[rule]]\ncut = true\n")
        decide(before, batch("a"), 0)

        after = carried_over(
            before,
            fields.parse(
                tomllib.loads("[[rule]]\nempty = true\ntimes=0\n[[rule]]\nerror = 'SlowDown'\ntimes = 1\n")
            ),
        )

        assert decide(after, batch("a"), 0).answer is None
