"""Intents on a bucket that a test has made, and what became of them."""

from __future__ import annotations

from tests.support.chain import Chain

from sexton.consumers.fold import fold
from sexton.schemas import events

GONE = "gone"
PROMISE = (events.PromiseGuard("drop"),)


def promised(chain: Chain, *names: str, bucket: str = "bucket") -> events.DeletionIntent:
    """An intent that needs no generation."""
    return chain.intent("t", None, (), guards=PROMISE, action=events.DeleteObjects(bucket, (names,)))


def unchanged(chain: Chain, key: str, etag: str, *, bucket: str = "bucket") -> events.DeletionIntent:
    """An intent that only the store's condition guards."""
    guard = events.UnchangedGuard((events.KeyCondition(key, etag=etag),))
    return chain.intent("t", None, (), guards=(guard,), action=events.DeleteObjects(bucket, ((key,),)))


def outcome(chain: Chain, intent_id: str) -> events.Outcome:
    """The only outcome of an intent."""
    (found,) = [each for each in chain.outcomes() if each.intent_id == intent_id]
    return found


def folded(chain: Chain, *intents: events.DeletionIntent) -> list[str]:
    """The folded outcome of each intent, `gone` for `deleted` and `absent`, which are equal for
    comparison.
    """
    said: list[events.Outcome | events.DeadLetter] = [*chain.outcomes(), *chain.dead_letters()]
    states = [
        fold(each.intent_id, each, [r for r in said if r.intent_id == each.intent_id]).state
        for each in intents
    ]
    return [GONE if state in ("deleted", "absent") else state for state in states]
