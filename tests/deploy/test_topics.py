"""`sexton topics` against a real broker, and the comparison as a pure rule."""

from __future__ import annotations

import itertools
import json
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.support.topic_settings import configure

from sexton.deploy.local import LocalStack
from sexton.deploy.topics import check_topics, create_installation, create_topics, delete_topics
from sexton.issuer.log.positions import WrongTopic
from sexton.schemas import settings as settings_module
from sexton.schemas.kafka.admin import Cluster, TopicIdentity
from sexton.schemas.settings import Settings
from sexton.schemas.topics import TOPICS, TopicFound, compare, config_for, durability_for

_numbers = itertools.count(1)
Cli = Callable[..., "subprocess.CompletedProcess[str]"]
INTENTS = next(need for need in TOPICS if need.name == "intents")
GENERATIONS = next(need for need in TOPICS if need.name == "generations")


@pytest.fixture
def empty(stack: LocalStack) -> Iterator[Settings]:
    """Settings with a prefix under which no topic exists."""
    settings = settings_module.load({**stack.env, "SEXTON_TOPIC_PREFIX": f"topics-{next(_numbers)}."})
    yield settings
    delete_topics(settings)


@pytest.fixture
def admin(stack: LocalStack) -> AdminClient:
    """An admin client of the stack's broker."""
    return AdminClient({"bootstrap.servers": stack.env["SEXTON_KAFKA_BOOTSTRAP_SERVERS"]})


@pytest.mark.real
class TestOnARealBroker:
    def test_created_topics_are_as_needed(self, empty: Settings) -> None:
        """What `create` makes, `check` finds right: on one broker it only warns of the missing copies."""
        created = create_topics(empty, partitions=2)

        problems = check_topics(empty)
        assert sorted(created) == sorted(empty.topic(need.name) for need in TOPICS)
        assert [problem for problem in problems if problem.fatal] == []
        assert {(p.setting, p.found) for p in problems} == {("replication factor", "1")}

    def test_creating_again_changes_nothing(self, empty: Settings) -> None:
        """A second `create` creates nothing and is no error."""
        create_topics(empty, partitions=2)

        assert create_topics(empty, partitions=2) == []

    def test_every_topic_is_missing_at_first(self, empty: Settings) -> None:
        """Absent topics are fatal problems, one each."""
        problems = check_topics(empty)

        assert {(p.topic, p.setting, p.found) for p in problems} == {
            (empty.topic(need.name), "topic", "absent") for need in TOPICS
        }

    def test_wrong_settings_are_reported(self, empty: Settings, admin: AdminClient, cli: Cli) -> None:
        """A compacted log and an intents topic with the producer's timestamps: exit 1, each is named."""
        create_topics(empty, partitions=2)
        configure(empty, "generations", "cleanup.policy", "compact")
        configure(empty, "intents", "message.timestamp.type", "CreateTime")
        configure(empty, "intents", "unclean.leader.election.enable", "true")

        done = cli("topics", "check", "--format", "json", env=_env(empty))

        errors = {
            (row["topic"], row["setting"], row["found"], row["needed"])
            for row in json.loads(done.stdout)
            if row["severity"] == "error"
        }
        assert done.returncode == 1
        assert errors == {
            (empty.topic("generations"), "cleanup.policy", "compact", "delete"),
            (empty.topic("intents"), "message.timestamp.type", "CreateTime", "LogAppendTime"),
            (empty.topic("intents"), "unclean.leader.election.enable", "true", "false"),
        }

    def test_a_log_of_two_partitions_is_reported(self, empty: Settings, admin: AdminClient) -> None:
        """The generations log has no order over two partitions, however its settings are."""
        name = empty.topic("generations")
        topic = NewTopic(name, num_partitions=2, replication_factor=1, config=config_for(GENERATIONS, 1))
        admin.create_topics([topic])[name].result(timeout=20)
        create_topics(empty)

        found = {(p.topic, p.setting, p.found, p.needed) for p in check_topics(empty) if p.fatal}
        assert found == {(name, "partitions", "2", "1")}

    def test_the_command_creates_and_starts_the_log(self, empty: Settings, cli: Cli) -> None:
        """`topics create` prints the new topics alone on stdout, and again it prints none."""
        first = cli("topics", "create", "--partitions", "2", env=_env(empty))
        second = cli("topics", "create", env=_env(empty))

        assert first.returncode == 0, first.stderr
        assert sorted(first.stdout.split()) == sorted(empty.topic(need.name) for need in TOPICS)
        assert (second.returncode, second.stdout) == (0, "")

    def test_partitions_that_existing_topics_do_not_have_are_told(self, empty: Settings, cli: Cli) -> None:
        """A number that was asked for too late is a warning, for those topics alone that may have several."""
        create_topics(empty, partitions=2)

        again = cli("topics", "create", "--partitions", "3", env=_env(empty))

        told = f"warning: {empty.topic('intents')} was there and keeps 2 partitions, not 3"
        assert (again.returncode, again.stdout) == (0, "")
        assert told in again.stderr
        assert empty.topic("generations") not in again.stderr

    def test_topics_are_created_once_a_broker_lists_them(
        self, empty: Settings, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The controller says that a topic is made before the brokers know it: `create` waits for them."""
        listed = Cluster.identities
        answers: list[set[str]] = []

        def late(cluster: Cluster, names: Sequence[str], timeout_s: float = 30) -> dict[str, TopicIdentity]:
            found = listed(cluster, names, timeout_s) if len(answers) >= 2 else {}
            answers.append(set(found))
            return found

        monkeypatch.setattr(Cluster, "identities", late)

        created = create_topics(empty, partitions=2)

        assert answers[:2] == [set(), set()]
        assert answers[-1] == set(created) == {empty.topic(need.name) for need in TOPICS}

    def test_f_8_an_intents_topic_that_was_created_again(
        self, empty: Settings, admin: AdminClient, cli: Cli
    ) -> None:
        """F-8: `create` does not make it beside the old log; once it is there, `check` and doctor say so."""
        create_installation(empty, partitions=2)
        intents, deferred = empty.topic("intents"), empty.topic("deferred")
        old = Cluster(empty).topic_id(intents)
        _delete(admin, intents, deferred)

        refused = cli("topics", "create", env=_env(empty))
        left = Cluster(empty).topic_names()
        create_topics(empty, partitions=2)
        again = cli("topics", "create", env=_env(empty))
        checked = cli("topics", "check", "--format", "json", env=_env(empty))
        probed = cli("doctor", "--format", "json", env=_env(empty))

        assert (refused.returncode, refused.stdout, again.returncode) == (75, "", 75)
        assert (
            f"there is no such topic: {intents}; {empty.topic('generations')} names another" in refused.stderr
        )
        assert not {intents, deferred} & left
        new = Cluster(empty).topic_id(intents)
        errors = [row for row in json.loads(checked.stdout) if row["severity"] == "error"]
        assert checked.returncode == 1
        assert [(row["topic"], row["setting"], row["found"], row["needed"]) for row in errors] == [
            (intents, "topic id", new, f"the one that Genesis names: {old}")
        ]
        topics = next(row for row in json.loads(probed.stdout) if row["probe"] == "topics")
        assert not topics["ok"]
        assert f"{intents}: topic id: {new}" in topics["detail"]

    def test_f_8_a_missing_topic_is_not_made_beside_another_log(
        self, empty: Settings, admin: AdminClient, cli: Cli
    ) -> None:
        """F-8: a log that names another intents topic is compared before any other topic is created."""
        create_installation(empty, partitions=2)
        _delete(admin, empty.topic("intents"))
        create_topics(empty, partitions=2)
        _delete(admin, empty.topic("outcomes"))

        done = cli("topics", "create", env=_env(empty))

        assert (done.returncode, done.stdout) == (75, "")
        assert empty.topic("outcomes") not in Cluster(empty).topic_names()

    def test_f_8_a_log_that_was_created_again(self, empty: Settings, admin: AdminClient) -> None:
        """F-8: beside intents without their log no new one is created, and an empty one is an error."""
        create_installation(empty, partitions=2)
        producer = Producer(empty.kafka())
        producer.produce(empty.topic("intents"), b"x")
        producer.flush(20)
        log = empty.topic("generations")
        _delete(admin, log)

        with pytest.raises(WrongTopic, match="intents that a new log cannot judge"):
            create_installation(empty)
        assert log not in Cluster(empty).topic_names()
        create_topics(empty)

        assert [(p.topic, p.setting, p.found) for p in check_topics(empty) if p.fatal] == [
            (log, "log", "empty")
        ]

    @pytest.mark.slow
    def test_no_broker(self, cli: Cli) -> None:
        """An unreachable broker is an environment fault."""
        done = cli("topics", "check", env={"SEXTON_KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1"})

        assert done.returncode == 75
        assert "the brokers do not answer" in done.stderr


class TestTheRule:
    @staticmethod
    def _problems(brokers: int, replicas: int, **changes: str) -> set[tuple[str, str, bool]]:
        config = {**config_for(INTENTS, durability_for(brokers)[1]), **changes}
        found = TopicFound(partitions=5, replicas=replicas, config=config)
        return {(p.setting, p.found, p.fatal) for p in compare("t", INTENTS, found, brokers)}

    def test_three_brokers_need_three_copies(self) -> None:
        """From three brokers on, fewer than three copies or two in sync are fatal for the intents."""
        assert self._problems(3, 3) == set()
        assert self._problems(3, 2) == {("replication factor", "2", True)}
        assert self._problems(3, 3, **{"min.insync.replicas": "1"}) == {("min.insync.replicas", "1", True)}

    def test_more_than_needed_is_fine(self) -> None:
        """Longer retention, larger messages and more copies in sync are no problem; shorter ones are."""
        longer = {"retention.ms": "-1", "max.message.bytes": "9000000", "min.insync.replicas": "3"}
        assert self._problems(3, 4, **longer) == set()
        assert self._problems(3, 3, **{"retention.ms": "1000"}) == {("retention.ms", "1000", True)}

    def test_a_limited_log_is_a_problem(self) -> None:
        """Where no limit is needed, any number is too small."""
        config = {**config_for(GENERATIONS, 2), "retention.ms": "999999999999"}
        found = TopicFound(partitions=1, replicas=3, config=config)

        assert [p.needed for p in compare("t", GENERATIONS, found, 3)] == ["-1 (no limit)"]

    def test_an_unknown_value_is_a_warning(self) -> None:
        """P-12: a setting that the brokers do not tell has not been found right, nor wrong."""
        config = config_for(INTENTS, 2)
        del config["unclean.leader.election.enable"]
        found = TopicFound(partitions=1, replicas=3, config=config)

        assert [(p.setting, p.found, p.fatal) for p in compare("t", INTENTS, found, 3)] == [
            ("unclean.leader.election.enable", "unknown", False)
        ]

    def test_settings_that_cannot_be_read_are_one_warning(self) -> None:
        """P-12: for a user who may not ask for them; what is seen without them is still compared."""
        found = TopicFound(partitions=2, replicas=3, config={})

        assert [(p.setting, p.found, p.fatal) for p in compare("t", GENERATIONS, found, 3)] == [
            ("partitions", "2", True),
            ("settings", "unknown", False),
        ]

    @pytest.mark.parametrize(
        ("mib", "fatal"), [(16, None), (8, False), (4, True)], ids=["as needed", "capped", "too small"]
    )
    @pytest.mark.parametrize("name", ["generations", "generations.snapshots"])
    def test_messages_that_are_capped_are_a_warning(self, name: str, mib: int, fatal: bool | None) -> None:
        """P-12: brokers that take 8 MiB at most take all but the log's largest events."""
        need = next(need for need in TOPICS if need.name == name)
        config = {**config_for(need, 2), "max.message.bytes": str(mib * 1024 * 1024)}
        found = TopicFound(partitions=1, replicas=3, config=config)

        assert [p.fatal for p in compare("t", need, found, 3)] == ([] if fatal is None else [fatal])

    def test_an_empty_value_is_known_to_be_wrong(self) -> None:
        """P-12: only what is not told is unknown."""
        assert self._problems(3, 3, **{"cleanup.policy": ""}) == {("cleanup.policy", "", True)}


def _delete(admin: AdminClient, *names: str) -> None:
    for future in admin.delete_topics(list(names), operation_timeout=20).values():
        future.result(timeout=20)
    until = time.monotonic() + 20
    while set(names) & admin.list_topics(timeout=10).topics.keys():
        assert time.monotonic() < until
        time.sleep(0.1)


def _env(settings: Settings) -> dict[str, str]:
    return {
        "SEXTON_KAFKA_BOOTSTRAP_SERVERS": settings.kafka_bootstrap_servers,
        "SEXTON_TOPIC_PREFIX": settings.topic_prefix,
    }
