"""Settings of topics, changed so that whoever asks next is reported of it."""

from __future__ import annotations

from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from tests.support.waits import until

from sexton.schemas.kafka.admin import Cluster
from sexton.schemas.settings import Settings


def configure(settings: Settings, topic: str, name: str, value: str) -> None:
    """Change a setting of a topic; returns once the broker says so, too, not the controller alone."""
    full = settings.topic(topic)
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, full, incremental_configs=[entry])
    admin = AdminClient(settings.kafka())  # one that is gone would give up what it was reported
    admin.incremental_alter_configs([resource])[resource].result(20)
    cluster = Cluster(settings)
    until(lambda: cluster.topics([full])[full].found.config[name] == value)
