"""P-6: librdkafka's properties of a login in the words of the Java client; what it cannot do is refused."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives import serialization
from tests.support.certificates import authority

from sexton.schemas.errors import InvalidSettings
from sexton.streaming_jobs.java_client import java_properties, tls

BROKERS = "kafka-1:9092"
TLS = {"security.protocol": "ssl"}
SASL = {"security.protocol": "sasl_plaintext"}
OAUTH = {**SASL, "sasl.mechanisms": "OAUTHBEARER"}
OIDC = {
    **OAUTH,
    "sasl.oauthbearer.method": "OIDC",
    "sasl.oauthbearer.client.id": "sexton",
    "sasl.oauthbearer.client.secret": 'se"cret',
    "sasl.oauthbearer.token.endpoint.url": "http://issuer/token",
}


def java(*parts: dict[str, str]) -> dict[str, str]:
    """The Java client's properties for these."""
    given: dict[str, str] = {}
    for part in parts:
        given |= part
    return java_properties(BROKERS, given)


def leaf(folder: Path, form: serialization.PrivateFormat, password: bytes | None = None) -> dict[str, str]:
    """A client's certificate and its key in a form, as files."""
    issued = trustme.CA().issue_cert("client.example")
    private = serialization.load_pem_private_key(issued.private_key_pem.bytes(), None)
    encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if password is not None:
        encryption = serialization.BestAvailableEncryption(password)
    key = private.private_bytes(serialization.Encoding.PEM, form, encryption)
    (folder / "client.key").write_bytes(b"of a client\n" + key.rstrip())
    issued.cert_chain_pems[0].write_to_path(folder / "client.pem")
    return {
        **TLS,
        "ssl.certificate.location": str(folder / "client.pem"),
        "ssl.key.location": str(folder / "client.key"),
    }


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


def test_p_6_whom_to_trust_is_the_file_and_the_text() -> None:
    """P-6: both together, as librdkafka takes them, in each form that OpenSSL reads."""
    text = authority().bundle.read_text(encoding="ascii")
    given = {
        "ssl.ca.location": str(authority().bundle),
        "ssl.ca.pem": text.rstrip().replace("CERTIFICATE", "X509 CERTIFICATE"),
    }

    found = java(TLS, given)

    assert found["ssl.truststore.type"] == "PEM"
    assert found["ssl.truststore.certificates"] == text * 2


@pytest.mark.parametrize("given", [{}, {"ssl.ca.location": "probe"}])
def test_p_6_without_an_authority_the_systems_are_trusted(
    given: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """P-6: those that librdkafka finds, and Java's own only where there are none."""
    bundle = str(authority().bundle)
    monkeypatch.setattr(tls, "PROBED", (str(tmp_path / "nowhere"), bundle, "/other"))
    found = java(TLS, given)
    monkeypatch.setattr(tls, "PROBED", (str(tmp_path / "nowhere"),))
    bare = java(TLS, given)

    assert (found["ssl.truststore.type"], found["ssl.truststore.location"]) == ("PEM", bundle)
    assert not any("truststore" in name for name in bare)


def test_p_6_a_client_is_known_by_its_certificate(tmp_path: Path) -> None:
    """P-6: from files or text; a password that no key needs is none."""
    given = leaf(tmp_path, serialization.PrivateFormat.PKCS8)
    inline = {
        "ssl.certificate.pem": (tmp_path / "client.pem").read_text(encoding="ascii"),
        "ssl.key.pem": (tmp_path / "client.key").read_text(encoding="ascii"),
    }

    found = java(given, {"ssl.key.password": "unneeded"})

    assert found == java(TLS, inline)
    assert found["ssl.keystore.type"] == "PEM"
    assert found["ssl.keystore.certificate.chain"].startswith("-----BEGIN CERTIFICATE-----\n")
    assert found["ssl.keystore.key"].startswith("-----BEGIN PRIVATE KEY-----\n")
    assert found["ssl.keystore.key"].endswith("-----END PRIVATE KEY-----\n")
    assert "ssl.key.password" not in found


def test_p_6_a_store_of_the_clients_certificate_is_pkcs12(tmp_path: Path) -> None:
    """P-6: librdkafka's `ssl.keystore.location` is a PKCS#12 file, Java's one of several kinds."""
    store = tmp_path / "client.p12"
    store.write_bytes(b"\x30\x82\xff")

    found = java(TLS, {"ssl.keystore.location": str(store), "ssl.keystore.password": "p"})

    assert found["ssl.keystore.type"] == "PKCS12"
    assert found["ssl.keystore.location"] == str(store)
    assert found["ssl.keystore.password"] == "p"


@pytest.mark.parametrize(
    ("given", "java_value"), [("none", ""), ("NONE", ""), ("https", "https"), (None, "https")]
)
def test_p_6_the_hosts_name_is_asked_for_unless_it_is_turned_off(given: str | None, java_value: str) -> None:
    """P-6: Java says "none" with an empty text."""
    name = "ssl.endpoint.identification.algorithm"

    assert java(TLS, {name: given} if given else {})[name] == java_value


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


@pytest.mark.parametrize("case", REFUSED)
def test_p_6_what_the_java_client_cannot_do_is_refused_by_name(case: str) -> None:
    """P-6: never dropped, the name last, and what to do; a wrong value is named, too."""
    given, name = REFUSED[case]

    with pytest.raises(InvalidSettings, match=r"^SEXTON_KAFKA_EXTRA: ") as refused:
        java(given)

    assert str(refused.value).endswith(f": {name}")
    assert refused.value.hint
    assert refused.value.exit_code == 2


@pytest.mark.parametrize(
    "name",
    ["ssl.ca.location", "ssl.certificate.location", "ssl.key.location", "ssl.keystore.location",
     "https.ca.location", "sasl.kerberos.keytab"],
)  # fmt: skip
def test_p_6_a_file_that_is_missing_is_named(tmp_path: Path, name: str) -> None:
    """P-6: with the property and the path, at the start."""
    missing = str(tmp_path / "missing")
    given: dict[str, str]
    if name.startswith("ssl."):
        given = leaf(tmp_path, serialization.PrivateFormat.PKCS8) if "store" not in name else TLS
    elif name.startswith("https."):
        given = {**OIDC, "sasl.oauthbearer.token.endpoint.url": "https://issuer"}
    else:
        given = SASL

    with pytest.raises(InvalidSettings, match="No such file") as refused:
        java(given, {name: missing})

    assert name in str(refused.value)
    assert str(refused.value).endswith(f": {missing}")


@pytest.mark.parametrize(
    ("form", "password", "why"),
    [
        (serialization.PrivateFormat.TraditionalOpenSSL, None, "openssl pkcs8 -topk8"),
        (serialization.PrivateFormat.TraditionalOpenSSL, b"p", "openssl pkcs8 -topk8"),
        (serialization.PrivateFormat.PKCS8, b"p", "openssl pkcs12 -export"),
    ],
    ids=["another form", "another form, encrypted", "another encryption"],
)
def test_p_6_a_key_that_java_cannot_read_is_refused(
    tmp_path: Path, form: serialization.PrivateFormat, password: bytes | None, why: str
) -> None:
    """P-6: with the command that makes one which it can."""
    given = leaf(tmp_path, form, password)

    with pytest.raises(InvalidSettings, match=r": ssl.key.location$") as refused:
        java(given, {"ssl.key.password": "p"})

    assert why in (refused.value.hint or "")


def test_p_6_an_encrypted_key_needs_its_password(tmp_path: Path) -> None:
    """P-6: Java would call the key invalid."""
    given = leaf(tmp_path, serialization.PrivateFormat.PKCS8)
    new = str(tmp_path / "locked.key")
    command = ["openssl", "pkcs8", "-topk8", "-v1", "PBE-SHA1-3DES", "-passout", "pass:p", "-out", new]
    subprocess.run([*command, "-in", given["ssl.key.location"]], check=True, capture_output=True, timeout=60)
    locked = {**given, "ssl.key.location": new}

    with pytest.raises(InvalidSettings, match=r": ssl.key.password$"):
        java(locked)
    assert java(locked, {"ssl.key.password": "p"})["ssl.key.password"] == "p"


def test_p_6_one_certificate_is_said_once(tmp_path: Path) -> None:
    """P-6: of two, librdkafka takes the second in silence."""
    given = leaf(tmp_path, serialization.PrivateFormat.PKCS8)
    store = {"ssl.keystore.location": given["ssl.key.location"], "ssl.keystore.password": "p"}

    for more in ({"ssl.key.pem": "x"}, {"ssl.certificate.pem": "x"}, store):
        with pytest.raises(InvalidSettings, match=r"too: |say it once"):
            java(given, more)


def test_p_6_a_folder_without_certificates_is_refused(tmp_path: Path) -> None:
    """P-6: OpenSSL looks at hashed names alone, and so does this."""
    (tmp_path / "ca.pem").write_bytes(authority().bundle.read_bytes())

    with pytest.raises(InvalidSettings, match=r"no certificate in it: ssl\.ca\.location") as refused:
        java(TLS, {"ssl.ca.location": str(tmp_path)})

    assert "openssl rehash" in (refused.value.hint or "")


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
