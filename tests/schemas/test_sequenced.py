"""Where sequenced files and their boundary lie, and how a boundary is read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.schemas.errors import InvalidFormat
from sexton.schemas.sequenced import MAX_BOUNDARY, Namespace, boundary_text, parse_boundary

MANIFESTS = Namespace("db", "manifest")
FIRST = "db/manifest/00000000000000000001.manifest"


def test_files_and_boundary_lie_where_the_published_engine_has_them() -> None:
    """Root, name, 20 digits; the boundary beside the folders of all namespaces."""
    assert MANIFESTS.key(25) == "db/manifest/00000000000000000025.manifest"
    assert MANIFESTS.boundary_key == "db/gc/manifest.boundary"
    assert (MANIFESTS.text, MANIFESTS.folder) == ("db/manifest", "db/manifest/")
    assert Namespace("", "compactions").boundary_key == "gc/compactions.boundary"
    assert Namespace("a/b", "x").key(0) == "a/b/x/00000000000000000000.x"


@given(st.integers(0, MAX_BOUNDARY))
def test_the_id_of_a_key_is_the_one_it_was_made_from(id: int) -> None:
    """And keys have the order of ids."""
    assert MANIFESTS.id_of(MANIFESTS.key(id)) == id
    assert id == 0 or MANIFESTS.key(id - 1) < MANIFESTS.key(id)


@pytest.mark.parametrize(
    "key",
    [
        "",
        "db/manifest/",
        "db/manifest/1.manifest",
        "db/manifest/00000000000000000001.manifest.bak",
        "db/manifest/00000000000000000001.MANIFEST",
        "db/manifest/00000000000000000001.compactions",
        "db/manifest/000000000000000000001.manifest",
        "db/manifest/18446744073709551616.manifest",
        "db/manifest/0000000000000000000x.manifest",
        "db/manifest/+0000000000000000001.manifest",
        "db/manifest/٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠١.manifest",
        "db/manifest/a/00000000000000000001.manifest",
        "db/manifest//00000000000000000001.manifest",
        "other/manifest/00000000000000000001.manifest",
        "db2/manifest/00000000000000000001.manifest",
        "00000000000000000001.manifest",
        f"{FIRST}\n",
    ],
)
def test_b_2_what_is_not_exactly_a_file_of_the_namespace_has_no_id(key: str) -> None:
    """B-2: another namespace, another name, other digits."""
    assert MANIFESTS.id_of(key) is None


@pytest.mark.parametrize(
    ("root", "name"),
    [("db/", "x"), ("/db", "x"), ("a//b", "x"), ("..", "x"), ("a/./b", "x"), ("db", ""), ("db", "a/b"),
     ("db", ".."), ("db", "gc"), (None, "x"), ("db", 3)],
)  # fmt: skip
def test_names_that_not_every_reader_takes_for_the_same_are_refused(root: str, name: str) -> None:
    """And the name whose files would lie among the boundaries."""
    with pytest.raises(InvalidFormat):
        Namespace(root, name)


@pytest.mark.parametrize("body", [b"3", b"3\n", b" 3 ", b"\t3\r\n", b"03", b"00000000000000000003"])
def test_b_4_a_boundary_is_read_as_the_published_engine_reads_it(body: bytes) -> None:
    """B-4: digits, with white space around them or not."""
    assert parse_boundary(body) == 3


@pytest.mark.parametrize(
    "body",
    [b"", b" ", b"\n", b"12x", b"-1", b"+1", b"1 2", b"1_000", b"0x10", b"1.0", b"3\x00", b"9" * 30,
     b"0" * 30, b"18446744073709551616", "٣".encode(), b"\xff", b"\xef\xbb\xbf3"],
)  # fmt: skip
def test_b_4_what_is_no_u64_in_digits_is_no_boundary(body: bytes) -> None:
    """B-4: empty, other characters, a sign, too large: a typed error, never a number."""
    with pytest.raises(InvalidFormat, match="a boundary is a number of at most 64 bits in digits"):
        parse_boundary(body)


@given(st.integers(0, MAX_BOUNDARY))
def test_a_boundary_is_written_as_digits_alone_and_read_back(id: int) -> None:
    """Without a line end."""
    assert boundary_text(id) == str(id).encode()
    assert parse_boundary(boundary_text(id)) == id


@pytest.mark.parametrize("id", [-1, MAX_BOUNDARY + 1])
def test_what_has_more_than_64_bits_is_never_written(id: int) -> None:
    """Neither as a boundary nor as a file."""
    with pytest.raises(InvalidFormat):
        boundary_text(id)
    with pytest.raises(InvalidFormat):
        MANIFESTS.key(id)
