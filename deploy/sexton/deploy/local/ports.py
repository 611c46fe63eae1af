"""Free ports on 127.0.0.1, below the range from which the kernel takes ports for outgoing connections."""

from __future__ import annotations

import random
import socket
from collections.abc import Mapping, Sequence
from contextlib import ExitStack

from sexton.schemas.errors import EnvironmentFault

__all__ = ["assign", "choose"]

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
        raise EnvironmentFault(
            f"too few free ports on 127.0.0.1: {len(chosen)} of {count}, {_TRIES} were tried",
            hint=f"what listens on ports between {_RANGE.start} and {_RANGE.stop - 1}?",
        )
    return chosen


def assign(names: Sequence[str], known: Mapping[str, int], *, running: bool) -> dict[str, int]:
    """Return a port for each name: the `known` one, which other programs were told, if it can be had.

    While anything of the stack is `running` a known port stays anyway: the settings of what runs hold it.
    """
    kept = {name: known[name] for name in names if name in known and (running or _is_free(known[name]))}
    fresh = [name for name in names if name not in kept]
    return {**kept, **dict(zip(fresh, choose(len(fresh)), strict=True))}


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as candidate:
        # As servers do: connections that were closed a moment ago do not keep the port.
        candidate.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            candidate.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
