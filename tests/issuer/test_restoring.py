"""Backup and restore of the log: what is exported, what may be imported, and both on two real brokers."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.support.issuing import Serve, attach, refused, sexton

from sexton.deploy import topics
from sexton.deploy.local import Installation, LocalStack, issuer, ports
from sexton.issuer.cli.exporting import fold_log, lines
from sexton.issuer.cli.migration import Plan, read_plan
from sexton.issuer.cli.restoring import check_whole, exported, raised, unnamed
from sexton.issuer.cli.scanning import scan
from sexton.issuer.client import IssuerClient, Subject
from sexton.issuer.deadline import Deadline
from sexton.issuer.log.positions import WrongTopic
from sexton.issuer.operations.drop import Drop
from sexton.issuer.service import Service
from sexton.issuer.state.fold import State, apply
from sexton.schemas import events, records
from sexton.schemas import settings as settings_module
from sexton.schemas.errors import UsageError
from sexton.schemas.events import (
    GenerationForm,
    ImportedNode,
    ImportedTenant,
    ImportedTransactions,
    NumberPlace,
)
from sexton.schemas.settings import Settings
from sexton.storage import ObjectStore, StoreSettings

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NO_ENDS = events.PartitionOffsets("intents-id", [])
AHEAD = 1_000


def folded() -> State:
    """The state of a log with tenants of each form, a node, one that was dropped, one decommissioned."""
    log: tuple[events.GenerationEvent, ...] = (
        events.Genesis(1, "cluster", "log-id", "intents-id", NOW),
        events.Imported(
            "r1",
            "c",
            0,
            1,
            [
                ImportedTenant("final ☃", GenerationForm.FINAL, 7, "n"),
                ImportedTenant("none", GenerationForm.FINAL, None, None),
                ImportedTenant("first", GenerationForm.FIRST, 5, "m"),
            ],
            [ImportedNode("m", 9, 3)],
            NO_ENDS,
            NOW,
        ),
        events.TransactionsImported(
            "r2", "c", [ImportedTransactions("moving", 12, 11, NumberPlace.LAST)], NO_ENDS, NOW
        ),
        events.Dropped("r3", "c", "final ☃", NOW),
        events.Dropped("r4", "c", "never attached", NOW),
    )
    state = State()
    for offset, event in enumerate(log):
        apply(state, offset, event)
    return state


def plan_of(folder: Path, state: State) -> Plan:
    """What an export of a state asks to be imported."""
    file = folder / "backup.jsonl"
    file.write_text("\n".join(lines(state, NOW)), encoding="ascii")  # the same bytes in every locale
    return read_plan(file)


def without_transactions(plan: Plan) -> Plan:
    """The plan, as somebody gives it who names tenants of transactions in a file of their own."""
    return replace(plan, transactions=())


def test_an_export_is_what_an_import_takes(tmp_path: Path) -> None:
    """Every tenant and node comes back with its numbers, a dropped tenant as one that is dropped."""
    plan = plan_of(tmp_path, folded())

    assert plan.tenants == [
        ImportedTenant("final ☃", GenerationForm.FINAL, 7, None),
        ImportedTenant("none", GenerationForm.FINAL, None, None),
        ImportedTenant("first", GenerationForm.FIRST, 5, "m"),
        ImportedTenant("never attached", GenerationForm.FINAL, None, None),
    ]
    assert plan.nodes == [ImportedNode("m", 9, 3)]
    assert plan.transactions == [ImportedTransactions("moving", 12, 11, NumberPlace.LAST)]
    assert plan.dropped == ["final ☃", "never attached"]


GOLDEN = Path(__file__).parent / "golden"


def test_the_form_of_an_export_is_the_one_that_is_kept() -> None:
    """An export is kept for years: another form is another version, with a file of its own."""
    assert list(lines(folded(), NOW)) == (GOLDEN / "export.v2.jsonl").read_text("ascii").splitlines()


def test_an_export_of_the_first_form_is_still_read(tmp_path: Path) -> None:
    """Its rows do not say that they were exported; it asks for the same."""
    old, new = read_plan(GOLDEN / "export.v1.jsonl"), read_plan(GOLDEN / "export.v2.jsonl")
    told = exported(old)

    assert replace(old, exported=None) == replace(new, exported=None, marks=())
    assert told is not None
    check_whole(old, told)
    later = (GOLDEN / "export.v2.jsonl").read_text("ascii").replace('"version": 2', '"version": 3')
    (tmp_path / "later").write_text(later)
    with pytest.raises(UsageError, match="unknown form: version 3"):
        exported(read_plan(tmp_path / "later"))


def test_rows_without_the_first_line_of_their_export_are_refused(tmp_path: Path) -> None:
    """Their numbers would not be raised; under the first line of another export, by too little."""
    file = tmp_path / "some.jsonl"
    first, *rows = lines(folded(), NOW)
    file.write_text("\n".join(rows[2:3]))
    with pytest.raises(UsageError, match=r"some\.jsonl:1: a row of an export, as of log offset 4, without"):
        exported(read_plan(file))

    file.write_text("\n".join([first.replace('"log_offset": 4', '"log_offset": 9'), *rows]))
    with pytest.raises(UsageError, match=r"some\.jsonl:2: a row of another export, as of log offset 4; the"):
        exported(read_plan(file))

    file.write_text("\n".join([*rows, first]))
    with pytest.raises(UsageError, match=r"some\.jsonl:7: the first line of an export, and not the first of"):
        read_plan(file)

    file.write_text(rows[2].replace(', "exported": 4', ""))
    assert exported(read_plan(file)) is None


def test_a_row_that_was_added_stands_for_none_that_is_missing(tmp_path: Path) -> None:
    """Whoever names a new tenant and loses another is told."""
    first, *rows = lines(folded(), NOW)
    file = tmp_path / "backup.jsonl"
    added = json.dumps({"tenant": "later", "generation": 1})
    file.write_text("\n".join([first, *rows, added]))
    plan = read_plan(file)
    told = exported(plan)
    assert told is not None
    check_whole(plan, told)

    file.write_text("\n".join([first, *rows[:-1], added]))
    plan = read_plan(file)
    with pytest.raises(UsageError, match="not whole: 4 of 5 tenants, 1 of 1 node"):
        check_whole(plan, told)


def test_an_export_that_nobody_can_write_is_refused() -> None:
    """With its stdout closed nothing is written: that is no backup, and said before the log is read."""
    command = f"exec {shlex.quote(sys.executable)} -m sexton.deploy.main issuer export >&-"
    done = subprocess.run(["sh", "-c", command], stderr=subprocess.PIPE, text=True)

    assert done.returncode == 2
    assert done.stderr.startswith("error: there is no stdout to write the export to\n")


def test_an_export_that_was_cut_is_refused(tmp_path: Path) -> None:
    """Whatever row is missing at the end: its tenant would begin at 1 again."""
    whole = list(lines(folded(), NOW))
    file = tmp_path / "backup.jsonl"
    for kept in range(2, len(whole) + 1):
        file.write_text("\n".join(whole[:kept]), encoding="utf-8")
        plan = read_plan(file)
        told = exported(plan)
        assert told is not None
        if kept == len(whole):
            check_whole(plan, told)
        else:
            with pytest.raises(UsageError, match="not whole"):
                check_whole(plan, told)


@pytest.mark.parametrize(
    "told",
    [
        {},
        [],
        None,
        {"log_offset": 1, "tenants": "2", "nodes": 0},
        {"log_offset": 1, "tenants": -2, "nodes": 0},
    ],
)
def test_a_first_line_that_says_nothing_is_refused(told: object) -> None:
    """Who does not know how much was exported cannot tell whether it is all there."""
    plan = Plan([], [], exported={"decommissioned": [], **told} if isinstance(told, dict) else told)

    if told is None:
        assert exported(plan) is None
    else:
        with pytest.raises(UsageError):
            exported(plan)


def test_all_numbers_are_raised(tmp_path: Path) -> None:
    """Those of tenants and nodes, and one that had none: it may have got some since."""
    plan = raised(without_transactions(plan_of(tmp_path, folded())), AHEAD)

    assert [row.generation for row in plan.tenants] == [7 + AHEAD, AHEAD, 5 + AHEAD, AHEAD]
    assert [(row.number, row.generation) for row in plan.nodes] == [(9, 3 + AHEAD)]


def test_what_cannot_be_raised_is_refused(tmp_path: Path) -> None:
    """A form without room, and transactions: the last commit is not known from an older export."""
    plan = plan_of(tmp_path, folded())

    with pytest.raises(UsageError, match="transactions cannot be raised"):
        raised(plan, 1)
    with pytest.raises(UsageError, match="no room: first at 5"):
        raised(without_transactions(plan), 2**24 - 5)
    assert raised(plan, 0) == plan


def test_tenants_that_came_after_the_export_have_to_be_named(tmp_path: Path) -> None:
    """Keys with numbers of an unknown tenant keep everything out; keys without numbers are nobody's."""
    plan = plan_of(tmp_path, folded())

    unnamed(plan, scan(["t/none/x-00000002", "t/none/y", "t/images/logo"], "t/", plan.names))
    with refused("not-named"):
        unnamed(plan, scan(["t/none/x-00000002", "t/later/x-00000001"], "t/", plan.names))


# --- on two real brokers ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalStack]:
    """Another cluster: one broker and nothing else."""
    without = {"redis", "s3", "bucket", "issuer", "topics"}
    stack = LocalStack.start(tmp_path_factory.mktemp("elsewhere"), without=without)
    yield stack
    stack.stop()


def environment(made: Installation, elsewhere: LocalStack, prefix: str) -> dict[str, str]:
    """The environment of an installation with another cluster, prefix, Redis database and issuer."""
    address = f"127.0.0.1:{ports.choose(1)[0]}"
    redis = made.env["SEXTON_REDIS_URL"].rpartition("/")[0]
    return {
        **made.environment,
        "SEXTON_KAFKA_BOOTSTRAP_SERVERS": elsewhere.env["SEXTON_KAFKA_BOOTSTRAP_SERVERS"],
        "SEXTON_TOPIC_PREFIX": prefix,
        "SEXTON_REDIS_URL": f"{redis}/{next(Installation.databases)}",
        "SEXTON_ISSUER_BIND": address,
        "SEXTON_ISSUER_URL": f"http://{address}",
    }


def copy_log(source: Settings, target: Settings) -> None:
    """Copy the log's records to another cluster byte for byte, in their order, as mirroring tools do."""
    name, copy = source.topic(records.GENERATIONS), target.topic(records.GENERATIONS)
    consumer = Consumer(source.kafka(**{"group.id": "mirror", "enable.auto.commit": False}))
    producer = Producer(target.kafka())
    consumer.assign([TopicPartition(name, 0, 0)])
    _, end = consumer.get_watermark_offsets(TopicPartition(name, 0), timeout=20)
    copied = 0
    while copied < end:
        message = consumer.poll(20)
        assert message is not None
        assert message.error() is None
        producer.produce(copy, message.value(), message.key(), partition=0)
        copied += 1
    consumer.close()
    assert producer.flush(20) == 0


def cli(made: Installation, env: Mapping[str, str], *arguments: str) -> tuple[int, str]:
    """Run a command of the issuer; return its exit code and what it says."""
    done = sexton(made, "issuer", *arguments, **env)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.real
@pytest.mark.slow
def test_a_log_is_restored_on_another_cluster(
    fresh: Installation, elsewhere: LocalStack, serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy is not served; its numbers are imported: none comes twice, nobody old is believed, dropped is
    dropped.
    """
    for name, value in fresh.environment.items():
        if name.startswith("AWS_"):
            monkeypatch.setenv(name, value)
    old = serve(fresh.settings)
    assert [attach(old, "a", "moved"), attach(old, "a", "moved"), attach(old, "a", "still")] == [1, 2, 1]
    assert attach(old, "a", "gone") == 1
    old.authority().answer(Drop("gone"), Deadline.after(20))

    # The backup, and a copy of the topic on the other cluster, which says the same.
    code, text = cli(fresh, {}, "export")
    assert code == 0, text
    backup = tmp_path / "backup.jsonl"
    backup.write_text(text[: text.rindex("exported:")], encoding="utf-8")
    copied = settings_module.load(environment(fresh, elsewhere, "copy."))
    topics.create_topics(copied, partitions=3)
    copy_log(fresh.settings, copied)
    assert list(lines(fold_log(copied, Deadline.after(30)), NOW))[1:] == backup.read_text().splitlines()[1:]
    with pytest.raises(WrongTopic, match="another Kafka cluster"):
        Service(copied).wait_ready(20)

    # After the backup the old cluster has handed out more; then it is lost. Keys tell of some of it.
    assert [attach(old, "b", "moved"), attach(old, "b", "moved"), attach(old, "b", "later")] == [3, 4, 1]
    store = ObjectStore(StoreSettings.of(fresh.settings))
    store.put(fresh.bucket, "t/moved/index-00000003", b"x")
    store.put(fresh.bucket, "t/later/index-00000001", b"x")
    place = f"s3://{fresh.bucket}/t/"

    env = environment(fresh, elsewhere, "restored.")
    restored = settings_module.load(env)
    topics.create_installation(restored, partitions=3)
    process = elsewhere.run("issuer", issuer.command(), env)
    elsewhere.wait_ready("issuer", process, lambda: issuer.answers(env["SEXTON_ISSUER_URL"]))

    for arguments, why in (
        ([], "how far may numbers have gone"),
        (["--ahead", "0", "--scan", place], "would start too low"),
        (["--ahead", "1000"], "needs --scan"),
        (["--ahead", "1000", "--scan", place], "that the export does not name: later"),
    ):
        code, text = cli(fresh, env, "import", str(backup), *arguments)
        assert code in (1, 2), arguments
        assert why in text
    assert 'such as {"tenant": "later", "generation": 7, "node": "any"};' in " ".join(text.split())
    with backup.open("a") as more:
        more.write(json.dumps({"tenant": "later", "generation": 1}) + "\n")
    for _ in "12":
        code, text = cli(fresh, env, "import", str(backup), "--ahead", "1000", "--scan", place)
        assert code == 0, text
    code, text = cli(fresh, env, "import", str(backup), "--ahead", "2000", "--scan", place)
    assert code == 1
    assert "hint: after an interruption: the same --ahead" in text

    with IssuerClient(env["SEXTON_ISSUER_URL"]) as client:
        claims = [Subject("moved", number, 0) for number in (1, 2, 3, 4)]
        assert [client.validate(claims).windows[claim] for claim in claims] == [None] * 4
        assert [client.attach("c", name).generation for name in ("moved", "still", "later")] == [
            1003,
            1002,
            1002,
        ]
        assert [client.validate(claims).windows[claim] for claim in claims] == [None] * 4
        with refused("tenant-dropped"):
            client.attach("c", "gone")
