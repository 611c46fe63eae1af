"""When the reaper refuses to start, and what a dry run leaves alone."""

from __future__ import annotations

import hashlib
import io
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import redis
from confluent_kafka.admin import AdminClient
from tests.conftest import Cli
from tests.support.chain import Chain, messages
from tests.support.intents import PROMISE
from tests.support.s3_recorder import S3Recorder
from tests.support.s3_state import etag_of
from tests.support.topics import cut, recreate

from sexton.deploy.local import Installation, LocalStack
from sexton.deploy.topics import create_installation
from sexton.issuer.client import BarrierAnswer
from sexton.schemas import events, records
from sexton.schemas.errors import EnvironmentFault, InvalidSettings, IssuerUnavailable, SextonError
from sexton.schemas.events import GenerationForm, ImportedTenant
from sexton.schemas.kafka.admin import Cluster
from sexton.storage import ObjectStore
from sexton.streaming_jobs.reaper.batch import MicroBatches
from sexton.streaming_jobs.reaper.dry_run import about, line_of, summed
from sexton.streaming_jobs.reaper.progress import Progress
from sexton.streaming_jobs.reaper.recovery.binding import Binding, CheckpointRefused, check_binding
from sexton.streaming_jobs.reaper.recovery.checkpoint import Checkpoint, parse_offsets

real = pytest.mark.real
spark_ = pytest.mark.spark


def tree(root: Path) -> dict[str, str]:
    """Digest of every file of a folder."""
    return {str(p): hashlib.sha256(p.read_bytes()).hexdigest() for p in root.rglob("*") if p.is_file()}


@real
@spark_
@pytest.mark.slow
def test_f_8_j_13_a_recreated_intents_topic_is_refused_until_told(
    chain: Chain, store: ObjectStore, installation: Installation
) -> None:
    """F-8, J-13: issuer and reaper refuse, whatever stands there, until there is a new log too."""
    old_id = chain.topic_id(records.INTENTS)
    store.put(chain.bucket, "live", b"x")
    with chain.issuer() as issuer:
        old = issuer.attach("a", "t").generation
        chain.emit(*(chain.intent("t", old, [f"k{i}"]) for i in range(3)))
        chain.reap()
        newest = issuer.attach("b", "t").generation
        recreate(chain.settings, records.INTENTS)
        chain.emit(*(chain.intent("t", generation, ["live"]) for generation in (old, newest, old)))
        for call in (lambda: issuer.attach("c", "t"), issuer.barrier, lambda: issuer.validate([])):
            with pytest.raises(IssuerUnavailable, match=old_id):
                call()

    with pytest.raises(CheckpointRefused, match=rf"another topic id.*{old_id}") as caught:
        chain.reap()
    assert "operating.md" in str(caught.value.hint)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sexton.streaming_jobs.reaper.batch._ONCE_HOLD_S", 0.0)
        with pytest.raises(SextonError, match=old_id):
            chain.reap(checkpoint=str(installation.directory / "another"))
    assert len(chain.outcomes()) == 3

    installation.kill_issuer()
    for topic in (records.INTENTS, records.GENERATIONS, records.SNAPSHOTS):
        recreate(chain.settings, topic)
    create_installation(chain.settings)
    installation.start_issuer()
    with chain.issuer() as issuer:
        issuer.import_tenants([ImportedTenant("t", GenerationForm.FINAL, newest, "b")])
        current = issuer.re_attach("b")["t"]
    stale = chain.emit(*(chain.intent("t", generation, ["live"]) for generation in (old, newest)))
    (asked,) = chain.emit(chain.intent("t", current, ["k9"]))
    chain.reap(checkpoint=str(installation.directory / "told"))
    words = {outcome.intent_id: outcome.outcome.value for outcome in chain.outcomes()}
    assert [words[intent_id] for intent_id in (*stale, asked)] == ["stale", "stale", "deleted"]
    assert list(store.list_keys(chain.bucket, "")) == ["live"]


@real
@spark_
def test_f_9_intents_lost_to_retention_are_named(chain: Chain) -> None:
    """F-9: removed under a running job, or while it is down: it stops and names partition and range."""
    chain.emit(chain.intent("t", None, ["a"], guards=PROMISE))
    chain.reap()
    chain.emit(*(chain.intent("t", None, [f"k{i}"], guards=PROMISE) for i in range(5)))
    real_barrier = MicroBatches._barrier

    def then_cut(self: MicroBatches) -> BarrierAnswer:
        cut(chain, records.INTENTS, 4)
        return real_barrier(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MicroBatches, "_barrier", then_cut)
        with pytest.raises(SextonError, match="partition 0, offsets 1 to 3"):
            chain.reap()
    with pytest.raises(CheckpointRefused, match="partition 0, offsets 1 to 3"):
        chain.reap()

    assert len(chain.outcomes()) == 1


@real
@spark_
@pytest.mark.slow
def test_a_damaged_checkpoint_is_refused(chain: Chain) -> None:
    """A checkpoint that cannot be read is named as damaged, not silently started over."""
    chain.emit(chain.intent("t", None, ["a"], guards=PROMISE))
    chain.reap()
    folder = Path(str(chain.settings.checkpoint))
    binding = folder / "sexton-binding.json"
    binding.rename(folder / "away")
    with pytest.raises(CheckpointRefused, match=r"in use and not bound to a topic: sexton-binding\.json"):
        chain.reap()
    (folder / "away").rename(binding)
    (folder / "offsets" / ".0.crc").unlink()
    (folder / "offsets" / "0").write_text("v1\n{}\nnot json")

    with pytest.raises(CheckpointRefused, match="damaged"):
        chain.reap()


@real
@spark_
def test_a_folder_with_other_files_is_no_checkpoint(
    chain: Chain, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A misspelt path never mixes Spark's files with somebody else's; a new checkpoint is announced."""
    (tmp_path / "letters.md").write_text("mine")
    with pytest.raises(CheckpointRefused, match=r"is no checkpoint, and not empty: .*: letters\.md"):
        chain.reap(checkpoint=str(tmp_path))
    assert [file.name for file in tmp_path.iterdir()] == ["letters.md"]

    (tmp_path / "new").mkdir()
    for _ in range(2):
        chain.reap(checkpoint=str(tmp_path / "new"))
    assert capsys.readouterr().err.count('"event": "new_checkpoint"') == 1


@real
@spark_
def test_an_unsafe_topic_is_refused(chain: Chain) -> None:
    """A compacted intents topic loses intents: the reaper does not read it."""
    chain.configure(records.INTENTS, "cleanup.policy", "compact")

    with pytest.raises(SextonError, match=r"cleanup\.policy is compact"):
        chain.reap()


@real
@spark_
def test_x_20_a_checkpoint_is_one_however_its_path_is_spelled(chain: Chain, tmp_path: Path) -> None:
    """X-20: a slash more, a scheme, dots or a link lead to the same lock; another folder to another."""
    (tmp_path / "link").symlink_to(tmp_path / "place", target_is_directory=True)
    spelled = ["place", "place/", "./place", "x/../place", "link", "other"]
    paths = [f"{scheme}{tmp_path}/{name}" for scheme in ("", "file://") for name in spelled]
    ids = [Checkpoint(chain.spark, path, "topic").identity() for path in paths]

    assert len(set(ids)) == 2
    assert ids == [*[ids[0]] * 5, ids[5]] * 2


@real
@spark_
def test_a_damaged_id_of_a_checkpoint_is_refused(chain: Chain, tmp_path: Path) -> None:
    """Half an id would be another lock than the whole one."""
    (tmp_path / "sexton-id").write_text("0123")

    with pytest.raises(CheckpointRefused, match="damaged"):
        Checkpoint(chain.spark, str(tmp_path), "topic").identity()


@real
@spark_
@pytest.mark.parametrize(
    ("path", "reported"),
    [
        ("nosuch://bucket/checkpoint", 'No FileSystem for scheme "nosuch"'),
        ("/proc/nowhere/checkpoint", "cannot be read and written"),
        ("{file}/checkpoint", "cannot be read and written"),
    ],
)
def test_a_checkpoint_that_cannot_be_made_is_told(
    chain: Chain, tmp_path: Path, path: str, reported: str
) -> None:
    """A path of another file system, or one where nothing can be written: what and where, and no stack."""
    (tmp_path / "file").write_text("in the way")
    path = path.format(file=tmp_path / "file")

    with pytest.raises(InvalidSettings, match=reported) as caught:
        Checkpoint(chain.spark, path, "topic").identity()

    assert path in str(caught.value)
    assert "\n" not in str(caught.value)


@real
@spark_
@pytest.mark.slow
def test_x_17_a_dry_run_reports_the_same_and_writes_nothing(chain: Chain, s3: S3Recorder, cli: Cli) -> None:
    """X-17: a line of each record as the run after it decides; until then everything is as it was."""
    s3.create_bucket("bucket", dict.fromkeys([*"abcdefg", "folder/one"], b"x"))
    s3.create_bucket("other", {"a": b"x"}, versioning="Enabled")
    given: dict[str, Any] = {"s3_endpoint_url": s3.url, "allow": ("bucket",)}
    with chain.issuer() as issuer:
        old = issuer.attach("a", "t").generation
        chain.emit(chain.intent("t", old, (), action=named("a"), intent_id="first"))
        chain.reap(**given)
        new = issuer.attach("b", "t").generation
    later = events.NotBeforeGuard(datetime.now(UTC) + timedelta(days=1))
    same = events.UnchangedGuard((events.KeyCondition("f", etag=etag_of(b"x")),))
    chain.emit(
        chain.intent("t", old, (), action=named("b"), intent_id="stale"),
        chain.intent("t", new, (), action=named("c", "d"), intent_id="good"),
        chain.intent("nobody", 1, (), action=named("d"), intent_id="unknown"),
        chain.intent("t", None, (), guards=PROMISE, action=named("a", bucket="other"), intent_id="outside"),
    )
    folder = events.DeletePrefix("bucket", "folder/")
    chain.emit(
        chain.intent("t", None, (), guards=PROMISE, action=folder, intent_id="prefix"),
        chain.intent("t", None, (), guards=(same,), action=named("f"), intent_id="same"),
        chain.intent("t", None, (), guards=(*PROMISE, later), action=named("e", "g"), intent_id="waits"),
        partition=1,
    )
    chain.produce(b"garbage", None, partition=3)
    before, asked = world(chain, s3), len(s3.requests)

    done = cli(
        "reaper", "run", "--dry-run", env={"SEXTON_S3_ENDPOINT_URL": s3.url, "SEXTON_ALLOW": '["bucket"]'}
    )

    assert done.returncode == 0, done.stderr
    assert world(chain, s3) == before
    assert len(s3.requests) == asked
    counts = chain.reap(**given, reaper_defer_delays_s=(3600.0,))
    decided: list[events.Outcome | events.DeadLetter | events.DeferredIntent] = [
        *chain.outcomes(),
        *chain.dead_letters(),
        *chain.deferred(),
    ]
    lines = [line_of(d, about(d, chain.codec)) for d in decided]
    (first,) = [line for line in lines if "  first  " in line]
    lines.remove(first)
    assert sorted(done.stdout.splitlines()) == sorted(lines)
    assert "1/2  waits  deferred  not-before  t  bucket  2 keys" in lines
    assert len(lines) == 8
    assert counts.intents.pop("skipped") == 1
    reported = (
        f"dry run: {summed(counts.intents, 'record')}; {summed(counts.keys, 'key')}; 1 without a value, left"
    )
    assert f"{reported} out: such a record asks for nothing; nothing was written\n" in done.stderr
    assert counts.intents["deleted"] == 3


def named(*keys: str, bucket: str = "bucket") -> events.DeleteObjects:
    """An action on some keys."""
    return events.DeleteObjects(bucket, (keys,))


def world(chain: Chain, s3: S3Recorder) -> dict[str, object]:
    """Everything that a reaper could write to: every topic, the checkpoint, Redis and the buckets."""
    admin = AdminClient(chain.settings.kafka())
    prefix = chain.settings.topic_prefix
    found = [name for name in admin.list_topics(timeout=10).topics if name.startswith(prefix)]
    with redis.Redis.from_url(chain.settings.redis_url.get_secret_value()) as client:
        # What expires is the issuer's, which tries from time to time whether it may write.
        dump = {key: client.dump(key) for key in client.scan_iter() if client.ttl(key) == -1}
    buckets = {b: {k: s3.versions(b, k) for k in s3.objects(b)} for b in s3.buckets.names()}
    return {
        "topics": {name: log_of(chain, name) for name in found},
        "checkpoint": tree(Path(str(chain.settings.checkpoint))),
        "redis": dump,
        "buckets": buckets,
    }


def log_of(chain: Chain, topic: str) -> object:
    """Every record of a topic with all that it carries, and its end offsets."""
    kept = [
        (m.partition(), m.offset(), m.timestamp(), m.key(), m.value(), m.headers())
        for m in messages(chain.settings, topic)
    ]
    return kept, Cluster(chain.settings).latest(topic)


def test_binding_names_what_differs() -> None:
    """Cluster, topic and topic id are told apart."""
    bound = Binding("c", "t", "id")

    check_binding(None, bound)
    check_binding(bound, Binding.parse(bound.to_text()))
    for other, what in (
        (Binding("x", "t", "id"), "Kafka cluster"),
        (Binding("c", "x", "id"), "another topic:"),
        (Binding("c", "t", "x"), "topic id of t"),
    ):
        with pytest.raises(CheckpointRefused, match=what):
            check_binding(bound, other)


def test_binding_has_a_golden_form() -> None:
    """The stored text is fixed; a newer format is refused, not guessed."""
    text = '{"format": 1, "cluster_id": "c", "topic": "t", "topic_id": "id"}'

    assert Binding("c", "t", "id").to_text() == text
    with pytest.raises(CheckpointRefused, match="format"):
        Binding.parse(text.replace("1", "2", 1))
    with pytest.raises(CheckpointRefused, match="damaged"):
        Binding.parse("{}")


def test_offsets_of_spark_are_read_or_refused() -> None:
    """The last line of an offset file holds the offsets by topic."""
    assert parse_offsets('v1\n{}\n{"t":{"0":3,"10":4}}\n', "t") == {0: 3, 10: 4}
    for damaged in ("", "v1\n{}\n{}", 'v1\n{}\n{"t":[]}', "v1\n{}\n-"):
        with pytest.raises(CheckpointRefused, match="damaged"):
            parse_offsets(damaged, "t")


@real
@spark_
def test_j_13_a_topic_recreated_after_the_barrier_is_never_judged(chain: Chain, store: ObjectStore) -> None:
    """J-13: intents at low offsets of a new topic never meet the windows of the old one."""
    store.put(chain.bucket, "live", b"x")
    with chain.issuer() as issuer:
        old = issuer.attach("a", "t").generation
        chain.emit(*(chain.intent("t", old, [f"k{i}"]) for i in range(3)))
        issuer.attach("b", "t")
    real_barrier = MicroBatches._barrier

    def then_recreated(self: MicroBatches) -> BarrierAnswer:
        answer = real_barrier(self)
        recreate(chain.settings, records.INTENTS)
        chain.emit(*(chain.intent("t", old, ["live"]) for _ in range(3)))
        return answer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MicroBatches, "_barrier", then_recreated)
        patch.setattr("sexton.streaming_jobs.reaper.batch._ONCE_HOLD_S", 0.0)
        with pytest.raises(SextonError):
            chain.reap()

    assert list(store.list_keys(chain.bucket, "")) == ["live"]
    assert chain.outcomes() == []


@real
@spark_
@pytest.mark.slow
def test_an_issuer_of_another_prefix_judges_nothing(
    chain: Chain, stack: LocalStack, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reaper and issuer with different topic prefixes: held with both topics named, 75 with `--once`."""
    store.put(chain.bucket, "a", b"x")
    chain.emit(chain.intent("t", None, ["a"], guards=PROMISE))
    other = Installation.start(stack, "another-prefix")
    monkeypatch.setattr("sexton.streaming_jobs.reaper.batch._ONCE_HOLD_S", 3.0)
    reported = io.StringIO()
    try:
        judged = Chain(other.settings, chain.spark, other.bucket).topic_id(records.INTENTS)
        named = f"the issuer judges another intents topic: {judged}"
        with pytest.raises(EnvironmentFault, match=named) as caught:
            chain.reap(Progress(out=reported), issuer_url=other.settings.issuer_url)
    finally:
        other.stop()

    assert caught.value.exit_code == 75
    held = [json.loads(line) for line in reported.getvalue().splitlines()]
    assert named in next(line["fault"] for line in held if line["event"] == "held")
    assert list(store.list_keys(chain.bucket, "")) == ["a"]
    assert (chain.outcomes(), chain.dead_letters(), chain.deferred()) == ([], [], [])
