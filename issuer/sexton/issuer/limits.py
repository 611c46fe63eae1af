"""What a call may name, for the service and the fake alike; each check raises UsageError."""

from __future__ import annotations

from collections.abc import Sequence

from sexton.schemas import checks, events
from sexton.schemas.errors import UsageError
from sexton.schemas.events import GenerationForm
from sexton.schemas.generations import MAX_GENERATION, MAX_NODE, MAX_PACKED_PART

__all__ = ["LONGEST_NAME", "MOST_ROWS", "check_name", "check_node_number", "check_partition", "check_rows"]

LONGEST_NAME = 512
MOST_ROWS = 10_000
_LARGEST_PARTITION = 2**31 - 1


def check_name(what: str, name: str) -> None:
    """Refuse a name of a node, a caller or a request that is empty or too long."""
    if not 1 <= len(name) <= LONGEST_NAME:
        raise UsageError(f"a {what} has 1 to {LONGEST_NAME} characters: {len(name)}")


def check_node_number(number: int) -> None:
    """Refuse a number that no node of the first form can have."""
    if not 0 <= number <= MAX_NODE:
        raise UsageError(f"a node's number is 0 to {MAX_NODE}: {number}")


def check_partition(partition: int) -> None:
    """Refuse a partition that no topic can have."""
    if not 0 <= partition <= _LARGEST_PARTITION:
        raise UsageError(f"a partition is 0 to {_LARGEST_PARTITION}: {partition}")


def check_rows(tenants: Sequence[events.ImportedTenant], nodes: Sequence[events.ImportedNode]) -> None:
    """Refuse rows of an import that are too many, named twice, or that their forms have no room for."""
    if len(tenants) > MOST_ROWS or len(nodes) > MOST_ROWS:
        raise UsageError(f"an import has at most {MOST_ROWS} tenants and as many nodes")
    for row in tenants:
        _check_tenant(row)
    for node in nodes:
        check_name("node", node.node)
        check_node_number(node.number)
        if not 0 <= node.generation <= MAX_PACKED_PART:
            raise UsageError(f"a node generation is 0 to {MAX_PACKED_PART}: {node.node} {node.generation}")
    _check_once("tenant", [row.tenant for row in tenants])
    _check_once("node", [row.node for row in nodes])
    _check_once("node number", [row.number for row in nodes])


def _check_tenant(row: events.ImportedTenant) -> None:
    checks.check_tenant(row.tenant)
    if row.node is not None:
        check_name("node", row.node)
    largest = MAX_GENERATION if row.form is GenerationForm.FINAL else MAX_PACKED_PART
    if row.generation is not None and not 0 <= row.generation <= largest:
        asked = f"{row.tenant} {row.generation}"
        raise UsageError(f"a generation of the {row.form} form is 0 to {largest}: {asked}")


def _check_once(what: str, names: Sequence[object]) -> None:
    if len(set(names)) != len(names):
        raise UsageError(f"a {what} is named twice")
