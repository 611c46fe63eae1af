"""Brokers that say no: what is only unknown is a warning, and of a refusal their own word is told."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from confluent_kafka import KafkaError
from confluent_kafka.admin import AclOperation, ResourceType  # type: ignore[attr-defined]
from tests.support.secured_broker import LIMITED, USER, SecuredBroker
from tests.support.topic_settings import configure

from sexton.deploy import topics
from sexton.deploy.local import LocalStack
from sexton.producers import DeliveryFailed, Sexton
from sexton.producers.testing import FakeIssuer
from sexton.schemas.errors import InvalidSettings, KafkaUnavailable
from sexton.schemas.kafka import refusals
from sexton.schemas.kafka.admin import Cluster
from sexton.schemas.settings import Settings, load
from sexton.schemas.topics import TOPICS
from sexton.streaming_jobs.reaper.preflight import TopicsUnsafe, check_topics
from sexton.streaming_jobs.reaper.recovery.lock import CheckpointLock

real = pytest.mark.real
pytestmark = pytest.mark.faults


def settings_of(broker: SecuredBroker, prefix: str, user: str | None = None) -> Settings:
    """Settings that lead to the broker, as a user or as nobody, who may do everything."""
    return load(environment_of(broker, prefix, user))


def environment_of(broker: SecuredBroker, prefix: str, user: str | None = None) -> dict[str, str]:
    """Those of a process."""
    environment = {"SEXTON_TOPIC_PREFIX": prefix, "SEXTON_KAFKA_BOOTSTRAP_SERVERS": broker.at["PLAIN"]}
    if user is not None:
        environment["SEXTON_KAFKA_BOOTSTRAP_SERVERS"] = broker.at["PASSWORD"]
        environment["SEXTON_KAFKA_EXTRA"] = json.dumps(broker.extra(user))
    return environment


@dataclass
class Told:
    """What the reaper says at its start."""

    lines: list[dict[str, Any]] = field(default_factory=list)

    def __call__(self, event: str, **values: Any) -> None:
        self.lines.append({"event": event, **values})


@real
def test_p_12_settings_that_may_not_be_read_are_a_warning(
    broker: SecuredBroker, cli: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    """P-12: for `topics check` (exit 0), for the issuer's first event and for the reaper, which says so."""
    prefix = "hidden."
    topics.create_topics(settings_of(broker, prefix), partitions=1)
    broker.deny(ResourceType.TOPIC, prefix, AclOperation.DESCRIBE_CONFIGS)
    limited = settings_of(broker, prefix, LIMITED)

    topics.create_installation(limited)
    checked = cli("topics", "check", "--format", "json", env=environment_of(broker, prefix, LIMITED))
    told = Told()
    binding = check_topics(limited, Cluster(limited), told)

    rows = json.loads(checked.stdout)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert {row["severity"] for row in rows} == {"warning"}
    assert {row["topic"] for row in rows if row["found"] == "unknown"} == {
        limited.topic(need.name) for need in TOPICS
    }
    assert binding.topic == "hidden.intents"
    assert [line["topic"] for line in told.lines] == [
        "hidden.intents",
        "hidden.deferred",
        "hidden.outcomes",
        "hidden.dead-letters",
    ]
    assert {(line["event"], line["setting"]) for line in told.lines} == {("unknown_setting", "settings")}


@real
def test_p_12_a_log_with_capped_messages_is_a_warning(
    broker: SecuredBroker, cli: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    """P-12: 8 MiB are too little for the largest events of the log alone; for outcomes less is refused."""
    prefix = "capped."
    settings = settings_of(broker, prefix)
    topics.create_installation(settings, partitions=1)
    configure(settings, "generations", "max.message.bytes", "8388608")

    checked = cli("topics", "check", env=environment_of(broker, prefix))
    check_topics(settings, Cluster(settings))
    configure(settings, "outcomes", "max.message.bytes", "1048588")

    assert checked.returncode == 0, checked.stdout
    assert "8388608" in checked.stdout
    with pytest.raises(TopicsUnsafe, match=r"capped\.outcomes: max\.message\.bytes is 1048588"):
        check_topics(settings, Cluster(settings))


@real
def test_p_12_a_topic_that_may_not_be_written_is_told_by_each_receipt(broker: SecuredBroker) -> None:
    """P-12: at once, with the right that is missing; other topics of the same user are written to."""
    for prefix in ("unwritten.", "written."):
        topics.create_topics(settings_of(broker, prefix), partitions=1)
    broker.deny(ResourceType.TOPIC, "unwritten.", AclOperation.WRITE)
    broker.deny(ResourceType.TOPIC, "written.", AclOperation.ALTER)

    with Sexton.connect("n", settings_of(broker, "written.", LIMITED), issuer=FakeIssuer()) as allowed:
        allowed.attach("t").delete("bucket", ["k"]).wait(20)
    refused = Sexton.connect("n", settings_of(broker, "unwritten.", LIMITED), issuer=FakeIssuer())
    tenant, begun = refused.attach("t"), time.monotonic()
    for key in ("a", "b"):
        with pytest.raises(DeliveryFailed, match="Topic authorization failed") as told:
            tenant.delete("bucket", [key]).wait(30)
        assert "WRITE and DESCRIBE" in (told.value.hint or "")
    assert time.monotonic() - begun < 20
    assert len(refused.close(3)) == 2


@real
@pytest.mark.parametrize(
    ("user", "word", "hint"),
    [
        (LIMITED, "Group authorization failed", "READ and DESCRIBE on the consumer groups"),
        (USER, "Invalid session timeout", "group.min.session.timeout.ms"),
    ],
    ids=["no right", "a session too short"],
)
def test_p_13_a_lock_that_the_brokers_refuse_is_told_in_their_word(
    broker: SecuredBroker, user: str, word: str, hint: str
) -> None:
    """P-13: no other reaper is blamed for a right that is missing, or a session that is not allowed."""
    prefix = "refused."
    topics.create_topics(settings_of(broker, prefix), partitions=1)
    broker.deny(ResourceType.GROUP, prefix, AclOperation.READ)

    begun = time.monotonic()
    with pytest.raises(KafkaUnavailable, match=f"cannot be locked: .*{word}") as refused:
        CheckpointLock(settings_of(broker, prefix, user), "one").acquire(wait_s=60)

    assert time.monotonic() - begun < 50  # what stays so is not waited for
    assert hint in (refused.value.hint or "")


@real
def test_p_13_a_group_that_may_not_be_looked_at_is_told(broker: SecuredBroker) -> None:
    """P-13: also before Spark starts, where the lock is only looked at."""
    broker.deny(ResourceType.GROUP, "unseen.", AclOperation.DESCRIBE)
    lock = CheckpointLock(settings_of(broker, "unseen.", LIMITED), "one")

    with pytest.raises(KafkaUnavailable, match="Group authorization failed") as refused:
        lock.await_free(print, lambda seconds: False)

    assert "READ and DESCRIBE on the consumer groups" in (refused.value.hint or "")


@real
def test_p_13_a_lock_without_its_topic_is_told(stack: LocalStack) -> None:
    """P-13: the topic is named, and who makes it."""
    settings = load({**stack.env, "SEXTON_TOPIC_PREFIX": "nowhere."})

    with pytest.raises(KafkaUnavailable, match=r"cannot be locked: .*nowhere\.control") as refused:
        CheckpointLock(settings, "one").acquire(wait_s=2)

    assert "sexton topics create" in (refused.value.hint or "")


def test_p_13_what_passes_by_itself_is_no_refusal() -> None:
    """P-13: a cluster on its way to another coordinator is asked again; other answers stay."""
    passing = [KafkaError.NOT_COORDINATOR, KafkaError.REBALANCE_IN_PROGRESS, KafkaError._TRANSPORT]
    final = [KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaError.INVALID_GROUP_ID, KafkaError.POLICY_VIOLATION]

    assert not any(refusals.final(KafkaError(code)) for code in passing)
    assert all(refusals.final(KafkaError(code)) for code in final)
    assert all(refusals.hint(KafkaError(code)) is None for code in passing)
    assert all(refusals.hint(KafkaError(code)) for code in final)


def test_p_6_a_property_that_librdkafka_refuses_names_the_setting() -> None:
    """P-6: with the client's own word, as the misuse that it is."""
    settings = load({"SEXTON_KAFKA_EXTRA": '{"no.such.property": "1"}'})

    with pytest.raises(InvalidSettings, match=r"SEXTON_KAFKA_EXTRA: .*no\.such\.property"):
        Cluster(settings)
