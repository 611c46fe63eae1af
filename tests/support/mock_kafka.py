"""The Kafka client's own mock cluster: speaks the protocol, keeps records, creates topics when asked for."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path
from typing import Any

import confluent_kafka
from confluent_kafka import Producer

__all__ = ["Api", "OddKafka", "mock_kafka"]


@contextmanager
def mock_kafka(*topics: str) -> Iterator[str]:
    """Run a mock broker and yield its address; the named topics exist."""
    cluster = Producer({"test.mock.num.brokers": 1, "log_level": 0})
    brokers = cluster.list_topics(timeout=10).brokers.values()
    for topic in topics:
        cluster.list_topics(topic, timeout=10)
    yield ",".join(f"{broker.host}:{broker.port}" for broker in brokers)
    del cluster


class Api(IntEnum):
    """Requests of Kafka's protocol."""

    PRODUCE = 0
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    INIT_PRODUCER_ID = 22


class OddKafka:
    """A mock broker that answers as told: with errors, or without a part of the protocol."""

    def __init__(self, *topics: str) -> None:
        self._library = _library()
        words = ctypes.create_string_buffer(256)
        conf = self._library.rd_kafka_conf_new()
        self._client = self._library.rd_kafka_new(0, conf, words, len(words))
        self._cluster = self._library.rd_kafka_mock_cluster_new(self._client, 1)
        self.at: str = self._library.rd_kafka_mock_cluster_bootstraps(self._cluster).decode()
        for topic in topics:
            self._library.rd_kafka_mock_topic_create(self._cluster, topic.encode(), 4, 1)

    def refuse(self, api: Api, code: int, times: int = 500) -> None:
        """Answer the next requests of a kind with an error."""
        codes = (ctypes.c_int * times)(*[code] * times)
        self._library.rd_kafka_mock_push_request_errors_array(self._cluster, int(api), times, codes)

    def without(self, api: Api) -> None:
        """Have no such request, as brokers that are older, or of others."""
        assert self._library.rd_kafka_mock_set_apiversion(self._cluster, int(api), -1, -1) == 0

    def close(self) -> None:
        """End it."""
        self._library.rd_kafka_mock_cluster_destroy(self._cluster)
        self._library.rd_kafka_destroy(self._client)


def _library() -> Any:
    folder = Path(confluent_kafka.__file__).parent.with_name("confluent_kafka.libs")
    (file,) = folder.glob("librdkafka*")
    library = ctypes.CDLL(str(file))
    handle, text, short = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int16
    codes = ctypes.POINTER(ctypes.c_int)
    for name, result, arguments in (
        ("conf_new", handle, []),
        ("new", handle, [ctypes.c_int, handle, text, ctypes.c_size_t]),
        ("destroy", None, [handle]),
        ("mock_cluster_new", handle, [handle, ctypes.c_int]),
        ("mock_cluster_destroy", None, [handle]),
        ("mock_cluster_bootstraps", text, [handle]),
        ("mock_topic_create", ctypes.c_int, [handle, text, ctypes.c_int, ctypes.c_int]),
        ("mock_push_request_errors_array", None, [handle, short, ctypes.c_size_t, codes]),
        ("mock_set_apiversion", ctypes.c_int, [handle, short, short, short]),
    ):
        function = getattr(library, f"rd_kafka_{name}")
        function.restype, function.argtypes = result, arguments
    return library
