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
    `closed` says that the server closed a connection that was kept for reuse, `hopeless` that the same one
    will say the same again.
    """

    message: str
    hint: str | None = None
    closed: bool = False
    hopeless: bool = False

    def error(self) -> IssuerUnavailable:
        """Return it as what is raised in the end."""
        return IssuerUnavailable(self.message, hint=self.hint)


def answer_of(response: httpx.Response, answers: Any) -> Any | Unanswered:
    """Return what was answered, an `answers`; raises RequestRefused for a no."""
    is_answer = response.status_code < 300
    try:
        answer = msgspec.json.decode(response.content, type=answers if is_answer else dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return _no_answer(response)
    if is_answer:
        return answer
    if not isinstance(answer.get("type"), str):
        return _no_answer(response)
    detail = str(answer.get("detail", ""))
    if response.status_code >= 500 or response.status_code == 429:
        message = f"the issuer cannot answer: {answer['type']}: {detail}"
        return Unanswered(message, answer.get("hint"), hopeless=answer["type"] in _HOPELESS)
    raise RequestRefused(answer["type"], detail, status=response.status_code, hint=answer.get("hint"))


def _no_answer(response: httpx.Response) -> Unanswered:
    return Unanswered(f"not an issuer's answer: status {response.status_code}", hopeless=True)
