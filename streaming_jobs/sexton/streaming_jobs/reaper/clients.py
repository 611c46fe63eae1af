"""The clients of a Python worker, made once and kept, as Spark keeps the worker for its next task."""

from __future__ import annotations

import json
from pathlib import Path

from sexton.issuer.client import IssuerClient
from sexton.schemas.codec import Codec
from sexton.schemas.kafka.admin import Cluster
from sexton.schemas.memo import cache
from sexton.schemas.registry import open_codec
from sexton.schemas.settings import Settings
from sexton.streaming_jobs.reaper.recovery.lease import Holder, Lease

__all__ = ["cluster", "codec", "issuer", "lease"]

_clusters: dict[str, Cluster] = {}
_codecs: dict[str | None, Codec] = {}
_leases: dict[Holder, Lease] = {}


def cluster(settings: Settings) -> Cluster:
    """Return the admin client, which has looked the leaders up once."""
    properties = json.dumps(settings.kafka(), sort_keys=True)
    if properties not in _clusters:
        _clusters[properties] = Cluster(settings)
        _clusters[properties].topic_names()
    return _clusters[properties]


def codec(settings: Settings) -> Codec:
    """Return the codec, which remembers the registry's answers."""
    url = settings.schema_registry_url
    if url not in _codecs:
        _codecs[url] = open_codec(settings)
    return _codecs[url]


def lease(settings: Settings, holder: Holder) -> Lease:
    """Return what this worker knows of the lock on the checkpoint."""
    if holder not in _leases:
        _leases[holder] = Lease(holder, cluster(settings).group_members)
    return _leases[holder]


def issuer(settings: Settings) -> IssuerClient:
    """Return the client of the issuer, with its open connections."""
    token = settings.issuer_token.get_secret_value() if settings.issuer_token else None
    return _issuer(settings.issuer_url, settings.issuer_timeout_s, token, settings.issuer_ca)


@cache
def _issuer(url: str, timeout_s: float, token: str | None, ca: Path | None) -> IssuerClient:
    return IssuerClient(url, timeout_s=timeout_s, token=token, ca=ca)
