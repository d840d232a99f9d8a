"""Reconciles one switch behind ONOS: carries out its batches, and repairs differences."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import msgspec

from dzflow.errors import DzflowError
from sdn.fence import Fence
from sdn.network.topology import Switch, Topology
from sdn.onos import codec
from sdn.onos.client import Gate, OnosClient, OnosError, OnosRefused
from sdn.onos.entry_locks import EntryLocks, TooManyWaiting
from sdn.onos.listing import ListedRule, Lister, Listing
from sdn.onos.options import OnosOptions
from sdn.onos.rounds import Round, RuleOp, split
from sdn.onos.trees import Trees
from sdn.onos.wire import ADDED, FAILED, FlowName, FlowNames, NewFlows, device_id
from sdn.outcomes import Acknowledged, Failed, Outcome, Undefined
from sdn.tables.flows import Change, FlowEntry, FlowKey, FlowOp, in_safe_order
from sdn.tables.pipeline import Pipeline
from sdn.tables.shadow import BASE, PartitionOf, Shadow

# A deletion removes other rules with the same id, too; the next pass puts them back.
_PASSES = 4
_NOT_SENT = "not sent, because ONOS refused an earlier operation"


class NotConfirmed(DzflowError):
    """ONOS has not reported in time that a switch has carried out a change."""


class SwitchLayout(NamedTuple):
    """What the entries of a switch refer to in the current network."""

    trees: Trees
    ports: Mapping[int, int | None]  # by group; None if its host is gone
    base: tuple[FlowEntry, ...]


def layout_of(
    switch: str, topology: Topology, pipeline: Pipeline, trees: tuple[int, ...]
) -> SwitchLayout:
    """The layout of a switch."""
    first = pipeline.groups_of(switch).start
    ports: dict[int, int | None] = dict.fromkeys(
        range(first, first + len(pipeline.groups.get(switch, ())))
    )
    ports |= {group.group: group.port for group in pipeline.base_groups(topology, switch)}
    base = tuple(pipeline.base_entries(topology, switch))
    return SwitchLayout(Trees(pipeline.admission_table(switch), trees), ports, base)


class OnosReconciler:
    """One switch: its shadow, and the work for it; `down` says why it cannot be used."""

    def __init__(
        self,
        switch: Switch,
        layout: SwitchLayout,
        client: OnosClient,
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
        self._locks = EntryLocks(options.queue)
        self._collateral = False  # whether a deletion has removed other rules, too
        self._set_layout(layout)

    def _new_shadow(self) -> Shadow:
        return Shadow(lambda rule: self._partition_of(self._layout.trees.whole(rule)))

    async def close(self) -> None:
        """Send no more requests to ONOS."""
        await self._lister.close()

    # Batches

    def check(self, entries: Iterable[FlowEntry]) -> None:
        """Raise BadInput if ONOS has no rules for these entries."""
        for entry in entries:
            self._layout.trees.check(entry)
            for rule in self._layout.trees.expand(entry):
                codec.encode(rule, self.device, self._layout.ports)

    def check_ops(self, ops: Iterable[FlowOp]) -> None:
        """Raise BadInput if ONOS has no rules for these operations."""
        ops = list(ops)
        self.check(op.entry for op in ops if op.change is not Change.DELETE)
        for op in ops:
            self._layout.trees.expand(op.entry)

    async def apply(self, partition: str, epoch: int, ops: Sequence[FlowOp]) -> Outcome:
        """Carry out operations in a safe order; StaleEpoch if the fence has risen meanwhile."""
        try:
            async with self._locks.hold({op.entry.key for op in ops}):
                self._fence.check(partition, epoch)
                if self.down is not None:
                    return self._undefined(self.down)
                outcome = await self._apply(partition, epoch, ops)
        except TooManyWaiting as error:
            return self._undefined(error)
        if self._collateral:
            repaired = await self.audit()
            return outcome if isinstance(repaired, Acknowledged) else repaired
        return outcome

    async def _apply(self, partition: str, epoch: int, ops: Sequence[FlowOp]) -> Outcome:
        steps = [
            RuleOp(place, FlowOp(op.change, rule))
            for place, op in enumerate(ops)
            for rule in self._layout.trees.expand(op.entry)
        ]
        left = deque(split(steps, self.shadow.entries))
        before = self.shadow.note(partition, ops)
        gate = partial(self._fence.check, partition, epoch)
        refused: dict[int, str] = {}
        try:
            while left and not refused:
                refused = await self._send_round(left[0], gate, partition)
                left.popleft()
        except (OnosError, NotConfirmed) as error:
            return self._undefined(error)
        finally:
            # Only operations that were confirmed count as what the switch should hold.
            unsent = {step.place for one in left for step in one.ops} - refused.keys()
            for place in sorted(unsent | refused.keys(), reverse=True):
                self.shadow.restore([before[place]])
        return Failed(refused | dict.fromkeys(unsent, _NOT_SENT)) if refused else Acknowledged()

    # What the switch should hold

    async def read(self) -> list[FlowEntry]:
        """Our entries as the switch has them now."""
        listing = await self._lister.list()
        return list(self._layout.trees.fold(listing.on_switch()))

    async def arrange(self, layout: SwitchLayout) -> Outcome:
        """Bring the switch in line with a changed network."""
        return await self.audit(lambda: self._set_layout(layout))

    async def declare(self, partition: str, epoch: int, expected: list[FlowEntry]) -> None:
        """Declare the entries of a partition, when all earlier work is done."""
        async with self._locks.hold():
            self._fence.check(partition, epoch)
            self.shadow.declare(partition, expected)

    async def withdraw(self, partition: str) -> None:
        """Expect nothing of a partition that no longer exists, when all earlier work is done."""
        async with self._locks.hold():
            self.shadow.withdraw(partition)

    def forget(self) -> None:
        """Forget the declarations of all partitions."""
        self.shadow = self._new_shadow()
        self.shadow.declare(BASE, self._layout.base)

    async def audit(
        self, declare: Callable[[], None] = lambda: None, even_if_down: bool = False
    ) -> Outcome:
        """Compare the switch with its shadow and send the difference; never more than that.

        `declare` is called when all earlier work is done.
        """
        try:
            async with self._locks.hold():
                declare()
                if self.down is not None and not even_if_down:
                    return self._undefined(self.down)
                return await self._audit()
        except (OnosError, NotConfirmed, TooManyWaiting) as error:
            return self._undefined(error)

    async def _audit(self) -> Outcome:
        done = 0
        repairs: list[FlowOp] = []
        refused: dict[int, str] = {}
        for _ in range(_PASSES):
            self._collateral = False
            listing = await self._lister.list()
            repairs = self._repairs(listing)
            steps = [RuleOp(place, op) for place, op in enumerate(repairs)]
            found = {key: held.entry for key, held in listing.held.items()}
            for one in split(steps, found):
                refused = await self._send_round(one, _always, BASE)
                if refused:
                    break
            done += len(repairs)
            if listing.odd:
                done += await self._delete_odd()
            if refused or not self._collateral:
                break
        if done:
            self._on_repair(self.switch, done)
        if refused:
            return Failed(
                {n: f"{_describe(repairs[n].entry.key)}: {why}" for n, why in refused.items()}
            )
        return Acknowledged()

    def _repairs(self, listing: Listing) -> list[FlowOp]:
        wanted = {
            rule.key: codec.canonical(rule, self._layout.ports)
            for entry in self.shadow.entries.values()
            for rule in self._layout.trees.expand(entry)
        }
        # Rules that are pending or have failed are sent again.
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

    def _set_layout(self, layout: SwitchLayout) -> None:
        self._layout = layout
        self._lister.groups = {port: g for g, port in layout.ports.items() if port is not None}
        self.shadow.declare(BASE, layout.base)

    # Requests to ONOS

    async def _send_round(self, one: Round, gate: Gate, owner: str) -> dict[int, str]:
        """Send a round and wait until it is done; returns why operations were refused."""
        places = {step.op.entry.key: step.place for step in one.ops}
        entries = [step.op.entry for step in one.ops]
        if one.deletes:
            await self._delete_rules(places.keys(), gate, owner)
            await self._confirm(dict.fromkeys(places))
            return {}
        refused = await self._add_rules(entries, gate, owner)
        wanted = {e.key: codec.canonical(e, self._layout.ports) for e in entries}
        refused |= await self._confirm({k: e for k, e in wanted.items() if k not in refused})
        return {places[key]: reason for key, reason in refused.items()}

    async def _add_rules(
        self, entries: list[FlowEntry], gate: Gate, owner: str
    ) -> dict[FlowKey, str]:
        refused: dict[FlowKey, str] = {}
        for at in range(0, len(entries), self._options.chunk):
            chunk = entries[at : at + self._options.chunk]
            flows = [codec.encode(entry, self.device, self._layout.ports) for entry in chunk]
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
        self._note_collateral(ids, (one for key, one in held.items() if key not in doomed))

    async def _delete_odd(self) -> int:
        """Remove rules that we would never write; returns how many there were."""
        # Listed again: the repairs may have replaced some of them.
        listing = await self._lister.list()
        ids = set(listing.odd)
        await self._delete(ids, _always, BASE)
        self._note_collateral(ids, listing.held.values())
        await self._poll(
            lambda listing: f"{len(left)} rules stay" if (left := ids & set(listing.odd)) else None
        )
        return len(ids)

    def _note_collateral(self, deleted: set[str], others: Iterable[ListedRule]) -> None:
        # ONOS deletes by an id with 32 bits of hash, which two rules can have in common.
        if any(one.id in deleted for one in others):
            self._collateral = True

    async def _delete(self, ids: Iterable[str], gate: Gate, owner: str) -> None:
        names = [FlowName(self.device, one) for one in ids]
        for at in range(0, len(names), self._options.chunk):
            body = msgspec.json.encode(FlowNames(names[at : at + self._options.chunk]))
            await self._client.write("DELETE", "flows", body=body, gate=gate, owner=owner)

    async def _confirm(self, wanted: Mapping[FlowKey, FlowEntry | None]) -> dict[FlowKey, str]:
        """Wait until ONOS reports rules as added (None: as gone); returns those that failed."""
        refused: dict[FlowKey, str] = {}
        failing: set[FlowKey] = set()
        left = dict(wanted)

        def open_rules(listing: Listing) -> str | None:
            nonlocal failing, left
            # The first report may still be about an earlier attempt.
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
            return f"{len(left)} of {len(wanted)} rules are open; {_describe(key)} is {state}"

        if left:
            await self._poll(open_rules)
        return refused

    async def _poll(self, find_open: Callable[[Listing], str | None]) -> None:
        """List the rules until nothing is open; NotConfirmed if that takes too long."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._options.confirm
        pause = self._options.poll
        while (still := find_open(await self._lister.list())) is not None:
            if loop.time() >= deadline:
                raise NotConfirmed(f"after {self._options.confirm:g} s, {still}")
            await asyncio.sleep(pause)
            pause = min(2 * pause, self._options.slowest_poll)

    def _undefined(self, reason: object) -> Undefined:
        return Undefined(f"switch {self.switch}: {reason}")


def _always() -> None:
    """The gate of audits, which no epoch stops."""


def _done(entry: FlowEntry | None, held: ListedRule | None) -> bool:
    if entry is None or held is None:
        return entry is None and held is None
    return held.state == ADDED and held.entry == entry


def _failed(entry: FlowEntry, held: ListedRule | None) -> bool:
    return held is not None and held.state == FAILED and held.entry == entry


def _describe(key: FlowKey) -> str:
    where = "" if key.in_port is None else f" from port {key.in_port}"
    return f"{key.match or 'anything'}{where} in table {key.table}"
