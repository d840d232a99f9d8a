"""How contributions become table entries: the plan `legs` and the plan `lpm`.

A region's contributions are a set of slots (`own`); `inherited` is what the regions that cover it
contribute. What it adds to them, `own & ~inherited`, decides where it has entries: under `legs` one
for each such slot, under `lpm` one for each switch with such a slot, with all legs of the region
and of those that cover it. Both follow from the set alone; the order of requests plays no part.
"""

from collections.abc import Iterator, Mapping
from operator import attrgetter
from typing import NamedTuple, Protocol

from dzflow.address import Match, Scope
from dzflow.errors import BadInput
from dzflow.region import Region
from sdn.network.routes import EdgeSlot, LegSlot, Routes, bits
from sdn.tables.flows import Action, Batch, Change, FlowEntry, FlowOp
from sdn.tables.pipeline import ADMIT_PRIORITY, MATCH_PRIORITY, Pipeline, PlanName


class NotADz(BadInput):
    """A region that is not a prefix, under a plan that knows only these."""


Contribution = tuple[int, int]
"""`own` and `inherited`: the slots that a region contributes to, and those its coverers do."""

NOTHING: Contribution = (0, 0)
ALL = -1  # every slot there is, as a set


class Changes:
    """Operations of one step, gathered in any order, handed out by switch in a safe one.

    `in_safe_order` (`sdn.tables.flows`) says which order is safe.
    """

    __slots__ = ("adds", "deletes", "modifies")

    def __init__(self) -> None:
        self.adds: Batch = {}
        self.modifies: Batch = {}
        self.deletes: Batch = {}

    def append_to(self, batch: Batch) -> None:
        """Append the operations to a batch."""
        for ops in self.adds.values():
            ops.sort(key=_priority, reverse=True)
        for ops in self.deletes.values():
            ops.sort(key=_priority)
        for noted in (self.adds, self.modifies, self.deletes):
            for switch, ops in noted.items():
                there = batch.get(switch)
                if there is None:
                    batch[switch] = ops
                else:
                    there += ops


_priority = attrgetter("entry.priority")


def _note(noted: Batch, switch: str, op: FlowOp) -> None:
    ops = noted.get(switch)
    if ops is None:
        noted[switch] = [op]
    else:
        ops.append(op)


class Plan(Protocol):
    """From contributions to entries."""

    name: PlanName
    routes: Routes

    def check(self, region: Region) -> None:
        """Raise if this plan cannot hold a region."""

    def entries(
        self, region: Region, now: Contribution, within: int = ALL
    ) -> Iterator[tuple[str, FlowEntry]]:
        """The entries of a region, each with its switch; of some slots, or of all."""

    def count(self, now: Contribution) -> int:
        """How many entries a region has."""

    def change(
        self, region: Region, before: Contribution, after: Contribution, changes: Changes
    ) -> None:
        """Note the operations that a change of a region's contribution takes."""


def make_plan(routes: Routes, pipeline: Pipeline, scope: Scope) -> Plan:
    """The plan that a pipeline is laid out for."""
    return (LegsPlan if pipeline.plan == "legs" else LpmPlan)(routes, pipeline, scope)


def tables(plan: Plan, contributed: Mapping[Region, int]) -> dict[str, set[FlowEntry]]:
    """All entries of each switch, as a function of what each region contributes.

    This is the definition; `Plan.change` gives the same entries step by step.
    """
    found: dict[str, set[FlowEntry]] = {}
    for region, own in contributed.items():
        inherited = 0
        for other, others in contributed.items():
            if other != region and other.covers(region):
                inherited |= others
        for switch, entry in plan.entries(region, (own, inherited)):
            found.setdefault(switch, set()).add(entry)
    return found


class _Site(NamedTuple):
    """The table of a slot's entries, and the fields that all of them share."""

    switch: str
    table: int
    priority: int
    actions: tuple[Action, ...]
    goto: int | None
    in_port: int | None
    tree: int | None


class _SitePlan:
    """The common part of both plans: entries that belong to one slot each."""

    def __init__(self, routes: Routes, pipeline: Pipeline, scope: Scope) -> None:
        self.routes = routes
        self.scope = scope.check()
        self._pipeline = pipeline
        self._sites = {number: self._site(slot) for number, slot in routes.slots.items()}

    def _site(self, slot: LegSlot | EdgeSlot) -> _Site:
        tables = self._pipeline
        if isinstance(slot, EdgeSlot):
            admit = tables.admission_table(slot.switch)
            forward = tables.forward_table(slot.switch)
            return _Site(slot.switch, admit, ADMIT_PRIORITY, (), forward, slot.port, None)
        table = tables.table(slot.switch, slot.leg)
        actions = (tables.action(slot.switch, slot.leg),)
        return _Site(slot.switch, table, MATCH_PRIORITY, actions, table + 1, None, slot.tree)

    def _slot_entries(self, region: Region, slots: int) -> Iterator[tuple[str, FlowEntry]]:
        matches: dict[int | None, Match] = {}  # one per tree, shared by all switches
        while slots:
            low = slots & -slots
            slots ^= low
            site = self._sites[low.bit_length() - 1]
            switch, table, priority, actions, goto, in_port, tree = site
            match = matches.get(tree)
            if match is None:
                match = matches[tree] = self.scope.match(region, tree)
            yield switch, FlowEntry(table, priority, match, actions, goto, in_port)

    def _slot_change(self, region: Region, before: int, after: int, changes: Changes) -> None:
        added, gone = after & ~before, before & ~after
        if added:
            self._note_slots(region, added, Change.ADD, changes.adds)
        if gone:
            self._note_slots(region, gone, Change.DELETE, changes.deletes)

    def _note_slots(self, region: Region, slots: int, change: Change, noted: Batch) -> None:
        # As with `_slot_entries`, but written out: most of a decision is spent here.
        sites = self._sites
        matches: dict[int | None, Match] = {}
        while slots:
            low = slots & -slots
            slots ^= low
            switch, table, priority, actions, goto, in_port, tree = sites[low.bit_length() - 1]
            match = matches.get(tree)
            if match is None:
                match = matches[tree] = self.scope.match(region, tree)
            op = FlowOp(change, FlowEntry(table, priority, match, actions, goto, in_port))
            ops = noted.get(switch)
            if ops is None:
                noted[switch] = [op]
            else:
                ops.append(op)


class LegsPlan(_SitePlan):
    """A table per leg, holding the regions contributed for it that no other of them covers."""

    name: PlanName = "legs"

    def check(self, region: Region) -> None:
        """Any region will do."""

    def entries(
        self, region: Region, now: Contribution, within: int = ALL
    ) -> Iterator[tuple[str, FlowEntry]]:
        """One entry for each slot that the region adds."""
        yield from self._slot_entries(region, now[0] & ~now[1] & within)

    def count(self, now: Contribution) -> int:
        """One entry for each slot that the region adds."""
        return (now[0] & ~now[1]).bit_count()

    def change(
        self, region: Region, before: Contribution, after: Contribution, changes: Changes
    ) -> None:
        """Entries come and go with their slots; none is ever modified."""
        fresh_before, fresh_after = before[0] & ~before[1], after[0] & ~after[1]
        if fresh_before != fresh_after:
            self._slot_change(region, fresh_before, fresh_after, changes)


class LpmPlan(_SitePlan):
    """One table per switch, longest prefix first: an entry sends to its legs and its coverers'."""

    name: PlanName = "lpm"

    def __init__(self, routes: Routes, pipeline: Pipeline, scope: Scope) -> None:
        super().__init__(routes, pipeline, scope)
        self._edges = 0
        for number, slot in routes.slots.items():
            if isinstance(slot, EdgeSlot):
                self._edges |= 1 << number

    def check(self, region: Region) -> None:
        """Raise NotADz unless the region is a prefix."""
        if not region.is_dz:
            raise NotADz(
                f"the plan lpm holds prefixes only, not {region}; use an index of kind zorder,"
                " or the plan legs"
            )

    def entries(
        self, region: Region, now: Contribution, within: int = ALL
    ) -> Iterator[tuple[str, FlowEntry]]:
        """One entry for each switch where the region adds a slot."""
        yield from self._slot_entries(region, now[0] & ~now[1] & self._edges & within)
        for together, legs in self._legs(now).items():
            if together & within:
                yield self._forward(region, legs)

    def count(self, now: Contribution) -> int:
        """One entry for each switch where the region adds a slot, and one for each edge."""
        return (now[0] & ~now[1] & self._edges).bit_count() + len(self._legs(now))

    def change(
        self, region: Region, before: Contribution, after: Contribution, changes: Changes
    ) -> None:
        """Entries come and go with their switches, and change when their legs do."""
        edges = self._edges
        self._slot_change(
            region,
            before[0] & ~before[1] & edges,
            after[0] & ~after[1] & edges,
            changes,
        )
        had, has = self._legs(before), self._legs(after)
        for together, legs in has.items():
            old = had.pop(together, None)
            if old is None:
                switch, entry = self._forward(region, legs)
                _note(changes.adds, switch, FlowOp(Change.ADD, entry))
            elif old != legs:
                switch, entry = self._forward(region, legs)
                _note(changes.modifies, switch, FlowOp(Change.MODIFY, entry))
        for legs in had.values():
            switch, entry = self._forward(region, legs)
            _note(changes.deletes, switch, FlowOp(Change.DELETE, entry))

    def _legs(self, now: Contribution) -> dict[int, int]:
        """By the slots of a switch taken together: those that the region's entry there sends to."""
        found = {}
        fresh = now[0] & ~now[1] & ~self._edges
        sent = now[0] | now[1]
        while fresh:
            together = self.routes.switch_masks[(fresh & -fresh).bit_length() - 1]
            found[together] = sent & together
            fresh &= ~together
        return found

    def _forward(self, region: Region, legs: int) -> tuple[str, FlowEntry]:
        sites = [self._sites[number] for number in bits(legs)]
        actions = tuple(sorted((a for site in sites for a in site.actions), key=repr))
        match = self.scope.match(region, sites[0].tree)
        return sites[0].switch, FlowEntry(
            sites[0].table, MATCH_PRIORITY + region.size, match, actions
        )
