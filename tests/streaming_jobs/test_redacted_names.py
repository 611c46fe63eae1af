"""What Spark is told to hide where it shows settings and environments."""

from __future__ import annotations

import re

import pytest

from sexton.streaming_jobs.spark import _REDACTED, _unset

REGEX = "spark.redaction.regex"
HIDES = re.compile(_REDACTED[REGEX])


def test_each_session_hides_secrets_and_what_somebody_else_wants_hidden() -> None:
    """An expression that spark-submit was given counts beside ours."""
    assert re.search(_unset({}, "python3")[REGEX], "SEXTON_REDIS_URL")
    assert _unset({REGEX: "(?i)salary"}, "python3")[REGEX] == f"(?i)salary|{_REDACTED[REGEX]}"


@pytest.mark.parametrize(
    "text",
    [
        "spark.executorEnv.AWS_SECRET_ACCESS_KEY",
        "AWS_ACCESS_KEY_ID",
        "AWS_SESSION_TOKEN",
        "spark.hadoop.fs.s3a.access.key",
        "SEXTON_KAFKA_EXTRA",
        "SEXTON_REDIS_URL",
        "SEXTON_ISSUER_TOKENS",
        "SEXTON_SCHEMA_REGISTRY_EXTRA",
        '{"basic.auth.user.info": "a:b"}',
        "kafka.sasl.jaas.config",
        "kafka.ssl.keystore.key",
        "redis://u:hunter2@h:1/0",
        "--conf spark.executorEnv.X=http://user:hunter2@h",
    ],
)
def test_a_secret_is_known_by_its_name_or_content(text: str) -> None:
    """The names of the AWS variables, of Sexton's settings and of Kafka's properties; a URL with a user."""
    assert HIDES.search(text)


@pytest.mark.parametrize(
    "text", ["SEXTON_TOPIC_PREFIX", "spark.master", "http://127.0.0.1:1", "SEXTON_ALLOW"]
)
def test_what_is_no_secret_is_shown(text: str) -> None:
    """Else the pages say nothing."""
    assert not HIDES.search(text)
