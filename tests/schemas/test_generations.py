"""Numbers, suffixes and their strict parser."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.schemas.errors import InvalidFormat
from sexton.schemas.generations import (
    MAX_GENERATION,
    PackedGeneration,
    check_generation,
    parse_packed_suffix,
    parse_suffix,
    suffix,
)

U64 = 2**64 - 1


def test_k_1_a_suffix_is_a_generation() -> None:
    """K-1: eight lower-case hex digits after a dash are the generation."""
    assert parse_suffix("index_part.json-0000000a") == ("index_part.json", 10)


@pytest.mark.parametrize(
    "key",
    [
        "index_part.json",
        "x-a",
        "x-0000000A",
        "x-+000000a",
        "x-0x00000a",
        "x-0000_00a",
        "x-100000000",
        "x-zzzzzzzz",
        "x-00000001.bak",
        "x-٠٠٠٠٠٠٠١",
        "x-00000001\n",
        "x- 0000001",
        "x00000001",
        "",
    ],
)
def test_k_1_what_is_not_exactly_a_suffix_is_part_of_the_name(key: str) -> None:
    """K-1: no other form has a generation, and none is not 0."""
    assert parse_suffix(key) == (key, None)


def test_k_5_a_key_that_ends_in_hex_digits_by_chance_is_only_text_to_a_guard() -> None:
    """K-5: the parser sees a suffix in such a key, so a guard's number must never come from it."""
    from sexton.producers.testing import FakeSexton

    with FakeSexton("n") as sexton:
        tenant = sexton.attach("t")
        tenant.delete("bucket", ["client-deadbeef", "client-00000007"]).wait()

    guards = [guard.generation for intent in sexton.intents for guard in intent.guards]  # type: ignore[union-attr]

    assert guards == [tenant.generation]


@given(st.integers(0, MAX_GENERATION), st.text())
def test_a_suffix_round_trips(generation: int, name: str) -> None:
    """Every u32 is read back exactly, whatever the name."""
    assert parse_suffix(name + suffix(generation)) == (name, generation)


@given(st.integers(0, U64), st.text())
def test_a_packed_suffix_round_trips(packed: int, name: str) -> None:
    """Every u64 is read back exactly, whatever the name."""
    value = PackedGeneration.unpack(packed)

    assert value.pack() == packed
    assert parse_packed_suffix(name + value.suffix) == (name, value)
    assert PackedGeneration.parse(str(value)) == value


@pytest.mark.parametrize("key", ["", "x", "x-0000000a", "x-0000070000000001.bak", "x-000007000000000A"])
def test_what_is_not_exactly_a_packed_suffix_is_part_of_the_name(key: str) -> None:
    """Neither a suffix of the final form nor any other text has a generation of the first form."""
    assert parse_packed_suffix(key) == (key, None)


@given(st.integers(0, U64), st.integers(0, U64))
def test_packed_generations_are_ordered_as_numbers(one: int, other: int) -> None:
    """The attachment generation weighs most, then the node, then its generation."""
    assert (PackedGeneration.unpack(one) < PackedGeneration.unpack(other)) == (one < other)


def test_the_published_example_of_the_first_form() -> None:
    """Attachment 7, node 0, node generation 1."""
    value = PackedGeneration(7, 0, 1)

    assert f"{value.pack():016x}" == "0000070000000001"
    assert value.suffix == "-0000070000000001"
    assert str(value) == "00000007-0000-00000001"


def test_the_largest_values_are_exact() -> None:
    """Neither form loses a bit at its end."""
    value = PackedGeneration(0xFF_FFFF, 0xFFFF, 0xFF_FFFF)

    assert value.pack() == U64
    assert value.suffix == "-ffffffffffffffff"
    assert suffix(MAX_GENERATION) == "-ffffffff"
    assert parse_suffix("x-ffffffff") == ("x", MAX_GENERATION)


@pytest.mark.parametrize("number", [-1, MAX_GENERATION + 1, 1.0, True, "1", None])
def test_a_number_that_is_no_generation_is_refused(number: object) -> None:
    """Only an integer in 0..2^32-1 is a generation."""
    with pytest.raises(InvalidFormat):
        check_generation(number)  # type: ignore[arg-type]


@pytest.mark.parametrize("parts", [(2**24, 0, 0), (0, 2**16, 0), (0, 0, 2**24), (-1, 0, 0)])
def test_a_packed_part_out_of_range_is_refused(parts: tuple[int, int, int]) -> None:
    """A part that is too large would change its neighbour."""
    with pytest.raises(InvalidFormat):
        PackedGeneration(*parts)


@pytest.mark.parametrize("packed", [-1, U64 + 1, 1.0])
def test_a_packed_number_out_of_range_is_refused(packed: int) -> None:
    """Bits above the 64th would be lost, or become a neighbour's."""
    with pytest.raises(InvalidFormat, match="packed generation"):
        PackedGeneration.unpack(packed)


@pytest.mark.parametrize("text", ["7-0-1", "00000007-0000-0000000G", "01000000-0000-00000000", ""])
def test_text_that_is_no_packed_generation_is_refused(text: str) -> None:
    """The text for people has one form."""
    with pytest.raises(InvalidFormat):
        PackedGeneration.parse(text)
