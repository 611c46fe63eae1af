"""What the keys of a bucket say of generations, and that no import starts below it."""

from __future__ import annotations

import pytest
from tests.support.issuing import refused

from sexton.issuer.cli.migration import Plan
from sexton.issuer.cli.scanning import check_not_below, of_other_form, scan
from sexton.schemas.events import GenerationForm, ImportedNode, ImportedTenant

FINAL, FIRST = GenerationForm.FINAL, GenerationForm.FIRST


def test_k_1_the_scan_parses_strictly() -> None:
    """K-1: only suffixes of the exact form count; a tenant without any has none, which is not 0."""
    names = [
        "p/a/index-0000000a",
        "p/a/index-00000009",
        "p/a/x-000000FF",
        "p/a/x-+00000ff",
        "p/a/x-100000000",
        "p/a/x-000000ff.bak",
        "p/b/index",
        "p/c/index-00000000",
        "p/loose-000000ff",
    ]

    found = [(each.tenant, each.highest(FINAL), each.objects) for each in scan(names, "p/")]
    assert found == [("a", 10, 6), ("b", None, 1), ("c", 0, 1)]


def test_names_with_slashes() -> None:
    """A key belongs to every tenant that is asked for and whose folder it is in, else to its first part."""
    names = ["p/org/db1/x-0000000f", "p/org/x-00000003", "p/org/db2/x-00000004", "p//x/x-00000005", "p/a/x"]

    def found(*tenants: str) -> dict[str, tuple[int | None, int]]:
        return {each.tenant: (each.highest(FINAL), each.objects) for each in scan(names, "p/", tenants)}

    assert found() == {"a": (None, 1), "org": (15, 3)}
    assert found("org/db1", "no/such") == {"a": (None, 1), "org": (4, 2), "org/db1": (15, 1)}
    assert found("org", "org/db1", "/x") == {"a": (None, 1), "org": (15, 3), "org/db1": (15, 1), "/x": (5, 1)}
    with refused("below-scan"):
        plan = Plan([ImportedTenant("org/db1", FINAL, 1, None)], [])
        check_not_below(plan, scan(names, "p/", ["org/db1"]))


def test_the_scan_reads_packed_suffixes() -> None:
    """Of the first form the attachment part counts, as a number, up to the largest."""
    names = [f"a/x-{value:016x}" for value in (7 << 40 | 1 << 24 | 9, 2**64 - 1, 9 << 40)]

    (found,) = scan(names, "")
    assert (found.highest(FIRST), found.highest(FINAL)) == (0xFF_FFFF, None)
    assert found.nodes == {0: 0, 1: 9, 0xFFFF: 0xFF_FFFF}


@pytest.mark.parametrize(
    ("generation", "is_low"), [(None, True), (0, True), (9, True), (10, False), (11, False)]
)
def test_a_number_below_what_is_there_is_refused(generation: int | None, is_low: bool) -> None:
    """An import cannot start below the highest number that a tenant's objects carry."""
    found = scan(["a/x-0000000a"], "")
    plan = Plan([ImportedTenant("a", FINAL, generation, None)], [])

    if not is_low:
        check_not_below(plan, found)
        return
    with refused("below-scan") as error:
        check_not_below(plan, found)
    starts = "none" if generation is None else generation
    assert str(error.value) == f"1 tenant would start too low: a at {starts}, found 10"


PACKED = "t/FT/x-0000070009000005"  # attachment 7, node number 9, node generation 5


@pytest.mark.parametrize(
    ("nodes", "reported"),
    [
        ([ImportedNode("nn", 9, 3)], "1 node would start too low: nn (number 9) at 3, found 5"),
        ([ImportedNode("nn", 77, 9)], "1 node number used by keys but not named in the file: 9 at 5"),
        ([], "1 node number used by keys but not named in the file: 9 at 5"),
        ([ImportedNode("nn", 9, 5)], None),
    ],
)
@pytest.mark.parametrize("attachment", ["t/FT/x-0000070009000005", "t/other/x-0000010009000005"])
def test_a_node_generation_below_what_is_there_is_refused(
    nodes: list[ImportedNode], reported: str | None, attachment: str
) -> None:
    """A node number starts above every node generation that any tenant's keys carry, or not at all."""
    found = scan([attachment, "t/FT/x-0000070009000004"], "t/")
    plan = Plan([ImportedTenant("FT", FIRST, 7, None)], nodes)

    if reported is None:
        check_not_below(plan, found)
        return
    with refused("below-scan") as error:
        check_not_below(plan, found)
    assert str(error.value) == reported


@pytest.mark.parametrize(("at_least", "is_low"), [(4, True), (5, False)])
def test_a_node_that_the_log_has_further_up(at_least: int, is_low: bool) -> None:
    """A node that is left as it is starts where the log has it, not where its row says."""
    found = scan([PACKED], "t/")
    plan = Plan([ImportedTenant("FT", FIRST, 7, None)], [ImportedNode("nn", 9, 3)])

    if not is_low:
        check_not_below(plan, found, {"nn": at_least})
        return
    with refused("below-scan"):
        check_not_below(plan, found, {"nn": at_least})


def test_names_that_look_packed_by_chance() -> None:
    """What a tenant of the final form has under packed names is reported, and no node has to answer for
    it.
    """
    found = scan([PACKED, "t/FT/y-00000003"], "t/")
    final = Plan([ImportedTenant("FT", FINAL, 3, None)], [ImportedNode("n", 9, 1)])

    check_not_below(final, found)
    assert of_other_form(final, found) == ["FT"]
    assert of_other_form(Plan([ImportedTenant("a", FINAL, 3, None)], []), found) == []
