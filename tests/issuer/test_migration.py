"""Bringing tenants in: files, the scan of a bucket, and that no number starts too low."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.issuing import keys, redis_of, refused

from sexton.deploy.local import Installation
from sexton.issuer.client import IssuerClient
from sexton.issuer.deadline import Deadline
from sexton.issuer.migration import Plan, check_not_below, read_plan, scan
from sexton.issuer.positions import Positions
from sexton.schemas.errors import UsageError
from sexton.schemas.events import GenerationForm, ImportedNode, ImportedTenant
from sexton.storage import ObjectStore, StoreSettings

FINAL, FIRST = GenerationForm.FINAL, GenerationForm.FIRST


def write(folder: Path, text: str, name: str = "tenants") -> Path:
    """A file to import."""
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_json_lines(tmp_path: Path) -> None:
    """A number, null for none, a holder, the first form, and nodes."""
    rows: list[dict[str, object]] = [
        {"tenant": "a", "generation": 7},
        {"tenant": "b ☃", "generation": None, "node": "n"},
        {"tenant": "c", "generation": 0},
        {"tenant": "d", "generation": 5, "form": "first", "node": "m"},
        {"node": "m", "number": 9, "node_generation": 3},
    ]
    plan = read_plan(write(tmp_path, "\n".join(json.dumps(row) for row in rows)))

    assert plan.tenants == [
        ImportedTenant("a", FINAL, 7, None),
        ImportedTenant("b ☃", FINAL, None, "n"),
        ImportedTenant("c", FINAL, 0, None),
        ImportedTenant("d", FIRST, 5, "m"),
    ]
    assert plan.nodes == [ImportedNode("m", 9, 3)]


def test_csv(tmp_path: Path) -> None:
    """The same as CSV; an empty generation is none, not 0."""
    plan = read_plan(write(tmp_path, 'tenant,generation,node\na,7,\n"b,c",,n\nd,0,\n'))

    assert [(row.tenant, row.generation, row.node) for row in plan.tenants] == [
        ("a", 7, None),
        ("b,c", None, "n"),
        ("d", 0, None),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "tenant,generation\n",
        '{"tenant": "a"} x',
        '{"generation": 1}',
        '{"tenant": "", "generation": 1}',
        '{"tenant": "a", "generation": -1}',
        '{"tenant": "a", "generation": 4294967296}',
        '{"tenant": "a", "generation": 16777216, "form": "first"}',
        '{"tenant": "a", "generation": 1.0}',
        '{"tenant": "a", "generation": true}',
        '{"tenant": "a", "generation": "0x7"}',
        '{"tenant": "a", "generation": "٣"}',
        '{"tenant": "a", "generatoin": 1}',
        '{"tenant": "a", "generation": 1, "form": "last"}',
        '{"tenant": "a", "generation": 1}\n{"tenant": "a", "generation": 2}',
        '{"tenant": "a", "generation": 1, "number": 3}',
        '{"node": "n", "number": 65536, "node_generation": 1}',
        "tenant,generation\na,1,2,3\n",
    ],
)
def test_files_that_are_refused(tmp_path: Path, text: str) -> None:
    """Whatever is not understood is an error, and nothing of the file is imported."""
    with pytest.raises(UsageError):
        read_plan(write(tmp_path, text))


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

    found = [(each.tenant, each.highest, each.objects) for each in scan(names, "p/", FINAL)]
    assert found == [("a", 10, 6), ("b", None, 1), ("c", 0, 1)]


def test_the_scan_reads_packed_suffixes() -> None:
    """Of the first form the attachment part counts, as a number, up to the largest."""
    names = [f"a/x-{value:016x}" for value in (7 << 40 | 1 << 24 | 9, 2**64 - 1, 9 << 40)]

    (found,) = scan(names, "", FIRST)
    assert (found.highest, found.packed and found.packed.pack()) == (0xFF_FFFF, 2**64 - 1)


@pytest.mark.parametrize(
    ("generation", "is_low"), [(None, True), (0, True), (9, True), (10, False), (11, False)]
)
def test_a_number_below_what_is_there_is_refused(generation: int | None, is_low: bool) -> None:
    """An import cannot start below the highest number that a tenant's objects carry."""
    found = scan(["a/x-0000000a"], "", FINAL)
    plan = Plan([ImportedTenant("a", FINAL, generation, None)], [], "")

    if not is_low:
        check_not_below(plan, found)
        return
    with refused("below-scan"):
        check_not_below(plan, found)


def run(installation: Installation, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run one command of the issuer in an installation."""
    return subprocess.run(
        [sys.executable, "-m", "sexton.deploy.main", "issuer", *arguments],
        env=installation.environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.real
def test_scan_and_import(
    shared: Installation,
    issuer: IssuerClient,
    unique: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A migration: scan the bucket, be refused below it, import, run it again, attach above it."""
    for name, value in shared.environment.items():
        if name.startswith("AWS_"):
            monkeypatch.setenv(name, value)
    store = ObjectStore(StoreSettings.of(shared.settings))
    one, two = f"{unique}-1", f"{unique}-2"
    for key in (f"{one}/layer-0000000a", f"{one}/layer-00000002", f"{two}/layer"):
        store.put(shared.bucket, f"{unique}/{key}", b"x")
    place = f"s3://{shared.bucket}/{unique}"

    scanned = [
        json.loads(line) for line in run(shared, "scan", place, "--format", "json").stdout.splitlines()
    ]
    assert [(s["tenant"], s["generation"], s["objects"]) for s in scanned] == [(one, 10, 2), (two, None, 1)]
    low = write(tmp_path, f"tenant,generation\n{one},9\n{two},\n", "low.csv")
    good = write(tmp_path, f"tenant,generation\n{one},10\n{two},\n", "good.csv")
    refusal = run(shared, "import", str(low), "--scan", place)
    assert (refusal.returncode, "found 10" in refusal.stderr, issuer.tenant(two)) == (1, True, None)
    for _ in "12":
        done = run(shared, "import", str(good), "--scan", place)
        assert done.returncode == 0, done.stderr

    assert [issuer.attach("n", t).generation for t in (one, two)] == [11, 1]
    assert run(shared, "import", str(low)).returncode == 1
    assert "imported    log offset" in run(shared, "show", one).stdout


@pytest.mark.real
def test_verify(shared: Installation, issuer: IssuerClient, unique: str, soon: Deadline) -> None:
    """`verify` reports what Redis lacks, has otherwise, or has too much, and nothing while both agree."""
    for name in ("kept", "lost", "changed"):
        issuer.attach("n", f"{unique}-{name}")
    assert run(shared, "verify").returncode == 0
    client = redis_of(shared.settings)
    positions = Positions(shared.settings)
    key = keys(shared.settings, positions.describe(soon)[positions.log].topic_id)["newest"]
    client.hdel(key, f"{unique}-lost")
    client.hset(key, f"{unique}-changed", "9@9")
    client.hset(key, f"{unique}-strange", "1@1")

    done = run(shared, "verify", "--format", "json")
    rows = {row["tenant"]: row for row in map(json.loads, done.stdout.splitlines())}

    assert done.returncode == 1
    assert set(rows) == {f"{unique}-{name}" for name in ("lost", "changed", "strange")}
    assert (rows[f"{unique}-lost"]["redis"], rows[f"{unique}-strange"]["log"]) == (None, None)
    assert run(shared, "rebuild").returncode == 0
    assert run(shared, "verify").returncode == 0
    client.close()
