"""Settings that cannot be right are refused where they are loaded, in plain words."""

from __future__ import annotations

import json
import secrets
import traceback
from pathlib import Path

import pytest

from sexton.schemas.errors import InvalidSettings
from sexton.schemas.settings import load

_HTTP = "a URL that begins with http:// or https:// is needed, such as http://127.0.0.1:"
_REDIS = "a URL that begins with redis://, rediss:// or unix:// is needed, such as redis://127.0.0.1:6379/0"
_HOST = "a URL with a host, and a port of at most 65535, is needed"


@pytest.mark.parametrize(
    ("variable", "value", "reported"),
    [
        ("SEXTON_ISSUER_URL", "127.0.0.1:8350", f"{_HTTP}8350"),
        ("SEXTON_ISSUER_URL", "localhost:8350", f"{_HTTP}8350"),
        ("SEXTON_ISSUER_URL", "redis://127.0.0.1:8350", f"{_HTTP}8350"),
        # Whoever looks for `https:` to decide whether to verify must find it.
        ("SEXTON_ISSUER_URL", "HTTPS://127.0.0.1:8350", f"{_HTTP}8350"),
        ("SEXTON_ISSUER_URL", "http://", _HOST),
        ("SEXTON_ISSUER_URL", "http:///v1", _HOST),
        ("SEXTON_ISSUER_URL", "http://host:83500", _HOST),
        ("SEXTON_ISSUER_URL", "http://host:port", _HOST),
        ("SEXTON_ISSUER_URL", "http://host:0", _HOST),
        ("SEXTON_ISSUER_URL", "http://ho st", _HOST),
        ("SEXTON_S3_ENDPOINT_URL", "127.0.0.1:9000", _HTTP),
        ("SEXTON_S3_ENDPOINT_URL", "s3://bucket", _HTTP),
        ("SEXTON_SCHEMA_REGISTRY_URL", "registry:8081", f"{_HTTP}8081"),
        ("SEXTON_SCHEMA_REGISTRY_URL", "http://one:8081,two:8081", f"{_HTTP}8081"),
        ("SEXTON_REDIS_URL", "localhost:6379", _REDIS),
        ("SEXTON_REDIS_URL", "127.0.0.1:6379", _REDIS),
        ("SEXTON_REDIS_URL", "http://127.0.0.1:6379", _REDIS),
        ("SEXTON_REDIS_URL", "redis://", _HOST),
    ],
)
def test_an_url_that_leads_nowhere_is_refused(variable: str, value: str, reported: str) -> None:
    """The variable and its source are named, and what a right value looks like; not the value."""
    with pytest.raises(InvalidSettings) as refused:
        load({variable: value})

    assert str(refused.value).startswith(f"{variable} (environment): {reported}")


@pytest.mark.parametrize(
    ("variable", "value", "reported"),
    [
        ("SEXTON_ALLOW", '["s3://bucket/"]', "BUCKET or BUCKET/PREFIX is needed, without a scheme"),
        ("SEXTON_ALLOW", '["/prefix"]', "not a bucket name: ''"),
        ("SEXTON_ALLOW", '["bucket/", "b"]', "not a bucket name: 'b'"),
        ("SEXTON_ALLOW", '["my bucket/x"]', "not a bucket name: 'my bucket'"),
        ("SEXTON_ALLOW", "bucket", 'not JSON, such as ["bucket/prefix/"]'),
        ("SEXTON_REAPER_DEFER_DELAYS_S", "5,30", "not JSON, such as [5, 30, 180]"),
        ("SEXTON_TOPIC_PREFIX", "foo bar", "Kafka's topics have letters, digits"),
        ("SEXTON_TOPIC_PREFIX", "a/b.", "Kafka's topics have letters, digits"),
    ],
)
def test_a_list_or_a_name_that_cannot_be_meant_is_refused(variable: str, value: str, reported: str) -> None:
    """An allow-list that names no bucket would refuse every intent, for good."""
    with pytest.raises(InvalidSettings) as refused:
        load({variable: value})

    assert str(refused.value).startswith(f"{variable} (environment): {reported}")


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("SEXTON_ALLOW", '["bucket", "Old_Bucket/prefix", "bucket//odd/"]'),
        ("SEXTON_TOPIC_PREFIX", ""),
        ("SEXTON_TOPIC_PREFIX", "eu-1.sexton_2."),
        ("SEXTON_ISSUER_URL", "https://issuer.example/sexton/"),
        ("SEXTON_ISSUER_URL", "http://[::1]:8350"),
        ("SEXTON_S3_ENDPOINT_URL", "https://s3.example"),
        ("SEXTON_S3_ENDPOINT_URL", ""),
        ("SEXTON_SCHEMA_REGISTRY_URL", "http://one:8081,https://two"),
        ("SEXTON_REDIS_URL", "rediss://user:word@cache:6380/3"),
        ("SEXTON_REDIS_URL", "unix:///run/redis.sock"),
    ],
)
def test_an_url_that_leads_somewhere_is_taken(variable: str, value: str) -> None:
    """Every form that the clients understand is taken, and an empty value is none."""
    load({variable: value})


@pytest.mark.parametrize(
    ("variable", "value", "reported"),
    [
        ("METRICS_PORT", "x", "a whole number is needed: 'x'"),
        ("METRICS_PORT", "70000", "a number of at most 65535 is needed: '70000'"),
        ("REAPER_TRIGGER_S", "-1", "a number of at least 0 is needed: '-1'"),
        ("REAPER_GRACE_S", "0", "a number above 0 is needed: '0'"),
        ("REAPER_GRACE_S", "soon", "a number is needed: 'soon'"),
        ("REAPER_ALLOW_BYPASS", "maybe", "true or false is needed: 'maybe'"),
        ("ALLOW", "3", "a JSON list is needed: 3"),
        ("ALLOW", "[3]", "0: text is needed: 3"),
        ("ALLOW", '["/x"]', "not a bucket name: '', in '/x'"),
        ("LOG_LEVEL", "loud", "not a log level: loud"),
        ("KAFKA_EXTRA", "[1]", "a JSON object is needed"),
        ("KAFKA_EXTRA", '{"sasl.password": 7}', "sasl.password: text is needed"),
    ],
)
def test_a_bad_value_is_told_in_plain_words(variable: str, value: str, reported: str) -> None:
    """No word of the validating library is in a message."""
    with pytest.raises(InvalidSettings) as refused:
        load({f"SEXTON_{variable}": value})

    assert str(refused.value) == f"SEXTON_{variable} (environment): {reported}"


@pytest.mark.parametrize(
    ("name", "value", "reported"),
    [
        ("acks", "1", "must be all, or left out"),
        ("request.required.acks", "0", "must be all, or left out"),
        ("enable.idempotence", "F", "must be true, or left out"),
        ("partitioner", "random", "must be murmur2, or left out"),
        ("delivery.report.only.error", "true", "must be false, or left out"),
        ("isolation.level", "read_uncommitted", "must be read_committed, or left out"),
        ("enable.auto.commit", "true", "must be false, or left out"),
        ("auto.commit.enable", "1", "must be false, or left out"),
        ("allow.auto.create.topics", "true", "must be false, or left out"),
        ("group.protocol", "consumer", "must be classic, or left out"),
        *(
            (name, "x", "Sexton itself decides, leave it out")
            for name in (
                *("transactional.id", "auto.offset.reset", "enable.partition.eof", "group.id"),
                *("group.instance.id", "session.timeout.ms", "heartbeat.interval.ms"),
                *("max.poll.interval.ms", "partition.assignment.strategy"),
            )
        ),
    ],
)
def test_p_6_what_sexton_rests_on_is_not_set_by_others(name: str, value: str, reported: str) -> None:
    """P-6: under every alias: an unread event, a lost number or a second holder could delete what lives."""
    with pytest.raises(InvalidSettings) as refused:
        load({"SEXTON_KAFKA_EXTRA": json.dumps({"client.id": "me", name: value})})

    assert str(refused.value) == f"SEXTON_KAFKA_EXTRA (environment): {reported}: {name}"


def test_p_6_what_sexton_sets_itself_may_be_said() -> None:
    """P-6: in the forms that librdkafka takes: a list of properties may be made for all programs."""
    given = {"acks": "-1", "enable.idempotence": "True", "isolation.level": "read_committed"}
    given |= {"enable.auto.commit": "FALSE", "partitioner": "murmur2_random", "group.protocol": "classic"}
    assert load({"SEXTON_KAFKA_EXTRA": json.dumps(given)}).kafka_extra == given


def test_a_file_and_a_flag_are_named_as_sources(tmp_path: Path) -> None:
    """Where the value stands is where it has to be mended."""
    file = tmp_path / "sexton.toml"
    file.write_text('issuer_url = "issuer:8350"\n')
    with pytest.raises(InvalidSettings, match=r"SEXTON_ISSUER_URL \(file .*sexton.toml\)"):
        load({"SEXTON_CONFIG": str(file)})
    with pytest.raises(InvalidSettings, match=r"SEXTON_METRICS_PORT \(flag\)"):
        load({}, metrics_port=-1)


def test_a_password_is_in_no_traceback() -> None:
    """A value that may hold a password is shown nowhere, also not by the error underneath."""
    password = secrets.token_hex(8)
    with pytest.raises(InvalidSettings) as refused:
        load({"SEXTON_REDIS_URL": f"user:{password}@cache:6379", "SEXTON_KAFKA_EXTRA": f'["{password}"]'})

    assert password not in "".join(traceback.format_exception(refused.value))


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("ALOW", "did you mean SEXTON_ALLOW? docs/settings.md lists every setting"),
        ("KAFKA_BOOTSTRAP_SERVER", "did you mean SEXTON_KAFKA_BOOTSTRAP_SERVERS? docs/"),
        ("REAPER_CORE", "did you mean SEXTON_REAPER_CORES? docs/"),
        ("NOTHING_LIKE_IT", "docs/settings.md lists every setting"),
    ],
)
def test_a_misspelt_name_is_refused_with_the_one_that_was_meant(name: str, hint: str, tmp_path: Path) -> None:
    """In the environment and in a file, with the closest name where one is close."""
    file = tmp_path / "sexton.toml"
    file.write_text(f'{name.lower()} = "x"\n')
    for environ in ({f"SEXTON_{name}": "x"}, {"SEXTON_CONFIG": str(file)}):
        with pytest.raises(InvalidSettings, match=f"^unknown .*: SEXTON_{name}$") as refused:
            load(environ)
        assert str(refused.value.hint).startswith(hint)


@pytest.mark.parametrize(
    "name",
    [
        "issuer_token",
        "issuer_tokens",
        "issuer_url",
        "s3_endpoint_url",
        "schema_registry_url",
        "redis_url",
        "kafka_extra",
    ],
)
def test_a_secret_of_the_wrong_kind_is_not_told(name: str, tmp_path: Path) -> None:
    """In a file a value can be a list: the message names the setting, the file and what is needed."""
    password = secrets.token_hex(8)
    file = tmp_path / "sexton.toml"
    file.write_text(f'{name} = ["{password}"]\n')

    with pytest.raises(InvalidSettings) as refused:
        load({"SEXTON_CONFIG": str(file)})

    told = "".join(traceback.format_exception(refused.value))
    assert f"SEXTON_{name.upper()} (file {file})" in told
    assert password not in told


@pytest.mark.parametrize("content", [b"s3_region = ", b"s3_region = '\xff'"], ids=["cut", "not utf-8"])
def test_a_file_that_is_no_toml_is_refused(content: bytes, tmp_path: Path) -> None:
    """A file that was saved in part, or in another encoding, is named; a missing one, too."""
    file = tmp_path / "sexton.toml"
    with pytest.raises(InvalidSettings, match="cannot be read"):
        load({"SEXTON_CONFIG": str(file)})
    file.write_bytes(content)
    with pytest.raises(InvalidSettings, match=f"is not TOML: {file}"):
        load({"SEXTON_CONFIG": str(file)})


@pytest.mark.parametrize("name", ["s3_region", "SEXTON_S3_REGION", "sexton_s3_region", "S3_Region"])
def test_names_in_a_file_may_be_those_of_the_variables(name: str, tmp_path: Path) -> None:
    """With the prefix or without, in any case."""
    file = tmp_path / "sexton.toml"
    file.write_text(f'{name} = "eu-west-3"\n')

    assert load({"SEXTON_CONFIG": str(file)}).s3_region == "eu-west-3"


def test_another_process_is_given_the_same_settings() -> None:
    """What is handed on as variables is read there as it was, lists, objects and secrets too."""
    given = load(
        {
            "SEXTON_ALLOW": '["bucket/a b/", "other"]',
            "SEXTON_KAFKA_EXTRA": '{"sasl.password": "a \\"b\\""}',
            "SEXTON_REAPER_DEFER_DELAYS_S": "[30, 5]",
            "SEXTON_ISSUER_TOKEN": "token",
            "SEXTON_REDIS_URL": "redis://:secret@127.0.0.1:6379/0",
            "SEXTON_REAPER_ALLOW_BYPASS": "true",
            "SEXTON_METRICS_PORT": "0",
        }
    )

    handed = given.environment()

    assert load(handed) == given
    assert {name for name in handed if not name.startswith("SEXTON_") or name != name.upper()} == set()
    assert given.kafka_extra == {"sasl.password": 'a "b"'}
    assert given.reaper_defer_delays_s == (5.0, 30.0)
