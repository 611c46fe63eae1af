"""What SEXTON_KAFKA_EXTRA says of the brokers and the login, in the words of Kafka's Java client.

Its properties are librdkafka's. Spark's own client logs in with the same ones, or is refused before Spark
starts: what is dropped here in silence would make a connection weaker, or another one.
"""

from __future__ import annotations

from collections.abc import Mapping

from sexton.streaming_jobs.java_client.given import Given
from sexton.streaming_jobs.java_client.sasl import sasl_properties
from sexton.streaming_jobs.java_client.tls import tls_properties

__all__ = ["java_properties"]

_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_LOOKUPS = ("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only")


def java_properties(brokers: str, extra: Mapping[str, str]) -> dict[str, str]:
    """Return the Java client's properties for `extra`, librdkafka's: the brokers and how to log in.

    What is about neither (time-outs, sizes of queues) is left out. Files of certificates and keys are read.
    Raises InvalidSettings that names a property which Java's client does not have, or a file without use.
    """
    given = Given.of(extra)
    given.refuse_unknown()
    protocol = given.get("security.protocol", "plaintext").upper()
    if protocol not in _PROTOCOLS:
        raise given.refused("no such protocol", "security.protocol", f"one of {', '.join(_PROTOCOLS)}")
    java = {
        "bootstrap.servers": given.get("bootstrap.servers", brokers),
        "security.protocol": protocol,
    }
    if lookup := given.get("client.dns.lookup"):
        if lookup.lower() not in _LOOKUPS:
            raise given.refused("no such lookup", "client.dns.lookup", f"one of {', '.join(_LOOKUPS)}")
        java["client.dns.lookup"] = lookup.lower()
    # Under another protocol neither client looks at what is there for these.
    if protocol.endswith("SSL"):
        java |= tls_properties(given)
    if protocol.startswith("SASL"):
        java |= sasl_properties(given)
    return java
