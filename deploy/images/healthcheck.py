"""Exit with 0 if the issuer is ready, or the reaper serves its metrics, on this machine.

    python healthcheck.py issuer|reaper

Uses nothing but the standard library and the variables that the service itself was given: it has to
answer within seconds on a machine that is busy.
"""

from __future__ import annotations

import os
import ssl
import sys
import urllib.request

_SECONDS = 4


def url(part: str, environ: dict[str, str]) -> str:
    """Return what is asked for the health of this part.

    Raises ValueError for a part that has none, KeyError without the variable that names its port.
    """
    if part == "issuer":
        scheme = "https" if environ.get("SEXTON_ISSUER_TLS_CERT") else "http"
        return f"{scheme}://127.0.0.1:{environ['SEXTON_ISSUER_BIND'].rpartition(':')[2]}/readyz"
    if part == "reaper":
        return f"http://127.0.0.1:{environ['SEXTON_METRICS_PORT']}/metrics"
    raise ValueError(f"issuer or reaper, not: {part}")


def main() -> int:
    """Ask; an answer other than 200, or none, is exit code 1."""
    # The certificate is in the name of the service, not of this loopback address.
    unverified = ssl._create_unverified_context()
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=unverified)
    )
    try:
        with opener.open(url(sys.argv[1], dict(os.environ)), timeout=_SECONDS):
            return 0
    except OSError as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    raise SystemExit(main())
