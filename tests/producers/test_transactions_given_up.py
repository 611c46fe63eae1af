"""M-14: a transaction that was given up stays so, whatever process goes on with it."""

from __future__ import annotations

from typing import Any

import pytest

from sexton.producers import TransactionOver
from sexton.producers.testing import FakeSexton


def test_m_14_who_resumes_what_was_given_up_only_acknowledges() -> None:
    """M-14: what it wrote may be deleted already: nothing is written in its name, the call is repeated."""
    kept: dict[int, dict[str, Any]] = {}

    def save(state: dict[str, Any], version: int) -> bool:
        return kept.setdefault(version, state) is state

    with FakeSexton("n") as sexton:
        txn = sexton.transaction("t", prefix="tenants/t/", persist=save)
        assert txn.acknowledge() > 0
        again = sexton.resume_transaction(kept[max(kept)], persist=save)
        for call in (lambda: again.key("a"), lambda: again.commit(lambda: None)):
            with pytest.raises(TransactionOver):
                call()
        assert again.acknowledge() > 0
