"""The issuer's API: one room for each operation, with all that belongs to it; everything else iterates.

A room holds the request as it goes over the wire, who may make it, the rule that answers, refuses or appends
an event, how that event counts in the fold, and its text for people. To add one: its module, its line here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sexton.issuer.operations.acknowledge_transaction import AcknowledgeTransaction
from sexton.issuer.operations.attach import Attach
from sexton.issuer.operations.barrier import Barrier
from sexton.issuer.operations.base import Operation
from sexton.issuer.operations.collect_transaction import CollectTransaction
from sexton.issuer.operations.commit_transaction import CommitTransaction
from sexton.issuer.operations.decommission_node import DecommissionNode
from sexton.issuer.operations.detach import Detach
from sexton.issuer.operations.drop import Drop
from sexton.issuer.operations.fence_tenant import FenceTenant
from sexton.issuer.operations.import_ import Import
from sexton.issuer.operations.import_transactions import ImportTransactions
from sexton.issuer.operations.list_transactions import ListTransactions
from sexton.issuer.operations.re_attach import ReAttach
from sexton.issuer.operations.register_node import RegisterNode
from sexton.issuer.operations.start_transaction import StartTransaction
from sexton.issuer.operations.upcall_re_attach import UpcallReAttach
from sexton.issuer.operations.upcall_validate import UpcallValidate
from sexton.issuer.operations.validate import Validate

__all__ = ["FOLDS", "OPERATIONS"]

OPERATIONS: tuple[type[Operation[Any]], ...] = (
    Attach,
    ReAttach,
    Validate,
    Barrier,
    Detach,
    Drop,
    FenceTenant,
    RegisterNode,
    Import,
    StartTransaction,
    CommitTransaction,
    AcknowledgeTransaction,
    DecommissionNode,
    CollectTransaction,
    ImportTransactions,
    ListTransactions,
    UpcallReAttach,
    UpcallValidate,
)
FOLDS: Mapping[type, type[Operation[Any]]] = {event: each for each in OPERATIONS for event in each.folds}
"""Which operation says how an event counts."""
