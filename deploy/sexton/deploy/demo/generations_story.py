"""The story of generations: two nodes, three tenants, a compaction, a move, a stale owner, garbage.

Keys have the published engine's form: layers `tenants/<id>/timelines/<id>/<range>__<lsns>-<generation>`, and
one index object for each timeline, `index_part.json-<generation>`, which names the layers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from confluent_kafka import Producer

from sexton.deploy.demo.checks import Check
from sexton.deploy.demo.generations_checks import Expected, checks
from sexton.deploy.demo.story import Story
from sexton.producers import Sexton, Tenant
from sexton.schemas import records

__all__ = ["GARBAGE", "TENANTS", "GenerationsStory"]

GARBAGE = b"\x00\x01not an intent at all"
_LAYERS = 4
_DELIVERY_S = 30.0
TENANTS = {
    "ember": "3f6a1c0de58b47d29a6e0b1f2c3d4e5f",
    "fern": "a9c4e2b17d3f48069be5d1c0f2a37b64",
    "flint": "c0ffee5ad1024b8e9f7a6b5c4d3e2f10",
}
_TIMELINE = "de200bd42b49cc1814412c7e592dd6e9"


@dataclass
class GenerationsStory(Story):
    """Plays the story on an installation; `reap` runs the reaper until everything there is processed."""

    layers: dict[str, list[str]] = field(default_factory=dict)

    def play(self) -> None:
        """Tell the whole story; `evidence` and `checks` are for afterwards."""
        with (
            Sexton.connect(node="node-A", settings=self.settings) as a,
            Sexton.connect(node="node-B", settings=self.settings) as b,
        ):
            owned = self._attach(a)
            self._compaction(owned["ember"])
            stale = owned["fern"]
            self._asks_before_the_move(stale)
            fresh = self._move(b)
            self._reap()
            self._stale_owner(stale, fresh)
            self._garbage()
            self._reap()

    def checks(self) -> Mapping[str, Check]:
        """Return every check of the story, by what it promises."""
        asked = self.asked
        return checks(Expected(asked["compaction"], asked["before"], asked["after"], GARBAGE))

    # --- the chapters ---------------------------------------------------------------------------------------

    def _attach(self, node: Sexton) -> dict[str, Tenant]:
        self.narrator.chapter("Node A attaches three tenants and writes their first objects")
        owned = {}
        for name, tenant_id in TENANTS.items():
            tenant = owned[name] = self._attached(node, tenant_id)
            self.layers[tenant_id] = [self._put(tenant, _layer(i, i + 1)) for i in range(_LAYERS)]
            self._put_index(tenant)
            index = _short(self.index_keys[tenant_id])
            self.narrator.say(f"{name}: generation {tenant.generation}, {_LAYERS} layers, {index}")
        return owned

    def _compaction(self, tenant: Tenant) -> None:
        self.narrator.chapter("A compaction replaces ember's layers by one")
        old = self.layers[tenant.name]
        self.layers[tenant.name] = [self._put(tenant, _layer(0, _LAYERS))]
        self.narrator.say("put the new layer, then an index that no longer names the old ones ...")
        self._ask("compaction", tenant, old)
        self.narrator.say(f"... acknowledged; only now the SDK asks for {len(old)} deletions")
        self._reap()

    def _asks_before_the_move(self, tenant: Tenant) -> None:
        self.narrator.chapter("The reaper is down; node A asks for two of fern's layers")
        unlinked, self.layers[tenant.name] = self.layers[tenant.name][:2], self.layers[tenant.name][2:]
        self._ask("before", tenant, unlinked)
        self.narrator.say("the intents wait in Kafka")

    def _move(self, node: Sexton) -> Tenant:
        self.narrator.chapter("Fern moves to node B; node A does not hear of it")
        tenant = self._attached(node, TENANTS["fern"])
        old_index = _short(self.index_keys[tenant.name])
        self._put_index(tenant)
        self.narrator.say(
            f"node B holds generation {tenant.generation}: it has read {old_index} "
            f"and writes {_short(self.index_keys[tenant.name])}"
        )
        self.narrator.say("the reaper comes back: what A asked for before the move is covered by its window")
        return tenant

    def _stale_owner(self, stale: Tenant, fresh: Tenant) -> None:
        self.narrator.chapter("Node A, still sure that it owns fern, compacts again")
        live = self.layers[fresh.name]
        self.narrator.say(f"it asks for {len(live)} layers that node B's index names")
        index = stale.key(f"{_folder(stale.name)}/index_part.json")
        receipt = stale.replace_index(
            lambda: self._put_object(index, json.dumps({"layers": []})), unlinked=live, bucket=self.bucket
        )
        receipt.wait(timeout=_DELIVERY_S)
        self.asked["after"] = receipt.intent_ids

    def _garbage(self) -> None:
        self.narrator.chapter("Somebody's tool writes garbage into the intents topic")
        producer = Producer(self.settings.kafka(acks="all"))
        producer.produce(self.settings.topic(records.INTENTS), GARBAGE, key=b"tool")
        producer.flush(_DELIVERY_S)
        self.narrator.say(f"the bytes {GARBAGE!r}")

    # --- what services do -----------------------------------------------------------------------------------

    def _attached(self, node: Sexton, tenant_id: str) -> Tenant:
        tenant = node.attach(tenant_id)
        self.granted.append((tenant_id, tenant.generation))
        return tenant

    def _ask(self, chapter: str, tenant: Tenant, unlinked: list[str]) -> None:
        receipt = tenant.replace_index(lambda: self._put_index(tenant), unlinked=unlinked, bucket=self.bucket)
        receipt.wait(timeout=_DELIVERY_S)
        self.asked[chapter] = receipt.intent_ids

    def _put(self, tenant: Tenant, name: str) -> str:
        key = tenant.key(f"{_folder(tenant.name)}/{name}")
        self._put_object(key, f"data of {key}")
        return key

    def _put_index(self, tenant: Tenant) -> None:
        key = tenant.key(f"{_folder(tenant.name)}/index_part.json")
        self._put_object(key, json.dumps({"layers": self.layers[tenant.name]}))
        self.index_keys[tenant.name] = key


def _folder(tenant_id: str) -> str:
    return f"tenants/{tenant_id}/timelines/{_TIMELINE}"


def _short(key: str) -> str:
    return key.rpartition("/")[2]


def _layer(start: int, end: int) -> str:
    first, last = "0" * 36, "F" * 36
    return f"{first}-{last}__{0x16960E8 + start * 0x1000:016X}-{0x16960E8 + end * 0x1000:016X}"
