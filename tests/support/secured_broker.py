"""A real broker that lets in only whom it knows: by certificate, password or token, each by a listener."""

from __future__ import annotations

import base64
import json
import ssl
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import parse_qs

import trustme
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509 import load_pem_x509_certificate
from tests.support.waits import until

from sexton.deploy import jars, java
from sexton.deploy.local import LocalStack, kafka, ports

__all__ = ["LIMITED", "PASSWORD", "USER", "SecuredBroker", "Tokens"]

USER, PASSWORD = "reaper", 'quoted "\\ word'
LIMITED = "limited"  # SCRAM only; to whom rights may be denied
_NAME = "secured-broker"
_LISTENERS = ("PLAIN", "TLS", "PASSWORD", "UNSIGNED", "OIDC")
_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners={listeners},CONTROLLER://127.0.0.1:{controller}
advertised.listeners={listeners}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAIN
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAIN:PLAINTEXT,TLS:SSL,PASSWORD:SASL_PLAINTEXT,\
UNSIGNED:SASL_PLAINTEXT,OIDC:SASL_PLAINTEXT
log.dirs={folder}/data
auto.create.topics.enable=false
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
group.initial.rebalance.delay.ms=0
log.cleaner.dedupe.buffer.size=16777216
group.min.session.timeout.ms=10000
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
allow.everyone.if.no.acl.found=true
super.users=User:ANONYMOUS;User:{name}
listener.name.tls.ssl.client.auth=required
listener.name.tls.ssl.keystore.type=PEM
listener.name.tls.ssl.keystore.location={folder}/broker.pem
listener.name.tls.ssl.truststore.type=PEM
listener.name.tls.ssl.truststore.location={folder}/ca.pem
listener.name.password.sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512
listener.name.password.plain.sasl.jaas.config={security}.plain.PlainLoginModule required {user};
listener.name.password.scram-sha-256.sasl.jaas.config={security}.scram.ScramLoginModule required;
listener.name.password.scram-sha-512.sasl.jaas.config={security}.scram.ScramLoginModule required;
listener.name.unsigned.sasl.enabled.mechanisms=OAUTHBEARER
listener.name.unsigned.oauthbearer.sasl.jaas.config={security}.oauthbearer.OAuthBearerLoginModule required \
unsecuredLoginStringClaim_sub="broker";
listener.name.oidc.sasl.enabled.mechanisms=OAUTHBEARER
listener.name.oidc.oauthbearer.sasl.jaas.config={security}.oauthbearer.OAuthBearerLoginModule required;
listener.name.oidc.oauthbearer.sasl.server.callback.handler.class=\
{security}.oauthbearer.OAuthBearerValidatorCallbackHandler
listener.name.oidc.sasl.oauthbearer.jwks.endpoint.url={keys}
listener.name.oidc.sasl.oauthbearer.expected.audience=kafka
"""
_SECURITY = "org.apache.kafka.common.security"
_JVM = ("-Xms64m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


class SecuredBroker:
    """The broker, a process of the stack; `folder` has the client's certificates and keys in each form.

    The certificate of the broker is for another host. `at` says where each listener is. It allows everything
    but what is denied, and no sessions as short as those of the reaper's lock.
    """

    def __init__(self, stack: LocalStack, folder: Path) -> None:
        self._stack = stack
        self.folder = folder
        chosen = ports.choose(len(_LISTENERS) + 1)
        self.at = {name: f"127.0.0.1:{port}" for name, port in zip(_LISTENERS, chosen, strict=False)}
        self.tokens = Tokens(folder / "keys.json")
        _certificates(folder)
        cache = stack.settings.cache_dir.expanduser()
        allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={self.tokens.keys_url}"
        options = (*_JVM, allowed, "-cp", jars.broker_classpath(cache))
        command = java.find(cache, stack.environment).command(*options)
        self._write(chosen[-1])
        self._format(command)
        process = stack.run(
            _NAME, [*command, "kafka.Kafka", str(folder / "server.properties")], stack.environment
        )
        address = {"bootstrap.servers": self.at["PLAIN"]}
        stack.wait_ready(_NAME, process, lambda: kafka.answers(address))

    def extra(self, user: str) -> dict[str, str]:
        """Return librdkafka's properties by which a user logs in with SCRAM at `PASSWORD`."""
        return {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanisms": "SCRAM-SHA-256",
            "sasl.username": user,
            "sasl.password": "SCRAM-SHA-256",
        }

    def deny(self, kind: ResourceType, prefix: str, operation: AclOperation) -> None:
        """Let the user LIMITED do all but one thing with all of a kind whose names begin with the prefix."""
        pattern, user = ResourcePatternType.PREFIXED, f"User:{LIMITED}"
        kinds = {AclOperation.ALL: AclPermissionType.ALLOW, operation: AclPermissionType.DENY}
        rules = [AclBinding(kind, prefix, pattern, user, "*", what, word) for what, word in kinds.items()]
        admin = AdminClient({"bootstrap.servers": self.at["PLAIN"], "log_level": 0})
        for future in admin.create_acls(rules).values():
            future.result(20)
        wanted = AclBindingFilter(kind, prefix, pattern, user, "*", operation, AclPermissionType.DENY)
        # The controller has it before the broker goes by it.
        until(lambda: bool(admin.describe_acls(wanted).result(20)))

    def stop(self) -> None:
        """End the broker."""
        self._stack.end(_NAME)

    def _write(self, controller: int) -> None:
        secret = PASSWORD.replace("\\", "\\\\").replace('"', '\\"').replace("\\", "\\\\")
        text = _PROPERTIES.format(
            controller=controller,
            listeners=",".join(f"{name}://{where}" for name, where in self.at.items()),
            folder=self.folder,
            name=USER,
            user=f'user_{USER}="{secret}"',
            security=_SECURITY,
            keys=self.tokens.keys_url,
        )
        (self.folder / "server.properties").write_text(text, encoding="utf-8")

    def _format(self, command: list[str]) -> None:
        identity = "x" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode()[1:22]
        users = []
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            for name in (USER, LIMITED):
                users += ["--add-scram", f"{mechanism}=[name={name},password={mechanism}]"]
        properties = str(self.folder / "server.properties")
        arguments = ["format", f"--cluster-id={identity}", "-c", properties, *users]
        subprocess.run(
            [*command, "kafka.tools.StorageTool", *arguments], check=True, capture_output=True, timeout=250
        )


class Tokens:
    """An endpoint that hands out signed tokens to the client `sexton`; `asked` are the scopes asked for."""

    def __init__(self, keys: Path) -> None:
        self.asked: list[str] = []
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        public = self._key.public_key().public_numbers()
        known = {"kty": "RSA", "kid": "1", "alg": "RS256", "use": "sig"}
        known |= {"n": _number(public.n), "e": _number(public.e)}
        keys.write_text(json.dumps({"keys": [known]}), encoding="ascii")
        self.keys_url = keys.as_uri()

    @contextmanager
    def served(self, context: ssl.SSLContext | None = None) -> Iterator[str]:
        """Serve, over TLS with a context, and yield the URL."""
        server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        scheme = "http"
        if context is not None:
            scheme, server.socket = "https", context.wrap_socket(server.socket, server_side=True)
        thread = Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield f"{scheme}://127.0.0.1:{server.server_address[1]}/token"
        finally:
            server.shutdown()
            server.server_close()
            thread.join()

    def _token(self) -> str:
        now = int(time.time())
        claims = {"sub": USER, "aud": "kafka", "iat": now, "exp": now + 3600, "scope": "topics"}
        parts = [{"alg": "RS256", "kid": "1", "typ": "JWT"}, claims]
        signed = ".".join(_url_safe(json.dumps(part).encode()) for part in parts)
        signature = self._key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256())
        return f"{signed}.{_url_safe(signature)}"

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        tokens = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, format: str, *args: object) -> None:
                pass

            def do_POST(self) -> None:
                body = parse_qs(self.rfile.read(int(self.headers.get("Content-Length", 0))).decode())
                login = base64.b64encode(f"sexton:{PASSWORD}".encode()).decode()
                known = self.headers.get("Authorization") == f"Basic {login}"
                tokens.asked += body.get("scope", [])
                answer = {"access_token": tokens._token(), "token_type": "Bearer", "expires_in": 3600}
                data = json.dumps(answer if known else {"error": "invalid_client"}).encode()
                self.send_response(200 if known else 401)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

        return Handler


def _certificates(folder: Path) -> None:
    """Write `ca.pem`, `broker.pem`, and the client's certificate with its key in each form."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "ca.pem")
    broker = authority.issue_cert("broker.elsewhere.example")
    (folder / "broker.pem").write_bytes(_key(broker) + _chain(broker))
    client = authority.issue_cert("client.example")
    (folder / "client.pem").write_bytes(_chain(client))
    (folder / "client.key").write_bytes(_key(client))
    (folder / "client-pbes2.key").write_bytes(_key(client, PASSWORD))
    convert = ["openssl", "pkcs8", "-topk8", "-v1", "PBE-SHA1-3DES", "-passout", f"pass:{PASSWORD}"]
    places = ["-in", str(folder / "client.key"), "-out", str(folder / "client-locked.key")]
    subprocess.run([*convert, *places], check=True, capture_output=True, timeout=150)
    client.private_key_pem.write_to_path(folder / "client-old.key")
    private = serialization.load_pem_private_key(client.private_key_pem.bytes(), None)
    certificate = load_pem_x509_certificate(_chain(client))
    encryption = serialization.BestAvailableEncryption(PASSWORD.encode())
    store = pkcs12.serialize_key_and_certificates(b"client", private, certificate, None, encryption)  # type: ignore[arg-type]
    (folder / "client.p12").write_bytes(store)


def _key(issued: trustme.LeafCert, password: str | None = None) -> bytes:
    """Return the key as PKCS#8."""
    private = serialization.load_pem_private_key(issued.private_key_pem.bytes(), None)
    encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if password is not None:
        encryption = serialization.BestAvailableEncryption(password.encode())
    return private.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)


def _chain(issued: trustme.LeafCert) -> bytes:
    return b"".join(blob.bytes() for blob in issued.cert_chain_pems)


def _number(number: int) -> str:
    return _url_safe(number.to_bytes((number.bit_length() + 7) // 8, "big"))


def _url_safe(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
