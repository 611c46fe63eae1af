"""What a checkpoint belongs to, and what of its topics has to be there still.

Offsets mean nothing without the topic they count: a re-created topic starts again at 0, and a checkpoint of
the old one would skip its first intents or read positions that prove nothing. So the checkpoint is bound to
cluster id and topic id at the first start, and refused with any other (F-8). What retention has taken away
below the committed offsets is named before Spark is asked to read it (F-9).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from sexton.schemas.errors import SextonError

__all__ = [
    "BINDING",
    "HINT_DAMAGED",
    "Binding",
    "CheckpointRefused",
    "check_binding",
    "check_retention",
    "damaged",
]

_FORMAT = 1
BINDING = "sexton-binding.json"
"""The file's name in the checkpoint's folder."""
HINT_DAMAGED = "docs/operating.md, 'A damaged checkpoint': start with a new one"
_HINT_OTHER = "docs/operating.md, 'Another topic under the checkpoint': start with a new checkpoint"
_HINT_LOST = "docs/operating.md, 'Intents lost to retention': start with a new checkpoint once you know why"


class CheckpointRefused(SextonError):
    """The checkpoint may not be used as things are."""


def damaged(name: str, why: str) -> CheckpointRefused:
    """Return the refusal of a checkpoint that is not whole; `name` is the file's."""
    return CheckpointRefused(f"the checkpoint is damaged: {name}: {why}", hint=HINT_DAMAGED)


@dataclass(frozen=True, slots=True)
class Binding:
    """What a checkpoint belongs to."""

    cluster_id: str
    topic: str
    topic_id: str

    def to_text(self) -> str:
        """Return the text that is stored."""
        return json.dumps(
            {
                "format": _FORMAT,
                "cluster_id": self.cluster_id,
                "topic": self.topic,
                "topic_id": self.topic_id,
            }
        )

    @classmethod
    def parse(cls, text: str) -> Binding:
        """Return the binding in a text; raises CheckpointRefused when it is damaged or of a newer format."""
        try:
            raw = json.loads(text)
            if raw["format"] != _FORMAT:
                raise CheckpointRefused(
                    f"{BINDING} has a format that this version does not know: {raw['format']}",
                    hint=HINT_DAMAGED,
                )
            return cls(str(raw["cluster_id"]), str(raw["topic"]), str(raw["topic_id"]))
        except (ValueError, KeyError, TypeError) as error:
            raise damaged(BINDING, str(error)) from error


def check_binding(found: Binding | None, now: Binding) -> None:
    """Raise CheckpointRefused unless the checkpoint is unbound or bound to what is there now."""
    if found is None or found == now:
        return
    for what, then, today in (
        ("Kafka cluster", found.cluster_id, now.cluster_id),
        ("topic", found.topic, now.topic),
        (f"topic id of {now.topic}", found.topic_id, now.topic_id),
    ):
        if then != today:
            raise CheckpointRefused(
                f"the checkpoint belongs to another {what}: {then}, found {today}", hint=_HINT_OTHER
            )


def check_retention(
    committed: Mapping[int, int], earliest: Mapping[int, int], topic: str = "", hint: str | None = None
) -> None:
    """Raise CheckpointRefused that names the first range which is gone before it was processed."""
    where = f"topic {topic}, " if topic else ""
    for partition, offset in sorted(committed.items()):
        first = earliest.get(partition)
        if first is None:
            raise CheckpointRefused(
                f"a partition of the checkpoint does not exist: {partition}", hint=hint or _HINT_OTHER
            )
        if first > offset:
            raise CheckpointRefused(
                f"intents were removed before they were processed: {where}partition {partition}, "
                f"offsets {offset} to {first - 1}",
                hint=hint or _HINT_LOST,
            )
