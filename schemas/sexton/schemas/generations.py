"""Generation numbers in both published forms, and the key suffixes that carry them.

Final form: one u32 for each attachment, suffix `-%08x`. First form: attachment generation (24 bits), node id
(16 bits) and node generation (24 bits) packed into a u64, most significant first, suffix `-%016x`.
A suffix is parsed strictly: what is not exactly of the form is part of the name (K-1). The generation of a
*guard* is never taken from a key: a client's key may end in hex digits by chance (K-5).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from sexton.schemas.errors import InvalidFormat

__all__ = [
    "MAX_GENERATION",
    "MAX_NODE",
    "MAX_PACKED_PART",
    "PackedGeneration",
    "check_generation",
    "parse_packed_suffix",
    "parse_suffix",
    "suffix",
]

MAX_GENERATION = 0xFFFF_FFFF
MAX_PACKED_PART = 0xFF_FFFF
MAX_NODE = 0xFFFF
_SUFFIX = re.compile(r"(?s)(?P<name>.*)-(?P<hex>[0-9a-f]{8})\Z")
_PACKED_SUFFIX = re.compile(r"(?s)(?P<name>.*)-(?P<hex>[0-9a-f]{16})\Z")
_PACKED_TEXT = re.compile(r"([0-9a-f]{8})-([0-9a-f]{4})-([0-9a-f]{8})\Z")


def check_generation(generation: int) -> int:
    """Return the number; raises InvalidFormat unless it is an int in 0..2^32-1."""
    return _check("generation", generation, MAX_GENERATION)


def suffix(generation: int) -> str:
    """Return the key suffix of a u32 generation: 10 -> `-0000000a`."""
    return f"-{check_generation(generation):08x}"


def parse_suffix(key: str) -> tuple[str, int | None]:
    """Split a key into name and generation; a key without a suffix of the exact form has none (not 0)."""
    match = _SUFFIX.match(key)
    return (match["name"], int(match["hex"], 16)) if match else (key, None)


def parse_packed_suffix(key: str) -> tuple[str, PackedGeneration | None]:
    """Split a key of the first form into name and packed generation."""
    match = _PACKED_SUFFIX.match(key)
    return (match["name"], PackedGeneration.unpack(int(match["hex"], 16))) if match else (key, None)


@dataclass(frozen=True, slots=True, order=True)
class PackedGeneration:
    """Generation of the first form; ordered as its packed number is."""

    attachment: int
    node: int
    node_generation: int

    def __post_init__(self) -> None:
        _check("attachment generation", self.attachment, MAX_PACKED_PART)
        _check("node", self.node, MAX_NODE)
        _check("node generation", self.node_generation, MAX_PACKED_PART)

    def pack(self) -> int:
        """Return the u64: 24 bits attachment, 16 bits node, 24 bits node generation."""
        return self.attachment << 40 | self.node << 24 | self.node_generation

    @classmethod
    def unpack(cls, packed: int) -> PackedGeneration:
        """Return the parts of a u64; raises InvalidFormat outside 0..2^64-1."""
        _check("packed generation", packed, 0xFFFF_FFFF_FFFF_FFFF)
        return cls(packed >> 40, packed >> 24 & MAX_NODE, packed & MAX_PACKED_PART)

    @property
    def suffix(self) -> str:
        """Return the key suffix: 16 hex digits of the packed number."""
        return f"-{self.pack():016x}"

    def __str__(self) -> str:
        return f"{self.attachment:08x}-{self.node:04x}-{self.node_generation:08x}"

    @classmethod
    def parse(cls, text: str) -> PackedGeneration:
        """Return the value of a text such as `00000007-0000-00000001`; raises InvalidFormat."""
        match = _PACKED_TEXT.match(text)
        if not match:
            raise InvalidFormat(f"not a packed generation: {text!r}")
        return cls(*(int(part, 16) for part in match.groups()))


def _check(what: str, number: int, largest: int) -> int:
    if type(number) is not int or not 0 <= number <= largest:
        raise InvalidFormat(f"{what} must be an integer in 0..{largest}: {number!r}")
    return number
