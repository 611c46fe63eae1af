"""Bringing tenants in: files, the calls that they make, and the commands on a real bucket."""

from __future__ import annotations

import json
import subprocess
import zlib
from pathlib import Path

import pytest
from tests.support.issuing import keys, redis_of, refused, sexton

from sexton.deploy.local import Installation
from sexton.issuer.answers import NodeState
from sexton.issuer.cli.migration import Plan, Settled, chunks, read_plan, settle
from sexton.issuer.client import IssuerClient
from sexton.issuer.deadline import Deadline
from sexton.issuer.log.positions import Positions
from sexton.schemas.errors import UsageError
from sexton.schemas.events import GenerationForm, ImportedNode, ImportedTenant
from sexton.schemas.generations import PackedGeneration
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
        '{"tenant": "a", "generation": 2, "generation": 1}',
        '{"node": "n", "number": 1, "node_generation": 1, "generation": 5}',
        "tenant,generation,generation\na,2,1\n",
    ],
)
def test_files_that_are_refused(tmp_path: Path, text: str) -> None:
    """Whatever is not understood is an error, and nothing of the file is imported."""
    with pytest.raises(UsageError):
        read_plan(write(tmp_path, text))


_LONG = "9" * 5_000


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        (f'{{"tenant": "a", "generation": {_LONG}}}', "line 1: a number of too many digits"),
        ('{"tenant": ' * 100_000, "line 1: JSON that is nested too deep"),
        (
            f"tenant,generation\na,{_LONG}",
            f"tenants:2: generation must be an integer in 0..4294967295: '{'9' * 59}",
        ),
        (
            '{"tenant": "a", "generation": 1}\n{"tenant": "b"}',
            "tenants:2: the tenant's generation is missing: b",
        ),
        ("tenant,node\na,n\n", "tenants:2: the tenant's generation is missing: a"),
        ("tenant,generation,node\na,41,n\nb", "line 3: too few columns: 1, the header has 3"),
        ("tenant,generation,node\na,41,n\nb,4", "line 3: too few columns: 2, the header has 3"),
        ("tenant,generation\na,1,2,3\n", "line 2: too many columns: 4, the header has 2"),
        ("garbage\n", "line 1: neither a JSON object nor a CSV header: 'garbage' is no column"),
        (
            'garbage\n{"tenant": "a", "generation": 1}',
            "line 1: neither a JSON object nor a CSV header: 'garbage' is no column",
        ),
    ],
)
def test_what_is_missing_is_never_taken_for_none(tmp_path: Path, text: str, reported: str) -> None:
    """A tenant without generations is named so; a line that was cut, or has no such field, is an error."""
    with pytest.raises(UsageError) as error:
        read_plan(write(tmp_path, text))

    assert str(error.value) == reported


def plan_of(*names: str, node: str | None = None) -> Plan:
    """A plan with these tenants at 1; with a node of the first form."""
    nodes = [] if node is None else [ImportedNode(node, 7, 3)]
    return Plan([ImportedTenant(name, FINAL, 1, None) for name in names], nodes)


def node_of(name: str, number: int, generation: int) -> dict[str, NodeState]:
    """A node as the log has it."""
    return {name: NodeState(1, name, number, generation, ())}


def test_the_same_rows_have_the_same_request_id() -> None:
    """Rows decide the id of their call, not what stands after them or who left another one out."""
    many = [f"t{number}" for number in range(5_001)]
    whole, mended = chunks(plan_of(*many, node="n")), chunks(plan_of(*many[:-1], "other", node="n"))

    assert [len(c.tenants) + len(c.nodes) for c in whole] == [1, 5_000, 1]
    same = [a.request_id == b.request_id for a, b in zip(whole, mended, strict=True)]
    assert same == [True, True, False]
    assert len({c.request_id for c in [*whole, *mended]}) == 4
    assert chunks(plan_of(*many, node="n"), {"n"}) == whole[1:]


def test_what_is_left_of_an_import() -> None:
    """Calls whose tenants the log knows all come first, under their ids; nodes that it has are left out."""
    many = [f"t{number}" for number in range(5_001)]
    plan = plan_of(*many, node="n")
    nodes, first, last = chunks(plan)

    assert settle(plan, {}, set()) == Settled([], [nodes, first, last])
    assert settle(plan, node_of("n", 7, 3), set(many[:5_000])) == Settled([first], [last])
    assert settle(plan, node_of("n", 7, 9), {*many, "x"}) == Settled([first, last], [])


def test_what_cannot_be_imported_is_told_before_anything_is() -> None:
    """A tenant that the log knows, a node that it has otherwise, a holder that nobody registered."""
    plan = plan_of("a", "b", "c", node="n")

    with refused("tenant-known") as error:
        settle(plan, {}, {"b", "x"})
    assert str(error.value) == "the log knows 1 tenant (b); nothing is imported"
    for otherwise in (node_of("n", 8, 3), node_of("n", 7, 2)):
        with refused("node-known"):
            settle(plan, otherwise, set())
    with refused("node-not-registered"):
        settle(Plan([ImportedTenant("a", FIRST, 1, "m")], plan.nodes), {}, set())
    settle(Plan([ImportedTenant("a", FIRST, 1, "n")], plan.nodes), {}, set())


def run(installation: Installation, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run one command of the issuer in an installation."""
    return sexton(installation, "issuer", *arguments)


# Each would be above the highest generation there is, were it taken for a suffix.
NO_SUFFIXES = (
    *("-b", "-0000000B", "-+00000ff", "-0x0000ff", "-0000_0ff", "-100000000", "-zzzzzzzz", "-0000000b.bak"),
    *("-\u0660\u0660\u0660\u0660\u0660\u0660\u0669\u0669", "- 00000ff", "-00000000000000ff"),
)


@pytest.mark.real
def test_k_1_scan_and_import(
    shared: Installation,
    issuer: IssuerClient,
    unique: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """K-1: scan the bucket, be refused below it, import, run it again, attach above it; by true suffixes."""
    for name, value in shared.environment.items():
        if name.startswith("AWS_"):
            monkeypatch.setenv(name, value)
    store = ObjectStore(StoreSettings.of(shared.settings))
    one, two = f"{unique}-1", f"{unique}-2"
    names = [f"{one}/index_part.json-0000000a", f"{one}/layer-00000002", f"{two}/index_part.json"]
    names += [f"{tenant}/index_part.json{end}" for tenant in (one, two) for end in NO_SUFFIXES]
    for name in names:
        store.put(shared.bucket, f"{unique}/{name}", b"x")
    place = f"s3://{shared.bucket}/{unique}"

    scanned = [
        json.loads(line) for line in run(shared, "scan", place, "--format", "json").stdout.splitlines()
    ]
    assert [(s["tenant"], s["generation"], s["objects"]) for s in scanned] == [
        (one, 10, 2 + len(NO_SUFFIXES)),
        (two, None, 1 + len(NO_SUFFIXES)),
    ]
    low = write(tmp_path, f"tenant,generation\n{one},9\n{two},\n", "low.csv")
    good = write(tmp_path, f"tenant,generation\n{one},10\n{two},\n", "good.csv")
    refusal = run(shared, "import", str(low), "--scan", place)
    assert (refusal.returncode, "found 10" in refusal.stderr, issuer.tenant(two)) == (1, True, None)
    for _ in "12":
        done = run(shared, "import", str(good), "--scan", place)
        assert done.returncode == 0, done.stderr

    assert [issuer.attach("n", t).generation for t in (one, two)] == [11, 1]
    assert len(list(store.list_keys(shared.bucket, f"{unique}/"))) == len(names)
    assert run(shared, "import", str(low)).returncode == 1
    assert "imported    log offset" in run(shared, "show", one).stdout


@pytest.mark.real
@pytest.mark.slow
def test_an_import_is_all_or_nothing(
    shared: Installation, issuer: IssuerClient, unique: str, tmp_path: Path
) -> None:
    """A tenant that is known, wherever it stands, keeps all others out; the mended file goes in."""
    names = [f"{unique}-{number}" for number in range(5_002)]
    node = {"node": f"{unique}-n", "number": zlib.crc32(unique.encode()) % 60_000, "node_generation": 3}

    def file(*tenants: str) -> Path:
        rows = [node, *({"tenant": tenant, "generation": 7} for tenant in tenants)]
        return write(tmp_path, "\n".join(map(json.dumps, rows)), "rows.jsonl")

    issuer.attach("n", names[-1])
    refusal = run(shared, "import", str(file(*names)))
    assert (refusal.returncode, names[-1] in refusal.stderr) == (1, True)
    assert (issuer.tenant(names[0]), issuer.node(f"{unique}-n")) == (None, None)

    # An import that ends after its first calls, as if it had been killed.
    with IssuerClient.of(shared.settings, caller="sexton issuer import") as killed:
        for chunk in chunks(read_plan(file(*names)))[:-1]:
            killed.import_tenants(chunk.tenants, chunk.nodes, chunk.request_id)
    assert run(shared, "import", str(file(*names))).returncode == 1
    for _ in "12":
        done = run(shared, "import", str(file(*names[:-1])))
        assert done.returncode == 0, done.stderr
    found = [issuer.tenant(name) for name in (names[0], names[-2], names[-1])]
    assert [each.generation for each in found if each] == [7, 7, 1]
    assert run(shared, "import", str(file(*names[1:-1]))).returncode == 1


@pytest.mark.real
def test_a_scan_that_finds_nothing_is_told(
    shared: Installation, unique: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name with a slash is found; a place without a key of the file, or a tenant without one, is
    reported.
    """
    for name, value in shared.environment.items():
        if name.startswith("AWS_"):
            monkeypatch.setenv(name, value)
    ObjectStore(StoreSettings.of(shared.settings)).put(shared.bucket, f"{unique}/o/{unique}/x-0000000f", b"x")
    place = f"s3://{shared.bucket}/{unique}"
    low, good = (
        write(tmp_path, f"tenant,generation\no/{unique},{number}\n{unique}-2,1\n", f"{number}.csv")
        for number in (1, 15)
    )

    assert "found 15" in run(shared, "import", str(low), "--scan", place).stderr
    nowhere = run(shared, "import", str(good), "--scan", f"{place}z", "--scan", f"{place}/o/{unique}")
    assert (nowhere.returncode, "no key of a tenant in the file was found" in nowhere.stderr) == (1, True)
    done = run(shared, "import", str(good), "--scan", f"{place}z", "--scan", place)
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[:2] == [
        f"warning: {place}z: no key of a tenant in the file; is the prefix right?",
        f"warning: 1 tenant without a key in any place: {unique}-2",
    ]


@pytest.mark.real
@pytest.mark.slow
def test_scan_and_import_of_the_first_form(
    shared: Installation, issuer: IssuerClient, unique: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No node generation of a bucket is handed out again: the node starts above, or nothing is imported."""
    for name, value in shared.environment.items():
        if name.startswith("AWS_"):
            monkeypatch.setenv(name, value)
    one, two, node = f"{unique}-1", f"{unique}-2", f"{unique}-n"
    for tenant in (one, two):
        key = f"{unique}/{tenant}/x{PackedGeneration(7, 40_009, 5).suffix}"
        ObjectStore(StoreSettings.of(shared.settings)).put(shared.bucket, key, b"x")
    place = f"s3://{shared.bucket}/{unique}/"

    def rows(tenant: str, *nodes: dict[str, object]) -> Path:
        first = {"tenant": tenant, "generation": 7, "form": "first"}
        return write(tmp_path, "\n".join(map(json.dumps, [*nodes, first])), "rows.jsonl")

    def row(generation: int) -> dict[str, object]:
        return {"node": node, "number": 40_009, "node_generation": generation}

    printed = run(shared, "scan", place, "--form", "first", "--format", "json").stdout.splitlines()
    assert json.loads(printed[-1]) == {"number": 40_009, "node_generation": 5}
    for nodes in ([row(3)], []):
        refusal = run(shared, "import", str(rows(one, *nodes)), "--scan", place)
        assert (refusal.returncode, issuer.tenant(one), issuer.node(node)) == (1, None, None)
        assert "found 5" in refusal.stderr or "40009 at 5" in refusal.stderr
    for _ in "12":
        done = run(shared, "import", str(rows(one, row(5))), "--scan", place)
        assert done.returncode == 0, done.stderr
    assert issuer.register_node(node).generation == 6
    # The node is the log's now; the tenants that come later name it all the same.
    later = run(shared, "import", str(rows(two, row(5))), "--scan", place)
    assert later.returncode == 0, later.stderr


@pytest.mark.real
@pytest.mark.slow
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
    client.hset(key, f"{unique}-\xff".encode("latin-1"), b"\xfe\n")

    done = run(shared, "verify", "--format", "json")
    rows = {row["tenant"]: row for row in map(json.loads, done.stdout.splitlines())}

    assert done.returncode == 1
    assert set(rows) == {f"{unique}-{name}" for name in ("lost", "changed", "strange", r"\xff")}
    assert rows[rf"{unique}-\xff"]["redis"] == "\\xfe\n"
    assert run(shared, "verify").returncode == 1
    assert (rows[f"{unique}-lost"]["redis"], rows[f"{unique}-strange"]["log"]) == (None, None)
    assert run(shared, "rebuild").returncode == 0
    assert run(shared, "verify").returncode == 0
    client.close()
