"""Owners that change while intents and index PUTs are on their way, from the SDK to the store.

Every story runs before one micro-batch processes all of them; each test then looks at its own.
"""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ReadTimeoutError
from confluent_kafka import Producer
from pyspark.sql import SparkSession
from tests.support.chain import Chain
from tests.support.raw_server import raw_server
from tests.support.s3_recorder import Recorded, S3Recorder

from sexton.deploy.local import Installation, LocalStack
from sexton.issuer.client import IssuerClient
from sexton.producers import IndexFateUnknown, Receipt, Sexton
from sexton.schemas import events, records
from sexton.schemas.errors import IssuerUnavailable
from sexton.schemas.events import GenerationForm, ImportedTenant
from sexton.schemas.generations import parse_suffix

pytestmark = [pytest.mark.real, pytest.mark.spark]

BUCKET = "owners-bucket"
IMPORTED = 0xFEEDBEEE
LATE = b'["late/x"]'  # the index whose PUT lands late: it names what will be gone, and not what will be there


@dataclass
class Stories:
    """What the tests look at: the store, the chain, and the intent ids of each story by what they ask for."""

    chain: Chain
    s3: S3Recorder
    client: Any
    asked: dict[str, tuple[str, ...]] = field(default_factory=dict)
    reported: dict[str, Any] = field(default_factory=dict)
    land: threading.Event = field(default_factory=threading.Event)

    def put(self, key: str, body: bytes = b"x") -> None:
        """Write an object as a service does: it returns once the store has acknowledged."""
        self.client.put_object(Bucket=BUCKET, Key=key, Body=body)

    def emit(self, tenant: str, generation: int, key: str) -> None:
        """An intent as its owner writes it, for one key that is there."""
        self.put(key)
        self.asked[key] = tuple(self.chain.emit(self.chain.intent(tenant, generation, [key])))

    def note(self, key: str, receipt: Receipt) -> None:
        """Remember the intents of a receipt."""
        receipt.wait(20)
        self.asked[key] = receipt.intent_ids

    def is_there(self, key: str) -> bool:
        """Return whether the store has the object now."""
        return key in self.s3.objects(BUCKET)

    def kind(self, key: str) -> str:
        """The outcome of the one intent that was written for a key."""
        (intent_id,) = self.asked[key]
        return self.chain.words()[intent_id]

    def index(self, tenant: str, generation: int) -> list[str]:
        """What a reader of this generation finds: the newest index up to it."""
        found = {
            number: body
            for key, body in self.s3.objects(BUCKET).items()
            for name, number in [parse_suffix(key)]
            if name == f"{tenant}/index" and number is not None and number <= generation
        }
        return list(json.loads(found[max(found)]))


@pytest.fixture(scope="module")
def stories(stack: LocalStack, spark: SparkSession) -> Iterator[Stories]:
    """All stories, and the micro-batch that works them off."""
    made = Installation.start(stack, "owners")
    identity = stack.env["AWS_ACCESS_KEY_ID"], stack.env["AWS_SECRET_ACCESS_KEY"]
    with S3Recorder(*identity) as s3, closing(_service(s3, *identity)) as client:
        s3.create_bucket(BUCKET)
        reported = Stories(Chain(made.settings, spark, BUCKET), s3, client)
        try:
            for tell in (an_index_put_without_an_answer, a_lost_reply, an_open_transaction, odd_suffixes):
                tell(reported)
            reported.chain.reap(s3_endpoint_url=s3.url)
            yield reported
        finally:
            reported.land.set()
            made.stop()


def _service(s3: S3Recorder, access_key: str, secret_key: str) -> Any:
    """A client that gives up after a second and asks once, as the service's own does here."""
    config = Config(
        read_timeout=1.0, retries={"total_max_attempts": 1}, request_checksum_calculation="when_required"
    )
    return boto3.session.Session().client(
        "s3",
        endpoint_url=s3.url,
        region_name="us-east-1",
        aws_access_key_id=access_key,
        aws_secret_access_key=secret_key,
        config=config,
    )


def an_index_put_without_an_answer(reported: Stories) -> None:
    """The PUT of generation 1's index hangs on its way; the service re-attaches and deletes with 2."""
    chain, held = reported.chain, threading.Event()

    def hang(request: Recorded) -> None:
        if request.method == "PUT" and request.body == LATE:
            held.set()
            assert reported.land.wait(300)

    reported.s3.script(hang)
    for key in ("late/x", "late/y"):
        reported.put(key)
    reported.put("late/index-00000001", b'["late/x", "late/y"]')
    with Sexton.connect("node-7", chain.settings, bucket=BUCKET) as seven:
        tenant = seven.attach("late")
        with pytest.raises(IndexFateUnknown, match=r"[Tt]imed out|[Tt]imeout") as caught:
            tenant.replace_index(lambda: reported.put("late/index-00000001", LATE), unlinked=["late/y"])
        assert isinstance(caught.value.__cause__, ReadTimeoutError)
        assert held.is_set()
        for key in ("late/y", "late/x"):
            with pytest.raises(IndexFateUnknown):
                tenant.delete(BUCKET, [key])
        assert seven.flush(10) == 0
        reported.reported["before the re-attach"] = chain.messages(records.INTENTS)
        again = seven.re_attach()["late"]
        assert reported.index("late", again.generation) == ["late/x", "late/y"]
        put = f"late/index-{again.generation:08x}"
        reported.note(
            "late/x", again.replace_index(lambda: reported.put(put, b'["late/y"]'), unlinked=["late/x"])
        )


def a_lost_reply(reported: Stories) -> None:
    """The reply to a re-attach is lost on its way, time after time; the node asks anew."""
    issuer = urlsplit(reported.chain.settings.issuer_url)

    def swallow(connection: socket.socket) -> None:
        request = connection.makefile("rb")
        method, path, _ = request.readline().split()
        headers = http.client.parse_headers(request)
        body = request.read(int(headers["Content-Length"]))
        behind = http.client.HTTPConnection(issuer.hostname or "", issuer.port)
        with closing(behind):
            behind.request(method.decode(), path.decode(), body, dict(headers.items()))
            reported.reported.setdefault("lost replies", []).append(json.loads(behind.getresponse().read()))

    with reported.chain.issuer() as direct:
        direct.attach("node-9", "lost")
        with (
            raw_server(swallow) as url,
            IssuerClient(url, 3.0) as client,
            pytest.raises(IssuerUnavailable),
        ):
            client.re_attach("node-9", deadline=3.0)
        reported.reported["second request"] = direct.re_attach("node-9")
    reported.emit("lost", 2, "lost/of-the-first-number")
    reported.emit("lost", 3, "lost/of-the-second")


def an_open_transaction(reported: Stories) -> None:
    """An owner writes in a transaction that is open while its successor is issued, and commits afterwards."""
    chain, keys = reported.chain, ("open/before", "open/x", "open/y")
    for key in keys:
        reported.put(key)
    with chain.issuer() as issuer:
        old = issuer.attach("a", "open").generation
        intents = {key: chain.intent("open", old, [key]) for key in keys}
        reported.asked |= {key: (intent.intent_id,) for key, intent in intents.items()}
        chain.emit(intents["open/before"])
        producer = Producer(chain.settings.kafka(**{"transactional.id": "owners"}))
        producer.init_transactions(20)
        producer.begin_transaction()
        for key in keys[1:]:
            value = chain.codec.encode(intents[key])
            producer.produce(chain.settings.topic(records.INTENTS), value, partition=0)
        producer.flush(20)
        issuer.attach("b", "open")
        producer.commit_transaction(20)


def odd_suffixes(reported: Stories) -> None:
    """Keys whose ends say another generation than the one that asks, or say one by chance."""
    row = ImportedTenant("suffix", GenerationForm.FINAL, IMPORTED, None)
    with reported.chain.issuer() as issuer:
        issuer.import_tenants([row])
    with Sexton.connect("node-5", reported.chain.settings, bucket=BUCKET) as five:
        tenant = five.attach("suffix")
        reported.reported["attached"] = tenant.generation
        for key in ("suffix/layer-deadbeef", "suffix/photo-00000007", f"suffix/photo-{IMPORTED:08x}"):
            reported.put(key)
            reported.put(f"{key}0")
            reported.note(key, tenant.delete(BUCKET, [key]))


@pytest.mark.slow
def test_j_10_after_a_put_of_unknown_fate_nothing_is_emitted_before_the_re_attach(stories: Stories) -> None:
    """J-10: not one record stands in the topic until the service has attached again."""
    assert stories.reported["before the re-attach"] == []
    assert stories.kind("late/x") == "deleted"


def test_q_5_an_index_put_that_lands_after_the_re_attach_harms_nothing(stories: Stories) -> None:
    """Q-5, J-10: it lands under the old generation's name, and no reader of a newer one takes it."""
    stories.land.set()
    until = time.monotonic() + 20
    while stories.s3.objects(BUCKET)["late/index-00000001"] != LATE:
        assert time.monotonic() < until
        time.sleep(0.02)

    with stories.chain.issuer() as issuer:
        successor = issuer.attach("node-8", "late").generation
    for generation in (2, successor):
        assert stories.index("late", generation) == ["late/y"]
        assert all(stories.is_there(key) for key in stories.index("late", generation))
    assert stories.index("late", 1) == ["late/x"]  # what would be read if the name had stayed
    assert not stories.is_there("late/x")


def test_i_11_intents_of_a_number_whose_reply_was_lost_are_stale(stories: Stories) -> None:
    """I-11: a re-attach whose reply is lost and the one that follows are two numbers; the first is stale."""
    lost = [reply["tenants"] for reply in stories.reported["lost replies"]]

    assert lost
    assert all(reply == lost[0] for reply in lost), "the retries of one request got several numbers"
    assert stories.reported["second request"] == {"lost": 3}
    with stories.chain.issuer() as issuer:
        found = issuer.tenant("lost")
    assert found is not None
    assert found.generation == 3
    assert [stories.kind(f"lost/of-the-{which}") for which in ("first-number", "second")] == [
        "stale",
        "deleted",
    ]
    assert stories.is_there("lost/of-the-first-number")


def test_j_12_intents_of_a_transaction_open_at_the_succession_are_not_covered(stories: Stories) -> None:
    """J-12: committed after the successor was issued: stale, and their objects stay."""
    assert [stories.kind(key) for key in ("open/before", "open/x", "open/y")] == ["deleted", "stale", "stale"]
    assert not stories.is_there("open/before")
    assert stories.is_there("open/x")
    assert stories.is_there("open/y")


def test_k_4_the_generation_that_is_judged_is_the_one_attached_at(stories: Stories) -> None:
    """K-4: the key ends in -deadbeef, the number judged is 0xfeedbeef; the log knows no other."""
    assert stories.reported["attached"] == 0xFEEDBEEF
    with stories.chain.issuer() as issuer:
        found = issuer.tenant("suffix")
    assert found is not None
    assert [span.generation for span in found.history] == [0xFEEDBEEF, IMPORTED]
    (sent,) = [r for r in stories.s3.deletes() if "suffix/layer-deadbeef" in r.keys]
    assert stories.kind("suffix/layer-deadbeef") == "deleted"
    assert not stories.is_there("suffix/layer-deadbeef")
    assert stories.is_there("suffix/layer-deadbeef0")
    assert sent.bucket == BUCKET


def test_k_5_hex_digits_at_the_end_of_a_clients_key_are_no_generation(stories: Stories) -> None:
    """K-5: neither a number never issued nor a superseded one is read out of a key."""
    for key in ("suffix/photo-00000007", f"suffix/photo-{IMPORTED:08x}"):
        assert stories.kind(key) == "deleted"
        assert not stories.is_there(key)
        assert stories.is_there(f"{key}0")


def test_every_intent_lay_below_a_barrier_that_was_made_for_its_micro_batch(stories: Stories) -> None:
    """I4: the log holds a barrier above all of them, and each verdict rests on the log from there on."""
    log = stories.chain.generation_events()
    ends = {m.partition(): (m.offset() or 0) + 1 for m in stories.chain.messages(records.INTENTS)}
    barriers = [
        offset
        for offset, event in enumerate(log)
        if isinstance(event, events.Barrier)
        and all(event.ends.offsets[partition or 0] >= end for partition, end in ends.items())
    ]

    assert barriers
    rests = {outcome.verdict.log_offset for outcome in stories.chain.outcomes()}
    assert all(offset is not None and offset >= barriers[0] for offset in rests)
