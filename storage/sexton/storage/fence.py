"""Asking before each request whether this process may still send it.

A store cannot fence a client: a process that was paused goes on where it stood, also when another one has
taken its place. So the last thing before a request leaves is a question to whoever knows.
"""

from __future__ import annotations

from collections.abc import Callable

from botocore.awsrequest import AWSPreparedRequest

from sexton.schemas.errors import EnvironmentFault
from sexton.storage.errors import NoReply
from sexton.storage.wire import RawReply, Wire

__all__ = ["FencedWire", "open_to_all"]


def open_to_all() -> None:
    """Let every request pass."""


class FencedWire(Wire):
    """A wire whose `fence` is called before each request, after it was signed.

    An EnvironmentFault that it raises is the request's: nothing was sent. Every request, not only deletes:
    what a look or a probe shows is decided upon, too.
    """

    fence: Callable[[], None] = staticmethod(open_to_all)

    def exchange(self, bucket: str, request: AWSPreparedRequest) -> RawReply:
        """Send a request once if it may be sent, and return the whole reply; raises NoReply."""
        try:
            self.fence()
        except EnvironmentFault as fault:
            raise NoReply(f"nothing was sent: {fault}", effect_unknown=False, code="Fenced") from fault
        return super().exchange(bucket, request)
