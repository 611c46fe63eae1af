"""Which of the tests run, and in which order."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

__all__ = ["is_drawn", "longest_first"]

# Files of twenty seconds and more, as measured with three processes on two cores; they go first.
_SECONDS = {
    "tests/streaming_jobs/test_replaying.py": 193,
    "tests/streaming_jobs/test_starting.py": 127,
    "tests/streaming_jobs/test_extremes.py": 120,
    "tests/streaming_jobs/test_key_progress.py": 108,
    "tests/deploy/test_local.py": 106,
    "tests/storage/test_personalities.py": 105,
    "tests/streaming_jobs/test_restarting.py": 103,
    "tests/deploy/test_demo.py": 100,
    "tests/model/test_transactions.py": 76,
    "tests/streaming_jobs/test_looking_back.py": 73,
    "tests/streaming_jobs/test_new_checkpoint.py": 69,
    "tests/streaming_jobs/test_executing.py": 68,
    "tests/storage/test_odd_keys.py": 63,
    "tests/streaming_jobs/test_waiting.py": 62,
    "tests/streaming_jobs/test_conditions.py": 57,
    "tests/storage/test_erasing_stores.py": 57,
    "tests/streaming_jobs/test_judging.py": 54,
    "tests/streaming_jobs/test_transactions_chain.py": 53,
    "tests/model/test_model.py": 53,
    "tests/docs/test_quickstart.py": 48,
    "tests/issuer/test_snapshots_broken.py": 47,
    "tests/deploy/test_doctor.py": 46,
    "tests/streaming_jobs/test_formats.py": 45,
    "tests/streaming_jobs/test_submitted.py": 43,
    "tests/streaming_jobs/test_modes.py": 43,
    "tests/issuer/test_kafka.py": 43,
    "tests/streaming_jobs/test_speculation.py": 42,
    "tests/producers/test_contract.py": 41,
    "tests/issuer/test_redis.py": 39,
    "tests/docs/test_executor.py": 39,
    "tests/streaming_jobs/test_work.py": 39,
    "tests/issuer/test_transactions.py": 39,
    "tests/streaming_jobs/test_first_form.py": 38,
    "tests/streaming_jobs/test_boundaries_chain.py": 37,
    "tests/safeguards/test_lines.py": 37,
    "tests/issuer/test_migration.py": 37,
    "tests/issuer/test_serving.py": 35,
    "tests/streaming_jobs/test_session.py": 35,
    "tests/issuer/test_readiness.py": 35,
    "tests/streaming_jobs/test_lock.py": 34,
    "tests/consumers/test_replay_chain.py": 32,
    "tests/streaming_jobs/test_budget_simulation.py": 32,
    "tests/issuer/test_snapshots.py": 31,
    "tests/issuer/test_history.py": 30,
    "tests/streaming_jobs/test_damaged.py": 29,
    "tests/issuer/test_faults_redis.py": 28,
    "tests/streaming_jobs/test_vetoes_chain.py": 28,
    "tests/issuer/test_restoring.py": 28,
    "tests/model/test_sequenced.py": 27,
    "tests/streaming_jobs/test_duplicates.py": 26,
    "tests/storage/test_probes.py": 26,
    "tests/issuer/test_fold_properties.py": 26,
    "tests/consumers/test_replaying.py": 25,
    "tests/storage/test_stores_page.py": 24,
    "tests/producers/test_transactions_contract.py": 23,
    "tests/issuer/test_incoming.py": 23,
    "tests/producers/test_odd_brokers.py": 23,
    "tests/deploy/test_faults_command.py": 23,
    "tests/issuer/test_issuing.py": 22,
    "tests/producers/test_delivery.py": 21,
    "tests/collectors/test_transactions.py": 21,
    "tests/schemas/test_odd_registries.py": 21,
    "tests/issuer/test_fold_transactions_kept.py": 21,
    "tests/issuer/test_truncation.py": 21,
    "tests/producers/test_bounds.py": 20,
    "tests/deploy/test_secrets.py": 20,
}


def is_drawn(test: str, share: float, seed: str) -> bool:
    """Return whether a seed draws a test, which it does of all with the probability `share`."""
    return random.Random(f"{seed} {test}").random() < share


def longest_first(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Return the tests by files, those with the most work first: no process ends with a long one alone."""

    def rank(item: pytest.Item) -> tuple[int, str]:
        file = item.nodeid.partition("::")[0]
        return -_SECONDS.get(file, 0), file

    return sorted(items, key=rank)
