"""Events during a run: a host with a settled subscription must get each matching event."""

from functools import lru_cache
from random import Random
from typing import Any

from msgspec import Struct

from configurators.state.network import tree_of
from configurators.state.spaces import LoadedSpace, LoadedVersion
from configurators.store.model import NetworkDoc, RecordKind
from dzflow.filters import parse_filter
from dzflow.region import Region
from sdn.network.trees import Tree, legs
from sdn.tables.simulate import AmbiguousMatch, OperationRefused
from tests.robustness.checker import Violation
from tests.simulation.world import Shape, World, documents

Json = dict[str, Any]

FILTERS: tuple[Json, ...] = (
    {},
    {"a": {"lte": 7}},
    {"a": {"gte": 4, "lte": 11}},
    {"a": {"gte": 12}},
    {"a": {"eq": 5}},
    {"b": {"eq": "x"}},
    {"b": {"in": ["y", "z"]}},
    {"a": {"lte": 3}, "b": {"eq": "y"}},
    {"a": {"gte": 8}, "b": {"in": ["x", "z"]}},
    {"a": {"in": [1, 14]}},
)


@lru_cache
def regions(shape: Shape) -> tuple[tuple[Region, ...], ...]:
    """The regions of each of the filters."""
    view = _view(shape)
    return tuple(view.index.regions(parse_filter(view.space, each)) for each in FILTERS)


@lru_cache
def points(shape: Shape) -> tuple[int, ...]:
    """All possible events."""
    view = _view(shape)
    return tuple(
        view.index.point(view.space.keys({"a": a, "b": b})) for a in range(16) for b in "xyz"
    )


def _view(shape: Shape) -> LoadedVersion:
    return LoadedSpace.of(documents(shape)[1]).current


class Stable(Struct, frozen=True):
    """A subscription or advertisement that is acknowledged, and not being changed."""

    kind: RecordKind
    host: str
    filter: int  # its place among the filters


class Events:
    """Sends events through the tables of the switches as they are at a moment."""

    def __init__(self, world: World, random: Random) -> None:
        self.world = world
        self.random = random
        self.loop = world.loop
        self.sent = 0
        self.violations: list[Violation] = []
        self.stable: dict[str, Stable] = {}  # by label
        self.asked: set[str] = set()  # hosts that ever subscribed
        self.dark: set[str] = set()  # switches that may not carry events
        self._ways: dict[tuple[Tree, str, str], frozenset[str] | None] = {}
        self._known_trees: tuple[NetworkDoc, dict[int, Tree]] | None = None
        self._regions = regions(world.shape)
        self._points = points(world.shape)
        self._scope = world.space.current.scope(world.network_doc.pipeline.prefix)

    def trees(self) -> dict[int, Tree]:
        """The trees of the network as it is now."""
        doc = self.world.network_doc
        if self._known_trees is None or self._known_trees[0] is not doc:
            made = {number: tree_of(tree) for number, tree in doc.trees.items()}
            self._known_trees = doc, made
        return self._known_trees[1]

    def publish(self) -> None:
        """Send an event of an advertising host; all matching subscribers must get it."""
        offers = [s for s in self.stable.values() if s.kind == "advertisement"]
        if not offers:
            return
        offer = self.random.choice(offers)
        point = self.random.choice(self._points)
        if not self._holds(offer.filter, point):
            return
        self.sent += 1
        trees, usable = self.trees(), sorted(self.world.network_doc.usable)
        if not usable:
            return
        number = self.random.choice(usable)
        dark = self.dark.union(self.world.network_doc.lost.switches)
        wanted = {
            stable.host: label
            for label, stable in self.stable.items()
            if stable.kind == "subscription"
            and stable.host != offer.host
            and self._holds(stable.filter, point)
            and (way := self._way(trees[number], offer.host, stable.host)) is not None
            and not way & dark
        }
        self.world.network.topology = self.world.present
        try:
            journey = self.world.network.send(offer.host, self._scope.event(point, number))
        except (AmbiguousMatch, OperationRefused) as error:
            if not self.dark:
                self._violate("event", str(error))
            return
        for host, label in wanted.items():
            if host not in journey.hosts:
                self._violate("missed", f"{label} at {host}: an event of {offer.host} ({point:x})")
        for host, times in journey.hosts.items():
            if host not in self.asked:
                self._violate("unasked", f"{host} has got an event of {offer.host}")
            if times > 1:
                self._violate("doubled", f"{host} has got an event of {offer.host} {times} times")
        if journey.looped:
            self._violate("looped", f"an event of {offer.host}")

    def _violate(self, rule: str, text: str) -> None:
        self.world.note(f"VIOLATION {rule}: {text}")
        if len(self.violations) < 20:
            self.violations.append(Violation(rule, f"at {self.loop.now - 1000:.4f}: {text}"))

    def _holds(self, filter: int, point: int) -> bool:
        return any(region.holds(point) for region in self._regions[filter])

    def _way(self, tree: Tree, source: str, target: str) -> frozenset[str] | None:
        """The switches that an event passes; None if the tree does not lead there."""
        topology = self.world.present
        first, last = topology.host(source).switch, topology.host(target).switch
        if (tree, first, last) not in self._ways:
            passed = frozenset((first,)) if first == last else None
            if first != last and tree.joins(first, last):
                on_the_way = legs(topology, tree, source, target)
                passed = frozenset({first, *(switch for switch, _ in on_the_way)})
            self._ways[tree, first, last] = passed
        return self._ways[tree, first, last]
