"""The issuer's JSON answers, read into what `answers` names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from sexton.issuer.answers import Attachment, Gathered, Registration, Span, Subject, packed
from sexton.schemas.errors import IssuerUnavailable, RequestRefused
from sexton.schemas.windows import Window

__all__ = ["Unanswered", "answer_of", "attachments_of", "gather", "registered", "span_of", "subject_body"]

_HOPELESS = ("log-broken", "wrong-topic")  # an operator has to act first


@dataclass(frozen=True, slots=True)
class Unanswered:
    """No answer, or none for now: what was asked may have been done.

    A value and not an exception, so that what is raised in the end is one error without a chain of others.
    `closed` says that the server closed a connection that was kept for reuse.
    """

    message: str
    hint: str | None = None
    closed: bool = False

    def error(self) -> IssuerUnavailable:
        """Return it as what is raised in the end."""
        return IssuerUnavailable(self.message, hint=self.hint)


def answer_of(response: httpx.Response) -> dict[str, Any] | Unanswered:
    """Return what was answered; raises RequestRefused for a no, IssuerUnavailable for what is no answer."""
    try:
        answer = response.json()
    except ValueError:
        raise IssuerUnavailable(f"not an issuer's answer: status {response.status_code}") from None
    if response.status_code < 300 and isinstance(answer, dict):
        return answer
    if not isinstance(answer, dict) or not isinstance(answer.get("type"), str):
        raise IssuerUnavailable(f"not an issuer's answer: status {response.status_code}")
    detail = str(answer.get("detail", ""))
    if response.status_code >= 500 or response.status_code == 429:
        unanswered = Unanswered(f"the issuer cannot answer: {answer['type']}: {detail}", answer.get("hint"))
        if answer["type"] in _HOPELESS:
            raise unanswered.error()
        return unanswered
    raise RequestRefused(answer["type"], detail, status=response.status_code, hint=answer.get("hint"))


def subject_body(subject: Subject) -> dict[str, Any]:
    """Return a subject as the issuer's API takes it."""
    body: dict[str, Any] = {
        "tenant": subject.tenant,
        "generation": subject.generation,
        "partition": subject.partition,
    }
    if subject.node is not None:
        body["node"] = subject.node
    if subject.node_generation is not None:
        body["node_generation"] = subject.node_generation
    return body


def gather(found: Gathered, answers: Iterable[Mapping[str, Any]], asked: Iterable[Subject]) -> None:
    """Put what was answered about each subject into `found`.

    Answers stand in the order of what was asked, those of unknown tenants left out. Raises IssuerUnavailable
    for an answer that was not asked for.
    """
    left = iter(asked)
    for a in answers:
        key = (a["tenant"], a["generation"], a["partition"], a.get("node"), a.get("node_generation"))
        for subject in left:
            if key == (
                subject.tenant,
                subject.generation,
                subject.partition,
                subject.node,
                subject.node_generation,
            ):
                break
        else:
            raise IssuerUnavailable(f"an answer of the issuer that was not asked for: {a['tenant']}")
        until, node_until = a.get("until"), a.get("node_until")
        attachment = Window(a["from"], until) if "from" in a else None
        node = Window(a["node_from"], node_until) if "node_from" in a else None
        found.put(subject, attachment, node, until, node_until)


def registered(registration: Registration | None) -> dict[str, Any]:
    """Return what a call of a registered node carries."""
    return {} if registration is None else {"node_generation": registration.generation}


def attachments_of(answer: Mapping[str, Any], registration: Registration | None) -> list[Attachment]:
    """Return the attachments of an issuing answer."""
    return [
        Attachment(
            each["tenant"],
            each["generation"],
            answer["log_offset"],
            packed(each["generation"], each.get("form"), registration),
        )
        for each in answer["tenants"]
    ]


def span_of(span: Mapping[str, Any]) -> Span:
    """Return one generation of a history."""
    until = span.get("until")
    return Span(
        span["generation"],
        span["log_offset"],
        span["node"],
        tuple(span["from"]),
        None if until is None else tuple(until),
    )
