"""One connection to a store, used for one exchange after the other."""

from __future__ import annotations

import time
from collections.abc import Mapping

from sexton.storage.channels import Channel
from sexton.storage.http import Broken, Reply, ReplyReader, Unsent, request_head
from sexton.storage.proxies import Route

__all__ = ["Connection"]

_IDLE_S = 45.0  # routers forget a silent connection after minutes, the first ones after one


class Connection:
    """Carries requests to one origin, for one thread at a time; nothing is repeated."""

    def __init__(self, route: Route, channel: Channel) -> None:
        self._route = route
        self._channel = channel
        self._reader = ReplyReader(channel)
        self._used_at = time.monotonic()
        self.reusable = True
        credentials = route.proxy.credentials if route.proxy and route.is_forwarded else ""
        self._extra = {"Proxy-Authorization": credentials} if credentials else {}

    def exchange(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes, timeout_s: float
    ) -> Reply:
        """Send a request once and return the whole reply, in time; raises Broken.

        `target` is the path and what follows it. After a failure the connection is of no more use: the rest
        of a reply would be read as the next one's.
        """
        deadline = time.monotonic() + timeout_s
        self.reusable = False
        where = self._route.origin + target if self._route.is_forwarded else target
        try:
            head = request_head(method, where, {**headers, "Accept-Encoding": "identity", **self._extra})
        except ValueError as error:
            raise Unsent(f"{error}: {method}", "ConnectionBroken", "a header holds a line break") from error
        try:
            reply = self._answer(method, (head, body), deadline)
        except TimeoutError as error:
            raise Broken(f"no whole answer within {timeout_s:g} s", "ReadTimeout") from error
        except OSError as error:
            raise Broken(f"{type(error).__name__}: {error}", "ConnectionBroken") from error
        self.reusable = reply.reusable
        self._used_at = time.monotonic()
        return reply

    def is_fresh(self) -> bool:
        """Return whether it may carry another request: not idle for long, nor closed by the other side."""
        if not self.reusable or self.is_old():
            return False
        try:
            return self._reader.is_quiet()
        except OSError:
            return False

    def is_old(self) -> bool:
        """Return whether it was idle for too long."""
        return time.monotonic() - self._used_at > _IDLE_S

    def close(self) -> None:
        """Drop the connection."""
        self.reusable = False
        self._channel.close()

    def _answer(self, method: str, parts: tuple[bytes, bytes], deadline: float) -> Reply:
        try:
            self._channel.send(parts, deadline)
        except TimeoutError:
            raise
        except OSError as cut:
            # Who refuses a request may answer and hang up before all of it was sent: the answer counts.
            try:
                return self._reader.read(method, deadline)
            except Unsent:
                raise
            except (Broken, OSError):
                raise cut from None
        return self._reader.read(method, deadline)
