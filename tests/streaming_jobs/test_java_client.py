"""P-6: librdkafka's properties of a login in the words of the Java client; what it cannot do is refused."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support import librdkafka
from tests.support.certificates import authority
from tests.support.java_properties import BROKERS, OAUTH, OIDC, SASL, TLS, java

from sexton.schemas.errors import InvalidSettings
from sexton.streaming_jobs.java_client import given


def test_p_6_what_is_not_about_the_login_is_left_out() -> None:
    """P-6: time-outs and queues are librdkafka's own; the brokers and their names are both clients'."""
    given = {
        "socket.timeout.ms": "5000",
        "queue.buffering.max.messages": "10",
        "message.max.bytes": "1000000",
        "client.id": "me",
        "broker.address.family": "v4",
        "client.dns.lookup": "resolve_canonical_bootstrap_servers_only",
    }

    assert java(given) == {
        "bootstrap.servers": BROKERS,
        "security.protocol": "PLAINTEXT",
        "client.dns.lookup": "resolve_canonical_bootstrap_servers_only",
    }


@pytest.mark.parametrize("name", ["bootstrap.servers", "metadata.broker.list"])
def test_p_6_brokers_in_the_properties_go_before_the_setting(name: str) -> None:
    """P-6: under either name, as in librdkafka."""
    assert java({name: "other:9092"})["bootstrap.servers"] == "other:9092"


@pytest.mark.parametrize("alias", ["sasl.mechanism", "sasl.mechanisms"])
@pytest.mark.parametrize(
    ("mechanism", "module"),
    [("PLAIN", "plain.Plain"), ("SCRAM-SHA-256", "scram.Scram"), ("SCRAM-SHA-512", "scram.Scram")],
)
def test_p_6_a_login_by_password_has_its_module(alias: str, mechanism: str, module: str) -> None:
    """P-6: each mechanism under both names; what a quoted text cannot hold is escaped."""
    found = java(SASL, {alias: mechanism, "sasl.username": "me", "sasl.password": ' \\"\n'})

    assert found == {
        "bootstrap.servers": BROKERS,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f"org.apache.kafka.common.security.{module}LoginModule required"
        ' username="me" password="\\\\\\"\\n";',
    }


def test_p_6_kerberos_is_a_keytab_or_the_cache_of_tickets(tmp_path: Path) -> None:
    """P-6: GSSAPI is the mechanism by default, the service `kafka`."""
    keytab = tmp_path / "sexton.keytab"
    keytab.write_bytes(b"\x05\x02")
    module = "com.sun.security.auth.module.Krb5LoginModule required"

    cached = java(SASL)
    named = java(SASL, {"sasl.kerberos.principal": "sexton@X"})
    kept = java(
        SASL,
        {
            "sasl.mechanism": "GSSAPI",
            "sasl.kerberos.service.name": "brokers",
            "sasl.kerberos.principal": "sexton@X",
            "sasl.kerberos.keytab": str(keytab),
            "sasl.kerberos.min.time.before.relogin": "30000",
        },
    )

    assert cached["sasl.mechanism"] == "GSSAPI"
    assert cached["sasl.kerberos.service.name"] == "kafka"
    assert cached["sasl.jaas.config"] == f'{module} useTicketCache="true" doNotPrompt="true";'
    assert 'principal="sexton@X"' in named["sasl.jaas.config"]
    assert kept["sasl.kerberos.service.name"] == "brokers"
    assert kept["sasl.kerberos.min.time.before.relogin"] == "30000"
    assert kept["sasl.jaas.config"] == (
        f'{module} useKeyTab="true" storeKey="true" keyTab="{keytab}" principal="sexton@X"'
        ' doNotPrompt="true";'
    )


def test_p_6_tokens_of_an_endpoint() -> None:
    """P-6: OIDC by its client's secret, with scope, extensions and the endpoint's own authority."""
    more = {
        "sasl.oauthbearer.scope": "a b",
        "sasl.oauthbearer.extensions": "logicalCluster=lkc-1, identityPoolId=pool-2",
        "sasl.oauthbearer.token.endpoint.url": "https://issuer/token",
        "https.ca.location": str(authority().bundle),
    }
    found = java(OIDC, more)
    escaped = json.dumps(authority().bundle.read_text(encoding="ascii"))

    assert found["sasl.login.callback.handler.class"] == (
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
    )
    assert found["sasl.oauthbearer.token.endpoint.url"] == "https://issuer/token"
    assert found["sasl.jaas.config"] == (
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
        ' clientId="sexton" clientSecret="se\\"cret" scope="a b" extension_logicalCluster="lkc-1"'
        f' extension_identityPoolId="pool-2" ssl.truststore.type="PEM" ssl.truststore.certificates={escaped};'
    )


def test_p_6_the_credentials_of_a_client_have_two_names() -> None:
    """P-6: as librdkafka has them."""
    renamed = {
        name.replace("bearer.client.", "bearer.client.credentials.client."): v for name, v in OIDC.items()
    }

    assert renamed != OIDC
    assert java(renamed) == java(OIDC)


def test_p_6_unsigned_tokens_for_trials() -> None:
    """P-6: each part of `sasl.oauthbearer.config` has its place."""
    claims = "principalClaimName=azp principal=me scopeClaimName=roles scope=a,b"
    config = f"{claims} lifeSeconds=60 extension_traceId=1"
    unsigned = {"enable.sasl.oauthbearer.unsecure.jwt": "true"}
    found = java(OAUTH, unsigned, {"sasl.oauthbearer.config": config})

    assert "sasl.login.callback.handler.class" not in found
    for part in (
        'unsecuredLoginPrincipalClaimName="azp"',
        'unsecuredLoginStringClaim_azp="me"',
        'unsecuredLoginScopeClaimName="roles"',
        'unsecuredLoginListClaim_roles=",a,b"',
        'unsecuredLoginLifetimeSeconds="60"',
        'extension_traceId="1"',
    ):
        assert part in found["sasl.jaas.config"]


def without(properties: dict[str, str], name: str) -> dict[str, str]:
    """The properties but for one."""
    return {each: value for each, value in properties.items() if each != name}


UNKNOWN = [
    "ssl.cipher.suites",
    "ssl.curves.list",
    "ssl.sigalgs.list",
    "ssl.crl.location",
    "ssl.engine.id",
    "ssl.engine.location",
    "ssl.providers",
    "ssl.ca.certificate.stores",
    "ssl.something.new",
    "ssl_engine_callback_data",
    "https.something.new",
    "enable.ssl.something.new",
    "security.something.new",
    "sasl.something.new",
    "sasl.jaas.config",
    "sasl.kerberos.kinit.cmd",
    "sasl.oauthbearer.assertion.private.key.file",
    "sasl.oauthbearer.metadata.authentication.type",
]
VERIFIED, METHOD = "enable.ssl.certificate.verification", "sasl.oauthbearer.method"
UNSIGNED, CONFIG = "enable.sasl.oauthbearer.unsecure.jwt", "sasl.oauthbearer.config"
ENDPOINT, GRANT = "sasl.oauthbearer.token.endpoint.url", "sasl.oauthbearer.grant.type"
SECRET, EXTENSIONS = "sasl.oauthbearer.client.secret", "sasl.oauthbearer.extensions"
HOST = "ssl.endpoint.identification.algorithm"
REFUSED: dict[str, tuple[dict[str, str], str]] = {
    **{name: ({name: "x"}, name) for name in UNKNOWN},
    "no verification": ({**TLS, VERIFIED: "F"}, VERIFIED),
    "no switch": ({**TLS, VERIFIED: "no"}, VERIFIED),
    "a protocol": ({"security.protocol": "tls"}, "security.protocol"),
    "a lookup": ({"client.dns.lookup": "default"}, "client.dns.lookup"),
    "a mechanism": ({**SASL, "sasl.mechanism": "AWS_MSK_IAM"}, "sasl.mechanisms"),
    "two mechanisms": ({**SASL, "sasl.mechanism": "PLAIN", "sasl.mechanisms": "GSSAPI"}, "sasl.mechanisms"),
    "two clusters": ({"bootstrap.servers": "a:1", "metadata.broker.list": "b:1"}, "bootstrap.servers"),
    "no user": ({**SASL, "sasl.mechanism": "PLAIN", "sasl.password": "x"}, "sasl.username"),
    "no password": ({**SASL, "sasl.mechanism": "SCRAM-SHA-256", "sasl.username": "x"}, "sasl.password"),
    "no tokens": (OAUTH, METHOD),
    "a method": ({**OAUTH, METHOD: "aws"}, METHOD),
    "two methods": ({**OIDC, UNSIGNED: "1"}, UNSIGNED),
    "a grant": ({**OIDC, GRANT: "urn:ietf:params:oauth:grant-type:jwt-bearer"}, GRANT),
    "no endpoint": ({**OIDC, ENDPOINT: ""}, ENDPOINT),
    "no secret": ({**OIDC, SECRET: ""}, SECRET),
    "an extension": ({**OIDC, EXTENSIONS: "trace_id=1"}, EXTENSIONS),
    "no pair": ({**OIDC, EXTENSIONS: "trace"}, EXTENSIONS),
    "no claims": ({**OAUTH, UNSIGNED: "true"}, CONFIG),
    "a claim": ({**OAUTH, UNSIGNED: "true", CONFIG: "user=me"}, CONFIG),
    "no principal": ({**OAUTH, UNSIGNED: "true", CONFIG: "scope=a"}, CONFIG),
    "an algorithm": ({**TLS, HOST: "ldaps"}, HOST),
    "no authority": ({**TLS, "ssl.ca.pem": "x"}, "ssl.ca.pem"),
    "a key alone": ({**TLS, "ssl.key.pem": "x"}, "ssl.certificate.location"),
    "a certificate alone": ({**TLS, "ssl.certificate.pem": "x"}, "ssl.key.location"),
}


# What a name of a property about the login, or about who is who, has in it.
ABOUT_THE_LOGIN = re.compile(r"ssl|sasl|tls|https|secur|oauth|cert|kerb|krb|passw|secret|token|jwt|cred|auth")
ALIASES = {alias: name for alias, name in librdkafka.properties().items() if name is not None}
# For both names of a thing: a login in which it counts, and a value.
SAID_TWICE: dict[str, tuple[dict[str, str], str]] = {
    "bootstrap.servers": ({}, "other:9092"),
    "sasl.mechanism": ({**SASL, "sasl.username": "me", "sasl.password": "p"}, "PLAIN"),
    "sasl.oauthbearer.client.credentials.client.id": (without(OIDC, "sasl.oauthbearer.client.id"), "other"),
    "sasl.oauthbearer.client.credentials.client.secret": (
        without(OIDC, "sasl.oauthbearer.client.secret"),
        "other",
    ),
}


@pytest.mark.parametrize("name", sorted(filter(ABOUT_THE_LOGIN.search, librdkafka.properties())))
def test_p_6_each_property_about_the_login_that_librdkafka_has_is_known_or_refused(name: str) -> None:
    """P-6: of the very library that logs in beside Spark: a new version's properties are never dropped."""
    if name not in given._KNOWN and name not in given._ALIASES:
        with pytest.raises(InvalidSettings, match=rf"cannot do that: {re.escape(name)}$"):
            java({name: "x"})


@pytest.mark.parametrize("alias", sorted(ALIASES))
def test_p_6_each_alias_that_librdkafka_has_means_the_same(alias: str) -> None:
    """P-6: what is about the login or the brokers is so under both names; the rest is left out."""
    login, value = SAID_TWICE.get(alias, ({}, "x"))
    bare = java(login) if alias not in SAID_TWICE else None
    one, other = java(login, {alias: value}), java(login, {ALIASES[alias]: value})

    assert one == other
    assert one == bare or (bare is None and any(value in each for each in one.values()))


@pytest.mark.parametrize("value", ["SASL_SSL", "sasl_ssl", "Sasl_Ssl"])
def test_p_6_a_protocol_is_read_in_either_case(value: str) -> None:
    """P-6: as librdkafka reads it."""
    login = {"sasl.mechanisms": "PLAIN", "sasl.username": "me", "sasl.password": "p"}
    assert java(login, {"security.protocol": value})["security.protocol"] == "SASL_SSL"


@pytest.mark.parametrize("case", REFUSED)
def test_p_6_what_the_java_client_cannot_do_is_refused_by_name(case: str) -> None:
    """P-6: never dropped, the name last, and what to do; a wrong value is named, too."""
    given, name = REFUSED[case]

    with pytest.raises(InvalidSettings, match=r"^SEXTON_KAFKA_EXTRA: ") as refused:
        java(given)

    assert str(refused.value).endswith(f": {name}")
    assert refused.value.hint
    assert refused.value.exit_code == 2


def test_p_6_a_login_that_is_not_used_is_not_looked_at() -> None:
    """P-6: without TLS no certificate is read, without SASL no password asked for, as in librdkafka."""
    given = {"ssl.ca.location": "/nowhere", "sasl.mechanism": "PLAIN"}

    assert set(java(given)) == {"bootstrap.servers", "security.protocol"}


def test_p_6_the_reaper_refuses_before_anything_starts(
    cli: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    """P-6: exit 2 with the property's name and no secret, before Kafka or Spark is asked for."""
    extra = {**TLS, "ssl.cipher.suites": "ECDHE-RSA-AES256-GCM-SHA384", "sasl.password": "hunter2"}

    done = cli("reaper", "run", "--once", env={"SEXTON_KAFKA_EXTRA": json.dumps(extra)})

    assert done.returncode == 2
    assert "cannot do that: ssl.cipher.suites" in done.stderr
    assert "hunter2" not in done.stderr
