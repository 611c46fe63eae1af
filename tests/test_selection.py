"""What `make test-slow SHARE=0.5 SEED=…` draws."""

from __future__ import annotations

from tests.support.selection import is_drawn

TESTS = [f"tests/test_some.py::test_{number}" for number in range(400)]


def test_a_seed_draws_the_same_half_again() -> None:
    """About a half, the same with the same seed, another one with another; and a share of 1 is all."""
    halves = [{test for test in TESTS if is_drawn(test, 0.5, seed)} for seed in ("a", "a", "b")]

    assert halves[0] == halves[1] != halves[2]
    assert all(140 < len(half) < 260 for half in halves)
    assert all(is_drawn(test, 1.0, "a") for test in TESTS)
    assert not any(is_drawn(test, 0.0, "a") for test in TESTS)
