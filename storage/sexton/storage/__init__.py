"""The object store, and the only place that reaches it.

`open_deleter` gives the DeleteObjects hot path, `ObjectStore` the plain single calls.
"""

from __future__ import annotations

from sexton.storage.deleter import BatchDeleter, BatchReply, open_deleter
from sexton.storage.errors import InvalidBatch, KeyProblem, NoReply, StoreRefused, UncleanReply
from sexton.storage.objects import ObjectStore
from sexton.storage.settings import StoreSettings
from sexton.storage.xml_body import MAX_KEY_BYTES, MAX_KEYS, xml_unsafe

__all__ = [
    "MAX_KEYS",
    "MAX_KEY_BYTES",
    "BatchDeleter",
    "BatchReply",
    "InvalidBatch",
    "KeyProblem",
    "NoReply",
    "ObjectStore",
    "StoreRefused",
    "StoreSettings",
    "UncleanReply",
    "open_deleter",
    "xml_unsafe",
]
