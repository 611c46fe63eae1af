"""Write the tables of docs/tried.md: `python -m tests.support.stores_page` at the root of the tree.

That of the servers comes from running them, so all of them have to be built; that of the named stores from
letting the recorder play each.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

import boto3
from docs.generate import with_table
from tests.support.personalities import PERSONALITIES
from tests.support.s3_stores import STORES, Running, binary_of
from tests.support.tried import tried

from sexton.storage import ALIASINGS, Abilities, Ability, BatchDeleter

__all__ = ["PAGE", "main", "probe_table", "stores_table"]

PAGE = Path(__file__).parents[2] / "docs" / "tried.md"
_ROWS = {
    "DeleteObjects with CRC32": "crc32",
    "DeleteObjects with Content-MD5": "md5",
    "more than 1,000 keys are refused": "refuses_1001",
    "ETag condition checked in the batch": "batch_condition",
    "ETag condition checked in the single call": "single_condition",
    "listing in the order of UTF-8 bytes": "lists_in_order",
    "listing names every key exactly": "lists_exactly",
    "deleting `k` leaves the object `k/`": "keeps_folders",
    "of writers that race exactly one wins": "conditional_writes",
}


def probe_table(found: Mapping[str, Abilities]) -> str:
    """Return what was found, a column for each store."""
    lines = [f"| probe | {' | '.join(found)} |", "|---|" + "---|" * len(found)]
    for title, name in _ROWS.items():
        lines.append(f"| {title} | {' | '.join(str(getattr(a, name)) for a in found.values())} |")
    for aliasing in ALIASINGS:
        kept = " | ".join(_kept(abilities, aliasing.name) for abilities in found.values())
        lines.append(f"| keeps apart: {aliasing.name} | {kept} |")
    return "\n".join(lines) + "\n"


def stores_table() -> str:
    """Return a row for each named store: where it departs, what is done and what refused there."""
    lines = [
        "| store | where it departs | what Sexton does | what it refuses |",
        "|---|---|---|---|",
    ]
    for store in PERSONALITIES.values():
        sources = " ".join(f"[{number}]({url})" for number, url in enumerate(store.sources, 1))
        found = tried(store)
        lines.append(f"| {store.name} {sources} | {store.departs} | {found.done} | {found.refused} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write the tables; that of the servers unless one is missing."""
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(with_table(page, "stores", stores_table()), encoding="utf-8")
    found = {name: _probe(name) for name, (_, build) in STORES.items() if not build or binary_of(build)}
    if len(found) == len(STORES):
        page = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(with_table(page, "probes", probe_table(found)), encoding="utf-8")


def _probe(name: str) -> Abilities:
    start, _ = STORES[name]
    with tempfile.TemporaryDirectory() as folder, start(Path(folder)) as running:
        return _probed(running)


def _probed(running: Running) -> Abilities:
    os.environ.update(running.environ)
    url, region = running.settings.endpoint_url, running.settings.region
    client = boto3.session.Session().client("s3", endpoint_url=url, region_name=region)
    client.create_bucket(Bucket="probed")
    with BatchDeleter(running.settings) as deleter:
        deleter.probe("probed")
        return deleter.probe_writes("probed")


def _kept(abilities: Abilities, aliasing: str) -> str:
    ways = {"batch": (abilities.batch_keeps, abilities.batch_aliases)}
    ways["single"] = (abilities.single_keeps, abilities.single_aliases)
    answers = {
        way: Ability.of(True if aliasing in keeps else False if aliasing in folds else None)
        for way, (keeps, folds) in ways.items()
    }
    if not next(s for s in ALIASINGS if s.name == aliasing).xml:
        return f"{answers['single']} (never in a batch)"
    if answers["batch"] is answers["single"]:
        return str(answers["batch"])
    return ", ".join(f"{way}: {answer}" for way, answer in answers.items())


if __name__ == "__main__":
    main()
