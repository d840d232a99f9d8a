"""The state after a round: records in etcd, entries on the switches, and those that should be."""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

import httpx
from msgspec import Struct

from configurators.engine.partials import Request
from configurators.state.network import Network
from configurators.state.wanted import read_count
from configurators.store import keys
from configurators.store.documents import (
    decode_move,
    decode_network,
    decode_plan,
    decode_record,
    decode_space,
)
from configurators.store.etcd.client import Access, Etcd
from configurators.store.model import Record, SpaceDoc
from configurators.streams.packing import unpack_regions
from dzflow.address import Scope
from sdn.network.trees import legs
from sdn.tables.flows import FlowEntry, Output
from tests.oracle import expected_entries
from tests.robustness.record import Stored

Tables = dict[str, tuple[str, ...]]


class EtcdState(Struct, frozen=True):
    """What etcd has."""

    network: Network
    spaces: list[SpaceDoc]
    records: list[Record]
    owners: dict[str, str] = {}  # the configurator of each partition (mode `sna`)
    moves: dict[str, str] = {}  # the phase of each move
    plans: dict[str, str] = {}  # the phase of each plan that is being carried out, by its space
    configurators: frozenset[str] = frozenset()  # that are registered
    wanted: int | None = None  # how many there should be

    def stored(self) -> tuple[Stored, ...]:
        """The records, for the record of the run."""
        return tuple(
            Stored(r.id, r.kind, r.host, r.filter, r.state, r.label or "", r.open)
            for r in self.records
        )

    def unfinished(self) -> list[str]:
        """The records that have an open operation."""
        return [f"{r.id} ({r.label}) is {r.state}: {r.reason}" for r in self.records if r.open]

    def misplaced(self, assigned: bool) -> list[str]:
        """What is wrong with owners, moves, plans and the number of configurators at the end.

        Partitions have owners only where they are `assigned`, in mode `sna`.
        """
        wrong = [f"{name} is still moving: {phase}" for name, phase in self.moves.items()]
        wrong += [
            f"the map of {name} is still being changed: {p}" for name, p in self.plans.items()
        ]
        leaves = {
            str(keys.PartitionName(doc.number, version, leaf))
            for doc in self.spaces
            for version, made in doc.versions.items()
            for leaf in made.map.leaves()
        }
        if assigned:
            for name in sorted(leaves | self.owners.keys()):
                owner = self.owners.get(name)
                if name not in leaves:
                    wrong.append(f"{name} belongs to {owner}, but does not exist")
                elif owner not in self.configurators:
                    wrong.append(f"{name} belongs to {owner}, which is not alive")
        if self.wanted is not None and len(self.configurators) != self.wanted:
            there = ", ".join(sorted(self.configurators))
            wrong.append(f"{self.wanted} configurators are wanted, but there are {there}")
        return wrong

    def paths(self, hosts: Sequence[str]) -> dict[str, tuple[str, ...]]:
        """The switches that events pass from one host to another, see `Paths`."""
        found = {}
        at = {host.id: host.switch for host in self.network.topology.hosts}
        for one in hosts:
            for other in hosts:
                if one != other:
                    passed = {
                        switch
                        for tree in self.network.trees.values()
                        for switch, _ in legs(self.network.topology, tree, one, other)
                    }
                    passed |= {f"@{at[one]}", f"@{at[other]}"}
                    found[f"{one}>{other}"] = tuple(sorted(passed))
        return found

    def rebuilt(self) -> Tables:
        """All entries, computed from the records alone."""
        network = self.network
        rows = {
            switch.id: {
                _of_entry(entry)
                for entry in network.pipeline.base_entries(network.topology, switch.id)
            }
            for switch in network.topology.switches
        }
        for doc in self.spaces:
            for version, made in doc.versions.items():
                active = [
                    Request(
                        record.kind == "advertisement",
                        record.id,
                        record.host,
                        unpack_regions(record.regions[version]),
                    )
                    for record in self.records
                    if record.space == doc.name and record.state == "active"
                ]
                entries = expected_entries(
                    active,
                    made.map,
                    network.topology,
                    network.trees,
                    network.pipeline,
                    Scope(doc.number, version),
                )
                for switch, found in entries.items():
                    rows[switch] |= {_of_entry(entry) for entry in found}
        return {switch: tuple(sorted(found)) for switch, found in rows.items()}


async def read_etcd_state(access: Access) -> EtcdState:
    """Read etcd."""
    async with Etcd(access) as etcd:
        stored = await etcd.get(keys.NETWORK)
        assert stored is not None
        spaces = await etcd.range(keys.SPACES)
        records = await etcd.range(keys.RECORDS)
        owners = await etcd.range(keys.OWNERS)
        moves = await etcd.range(keys.MOVES)
        plans = [decode_plan(item.value) for item in (await etcd.range(keys.PLANS)).items]
        configurators = await etcd.range(keys.CONFIGURATORS)
        wanted = await etcd.get(keys.wanted_key("configurators"))
    return EtcdState(
        Network.of(decode_network(stored.value)),
        [decode_space(item.value) for item in spaces.items],
        [decode_record(item.value) for item in records.items],
        {item.key.removeprefix(keys.OWNERS): item.value.decode() for item in owners.items},
        {item.key.removeprefix(keys.MOVES): decode_move(item.value).phase for item in moves.items},
        {plan.space: plan.phase for plan in plans if plan.running},
        frozenset(item.key.removeprefix(keys.CONFIGURATORS) for item in configurators.items),
        read_count(wanted.value if wanted else None),
    )


async def read_tables(client: httpx.AsyncClient, switches: Iterable[str]) -> Tables:
    """The entries that switches report; httpx.HTTPError if one cannot be read."""

    async def read(switch: str) -> tuple[str, ...]:
        answer = await client.get(f"/switches/{switch}/flows", params={"source": "dp"})
        answer.raise_for_status()
        return tuple(sorted(map(_of_json, answer.json()["items"])))

    names = list(switches)
    return dict(zip(names, await asyncio.gather(*map(read, names)), strict=True))


def _of_json(flow: dict[str, Any]) -> str:
    return _text(
        flow["table"],
        flow["priority"],
        flow["match"],
        flow["in_port"],
        flow["actions"],
        flow["goto"],
    )


def _of_entry(entry: FlowEntry) -> str:
    actions = [
        f"output:{action.port}" if isinstance(action, Output) else f"group:{action.group:#x}"
        for action in entry.actions
    ]
    match = None if entry.match is None else str(entry.match)
    return _text(entry.table, entry.priority, match, entry.in_port, actions, entry.goto)


def _text(
    table: int,
    priority: int,
    match: str | None,
    in_port: int | None,
    actions: Sequence[str],
    goto: int | None,
) -> str:
    return f"{table}/{priority} {match} from {in_port}: {' '.join(sorted(actions))}, goto {goto}"
