"""The engine: the CP-config of one partition, and the flow operations that change it.

The engine is pure: it takes partials and returns flow operations. All state follows from the active
requests and the routes, not from the order in which requests came. A change has two steps. `decide`
returns the operations. When the switches have acknowledged these, `commit` makes the change final;
`discard` takes it back and returns the operations that undo it.
"""

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from msgspec import Struct

from configurators.engine.partials import Kind, Partial
from configurators.engine.region_state import ALL, Advertisers, RegionState, Work, counted
from configurators.engine.steps import Active, Step, check_partials, find_steps, note_active
from dzflow.errors import BadInput, DzflowError
from dzflow.region import Region
from dzflow.region_map import OverlapMap, RegionMap
from sdn.tables.flows import Batch, FlowEntry, difference
from sdn.tables.plans import NOTHING, Changes, Contribution, Plan

Ordering = Literal["fifo", "ordered", "net"]


class NotContinued(BadInput):
    """Routes that do not follow those of the engine, so that numbers mean different things."""


class DecisionPending(DzflowError):
    """A second change before the first was committed or discarded."""


class NotPending(DzflowError):
    """A commit or discard of something that is not the pending decision."""


class Decision(Struct, frozen=True, eq=False):
    """The operations of a change, in rounds.

    A round starts when all switches have acknowledged the one before. Within a round the switches
    do not wait for each other.
    """

    rounds: tuple[Batch, ...]


class _Undo(NamedTuple):
    """What the pending decision did, and what was there before, to take it back."""

    steps: list[Step]
    active: dict[str, Active | None]
    plan: Plan


class Engine:
    """The CP-config of one partition of one space."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._active: dict[str, Active] = {}
        self._states: RegionMap[RegionState] = RegionMap()
        self._offers: OverlapMap[Advertisers] = OverlapMap()
        self._pending: tuple[Decision, _Undo] | None = None

    # Reading

    def __len__(self) -> int:
        return len(self._active)

    def __contains__(self, name: str) -> bool:
        return name in self._active

    @property
    def pending(self) -> bool:
        """Whether a decision waits to be committed or discarded."""
        return self._pending is not None

    def ids(self) -> list[str]:
        """The ids of the active requests."""
        return list(self._active)

    def active(self) -> list[Partial]:
        """The active requests: a snapshot that can be loaded into a new engine.

        A pending decision counts as made, here and in all other methods that read.
        """
        return [self._partial(name, active) for name, active in self._active.items()]

    def get(self, name: str) -> Partial | None:
        """An active request; None if it is not active here."""
        active = self._active.get(name)
        return None if active is None else self._partial(name, active)

    def _partial(self, name: str, active: Active) -> Partial:
        kind = Kind.ADVERTISE if active.advertised else Kind.SUBSCRIBE
        host = self.plan.routes.host_name(active.host)
        return Partial(kind, name, host, active.regions, active.edge)

    def contributions(self) -> dict[Region, Contribution]:
        """What each region contributes."""
        return {r.region: (r.own, r.inherited) for r in self._states}

    def counts(self) -> dict[Region, tuple[dict[int, int], dict[int, int], int, dict[int, int]]]:
        """The hosts of each region: subscribers, admitted hosts, publishers, advertisers."""
        wanted = {
            r.region: (dict(r.subscribers), dict(r.admitted), r.publishers) for r in self._states
        }
        offered = {region: dict(one.counts) for region, one in self._offers}
        nobody: tuple[dict[int, int], dict[int, int], int] = ({}, {}, 0)
        return {
            region: (*wanted.get(region, nobody), offered.get(region, {}))
            for region in wanted | offered
        }

    def entries(self, switches: Iterable[str] | None = None) -> dict[str, list[FlowEntry]]:
        """The entries of this partition by switch: all, or those of some switches."""
        found: dict[str, list[FlowEntry]] = {}
        within = ALL if switches is None else self.plan.routes.slots_at(switches)
        for state in self._states:
            if state.own & within:
                for switch, entry in self.plan.entries(
                    state.region, (state.own, state.inherited), within
                ):
                    found.setdefault(switch, []).append(entry)
        return found

    def count(self) -> int:
        """How many entries this partition has, on all switches together."""
        return sum(self.plan.count((state.own, state.inherited)) for state in self._states)

    # Deciding

    def load(self, requests: Iterable[Partial]) -> None:
        """Load requests that are active already, as after a restart, without operations.

        Requests of hosts that the topology lacks are loaded, too; they have no entries.
        """
        partials = list(requests)
        self._check_none_pending()
        active, routes = self._active, self.plan.routes
        check_partials(partials, active, self.plan, load=True)
        steps = [find_steps(partial, active, routes)[0] for partial in partials]
        for partial in partials:
            note_active(partial, active, routes)
        self._apply([step for step in steps if step], None)

    def decide(self, partials: Sequence[Partial], ordering: Ordering = "net") -> Decision:
        """Decide a slice: partials that may be decided in any order.

        `fifo` decides the partials one by one as they came, `ordered` coarse ones first (fine ones
        first when removing); both take partials of one kind only. `net` decides partials of all
        kinds together, so that only the net difference remains; updates remove their old entries in
        a second round, after all additions.
        """
        self._check_none_pending()
        active, routes = self._active, self.plan.routes
        check_partials(partials, active, self.plan, mixed=ordering == "net")
        if ordering == "ordered":
            partials = sorted(partials, key=self._coarseness)
        before = {p.id: active.get(p.id) for p in partials}
        both = [find_steps(partial, active, routes) for partial in partials]
        for partial in partials:
            note_active(partial, active, routes)
        # Only an update both adds and removes, and it does so in two rounds.
        first = [step for grow, shrink in both if (step := grow or shrink)]
        second = [shrink for grow, shrink in both if grow and shrink]
        if ordering == "ordered":
            second.reverse()
        rounds = []
        for steps in (first, second):
            batch: Batch = {}
            for together in [steps] if ordering == "net" else [[step] for step in steps]:
                changes = Changes()
                self._apply(together, changes)
                changes.append_to(batch)
            if batch:
                rounds.append(batch)
        return self._pend(Decision(tuple(rounds)), _Undo(second + first, before, self.plan))

    def rewire(self, plan: Plan) -> Decision:
        """Decide to go over to other routes: with a tree added or removed, a host moved or gone.

        The new plan's routes must continue the current ones (`Routes(…, after=…)`). Entries are
        added before others are deleted.
        """
        self._check_none_pending()
        before = self.plan
        if plan.routes.continues is not before.routes.token:
            raise NotContinued("make the new routes with `after=` the routes that are in use here")
        changes, batch = Changes(), Batch()
        self._replan(plan, changes)
        changes.append_to(batch)
        return self._pend(Decision((batch,) if batch else ()), _Undo([], {}, before))

    def commit(self, decision: Decision) -> None:
        """Make the pending decision final: the switches have acknowledged it."""
        self._take_pending(decision)

    def discard(self, decision: Decision) -> Decision:
        """Take the pending decision back; returns the operations that undo it, already final.

        They are for switches that have carried out the whole decision; see `partition.slices.undo`
        for the others.
        """
        undo = self._take_pending(decision)
        if undo.plan is not self.plan:
            # The number of a slot that fell free may mean another slot by now: compare entries.
            decided = self.entries()
            self._replan(undo.plan, None)
            batch = difference(decided, self.entries())
            return Decision((batch,) if batch else ())
        for name, was in undo.active.items():
            if was is None:
                del self._active[name]
            else:
                self._active[name] = was
        rounds = []
        for sign in (1, -1):
            changes, batch = Changes(), Batch()
            back = [step._replace(sign=sign) for step in undo.steps if step.sign == -sign]
            self._apply(back, changes)
            changes.append_to(batch)
            if batch:
                rounds.append(batch)
        return Decision(tuple(rounds))

    def _check_none_pending(self) -> None:
        if self._pending:
            raise DecisionPending("commit or discard the pending decision first")

    def _pend(self, decision: Decision, undo: _Undo) -> Decision:
        self._pending = decision, undo
        return decision

    def _take_pending(self, decision: Decision) -> _Undo:
        if not self._pending or self._pending[0] is not decision:
            raise NotPending("this decision is not pending: it was committed or discarded before")
        undo = self._pending[1]
        self._pending = None
        return undo

    # Changing

    def _coarseness(self, partial: Partial) -> int:
        known = self._active.get(partial.id)
        regions = partial.regions + partial.edge or (known.regions + known.edge if known else ())
        return min((region.size for region in regions), default=0)

    def _apply(self, steps: Iterable[Step], changes: Changes | None) -> None:
        """Change counts, then contributions, then inherited sets; note the operations."""
        work = Work(self._states, self.plan)
        for step in steps:
            if step.advertised:
                self._offer(step, work)
                for region in step.edge:
                    state = self._state_of(region, work)
                    state.admitted = counted(state.admitted, step.host, step.sign)
                    work.dirty[state] = ALL
            else:
                self._want(step, work)
        work.settle(changes)

    def _want(self, step: Step, work: "Work") -> None:
        sign, host, dirty = step.sign, step.host, work.dirty
        for region in step.regions:
            state = self._state_of(region, work)
            count = state.subscribers.get(host, 0) + sign
            if count:
                state.subscribers[host] = count
                if count == 1 and sign > 0:
                    dirty[state] = dirty.get(state, 0) | 1 << host
            else:
                del state.subscribers[host]
                dirty[state] = ALL

    def _offer(self, step: Step, work: "Work") -> None:
        bit = 1 << step.host
        for region in step.regions:
            advertisers = self._offers.get(region)
            if advertisers is None:
                self._offers.add(region, advertisers := Advertisers())
            advertisers.counts = counted(advertisers.counts, step.host, step.sign)
            if advertisers.counts.get(step.host) == 1 and step.sign > 0:
                advertisers.hosts |= bit
                for state in self._states.overlapping(region):
                    if not state.publishers & bit:
                        state.publishers |= bit
                        work.dirty[state] = ALL
            elif step.host not in advertisers.counts:
                advertisers.hosts ^= bit
                if not advertisers.hosts:
                    self._offers.remove(region)
                for state in self._states.overlapping(region):
                    publishers = self._publishers(state.region)
                    if publishers != state.publishers:
                        state.publishers = publishers
                        work.dirty[state] = ALL

    def _state_of(self, region: Region, work: "Work") -> RegionState:
        state = self._states.get(region)
        if state is None:
            state = RegionState(region, self._publishers(region))
            self._states.add(region, state)
            work.touched[state] = NOTHING
            work.inherit[state] = None
        return state

    def _publishers(self, region: Region) -> int:
        hosts = 0
        for advertisers in self._offers.overlapping(region):
            hosts |= advertisers.hosts
        return hosts

    def _replan(self, plan: Plan, changes: Changes | None) -> None:
        self.plan = plan
        work = Work(self._states, plan)
        work.dirty.update(dict.fromkeys(self._states, ALL))
        work.settle(changes)
