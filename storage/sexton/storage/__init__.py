"""The object store, and the only place that reaches it.

`open_deleter` gives the DeleteObjects hot path; its `calls` look, list and read versions one key at a time,
its `probe` says what a bucket's store can do. `create_if_absent`, `compare_and_put` and `read_if_changed` are
the conditional calls. `ObjectStore` has the plain ones for whoever is not in a hurry.
"""

from __future__ import annotations

from sexton.storage.abilities import ALIASINGS, Abilities, Ability, Aliasing, Versioning
from sexton.storage.calls import (
    Calls,
    Listed,
    ListedVersion,
    ObjectInfo,
    Slice,
    VersionMark,
    VersionSlice,
)
from sexton.storage.conditional import (
    Absent,
    FateUnknown,
    Found,
    Lost,
    NotModified,
    Put,
    Read,
    Written,
    compare_and_put,
    create_if_absent,
    read_if_changed,
)
from sexton.storage.deleter import READY, BatchDeleter, open_deleter
from sexton.storage.erasing import ErasedSlice, NewestLast, erase_slice
from sexton.storage.errors import HINTS, BucketUnusable, InvalidBatch, NoReply, StoreRefused
from sexton.storage.errors_table import TABLE, Row, Scope, table_markdown
from sexton.storage.interface import Deleter
from sexton.storage.listing import CheckedPage, ListingFault, folders_of, pages_of
from sexton.storage.objects import ObjectStore
from sexton.storage.settings import StoreSettings
from sexton.storage.signing import BucketAddress, CredentialsUnavailable
from sexton.storage.states import BatchResult, Delete, Effect, ErrorClass, KeyState, Kind
from sexton.storage.wire import check_way
from sexton.storage.xml_body import MAX_KEY_BYTES, MAX_KEYS, xml_unsafe

__all__ = [
    "ALIASINGS",
    "HINTS",
    "MAX_KEYS",
    "MAX_KEY_BYTES",
    "READY",
    "TABLE",
    "Abilities",
    "Ability",
    "Absent",
    "Aliasing",
    "BatchDeleter",
    "BatchResult",
    "BucketAddress",
    "BucketUnusable",
    "Calls",
    "CheckedPage",
    "CredentialsUnavailable",
    "Delete",
    "Deleter",
    "Effect",
    "ErasedSlice",
    "ErrorClass",
    "FateUnknown",
    "Found",
    "InvalidBatch",
    "KeyState",
    "Kind",
    "Listed",
    "ListedVersion",
    "ListingFault",
    "Lost",
    "NewestLast",
    "NoReply",
    "NotModified",
    "ObjectInfo",
    "ObjectStore",
    "Put",
    "Read",
    "Row",
    "Scope",
    "Slice",
    "StoreRefused",
    "StoreSettings",
    "VersionMark",
    "VersionSlice",
    "Versioning",
    "Written",
    "check_way",
    "compare_and_put",
    "create_if_absent",
    "erase_slice",
    "folders_of",
    "open_deleter",
    "pages_of",
    "read_if_changed",
    "table_markdown",
    "xml_unsafe",
]
