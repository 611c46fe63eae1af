"""OAUTHBEARER: tokens from an endpoint (OIDC), or for trials such as nobody has signed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from sexton.streaming_jobs.java_client.given import Given
from sexton.streaming_jobs.java_client.jaas import jaas
from sexton.streaming_jobs.java_client.tls import trusted

__all__ = ["oauthbearer"]

_PACKAGE = "org.apache.kafka.common.security.oauthbearer"
_MODULE = f"{_PACKAGE}.OAuthBearerLoginModule"
_HANDLER = f"{_PACKAGE}.OAuthBearerLoginCallbackHandler"
_METHOD, _UNSIGNED = "sasl.oauthbearer.method", "enable.sasl.oauthbearer.unsecure.jwt"
_EXTENSIONS, _CONFIG = "sasl.oauthbearer.extensions", "sasl.oauthbearer.config"
_OF_CONFIG = {
    "principalClaimName": "unsecuredLoginPrincipalClaimName",
    "scopeClaimName": "unsecuredLoginScopeClaimName",
    "lifeSeconds": "unsecuredLoginLifetimeSeconds",
}


def oauthbearer(given: Given) -> dict[str, str]:
    """Return where tokens come from; raises InvalidSettings for a way that Java's client does not have."""
    method, unsigned = given.get(_METHOD, "default").lower(), given.flag(_UNSIGNED, False)
    if method == "oidc":
        if unsigned:
            raise given.refused(f"{_METHOD} is oidc", _UNSIGNED, "one of the two")
        return _oidc(given)
    if method != "default":
        raise given.refused("no such method", _METHOD, "oidc")
    if not unsigned:
        raise given.refused(
            "OAUTHBEARER has no tokens without it",
            _METHOD,
            f"oidc with its endpoint and client; for trials {_UNSIGNED}=true",
        )
    return {"sasl.jaas.config": jaas(_MODULE, _unsigned(given))}


def _oidc(given: Given) -> dict[str, str]:
    grant = given.get("sasl.oauthbearer.grant.type", "client_credentials")
    if grant.lower() != "client_credentials":
        raise given.refused(
            "Spark's Kafka client has client credentials only",
            "sasl.oauthbearer.grant.type",
            "client_credentials, with sasl.oauthbearer.client.id and sasl.oauthbearer.client.secret",
        )
    why = "sasl.oauthbearer.method=oidc"
    url = given.needed("sasl.oauthbearer.token.endpoint.url", why)
    options = {
        "clientId": given.needed("sasl.oauthbearer.client.id", why),
        "clientSecret": given.needed("sasl.oauthbearer.client.secret", why),
    }
    if scope := given.get("sasl.oauthbearer.scope"):
        options["scope"] = scope
    for name, value in _pairs(given, _EXTENSIONS, (given.get(_EXTENSIONS) or "").split(",")):
        options[_extension(given, _EXTENSIONS, name)] = value
    if url.lower().startswith("https:"):
        options |= trusted(given, "https.ca.location", "https.ca.pem")
    java = {
        "sasl.login.callback.handler.class": _HANDLER,
        "sasl.oauthbearer.token.endpoint.url": url,
        "sasl.jaas.config": jaas(_MODULE, options),
    }
    if claim := given.get("sasl.oauthbearer.sub.claim.name"):
        java["sasl.oauthbearer.sub.claim.name"] = claim
    return java


def _unsigned(given: Given) -> dict[str, str]:
    """Return the claims that `sasl.oauthbearer.config` lists."""
    options: dict[str, str] = {}
    claims = {"principalClaimName": "sub", "scopeClaimName": "scope"}
    principal, scope = None, ""
    for name, value in _pairs(given, _CONFIG, given.needed(_CONFIG, _UNSIGNED).split(" ")):
        if name == "principal":
            principal = value
        elif name == "scope":
            scope = value
        elif name.startswith("extension_"):
            options[_extension(given, _CONFIG, name.removeprefix("extension_"))] = value
        elif name in _OF_CONFIG:
            claims[name] = options[_OF_CONFIG[name]] = value
        else:
            raise given.refused(f"no such part ({name})", _CONFIG, "principal=NAME scope=ONE,TWO")
    if principal is None:
        raise given.refused("no principal in it", _CONFIG, "principal=NAME")
    options[f"unsecuredLoginStringClaim_{_name(given, claims['principalClaimName'])}"] = principal
    if scope:
        # A list begins with what stands between its parts.
        options[f"unsecuredLoginListClaim_{_name(given, claims['scopeClaimName'])}"] = f",{scope}"
    return options


def _pairs(given: Given, of: str, parts: Iterable[str]) -> Iterator[tuple[str, str]]:
    for part in filter(None, (part.strip() for part in parts)):
        name, sign, value = part.partition("=")
        if not (name and sign and value):
            raise given.refused("not NAME=VALUE", of, "NAME=VALUE for each part")
        yield name, value


def _extension(given: Given, of: str, name: str) -> str:
    if not re.fullmatch(r"[A-Za-z]+", name) or name == "auth":
        raise given.refused(f"no name of an extension ({name})", of, "letters only, and not auth")
    return f"extension_{name}"


def _name(given: Given, claim: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.-]*", claim):
        raise given.refused(
            f"no name of a claim in Java ({claim})", _CONFIG, "letters, digits, `_`, `.`, `-`"
        )
    return claim
