"""An HTTP response of an issuer: an answer, a refusal, or neither."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import httpx
import msgspec

from sexton.schemas.errors import IssuerUnavailable, RequestRefused

__all__ = ["Unanswered", "answer_of"]

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


def answer_of(response: httpx.Response, answers: Any) -> Any | Unanswered:
    """Return what was answered, an `answers`; raises RequestRefused for a no, IssuerUnavailable for what is
    no answer.
    """
    is_answer = response.status_code < 300
    try:
        answer = msgspec.json.decode(response.content, type=answers if is_answer else dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise IssuerUnavailable(f"not an issuer's answer: status {response.status_code}") from None
    if is_answer:
        return answer
    if not isinstance(answer.get("type"), str):
        raise IssuerUnavailable(f"not an issuer's answer: status {response.status_code}")
    detail = str(answer.get("detail", ""))
    if response.status_code >= 500 or response.status_code == 429:
        unanswered = Unanswered(f"the issuer cannot answer: {answer['type']}: {detail}", answer.get("hint"))
        if answer["type"] in _HOPELESS:
            raise unanswered.error()
        return unanswered
    raise RequestRefused(answer["type"], detail, status=response.status_code, hint=answer.get("hint"))
