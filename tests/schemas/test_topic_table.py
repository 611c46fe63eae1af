"""What the table of topics promises, whatever numbers stand in it."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from sexton.schemas.settings import Settings
from sexton.schemas.topics import TOPICS, TopicFound, TopicNeed, compare, config_for, durability_for

TABLE = {need.name: need for need in TOPICS}
DAY_S = 24 * 60 * 60


def kept_s(name: str) -> float:
    """How long a topic keeps its records, in seconds."""
    return int(TABLE[name].config["retention.ms"]) / 1000


def fatal(
    need: TopicNeed, partitions: int, config: Mapping[str, str] | None = None, replicas: int = 3
) -> set[str]:
    """The settings of a topic of three brokers that make deleting unsafe."""
    found = TopicFound(partitions, replicas, {**config_for(need, 2), **(config or {})})
    return {problem.setting for problem in compare("t", need, found, 3) if problem.fatal}


def test_verdicts_are_computed_from_three_topics() -> None:
    """A lost or reused offset in one of these kills live data, and in no other."""
    assert {need.name for need in TOPICS if need.truth} == {"intents", "deferred", "generations"}


@pytest.mark.parametrize("need", TOPICS, ids=lambda each: each.name)
def test_no_topic_hands_out_an_offset_twice(need: TopicNeed) -> None:
    """An unclean election is fatal in whatever topic it is allowed, and so are copies out of sync."""
    assert fatal(need, need.partitions) == set()
    assert fatal(need, need.partitions, {"unclean.leader.election.enable": "true"}) == {
        "unclean.leader.election.enable"
    }
    assert fatal(need, need.partitions, {"min.insync.replicas": "1"}) == {"min.insync.replicas"}


@pytest.mark.parametrize(
    "name", ["intents", "deferred", "generations", "outcomes", "dead-letters", "control"]
)
def test_nothing_is_compacted_or_expires_by_a_clock_of_its_writer(name: str) -> None:
    """Retention counts from the broker's time; compaction could keep a void event and drop a valid one."""
    need = TABLE[name]

    assert fatal(need, need.partitions, {"cleanup.policy": "compact"}) == {"cleanup.policy"}
    assert fatal(need, need.partitions, {"message.timestamp.type": "CreateTime"}) == {
        "message.timestamp.type"
    }
    assert fatal(need, need.partitions, {"retention.bytes": "1000000"}) == {"retention.bytes"}


@pytest.mark.parametrize("name", ["generations.snapshots", "horizons"])
def test_what_is_read_by_key_is_compacted(name: str) -> None:
    """The newest record of each key is kept for ever."""
    need = TABLE[name]

    assert fatal(need, need.partitions, {"cleanup.policy": "delete"}) == {"cleanup.policy"}


def test_the_log_has_one_order_and_no_end() -> None:
    """Of one partition, whatever its settings are, and nothing of it is ever dropped."""
    log = TABLE["generations"]

    assert (log.partitions, log.config["retention.ms"]) == (1, "-1")
    for name in ("generations", "generations.snapshots", "control"):
        assert fatal(TABLE[name], 2) == {"partitions"}
    for name in ("intents", "deferred", "outcomes", "dead-letters", "horizons"):
        assert fatal(TABLE[name], 2) == set()
        assert fatal(TABLE[name], 0) == {"partitions"}


def test_what_waits_is_kept_for_longer_than_it_may_wait() -> None:
    """An intent in the delay queue ends by its age limit, not by the retention of its copies."""
    age_limit_s = float(Settings.model_fields["reaper_age_limit_s"].default)
    longest_delay_s = float(max(Settings.model_fields["reaper_defer_delays_s"].default))

    assert kept_s("deferred") >= kept_s("intents") + age_limit_s + longest_delay_s
    assert kept_s("intents") >= 30 * DAY_S
    assert kept_s("outcomes") >= 30 * DAY_S
    assert kept_s("dead-letters") >= 90 * DAY_S


def test_a_record_fits_wherever_it_is_written_on() -> None:
    """A copy of an intent is larger than the intent, and a dead letter or an outcome may be larger again."""
    sizes = {name: int(need.config["max.message.bytes"]) for name, need in TABLE.items()}

    assert sizes["intents"] >= 1024 * 1024
    assert sizes["deferred"] >= 2 * sizes["intents"]
    assert sizes["dead-letters"] >= 2 * sizes["deferred"]
    assert sizes["outcomes"] >= sizes["dead-letters"]
    assert sizes["generations"] == sizes["generations.snapshots"] == 16 * 1024 * 1024


@pytest.mark.parametrize(("brokers", "needed"), [(1, (1, 1)), (2, (1, 1)), (3, (3, 2)), (5, (3, 2))])
def test_copies_follow_the_number_of_brokers(brokers: int, needed: tuple[int, int]) -> None:
    """From three brokers on one may be lost, and what was acknowledged stays."""
    assert durability_for(brokers) == needed


@pytest.mark.parametrize("need", TOPICS, ids=lambda each: each.name)
def test_one_copy_is_told_and_is_fatal_only_where_there_could_be_three(need: TopicNeed) -> None:
    """On one disk everything can be lost: that is said; with three brokers verdicts may not rest on it."""
    lone = TopicFound(need.partitions, 1, config_for(need, 1))

    assert [(p.setting, p.fatal) for p in compare("t", need, lone, 1)] == [("replication factor", False)]
    assert fatal(need, need.partitions, replicas=1) == ({"replication factor"} if need.truth else set())


@pytest.mark.parametrize(
    ("value", "wrong"), [("604800000000", False), ("-1", False), ("1", True), ("long", True), ("", True)]
)
def test_a_retention_is_long_enough_only_as_a_number(value: str, wrong: bool) -> None:
    """What cannot be read has not been found right; no limit is more than any."""
    need = TABLE["intents"]

    assert fatal(need, 12, {"retention.ms": value}) == ({"retention.ms"} if wrong else set())
