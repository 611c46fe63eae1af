"""What to do about an answer by which the brokers refuse something; of no answer this says nothing."""

from __future__ import annotations

from typing import Any

__all__ = ["ABSENT", "final", "hint"]

ABSENT = frozenset(("UNKNOWN_TOPIC_OR_PART", "UNKNOWN_TOPIC_ID", "_UNKNOWN_PARTITION"))
"""The names of the errors by which there is no such topic, or not yet."""

_RIGHTS = {
    "TOPIC_AUTHORIZATION_FAILED": "READ, WRITE and DESCRIBE on the topics of SEXTON_TOPIC_PREFIX",
    "GROUP_AUTHORIZATION_FAILED": "READ and DESCRIBE on the consumer groups of SEXTON_TOPIC_PREFIX",
    "CLUSTER_AUTHORIZATION_FAILED": "what is asked for here on the cluster; to write, WRITE on the topic, and"
    " IDEMPOTENT_WRITE on the cluster where brokers are older than 2.8",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": "what is asked for here on the transactional id",
}
_HINTS = {
    **{name: f"give this user of Kafka's the right: {right}" for name, right in _RIGHTS.items()},
    "INVALID_SESSION_TIMEOUT": "let the brokers allow sessions of 6 s: group.min.session.timeout.ms at most"
    " 6000, group.max.session.timeout.ms at least that",
    "GROUP_MAX_SIZE_REACHED": "raise group.max.size of the brokers: two members are needed",
    "MSG_SIZE_TOO_LARGE": "let the topic take larger messages (max.message.bytes, docs/settings.md), or name"
    " fewer keys in an intent",
    "INCONSISTENT_GROUP_PROTOCOL": "a consumer of another kind is in the group: end it",
}
_OTHER = "the brokers answer, and say no: to a setting, or for want of a right"
# Answers of a cluster that is on the way to another one: most of what Kafka's protocol calls retriable.
_PASSING = frozenset(
    {
        "COORDINATOR_LOAD_IN_PROGRESS",
        "COORDINATOR_NOT_AVAILABLE",
        "NOT_COORDINATOR",
        "REBALANCE_IN_PROGRESS",
        "UNKNOWN_MEMBER_ID",
        "MEMBER_ID_REQUIRED",
        "ILLEGAL_GENERATION",
        "FENCED_INSTANCE_ID",
        "LEADER_NOT_AVAILABLE",
        "NOT_LEADER_FOR_PARTITION",
        "PREFERRED_LEADER_NOT_AVAILABLE",
        "ELIGIBLE_LEADERS_NOT_AVAILABLE",
        "FENCED_LEADER_EPOCH",
        "UNKNOWN_LEADER_EPOCH",
        "OFFSET_NOT_AVAILABLE",  # of a leader that has just become one
        "LISTENER_NOT_FOUND",
        "REPLICA_NOT_AVAILABLE",
        "BROKER_NOT_AVAILABLE",
        "REQUEST_TIMED_OUT",
        "NETWORK_EXCEPTION",
        "NOT_CONTROLLER",
        "KAFKA_STORAGE_ERROR",
        "THROTTLING_QUOTA_EXCEEDED",
        "UNKNOWN_TOPIC_OR_PART",  # one that was made just now is not known everywhere
        "UNKNOWN_TOPIC_ID",
    }
)


def final(error: Any) -> bool:
    """Return whether an error of Kafka's client is the brokers' answer, and stays so when asked again."""
    if error.name() == "_UNSUPPORTED_FEATURE":
        return True  # the client has it from the brokers
    return error.code() > 0 and error.name() not in _PASSING


def hint(error: Any) -> str | None:
    """Return what to do about an error of Kafka's client, None for one that is not a refusal."""
    if error.name() in ABSENT:
        return "`sexton topics create` makes those that are absent"
    return _HINTS.get(error.name(), _OTHER) if final(error) else None
