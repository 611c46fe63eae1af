"""What the keys of a bucket say of generations, and that no import starts below it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from sexton.issuer.cli.migration import Plan
from sexton.schemas.errors import RequestRefused
from sexton.schemas.events import GenerationForm, NumberPlace
from sexton.schemas.generations import parse_packed_suffix, parse_suffix
from sexton.schemas.numbered_names import number_in
from sexton.schemas.text import counted

__all__ = ["Found", "check_not_below", "node_generations", "of_other_form", "or_none", "scan"]

_TOLD = 5


@dataclass(slots=True)
class Found:
    """What a tenant's keys say, of both forms; `nodes` holds node number -> highest node generation."""

    tenant: str
    objects: int = 0
    suffixes: dict[GenerationForm, int] = field(default_factory=dict)
    nodes: dict[int, int] = field(default_factory=dict)
    _highest: dict[GenerationForm, int] = field(default_factory=dict)
    _transactions: dict[NumberPlace, int] = field(default_factory=dict)

    def highest(self, form: GenerationForm) -> int | None:
        """Return the highest attachment generation in suffixes of a form, None when no key has one."""
        return self._highest.get(form)

    def transaction(self, place: NumberPlace) -> int:
        """Return the highest number of a transaction that stands there in a key, 0 when none does."""
        return self._transactions.get(place, 0)

    def add(self, key: str, name: str) -> None:
        """Take one more key into account, and its `name` in the tenant's folder; no key has suffixes of both
        forms.
        """
        self.objects += 1
        for place in NumberPlace:
            number = number_in(name, place) or 0
            self._transactions[place] = max(number, self.transaction(place))
        generation = parse_suffix(key)[1]
        if generation is not None:
            self._raise(GenerationForm.FINAL, generation)
        elif (packed := parse_packed_suffix(key)[1]) is not None:
            self._raise(GenerationForm.FIRST, packed.attachment)
            self.nodes[packed.node] = max(packed.node_generation, self.nodes.get(packed.node, 0))

    def _raise(self, form: GenerationForm, generation: int) -> None:
        self.suffixes[form] = self.suffixes.get(form, 0) + 1
        self._highest[form] = max(generation, self._highest.get(form, 0))


def scan(keys: Iterable[str], prefix: str, tenants: Collection[str] = ()) -> list[Found]:
    """Return what the objects under `prefix` say of each tenant: the first part of the key after it.

    Names of `tenants` may hold slashes: a key belongs to each of them whose folder it is in, and to its first
    part only if there is none. Where one tenant's folder is inside another's, or a name ends in hex digits by
    chance, a number can be found too high, which costs numbers, never too low. Keys without a part after the
    prefix belong to no tenant.
    """
    found: dict[str, Found] = {}
    known = frozenset(tenants)
    for key in keys:
        path = key[len(prefix) :]
        for tenant in _owners(path, known):
            if tenant not in found:
                found[tenant] = Found(tenant)
            found[tenant].add(key, path[len(tenant) + 1 :])
    return sorted(found.values(), key=lambda each: each.tenant)


def _owners(path: str, tenants: frozenset[str]) -> list[str]:
    first, at = path.partition("/")[0], path.find("/")
    owners = []
    while at >= 0:
        if path[:at] in tenants:
            owners.append(path[:at])
        at = path.find("/", at + 1) if tenants else -1
    return owners or ([first] if first and first != path else [])


def node_generations(found: Iterable[Found]) -> dict[int, int]:
    """Return the highest node generation of each node number, over all packed suffixes."""
    highest: dict[int, int] = {}
    for each in found:
        for number, generation in each.nodes.items():
            highest[number] = max(generation, highest.get(number, 0))
    return dict(sorted(highest.items()))


def check_not_below(plan: Plan, found: Iterable[Found], known: Mapping[str, int] | None = None) -> None:
    """Raise RequestRefused `below-scan` when a number is lower than what the bucket says.

    `known` has the generations of nodes that the log knows: they count, not those of their rows.
    A second holder of a number that is in use would delete what is referenced, so the whole file is refused.
    The generations of a node stand in the keys of every tenant that it ever held, so the keys of tenants that
    the file does not name count too; those of a tenant of the final form only look packed by chance.
    """
    seen = {each.tenant: each for each in found}
    final = {row.tenant for row in plan.tenants if row.form is GenerationForm.FINAL}
    nodes: dict[int, int] = {}
    if plan.nodes or len(final) < len(plan.tenants):
        nodes = node_generations(each for each in seen.values() if each.tenant not in final)
    numbers = {row.number for row in plan.nodes}
    faults = [
        *_told("tenant", "would start too low", list(_low_tenants(plan, seen))),
        *_told("node", "would start too low", list(_low_nodes(plan, nodes, known or {}))),
        *_told(
            "node number",
            "used by keys but not named in the file",
            [f"{number} at {generation}" for number, generation in nodes.items() if number not in numbers],
        ),
    ]
    if faults:
        hint = "each node number that keys carry needs a row in the file: node, number, node_generation"
        raise RequestRefused("below-scan", "; ".join(faults), hint=hint if nodes.keys() - numbers else None)


def of_other_form(plan: Plan, found: Iterable[Found]) -> list[str]:
    """Return the tenants that have suffixes of the form in which they are not imported.

    This is for people to look at: names of a tenant without generations may look packed by chance.
    """
    forms = {row.tenant: row.form for row in plan.tenants}
    return [
        each.tenant for each in found if each.tenant in forms and set(each.suffixes) - {forms[each.tenant]}
    ]


def _low_tenants(plan: Plan, seen: Mapping[str, Found]) -> Iterator[str]:
    for row in plan.tenants:
        highest = seen[row.tenant].highest(row.form) if row.tenant in seen else None
        if highest is not None and (row.generation is None or row.generation < highest):
            yield f"{row.tenant} at {or_none(row.generation)}, found {highest}"
    for numbers in plan.transactions:
        place = numbers.number_place
        highest = seen[numbers.tenant].transaction(place) if numbers.tenant in seen else 0
        if numbers.newest < highest:
            yield f"{numbers.tenant} at {numbers.newest}, found {highest}"


def _low_nodes(plan: Plan, nodes: Mapping[int, int], known: Mapping[str, int]) -> Iterator[str]:
    for row in plan.nodes:
        generation = max(row.generation, known.get(row.node, 0))
        if generation < nodes.get(row.number, 0):
            yield f"{row.node} (number {row.number}) at {generation}, found {nodes[row.number]}"


def _told(noun: str, what: str, cases: list[str]) -> Iterator[str]:
    if cases:
        more = "; …" if len(cases) > _TOLD else ""
        yield f"{counted(len(cases), noun)} {what}: {'; '.join(cases[:_TOLD])}{more}"


def or_none(generation: int | None) -> int | str:
    """Return a generation as it is reported: a tenant may have none, which is not 0."""
    return "none" if generation is None else generation
