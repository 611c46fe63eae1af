"""Transactions of one tenant, on a fake or a real client."""

from __future__ import annotations

from typing import Any

from sexton.producers import Sexton, Transaction
from sexton.producers.testing import FakeSexton

__all__ = ["count_open", "start"]


def start(sexton: Sexton, **given: Any) -> Transaction:
    """Start one, with a prefix for its keys."""
    return sexton.transaction("t", prefix="tenants/t/", **given)


def count_open(sexton: FakeSexton) -> int:
    """Count those that are open."""
    return sum(each.status == "open" for each in sexton.issuer.unfinished_transactions())
