"""P-6: the Java client of Spark and librdkafka log in to a real broker with the same properties."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession
from tests.support.certificates import authority, server_context
from tests.support.secured_broker import PASSWORD, USER, SecuredBroker

from sexton.schemas.settings import Settings, load
from sexton.streaming_jobs.java_client import java_properties
from sexton.streaming_jobs.spark import kafka_source_options

pytestmark = [pytest.mark.real, pytest.mark.spark, pytest.mark.faults]
ELSEWHERE = {"ssl.endpoint.identification.algorithm": "none"}


def settings_for(broker: SecuredBroker, listener: str, extra: dict[str, str]) -> Settings:
    """Settings that lead to a listener."""
    named = {"SEXTON_KAFKA_BOOTSTRAP_SERVERS": broker.at[listener], "SEXTON_KAFKA_EXTRA": json.dumps(extra)}
    return load(named)


def seen_by_java(spark: SparkSession, properties: dict[str, str]) -> set[str]:
    """The topics that Spark's own Kafka client sees."""
    jvm: Any = spark._jvm
    java = jvm.java.util.Properties()
    for name, value in {
        **properties,
        "default.api.timeout.ms": "20000",
        "request.timeout.ms": "10000",
    }.items():
        java.setProperty(name, value)
    admin = jvm.org.apache.kafka.clients.admin.AdminClient.create(java)
    try:
        return set(admin.listTopics().names().get())
    finally:
        admin.close()


def both_log_in(spark: SparkSession, settings: Settings) -> None:
    """Both clients see the topic."""
    python = AdminClient(settings.kafka(log_level=0)).list_topics(timeout=20)
    assert "letters" in python.topics
    assert "letters" in seen_by_java(
        spark, java_properties(settings.kafka_bootstrap_servers, settings.kafka_extra)
    )


def mutual(broker: SecuredBroker, **more: str) -> dict[str, str]:
    """The properties of a login by certificate."""
    given = {
        "security.protocol": "ssl",
        "ssl.ca.location": str(broker.folder / "ca.pem"),
        "ssl.certificate.location": str(broker.folder / "client.pem"),
        "ssl.key.location": str(broker.folder / "client.key"),
        **ELSEWHERE,
        **more,
    }
    return {name: value for name, value in given.items() if value}


def texts(broker: SecuredBroker) -> dict[str, str]:
    """Certificates and key as text in the settings."""
    files = {"ssl.ca.pem": "ca.pem", "ssl.certificate.pem": "client.pem", "ssl.key.pem": "client.key"}
    read = {name: (broker.folder / file).read_text(encoding="ascii") for name, file in files.items()}
    return {"security.protocol": "SSL", **ELSEWHERE, **read}


def store(broker: SecuredBroker) -> dict[str, str]:
    """Certificate and key in one PKCS#12 file."""
    named = {"ssl.keystore.location": str(broker.folder / "client.p12"), "ssl.keystore.password": PASSWORD}
    return mutual(broker, **{"ssl.certificate.location": "", "ssl.key.location": ""}) | named


def locked(broker: SecuredBroker) -> dict[str, str]:
    """An encrypted key."""
    key = {"ssl.key.location": str(broker.folder / "client-locked.key"), "ssl.key.password": PASSWORD}
    return mutual(broker, **key)


def folder(broker: SecuredBroker) -> dict[str, str]:
    """The authorities in a folder, as OpenSSL sees one."""
    hashed = broker.folder / "authorities"
    hashed.mkdir(exist_ok=True)
    command = ["openssl", "x509", "-noout", "-hash", "-in", str(broker.folder / "ca.pem")]
    name = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    (hashed / f"{name}.0").write_bytes((broker.folder / "ca.pem").read_bytes())
    return mutual(broker, **{"ssl.ca.location": str(hashed)})


@pytest.mark.parametrize("of", [mutual, texts, store, locked, folder], ids=lambda of: of.__name__)
def test_p_6_both_clients_log_in_by_certificate(spark: SparkSession, broker: SecuredBroker, of: Any) -> None:
    """P-6: mutual TLS with PEM files, texts, an encrypted key or a PKCS#12 file; the host's name is not
    asked for.
    """
    both_log_in(spark, settings_for(broker, "TLS", of(broker)))


def test_p_6_both_clients_refuse_a_broker_of_another_name(spark: SparkSession, broker: SecuredBroker) -> None:
    """P-6: unless it is turned off, the broker's certificate has to name its host, for both."""
    given = mutual(broker, **{"ssl.endpoint.identification.algorithm": "https"})
    settings = settings_for(broker, "TLS", given)

    with pytest.raises(Exception, match="Failed to get metadata"):
        AdminClient(settings.kafka(log_level=0)).list_topics(timeout=3)
    with pytest.raises(Exception, match="SSL handshake failed"):
        seen_by_java(spark, java_properties(settings.kafka_bootstrap_servers, settings.kafka_extra))


@pytest.mark.parametrize("alias", ["sasl.mechanism", "sasl.mechanisms"])
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_p_6_both_clients_log_in_by_password(
    spark: SparkSession, broker: SecuredBroker, mechanism: str, alias: str
) -> None:
    """P-6: PLAIN and SCRAM under either name of the mechanism, with quotes in the password."""
    given = {
        "security.protocol": "sasl_plaintext",
        alias: mechanism,
        "sasl.username": USER,
        "sasl.password": PASSWORD if mechanism == "PLAIN" else mechanism,
    }
    both_log_in(spark, settings_for(broker, "PASSWORD", given))


def test_p_6_both_clients_log_in_with_unsigned_tokens(spark: SparkSession, broker: SecuredBroker) -> None:
    """P-6: OAUTHBEARER with the claims of `sasl.oauthbearer.config`."""
    given = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanisms": "OAUTHBEARER",
        "enable.sasl.oauthbearer.unsecure.jwt": "true",
        "sasl.oauthbearer.config": f"principal={USER} scope=one,two lifeSeconds=900 extension_traceId=7",
    }
    both_log_in(spark, settings_for(broker, "UNSIGNED", given))


@pytest.mark.parametrize("secured", [False, True], ids=["http", "https"])
def test_p_6_both_clients_log_in_with_tokens_of_an_endpoint(
    spark: SparkSession, broker: SecuredBroker, secured: bool
) -> None:
    """P-6: OAUTHBEARER with method oidc asks the endpoint for the scope, with the client's secret; its
    authority is named apart from that of the brokers.
    """
    broker.tokens.asked.clear()
    with broker.tokens.served(server_context() if secured else None) as url:
        given = {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.client.id": "sexton",
            "sasl.oauthbearer.client.secret": PASSWORD,
            "sasl.oauthbearer.token.endpoint.url": url,
            "sasl.oauthbearer.scope": "topics",
            "sasl.oauthbearer.extensions": "traceId=7",
        }
        if secured:
            given["https.ca.location"] = str(authority().bundle)
        settings = settings_for(broker, "OIDC", given)
        client = AdminClient(settings.kafka(log_level=0))
        client.poll(1)
        assert "letters" in client.list_topics(timeout=20).topics
        properties = java_properties(settings.kafka_bootstrap_servers, settings.kafka_extra)
        assert "letters" in seen_by_java(spark, properties)
    assert broker.tokens.asked == ["topics", "topics"]


def test_p_6_spark_reads_over_mutual_tls(spark: SparkSession, broker: SecuredBroker, tmp_path: Path) -> None:
    """P-6: a query of Spark's reads what is there, the brokers named in the properties alone."""
    given = mutual(broker, **{"metadata.broker.list": broker.at["TLS"]})
    settings = load({"SEXTON_KAFKA_EXTRA": json.dumps(given)})
    found: list[str] = []

    def take(rows: Any, number: int) -> None:
        found.extend(bytes(row.value).decode() for row in rows.select("value").collect())

    source = spark.readStream.format("kafka").options(**kafka_source_options(settings, "letters"))
    writer = source.option("startingOffsets", "earliest").load().writeStream.foreachBatch(take)
    query = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    assert sorted(found) == ["a", "b", "c"]
