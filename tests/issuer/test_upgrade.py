"""An older and a newer issuer on one log."""

from __future__ import annotations

import subprocess
import sys
import time

import httpx
import pytest

from sexton.deploy.local import Installation, issuer, ports
from sexton.issuer.client import IssuerClient

pytestmark = pytest.mark.real


@pytest.mark.slow
def test_an_older_issuer_stops_at_what_it_does_not_know(fresh: Installation) -> None:
    """Side by side until an event of a newer kind stands in the log: then the older answers nothing."""
    fresh.start_issuer()
    address = f"127.0.0.1:{ports.choose(1)[0]}"
    url = f"http://{address}"
    older = subprocess.Popen(
        [sys.executable, "-m", "tests.chaos.launcher", "--plant", "older_without_fences"],
        env={**fresh.environment, "SEXTON_ISSUER_BIND": address},
        stderr=subprocess.DEVNULL,
    )
    try:
        until = time.monotonic() + 30
        while issuer.answers(url) is not None:
            assert time.monotonic() < until
            time.sleep(0.05)
        with IssuerClient(fresh.settings.issuer_url) as new, IssuerClient(url) as old:
            assert [c.attach("n", "t").generation for c in (new, old, new)] == [1, 2, 3]
            assert new.fence_tenant("t") == 4
            calls = [("/v1/attach", {"node": "n", "tenant": "t"}), ("/v1/validate", {"subjects": []})]
            for path, body in calls:
                reply = httpx.post(url + path, json=body, timeout=15, trust_env=False)
                assert (reply.status_code, reply.json()["type"]) == (503, "log-broken")
            assert httpx.get(f"{url}/readyz", trust_env=False).status_code == 503
            assert new.attach("n", "t").generation == 5
    finally:
        older.kill()
        older.wait()
