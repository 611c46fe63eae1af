"""Free ports on 127.0.0.1, below the range from which the kernel takes ports for outgoing connections."""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack

from sexton.schemas.errors import EnvironmentFault

__all__ = ["choose"]

# A port of the ephemeral range can be taken by any client between the choice and the server's bind.
_RANGE = range(20_000, 32_000)
_TRIES = 200


def choose(count: int) -> list[int]:
    """Return `count` different ports that were free a moment ago.

    Raises EnvironmentFault when none can be bound.
    """
    chosen: list[int] = []
    with ExitStack() as held:
        for port in random.SystemRandom().sample(_RANGE, _TRIES):
            if len(chosen) == count:
                break
            candidate = held.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
            try:
                candidate.bind(("127.0.0.1", port))
            except OSError:
                continue
            chosen.append(port)
    if len(chosen) < count:
        raise EnvironmentFault("no free port on 127.0.0.1")
    return chosen
