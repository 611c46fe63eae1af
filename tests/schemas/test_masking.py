"""What is in a secret's place is reported by no setting that is shown, and by no error."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.schemas.errors import InvalidSettings, SextonError
from sexton.schemas.masking import is_secret, masked
from sexton.schemas.settings import explain, load

MARKER = "hunter2-0123456789"
# What may stand around it in a password without an escape.
around = st.text("abcXYZ019@:,!$&'()*+;=._~-[]%{}|", max_size=6).map(lambda text: text.replace("[", ""))
USER_INFO = ["{0}@", "{0}:@", "user:{0}@", ":{0}@", "{0}:x@", "user:a@{0}@"]
NAMES = ["password", "Password", "p%61ssword", "ssl_password", "token", "access_token", "secret", "pass"]
NAMES += ["api_key", "apikey", "credential", "X-Amz-Signature", "client_secret", "passphrase"]
NAMES += ["api-key", "client_assertion", "passwd", "private_key", "pwd", "signature", "auth"]
NAMES += ["authorization", "sig", "jaas", "key.pem"]
PROPERTIES = ["sasl.password", "ssl.key.password", "ssl.key.pem", "ssl.keystore.password", "ssl.keystore.key"]
PROPERTIES += ["sasl.oauthbearer.token", "sasl.oauthbearer.client.secret", "sasl.oauthbearer.config"]
PROPERTIES += ["sasl.oauthbearer.assertion.private.key.passphrase", "sasl.jaas.config", "Some.Credential"]
PROPERTIES += ["sasl.oauthbearer.client.credentials.client.secret", "ssl.truststore.passphrase"]
SCHEMES = {
    "ISSUER_URL": "http",
    "S3_ENDPOINT_URL": "https",
    "SCHEMA_REGISTRY_URL": "http",
    "REDIS_URL": "redis",
}


def _accepted(environ: dict[str, str]) -> bool:
    refusal = ""
    try:
        load(environ)
    except InvalidSettings as refused:
        refusal = str(refused)
    assert MARKER not in refusal
    return not refusal


@given(st.sampled_from(sorted(SCHEMES)), st.sampled_from(USER_INFO), around, around)
def test_what_stands_before_the_host_is_shown_nowhere(name: str, form: str, left: str, right: str) -> None:
    """User and password of every URL are masked where settings are shown and in errors."""
    url = f"{SCHEMES[name]}://{form.format(left + MARKER + right)}host.example:1234/0"

    if _accepted({f"SEXTON_{name}": url}):
        shown = {row.variable: row.value for row in explain({f"SEXTON_{name}": url})}
        assert MARKER not in json.dumps(shown)
        assert "host.example:1234" in shown[f"SEXTON_{name}"]
        assert MARKER not in str(SextonError(f"no answer: {url}: refused"))


@given(st.sampled_from(sorted(SCHEMES)), st.sampled_from(NAMES), around)
def test_a_secret_in_the_query_is_shown_nowhere(name: str, parameter: str, left: str) -> None:
    """Parameters whose names say so are masked, also with an escape in the name; others are shown."""
    secret = "".join(c for c in left if c not in "&;#") + MARKER
    url = f"{SCHEMES[name]}://host.example:1234/0?db=3&{parameter}={secret}&timeout=7"

    if _accepted({f"SEXTON_{name}": url}):
        shown = {row.variable: row.value for row in explain({f"SEXTON_{name}": url})}[f"SEXTON_{name}"]
        assert MARKER not in shown + str(SextonError(f"no answer: {url}"))
        assert "db=3&" in shown
        assert shown.endswith("&timeout=7")


@given(
    st.lists(
        st.sampled_from(["http://{0}@one:1", "https://u:{0}@two", "http://three/?token={0}"]), min_size=1
    )
)
def test_every_registry_of_several_is_masked(forms: list[str]) -> None:
    """URLs that stand in one value, with commas between, are masked each."""
    value = ",".join(form.format(MARKER) for form in forms)
    shown = json.dumps([row.value for row in explain({"SEXTON_SCHEMA_REGISTRY_URL": value})])

    assert MARKER not in shown + str(SextonError(value))


@pytest.mark.parametrize("name", PROPERTIES)
def test_a_secret_of_kafka_is_shown_nowhere(name: str) -> None:
    """The value of a property that holds a secret is masked; the property itself is shown."""
    shown = json.dumps([row.value for row in explain({"SEXTON_KAFKA_EXTRA": json.dumps({name: MARKER})})])

    assert MARKER not in shown
    assert name in shown


@pytest.mark.parametrize(
    "name",
    [
        "client.id",
        "sasl.username",
        "sasl.oauthbearer.method",
        "sasl.oauthbearer.token.endpoint.url",
        "ssl.key.location",
        "ssl.keystore.private.key.location",
        "sasl.oauthbearer.assertion.private.key.file",
        "enable.ssl.certificate.verification",
    ],
)
def test_what_is_no_secret_is_shown(name: str) -> None:
    """An operator sees what is set where it is no secret."""
    assert not is_secret(name)


@pytest.mark.parametrize("value", ["http://u:12/a@host", "redis://u:#word@host", "redis://u:?word@host"])
def test_a_password_that_ends_the_host_is_refused(value: str) -> None:
    """A password with an unescaped / ? or # is not read as one: the URL is refused, without its value."""
    name = "SEXTON_REDIS_URL" if value.startswith("redis") else "SEXTON_ISSUER_URL"
    with pytest.raises(InvalidSettings, match=f"{name} .*%2F, %3F and %23"):
        load({name: value})


def test_any_setting_that_holds_a_url_is_masked() -> None:
    """Keys in a checkpoint's URL, and a URL of the wrong type in a file, are reported by nothing."""
    rows = explain({"SEXTON_CHECKPOINT": f"s3a://KEY:{MARKER}@bucket/path"})
    assert MARKER not in json.dumps([row.value for row in rows])
    with pytest.raises(InvalidSettings) as refused:
        load({}, s3_endpoint_url=[f"http://u:{MARKER}@host"])
    assert MARKER not in str(refused.value)


def test_the_rest_of_a_text_stays() -> None:
    """Only secrets are masked: addresses, keys with an @, and plain parameters stay."""
    text = "a@b?token=x: no answer: http://host:1/v1/tenants/a@b?db=1: s3://bucket/k@y"
    assert masked(text) == text
