"""The topics and the settings they need, as a table, and the rule that compares a real topic with it.

Retention is counted from the time the broker took the record (LogAppendTime): a producer's clock
must not be able to make an intent, or the receipt for it, expire at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

__all__ = ["TOPICS", "TopicFound", "TopicNeed", "TopicProblem", "compare", "config_for", "durability_for"]

_DAY_MS = 24 * 60 * 60 * 1000
_MIB = 1024 * 1024
_FOREVER = "-1"


class Rule(StrEnum):
    """How a found value is compared with the needed one."""

    EQUAL = "equal"
    AT_LEAST = "at least"


@dataclass(frozen=True, slots=True)
class TopicNeed:
    """One topic of the table.

    `partitions` is what `create` makes; where `exact` it is also the only right number.
    `config` is what `create` sets; `rules` says how `check` reads a value (equality where absent).
    `truth` marks the topics from which verdicts are computed: a lost or reused offset there kills live data.
    """

    name: str
    partitions: int
    exact: bool
    config: Mapping[str, str]
    truth: bool = False


@dataclass(frozen=True, slots=True)
class TopicFound:
    """One topic as the brokers describe it; `config` has what they tell of its settings."""

    partitions: int
    replicas: int
    config: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class TopicProblem:
    """One difference between a topic and what is needed; `fatal` ones make deleting unsafe or impossible."""

    topic: str
    setting: str
    found: str
    needed: str
    fatal: bool = True


_RULES: Mapping[str, Rule] = {
    "retention.ms": Rule.AT_LEAST,
    "retention.bytes": Rule.AT_LEAST,
    "max.message.bytes": Rule.AT_LEAST,
    "min.insync.replicas": Rule.AT_LEAST,
}


# Brokers of others may cap the size of a message: with this much the issuer refuses its largest events alone.
_BEARABLE_BYTES: Mapping[str, int] = {"generations": 8 * _MIB, "generations.snapshots": 8 * _MIB}


def _deleted_after(days: int, max_message_mib: int) -> dict[str, str]:
    return {
        "cleanup.policy": "delete",
        "retention.ms": str(days * _DAY_MS),
        "retention.bytes": _FOREVER,
        "message.timestamp.type": "LogAppendTime",
        "max.message.bytes": str(max_message_mib * _MIB),
    }


def _compacted(max_message_mib: int) -> dict[str, str]:
    return {"cleanup.policy": "compact", "max.message.bytes": str(max_message_mib * _MIB)}


TOPICS: tuple[TopicNeed, ...] = (
    # 30 days: far above the longest time for which nobody would notice that the reaper is down.
    TopicNeed("intents", 12, False, _deleted_after(30, 1), truth=True),
    # An intent waits here for days, and carries its first position on top of an intent's bytes.
    TopicNeed("deferred", 12, False, _deleted_after(90, 2), truth=True),
    TopicNeed(
        "generations",
        1,
        True,
        # 10,000 grants in one event, each with a tenant's name and two generations; never compacted:
        # that could keep a void event and drop the valid one before it.
        {**_deleted_after(0, 16), "retention.ms": _FOREVER},
        truth=True,
    ),
    TopicNeed("generations.snapshots", 1, True, _compacted(16)),
    # An outcome names the exceptions by key, so it can outgrow its intent. As long as a copy of the intent is
    # in `deferred`: a new checkpoint reads that again, and looks here for what was executed.
    TopicNeed("outcomes", 12, False, _deleted_after(90, 8)),
    # A dead letter holds the raw bytes of what may already have been as large as allowed.
    TopicNeed("dead-letters", 3, False, _deleted_after(90, 4)),
    TopicNeed("horizons", 3, False, _compacted(1)),
    TopicNeed("control", 1, True, _deleted_after(90, 1)),
)


def durability_for(brokers: int) -> tuple[int, int]:
    """Return (replication factor, min.insync.replicas) for a cluster of so many brokers."""
    return (3, 2) if brokers >= 3 else (1, 1)


def config_for(need: TopicNeed, insync: int) -> dict[str, str]:
    """Return the whole configuration a topic is created with."""
    return {
        **need.config,
        "min.insync.replicas": str(insync),
        # An unclean election hands out offsets a second time, and a verdict rests on an offset.
        "unclean.leader.election.enable": "false",
    }


def compare(name: str, need: TopicNeed, found: TopicFound | None, brokers: int) -> Iterator[TopicProblem]:
    """Yield every difference between a found topic (None: absent) and what is needed of it.

    `name` is the full name, `brokers` the size of the cluster.
    """
    if found is None:
        yield TopicProblem(name, "topic", "absent", "present")
        return
    if found.partitions != need.partitions if need.exact else found.partitions < 1:
        yield TopicProblem(name, "partitions", str(found.partitions), str(need.partitions))
    replicas, insync = durability_for(brokers)
    if found.replicas < replicas:
        yield TopicProblem(
            name, "replication factor", str(found.replicas), f"at least {replicas}", need.truth
        )
    elif found.replicas < 3:
        lossy = "3: what this topic holds is lost with one disk"
        yield TopicProblem(name, "replication factor", str(found.replicas), lossy, fatal=False)
    if not found.config:
        told = "as in docs/settings.md; the right DESCRIBE_CONFIGS on it shows them"
        yield TopicProblem(name, "settings", "unknown", told, fatal=False)
        return
    for setting, needed in config_for(need, insync).items():
        value = found.config.get(setting)
        rule = _RULES.get(setting, Rule.EQUAL)
        if value is None or not _holds(rule, value, needed):
            words = needed if rule is Rule.EQUAL else f"at least {needed}"
            words = words.replace("at least -1", "-1 (no limit)")
            # What the brokers do not tell is not known to be wrong.
            fatal = value is not None and not _is_bearable(need, setting, value)
            yield TopicProblem(name, setting, "unknown" if value is None else value, words, fatal)


def _is_bearable(need: TopicNeed, setting: str, value: str) -> bool:
    least = _BEARABLE_BYTES.get(need.name)
    return setting == "max.message.bytes" and least is not None and _holds(Rule.AT_LEAST, value, str(least))


def _holds(rule: Rule, value: str, needed: str) -> bool:
    if rule is Rule.EQUAL:
        return value.lower() == needed.lower()
    try:
        found = int(value)
    except ValueError:
        return False
    if found == -1:
        return True
    return needed != _FOREVER and found >= int(needed)
