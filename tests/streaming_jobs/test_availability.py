"""When the reaper says that the cluster gives no executor, or that those it has still prepare."""

from __future__ import annotations

from sexton.streaming_jobs.reaper.availability import Wait


def test_a_wait_is_said_after_some_seconds_and_then_each_minute() -> None:
    """Not at once, as an executor takes seconds to start; then with the time for which tasks have waited."""
    wait = Wait()
    said = {now: wait.note(True, float(now)) for now in range(100, 240)}

    assert {now: told for now, told in said.items() if told} == {
        110: (True, 10.0),
        170: (True, 70.0),
        230: (True, 130.0),
    }


def test_the_end_of_a_wait_is_said_once_and_only_if_it_was_said() -> None:
    """With for how long it was; the next one begins anew."""
    wait = Wait()
    assert [wait.note(waiting, now) for waiting, now in ((True, 0.0), (False, 9.0), (False, 30.0))] == [
        None
    ] * 3
    assert wait.note(True, 100.0) is None
    assert wait.note(True, 111.0) == (True, 11.0)
    assert wait.note(False, 130.0) == (False, 30.0)
    assert wait.note(False, 131.0) is None
    assert wait.note(True, 200.0) is None
