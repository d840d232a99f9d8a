"""I1 to I5, and that nothing needed is ever missing, whatever happens in whatever order."""

import os
from collections.abc import Collection
from typing import Any

from hypothesis import HealthCheck, assume, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from configurators.engine.partials import Request
from configurators.engine.partition_map import route, route_removal
from dzflow.filters import Filter
from dzflow.region import Region
from sdn.network.topology import Host, Topology
from sdn.network.trees import spanning_tree
from tests.oracle import receivers
from tests.plant import Plant, route_update
from tests.strategies import COMBINATIONS, INDEXES, SPACES, events, filters, topologies


class ControlPlane(RuleBasedStateMachine):
    """Any requests in any order, with the network and the partition map changing in between."""

    def __init__(self) -> None:
        super().__init__()
        self.wanted: dict[str, Filter] = {}
        self.names = 0
        self.samples: list[tuple[str, dict[str, Any]]] = []

    @initialize(
        topology=topologies(max_switches=5, max_hosts=5).filter(lambda t: len(t.hosts) > 1),
        combination=st.sampled_from(COMBINATIONS),
        trees=st.integers(1, 3),
        ordering=st.sampled_from(["fifo", "ordered", "net"]),
    )
    def start(self, topology: Topology, combination: Any, trees: int, ordering: Any) -> None:
        plan, kind = combination
        self.space, self.index = SPACES[kind], INDEXES[kind]
        self.plant = Plant(topology, plan, trees, ordering=ordering)

    # Requests

    def _request(self, advertised: bool, host: Host, wanted: Filter) -> Request:
        self.names += 1
        name = f"{'p' if advertised else 's'}{self.names}"
        self.wanted[name] = wanted
        return Request(advertised, name, host.id, self.index.regions(wanted))

    @rule(data=st.data(), advertised=st.booleans(), count=st.integers(1, 4))
    def add(self, data: st.DataObject, advertised: bool, count: int) -> None:
        asked = [
            self._request(
                advertised,
                data.draw(st.sampled_from(self.plant.topology.hosts)),
                data.draw(filters(self.space)),
            )
            for _ in range(count)
        ]
        with self._nothing_needed_is_missing():
            self.plant.add(*asked)

    @precondition(lambda self: self.plant.active)
    @rule(data=st.data(), advertised=st.booleans(), count=st.integers(1, 4))
    def remove(self, data: st.DataObject, advertised: bool, count: int) -> None:
        names = [n for n, r in self.plant.active.items() if r.advertised is advertised]
        assume(names)
        gone = data.draw(st.lists(st.sampled_from(names), max_size=count, unique=True))
        with self._nothing_needed_is_missing():
            self.plant.remove(*gone)
        for name in gone:
            del self.wanted[name]

    @precondition(lambda self: self.plant.active)
    @rule(data=st.data(), count=st.integers(1, 3))
    def update(self, data: st.DataObject, count: int) -> None:
        names = st.sampled_from(sorted(self.plant.active))
        changed = {}
        for name in data.draw(st.lists(names, min_size=1, max_size=count, unique=True)):
            self.wanted[name] = data.draw(filters(self.space))
            changed[name] = self.index.regions(self.wanted[name])
        with self._nothing_needed_is_missing():
            self.plant.update(changed)

    @rule(data=st.data(), discards=st.booleans())
    def mix(self, data: st.DataObject, discards: bool) -> None:
        """Begin, end and change several at once, or take all of it back."""
        known = sorted(self.plant.active)
        hosts = st.sampled_from(self.plant.topology.hosts)
        some = st.lists(st.sampled_from(known), max_size=4, unique=True) if known else st.just([])
        touched = data.draw(some)
        gone = touched[: data.draw(st.integers(0, len(touched)))]
        wanted = {n: data.draw(filters(self.space)) for n in touched if n not in gone}
        changed = {name: self.index.regions(new) for name, new in wanted.items()}
        added = [
            self._request(advertised, data.draw(hosts), data.draw(filters(self.space)))
            for advertised in data.draw(st.lists(st.booleans(), max_size=3))
        ]
        if discards:
            but = {self.plant.active[name].host for name in touched}
            with self._nothing_needed_is_missing(detour=True, but=but):
                self.plant.decide_and_discard(self.plant.routed(added, gone, changed))
            for request in added:
                del self.wanted[request.id]
            return
        # Only in one slice does what begins stand before what ends is gone.
        together = self.plant.ordering == "net" and len(self.plant.engines) == 1
        losing = () if together else {self.plant.active[name].host for name in gone}
        with self._nothing_needed_is_missing(but=losing):
            self.plant.mix(added, gone, changed)
        self.wanted |= wanted
        for name in gone:
            del self.wanted[name]

    @rule(data=st.data(), advertised=st.booleans())
    def discard_what_is_added(self, data: st.DataObject, advertised: bool) -> None:
        host = data.draw(st.sampled_from(self.plant.topology.hosts))
        asked = self._request(advertised, host, data.draw(filters(self.space)))
        with self._nothing_needed_is_missing(detour=True):
            self.plant.decide_and_discard([route(self.plant.map, asked)])
        del self.wanted[asked.id]

    @precondition(lambda self: self.plant.active)
    @rule(data=st.data(), advertised=st.booleans())
    def discard_what_is_removed(self, data: st.DataObject, advertised: bool) -> None:
        requests = [r for r in self.plant.active.values() if r.advertised is advertised]
        assume(requests)
        gone = data.draw(st.lists(st.sampled_from(requests), min_size=1, max_size=3, unique=True))
        # A host that is removed may miss events; the others may not.
        with self._nothing_needed_is_missing(detour=True, but={r.host for r in gone}):
            self.plant.decide_and_discard([route_removal(self.plant.map, r) for r in gone])

    @precondition(lambda self: self.plant.active)
    @rule(data=st.data())
    def discard_what_is_updated(self, data: st.DataObject) -> None:
        old = self.plant.active[data.draw(st.sampled_from(sorted(self.plant.active)))]
        wanted = self.index.regions(data.draw(filters(self.space)))
        new = Request(old.advertised, old.id, old.host, wanted)
        with self._nothing_needed_is_missing(detour=True, but={old.host}):
            self.plant.decide_and_discard([route_update(self.plant.map, old, new)])

    # The map and the network

    @rule(data=st.data(), count=st.integers(1, 7))
    def cut(self, data: st.DataObject, count: int) -> None:
        sample = data.draw(st.lists(filters(self.space), min_size=1, max_size=6))
        regions: list[Region] = [r for wanted in sample for r in self.index.regions(wanted)]
        with self._nothing_needed_is_missing():
            self.plant.cut(regions, count)

    @rule(data=st.data())
    def change_a_tree(self, data: st.DataObject) -> None:
        trees = self.plant.trees
        old = data.draw(st.sampled_from(sorted(trees)))
        new = next(n for n in range(16) if n not in trees)
        root = data.draw(st.sampled_from(self.plant.topology.switches)).id
        changed = spanning_tree(self.plant.topology, dict.fromkeys(trees[old].links, 1), root)
        with self._nothing_needed_is_missing():
            self.plant.rewire(self.plant.topology, trees | {new: changed})
        # Here publishers are told, and the grace period passes.
        with self._nothing_needed_is_missing(leave=old):
            remaining = {n: t for n, t in self.plant.trees.items() if n != old}
            self.plant.rewire(self.plant.topology, remaining)

    @rule(data=st.data(), swaps=st.booleans(), discards=st.booleans())
    def move_a_host(self, data: st.DataObject, swaps: bool, discards: bool) -> None:
        topology = self.plant.topology
        host = data.draw(st.sampled_from(topology.hosts))
        other = data.draw(st.sampled_from(topology.hosts))
        if swaps and other != host:
            moved = topology.without_host(other.id)
            moved = moved.with_host(Host(host.id, other.switch, other.port))
            moved = moved.with_host(Host(other.id, host.switch, host.port))
        else:
            switch = data.draw(st.sampled_from(topology.switches)).id
            free = next(p for p in range(1, 99) if not topology.at(switch, p))
            moved = topology.with_host(Host(host.id, switch, free))
        if discards:
            self.plant.rewire_and_discard(moved)
        else:
            self.plant.rewire(moved, self.plant.trees)

    # What must hold

    @rule(data=st.data(), event=events())
    def publish(self, data: st.DataObject, event: dict[str, Any]) -> None:
        publisher = data.draw(st.sampled_from(self.plant.topology.hosts)).id
        self.samples.append((publisher, event))
        keys = self.space.keys(event)
        point = self.index.point(keys)
        expected = receivers(self.plant.active.values(), publisher, point)
        for tree in self.plant.trees:
            assert self.plant.reached(publisher, point, tree) == expected
        matched = {n for n, wanted in self.wanted.items() if wanted.matches(keys)}
        requests = [r for n, r in self.plant.active.items() if n in matched]
        if any(r.advertised and r.host == publisher for r in requests):
            wants = {r.host for r in requests if not r.advertised} - {publisher}
            assert wants <= expected  # I3 down to the exact filters

    @invariant()
    def tables_are_what_they_must_be(self) -> None:
        self.plant.check()

    def _nothing_needed_is_missing(
        self, leave: int = -1, detour: bool = False, but: Collection[str] = ()
    ) -> "_Watched":
        return _Watched(self, leave, detour, but)


class _Watched:
    """Follows sample events after each single operation.

    A host that gets an event before and after the change gets it all the time. No other host gets
    it, except during a detour.
    """

    def __init__(
        self, machine: ControlPlane, leave: int, detour: bool, but: Collection[str]
    ) -> None:
        self.machine = machine
        self.but = set(but)
        self.detour = detour
        self.trees = [n for n in machine.plant.trees if n != leave]
        self.seen: list[tuple[int, int, set[str]]] = []
        self.before: list[set[str]] = []
        self.active: list[Request] = []

    def __enter__(self) -> None:
        self.active = list(self.machine.plant.active.values())
        self.before = [self._reached(i, t) for i, t in self._cases()]
        self.machine.plant.watch = self._look

    def __exit__(self, *error: object) -> None:
        self.machine.plant.watch = None
        if error[0]:
            return
        cases = self._cases()
        after = [self._reached(i, t) for i, t in cases]
        # What one request still wants may meet what another offers already.
        met = [self._meeting(i) for i, _ in cases]
        for place, _, reached in self.seen:
            if self.but and self._publisher(place) in self.but:
                continue  # what it offers changes on the way
            assert (self.before[place] & after[place]) - self.but <= reached
            assert self.detour or reached <= self.before[place] | after[place] | met[place]

    def _cases(self) -> list[tuple[int, int]]:
        return [(i, t) for i in range(len(self.machine.samples[-4:])) for t in self.trees]

    def _publisher(self, place: int) -> str:
        return self.machine.samples[-4:][self._cases()[place][0]][0]

    def _reached(self, sample: int, tree: int) -> set[str]:
        return self.machine.plant.reached(*self._sent(sample), tree)

    def _meeting(self, sample: int) -> set[str]:
        return receivers([*self.active, *self.machine.plant.active.values()], *self._sent(sample))

    def _sent(self, sample: int) -> tuple[str, int]:
        publisher, event = self.machine.samples[-4:][sample]
        return publisher, self.machine.index.point(self.machine.space.keys(event))

    def _look(self) -> None:
        for place, (sample, tree) in enumerate(self._cases()):
            self.seen.append((place, tree, self._reached(sample, tree)))


ControlPlane.TestCase.settings = settings(
    max_examples=int(os.environ.get("DZFLOW_EXAMPLES", "100")),
    stateful_step_count=20,
    deadline=None,
    report_multiple_bugs=False,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
test_whatever_happens = ControlPlane.TestCase
