"""Keeps one switch behind ONOS as it should be: carries out its work, and repairs what differs."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import msgspec

from dzflow.errors import DzflowError
from sdn.fence import Fence
from sdn.flows import Change, FlowEntry, FlowKey, FlowOp, in_safe_order
from sdn.onos import codec
from sdn.onos.client import Client, Gate, OnosError, OnosRefused
from sdn.onos.listing import Held, Lister, Listing
from sdn.onos.options import OnosOptions
from sdn.onos.rounds import Round, RuleOp, split
from sdn.onos.trees import Trees
from sdn.onos.turns import TooManyWait, Turns
from sdn.onos.wire import ADDED, FAILED, FlowName, FlowNames, NewFlows, device_id
from sdn.outcomes import Acknowledged, Failed, Outcome, Undefined
from sdn.pipeline import Pipeline
from sdn.shadow import BASE, PartitionOf, Shadow
from sdn.topology import Switch, Topology

# A deletion can take other rules along that share its id; they are put back in the next pass.
_PASSES = 4
_NOT_SENT = "not sent, for an operation before it was refused"


class NotConfirmed(DzflowError):
    """ONOS has not reported in time that a switch did what it was told."""


class Site(NamedTuple):
    """What entries of a switch mean in the network as it is now."""

    trees: Trees
    ports: Mapping[int, int | None]  # of each group; None if its host is gone
    base: tuple[FlowEntry, ...]


def site_of(switch: str, topology: Topology, pipeline: Pipeline, trees: tuple[int, ...]) -> Site:
    """The site of a switch."""
    first = pipeline.first_group
    ports: dict[int, int | None] = dict.fromkeys(
        range(first, first + len(pipeline.groups.get(switch, ())))
    )
    ports |= {group.group: group.port for group in pipeline.base_groups(topology, switch)}
    base = tuple(pipeline.base_entries(topology, switch))
    return Site(Trees(pipeline.first_table, trees), ports, base)


class Keeper:
    """One switch: its shadow, and the work under way for it; `down` tells why it cannot be used."""

    def __init__(
        self,
        switch: Switch,
        site: Site,
        client: Client,
        fence: Fence,
        partition_of: PartitionOf,
        options: OnosOptions,
        on_repair: Callable[[str, int], None],
    ) -> None:
        self.switch = switch.id
        self.device = device_id(switch.dpid)
        self.down: str | None = "ONOS has not been asked for it yet"
        self._partition_of = partition_of
        self.shadow = self._new_shadow()
        self._client = client
        self._fence = fence
        self._options = options
        self._on_repair = on_repair
        self._lister = Lister(client, options.app, self.device)
        self._turns = Turns(options.queue)
        self._spoilt = False  # whether a deletion has taken other rules along
        self._settle(site)

    def _new_shadow(self) -> Shadow:
        return Shadow(lambda rule: self._partition_of(self._site.trees.whole(rule)))

    async def close(self) -> None:
        """Ask ONOS for nothing more."""
        await self._lister.close()

    # Work

    def check(self, entries: Iterable[FlowEntry]) -> None:
        """Raise BadInput if ONOS has no rules for these entries."""
        for entry in entries:
            self._site.trees.check(entry)
            for rule in self._site.trees.expand(entry):
                codec.encode(rule, self.device, self._site.ports)

    def check_ops(self, ops: Iterable[FlowOp]) -> None:
        """Raise BadInput if ONOS has no rules for these operations."""
        ops = list(ops)
        self.check(op.entry for op in ops if op.change is not Change.DELETE)
        for op in ops:
            self._site.trees.expand(op.entry)

    async def apply(self, partition: str, epoch: int, ops: Sequence[FlowOp]) -> Outcome:
        """Carry out operations in a safe order; StaleEpoch if the fence has risen meanwhile."""
        try:
            async with self._turns.take({op.entry.key for op in ops}):
                self._fence.check(partition, epoch)
                if self.down is not None:
                    return self._undefined(self.down)
                outcome = await self._apply(partition, epoch, ops)
        except TooManyWait as error:
            return self._undefined(error)
        if self._spoilt:
            repaired = await self.sync()
            return outcome if isinstance(repaired, Acknowledged) else repaired
        return outcome

    async def _apply(self, partition: str, epoch: int, ops: Sequence[FlowOp]) -> Outcome:
        steps = [
            RuleOp(place, FlowOp(op.change, rule))
            for place, op in enumerate(ops)
            for rule in self._site.trees.expand(op.entry)
        ]
        left = deque(split(steps, self.shadow.entries))
        before = self.shadow.note(partition, ops)
        gate = partial(self._fence.check, partition, epoch)
        refused: dict[int, str] = {}
        try:
            while left and not refused:
                refused = await self._round(left[0], gate, partition)
                left.popleft()
        except (OnosError, NotConfirmed) as error:
            return self._undefined(error)
        finally:
            # Whatever was not carried out for sure is not what the switch should hold.
            unsent = {step.place for one in left for step in one.ops} - refused.keys()
            for place in sorted(unsent | refused.keys(), reverse=True):
                self.shadow.restore([before[place]])
        return Failed(refused | dict.fromkeys(unsent, _NOT_SENT)) if refused else Acknowledged()

    # What the switch should hold

    async def read(self) -> list[FlowEntry]:
        """Our entries as the switch has them now."""
        listing = await self._lister.list()
        return list(self._site.trees.fold(listing.on_switch()))

    async def arrange(self, site: Site) -> Outcome:
        """Bring the switch in line with a changed network."""
        return await self.sync(declare=lambda: self._settle(site))

    async def declare(self, partition: str, epoch: int, expected: list[FlowEntry]) -> None:
        """Say what a partition should have there, when all work that came before is done."""
        async with self._turns.take():
            self._fence.check(partition, epoch)
            self.shadow.declare(partition, expected)

    def forget(self) -> None:
        """Of partitions, it is not known any more what they should have there."""
        self.shadow = self._new_shadow()
        self.shadow.declare(BASE, self._site.base)

    async def reconcile(self, partition: str, epoch: int, expected: list[FlowEntry]) -> Outcome:
        """Bring the switch in line with what a partition should have there."""
        gate = partial(self._fence.check, partition, epoch)

        def declare() -> None:
            gate()
            self.shadow.declare(partition, expected)

        return await self.sync(gate, partition, declare)

    async def sync(
        self,
        gate: Gate = lambda: None,
        owner: str = BASE,
        declare: Callable[[], None] = lambda: None,
        unless_down: bool = True,
    ) -> Outcome:
        """Compare the switch with its shadow and send the difference; never more than that.

        What should hold is declared when all work that came before is done.
        """
        try:
            async with self._turns.take():
                declare()
                if unless_down and self.down is not None:
                    return self._undefined(self.down)
                return await self._sync(gate, owner)
        except (OnosError, NotConfirmed, TooManyWait) as error:
            return self._undefined(error)

    async def _sync(self, gate: Gate, owner: str) -> Outcome:
        done = 0
        repairs: list[FlowOp] = []
        refused: dict[int, str] = {}
        for _ in range(_PASSES):
            self._spoilt = False
            listing = await self._lister.list()
            repairs = self._repairs(listing)
            steps = [RuleOp(place, op) for place, op in enumerate(repairs)]
            found = {key: held.entry for key, held in listing.held.items()}
            for one in split(steps, found):
                refused = await self._round(one, gate, owner)
                if refused:
                    break
            done += len(repairs)
            if listing.odd:
                done += await self._delete_odd(gate, owner)
            if refused or not self._spoilt:
                break
        if done:
            self._on_repair(self.switch, done)
        if refused:
            return Failed(
                {n: f"{_named(repairs[n].entry.key)}: {why}" for n, why in refused.items()}
            )
        return Acknowledged()

    def _repairs(self, listing: Listing) -> list[FlowOp]:
        wanted = {
            rule.key: codec.canonical(rule, self._site.ports)
            for entry in self.shadow.entries.values()
            for rule in self._site.trees.expand(entry)
        }
        # What ONOS still works on, or gave up, is sent again.
        found = {
            key: held.entry
            for key, held in listing.held.items()
            if held.state == ADDED or key not in wanted
        }
        adds = [FlowOp(Change.ADD, rule) for key, rule in wanted.items() if key not in found]
        modifies = [
            FlowOp(Change.MODIFY, rule)
            for key, rule in wanted.items()
            if key in found and found[key] != rule
        ]
        unwanted = [entry for key, entry in found.items() if key not in wanted]
        deletes = [op for op in self.shadow.repair(unwanted) if op.change is Change.DELETE]
        ops = in_safe_order(
            *([(self.switch, op) for op in ops] for ops in (adds, modifies, deletes))
        )
        return [op for _, op in ops]

    def _settle(self, site: Site) -> None:
        self._site = site
        self._lister.groups = {port: g for g, port in site.ports.items() if port is not None}
        self.shadow.declare(BASE, site.base)

    # Calls

    async def _round(self, one: Round, gate: Gate, owner: str) -> dict[int, str]:
        """Send a round and wait until it is done; which operations were refused, and why."""
        places = {step.op.entry.key: step.place for step in one.ops}
        entries = [step.op.entry for step in one.ops]
        if one.deletes:
            await self._delete_rules(places.keys(), gate, owner)
            await self._confirm(dict.fromkeys(places))
            return {}
        refused = await self._add_rules(entries, gate, owner)
        wanted = {e.key: codec.canonical(e, self._site.ports) for e in entries}
        refused |= await self._confirm({k: e for k, e in wanted.items() if k not in refused})
        return {places[key]: reason for key, reason in refused.items()}

    async def _add_rules(
        self, entries: list[FlowEntry], gate: Gate, owner: str
    ) -> dict[FlowKey, str]:
        refused: dict[FlowKey, str] = {}
        for at in range(0, len(entries), self._options.chunk):
            chunk = entries[at : at + self._options.chunk]
            flows = [codec.encode(entry, self.device, self._site.ports) for entry in chunk]
            body = msgspec.json.encode(NewFlows(flows))
            app = {"appId": self._options.app}
            try:
                await self._client.write(
                    "POST", "flows", body=body, gate=gate, owner=owner, params=app
                )
            except OnosRefused as error:
                refused |= dict.fromkeys((entry.key for entry in chunk), str(error))
        return refused

    async def _delete_rules(self, keys: Iterable[FlowKey], gate: Gate, owner: str) -> None:
        held = (await self._lister.list()).held
        doomed = {key: held[key].id for key in keys if key in held}
        await self._delete(doomed.values(), gate, owner)
        ids = set(doomed.values())
        self._note_spoilt(ids, (one for key, one in held.items() if key not in doomed))

    async def _delete_odd(self, gate: Gate, owner: str) -> int:
        """Remove rules of which nothing but the id is known; how many there were."""
        # Asked anew: some may have been replaced by what should be in their place.
        listing = await self._lister.list()
        ids = set(listing.odd)
        await self._delete(ids, gate, owner)
        self._note_spoilt(ids, listing.held.values())
        await self._until(
            lambda listing: f"{len(left)} rules stay" if (left := ids & set(listing.odd)) else None
        )
        return len(ids)

    def _note_spoilt(self, deleted: set[str], others: Iterable[Held]) -> None:
        # ONOS deletes by an id with 32 bits of hash, which two rules can have in common.
        if any(one.id in deleted for one in others):
            self._spoilt = True

    async def _delete(self, ids: Iterable[str], gate: Gate, owner: str) -> None:
        names = [FlowName(self.device, one) for one in ids]
        for at in range(0, len(names), self._options.chunk):
            body = msgspec.json.encode(FlowNames(names[at : at + self._options.chunk]))
            await self._client.write("DELETE", "flows", body=body, gate=gate, owner=owner)

    async def _confirm(self, wanted: Mapping[FlowKey, FlowEntry | None]) -> dict[FlowKey, str]:
        """Wait until ONOS reports these rules as added, or with None as gone; those that failed."""
        refused: dict[FlowKey, str] = {}
        failing: set[FlowKey] = set()
        left = dict(wanted)

        def look(listing: Listing) -> str | None:
            nonlocal failing, left
            # The first time may still tell of an attempt before this one.
            seen = {key for key, e in left.items() if e and _failed(e, listing.held.get(key))}
            refused.update(dict.fromkeys(seen & failing, "ONOS reports the rule as FAILED"))
            failing = seen
            left = {
                key: entry
                for key, entry in left.items()
                if key not in refused and not _done(entry, listing.held.get(key))
            }
            if not left:
                return None
            key = next(iter(left))
            state = listing.held[key].state if key in listing.held else "not listed"
            return f"{len(left)} of {len(wanted)} rules are open; {_named(key)} is {state}"

        if left:
            await self._until(look)
        return refused

    async def _until(self, look: Callable[[Listing], str | None]) -> None:
        """Read the rules again and again until nothing is open; NotConfirmed if that takes long."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._options.confirm
        pause = self._options.poll
        while (still := look(await self._lister.list())) is not None:
            if loop.time() >= deadline:
                raise NotConfirmed(f"after {self._options.confirm:g} s, {still}")
            await asyncio.sleep(pause)
            pause = min(2 * pause, self._options.slowest_poll)

    def _undefined(self, reason: object) -> Undefined:
        return Undefined(f"switch {self.switch}: {reason}")


def _done(entry: FlowEntry | None, held: Held | None) -> bool:
    if entry is None or held is None:
        return entry is None and held is None
    return held.state == ADDED and held.entry == entry


def _failed(entry: FlowEntry, held: Held | None) -> bool:
    return held is not None and held.state == FAILED and held.entry == entry


def _named(key: FlowKey) -> str:
    where = "" if key.in_port is None else f" from port {key.in_port}"
    return f"{key.match or 'anything'}{where} in table {key.table}"
