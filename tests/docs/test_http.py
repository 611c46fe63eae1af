"""The conversation on the HTTP page, held with a real issuer."""

from __future__ import annotations

import json

import httpx
import pytest
from confluent_kafka import Producer
from tests.support import pages
from tests.support.pages import ROOT, Exchange, Intents

from sexton.deploy.local import Installation
from sexton.schemas import records
from sexton.schemas.settings import Settings


def write(settings: Settings, step: Intents) -> None:
    """Write records to one partition of the intents topic."""
    producer = Producer(settings.kafka(acks="all"))
    for _ in range(step.count):
        producer.produce(settings.topic(records.INTENTS), b"x", partition=step.partition)
    assert producer.flush(20) == 0


@pytest.mark.real
def test_a_new_issuer_answers_as_the_page_shows(installation: Installation) -> None:
    """Each answer on the page is the issuer's, to the letter but for the topic's id."""
    steps = list(pages.conversation(ROOT / "docs" / "http.md"))
    assert sum(isinstance(step, Exchange) for step in steps) > 12

    with httpx.Client(base_url=installation.env["SEXTON_ISSUER_URL"]) as client:
        for step in steps:
            if isinstance(step, Intents):
                write(installation.settings, step)
                continue
            reply = client.request(step.method, step.path, content=step.body.encode())
            answer = json.loads(reply.text)
            if "topic_id" in answer:
                answer["topic_id"] = "TOPIC"
            assert (reply.status_code, answer) == (step.status, step.answer), step.path
