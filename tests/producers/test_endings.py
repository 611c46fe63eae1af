"""P-2: the end of a process: what is said of intents that nobody will hear of any more."""

from __future__ import annotations

import pytest
from tests.support.services import GREEN, NOBODY, Arrived, keys, service

pytestmark = pytest.mark.faults


@pytest.mark.parametrize(
    ("emits", "told"), [(1, "1 intent: "), (3, "3 intents: "), (5, "5 intents: ")], ids=["1", "3", "5"]
)
def test_p_2_a_process_that_ends_without_close_says_what_is_lost(emits: int, told: str) -> None:
    """P-2: how many, and the first ids."""
    body = f"""
    sexton = connect(NOBODY)
    tenant = sexton.attach("t")
    print(*[tenant.delete("bucket", [f"k{{n}}"]).intent_ids[0] for n in range({emits})])
    """
    said = service(NOBODY, body)
    ids = said.splitlines()[0].split()
    shown = ", ".join(ids[:3]) + (", ..." if emits > 3 else "")
    assert f"the process ends without close, not acknowledged: {told}{shown}" in said


@pytest.mark.parametrize(
    "end",
    [
        "closes(sexton, 1)",
        "in_child(lambda: None); os.wait(); sexton.close(1)",
        "child = fork()\nif child: os.waitpid(child, 0); sexton.close(1)\nelse: sys.exit(0)",
    ],
)
def test_p_2_nothing_is_said_of_what_was_closed_or_is_a_parents(end: str) -> None:
    """P-2: `close` has returned the ids; a child's end says nothing of what its parent emitted."""
    body = 'sexton = connect(NOBODY)\nsexton.attach("t").delete("bucket", ["a"])\n' + end
    assert service(NOBODY, body) == ""


@pytest.mark.parametrize("kind", ["", *GREEN])
def test_p_2_nothing_is_said_of_what_has_arrived(kind: str, kafka: str, arrived: Arrived) -> None:
    """P-2: also where the report was not read yet when the process ends."""
    body = """
    from sexton.producers import _emitter
    _emitter._LAST_LOOK = 30  # until the report is there, however slow the machine
    connect(linger=0).attach("t").delete("bucket", ["a"])
    """
    assert service(kafka, body, first=GREEN.get(kind, "")) == ""
    assert keys(arrived) == ["a"]
