"""Replays through the whole chain: judged anew, at the first position or at none."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from tests.support.chain import Chain
from tests.support.replies import on_deletes, partly
from tests.support.s3_recorder import S3Recorder

from sexton.consumers.status import count_all, look_up
from sexton.deploy.local import LocalStack
from sexton.deploy.main import run
from sexton.schemas import events, records
from sexton.schemas.events import OutcomeKind
from sexton.storage import ObjectStore

pytestmark = [pytest.mark.real, pytest.mark.spark]

SHORT_S = 0.2


def _dead(chain: Chain, intent: events.DeletionIntent, *keys: str) -> None:
    """Write a dead letter about keys of an intent that has its outcome, as if the store had refused them."""
    (outcome,) = [each for each in chain.outcomes() if each.intent_id == intent.intent_id]
    letter = events.DeadLetter(
        topic=chain.settings.topic(records.INTENTS),
        position=outcome.position,
        written_at=intent.emitted_at,
        reason="AccessDenied",
        detail="Access Denied",
        intent_id=intent.intent_id,
        tenant=intent.tenant,
        bucket=chain.bucket,
        keys=keys,
        raw_key=None,
        raw_value=chain.codec.encode(intent),
        dead_at=outcome.settled_at,
    )
    producer = Producer(chain.settings.kafka(acks="all"))
    producer.produce(chain.settings.topic(records.DEAD_LETTERS), chain.codec.encode(letter), partition=0)
    assert producer.flush(20) == 0


def _replay(capsys: pytest.CaptureFixture[str], which: str, *arguments: str) -> str:
    """Replay one dead letter; returns the id of the new intent."""
    capsys.readouterr()
    assert run(["dead-letters", "replay", which, "--yes", "--format", "json", *arguments]) == 0
    (step,) = capsys.readouterr().out.splitlines()
    return str(json.loads(step)["intent_id"])


def _reap(chain: Chain, **settings: Any) -> None:
    time.sleep(2 * SHORT_S)  # until what was just written to the first tier is due
    chain.reap(reaper_defer_delays_s=(SHORT_S, 60.0), **settings)


@pytest.mark.slow
def test_a_replay_keeps_the_rights_of_its_first_position_and_mended_content_does_not(
    chain: Chain, store: ObjectStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A superseded generation's key is still deleted by a replay, once; mended content of it is stale."""
    with chain.issuer() as issuer:
        generation = issuer.attach("a", "t").generation
        intent = chain.intent("t", generation, ["one", "two"])
        chain.emit(intent)
        assert issuer.attach("b", "t").generation > generation
    chain.reap()
    for name in ("one", "two"):
        store.put(chain.bucket, name, b"still there")
    _dead(chain, intent, "one")

    first = _replay(capsys, "0/0")
    _reap(chain)
    second = _replay(capsys, "0/0", "--again")
    _reap(chain)
    mended = {
        "tenant": "t",
        "guards": [{"GenerationGuard": {"tenant": "t", "generation": generation}}],
        "action": {"DeleteObjects": {"bucket": chain.bucket, "phases": [["two"]]}},
    }
    file = tmp_path / "mended.jsonl"
    file.write_text(json.dumps(mended))
    third = _replay(capsys, "0/0", "--again", "--mended", str(file))
    _reap(chain)

    assert list(store.list_keys(chain.bucket, "")) == ["two"]
    by_id = {each.intent_id: each for each in chain.outcomes()}
    assert by_id[first].outcome is OutcomeKind.DELETED
    assert by_id[second].outcome in (OutcomeKind.DELETED, OutcomeKind.ABSENT)
    assert by_id[third].outcome is OutcomeKind.STALE
    assert by_id[first].position == by_id[second].position == by_id[intent.intent_id].position
    assert by_id[first].keys == 1
    assert by_id[third].position != by_id[first].position
    counts = count_all(chain.settings)
    assert (counts.submitted, counts.settled, counts.pending, counts.unmatched) == (4, 4, 0, 0)
    assert look_up(chain.settings, intent.intent_id).replays.keys() == {first, second, third}


@pytest.mark.slow
def test_m_3_a_deadlist_whose_transaction_is_forgotten_goes_by_the_pass_in_its_dead_letter(
    chain: Chain, stack: LocalStack, capsys: pytest.CaptureFixture[str]
) -> None:
    """M-3: the store refused its key; until it is replayed later commits have cut what the log knew of it."""
    with S3Recorder(stack.env["AWS_ACCESS_KEY_ID"], stack.env["AWS_SECRET_ACCESS_KEY"]) as s3:
        _forgotten(chain, s3, capsys)


def _forgotten(chain: Chain, s3: S3Recorder, capsys: pytest.CaptureFixture[str]) -> None:
    s3.create_bucket(chain.bucket, {"old": b"x", "new": b"x"})
    s3.script(on_deletes(lambda request: partly(s3, request, {"old": "AccessDenied"})))
    guards = (events.TransactionGuard("t", 1, events.TransactionState.COMMITTED),)
    with chain.issuer() as issuer:
        issuer.start_transaction("n", "t")
        chain.emit(chain.intent("t", None, ["old"], guards=guards))
        ends = events.PartitionOffsets(chain.topic_id(records.INTENTS), (1,))
        issuer.commit_transaction("n", "t", 1, ends)
        chain.reap(s3_endpoint_url=s3.url)
        assert [each.passed_as_of is not None for each in chain.dead_letters()] == [True]
        for number in (2, 3):
            issuer.start_transaction("n", "t")
            issuer.commit_transaction("n", "t", number)
            chain.emit(chain.intent("u", None, ["x"], guards=(events.PromiseGuard("drop"),)))
            chain.reap(s3_endpoint_url=s3.url)
        known = issuer.transactions("t")
    assert known is not None
    assert 1 not in [each.transaction for each in known.transactions]
    again = chain.intent("t", None, ["new"], guards=guards)
    chain.emit(again)

    s3.script(None)
    replayed = _replay(capsys, "--reason=AccessDenied")
    _reap(chain, s3_endpoint_url=s3.url)

    verdicts = {each.intent_id: (each.outcome.value, each.verdict.reason) for each in chain.outcomes()}
    assert verdicts[replayed] == ("deleted", "pass")
    assert verdicts[again.intent_id] == ("refused", "transaction-forgotten")
    assert sorted(s3.objects(chain.bucket)) == ["new"]


@pytest.mark.slow
def test_a_record_that_died_is_replayed_by_its_bytes(
    chain: Chain, capsys: pytest.CaptureFixture[str]
) -> None:
    """What still cannot be read dies again, at its first position, and the copy is processed once."""
    chain.produce(b"\xc3\x01garbage!", key=b"t", partition=1)
    chain.reap()
    (letter,) = chain.dead_letters()
    assert run(["dead-letters", "replay", "--reason", letter.reason, "--yes"]) == 0
    _reap(chain)
    _reap(chain)

    assert [(each.position, each.raw_value) for each in chain.dead_letters()] == [
        (letter.position, b"\xc3\x01garbage!"),
        (letter.position, b"\xc3\x01garbage!"),
    ]
