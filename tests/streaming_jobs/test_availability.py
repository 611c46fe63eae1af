"""When the reaper says that the cluster gives no executor, or that those it has still prepare."""

from __future__ import annotations

from sexton.streaming_jobs.reaper.availability import Absence, Preparation


def test_an_absence_is_said_after_some_seconds_and_then_each_minute() -> None:
    """Not at once, as an executor takes seconds to start; then with the time for which tasks have waited."""
    absence = Absence()
    said = {now: absence.note(True, float(now)) for now in range(100, 240)}

    assert {now: event for now, event in said.items() if event} == {
        110: ("no_executors", 10.0),
        170: ("no_executors", 70.0),
        230: ("no_executors", 130.0),
    }


def test_the_end_of_an_absence_is_said_once_and_only_if_it_was_said() -> None:
    """With for how long it was; the next one begins anew."""
    absence = Absence()
    assert [absence.note(waiting, now) for waiting, now in ((True, 0.0), (False, 9.0), (False, 30.0))] == [
        None
    ] * 3
    assert absence.note(True, 100.0) is None
    assert absence.note(True, 111.0) == ("no_executors", 11.0)
    assert absence.note(False, 130.0) == ("executors", 30.0)
    assert absence.note(False, 131.0) is None
    assert absence.note(True, 200.0) is None


def test_executors_that_do_not_answer_yet_are_said_after_some_seconds_and_then_each_minute() -> None:
    """From the moment when one is there, and anew when they were gone in between."""
    preparation = Preparation()
    assert [preparation.note(there, now) for there, now in ((False, 0.0), (True, 20.0), (True, 29.0))] == [
        None
    ] * 3
    assert preparation.note(True, 30.0) == 10.0
    assert preparation.note(True, 89.0) is None
    assert preparation.note(True, 90.0) == 70.0
    assert preparation.note(False, 95.0) is None
    assert preparation.note(True, 151.0) is None
    assert preparation.note(True, 161.0) == 10.0
