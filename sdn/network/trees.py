"""Spanning trees over the switches: the paths on which events travel."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush, nlargest
from typing import NamedTuple

from dzflow.errors import BadInput
from sdn.network.topology import Leg, Link, ToHost, Topology, ToSwitch, UnknownSwitch

# Up to this many switches every one is tried as the root; beyond, a few likely ones are.
EVERY_ROOT_UP_TO = 256
WELL_CONNECTED_ROOTS = 8


class NotATree(BadInput):
    """The links have a cycle, or do not all hang together with a root."""


class BadTreeCount(BadInput):
    """Fewer than one tree is asked for."""


class _Up(NamedTuple):
    """Where a switch hangs in its tree; a root's parent is itself."""

    parent: str
    port: int
    parent_port: int
    depth: int
    root: str


@dataclass(frozen=True, slots=True)
class Tree:
    """A spanning tree: its links and the switch that they were grown from. Never changed.

    Where a part of the network is cut off, the tree has more `roots`: one for each part.
    """

    links: frozenset[Link]
    root: str
    more_roots: tuple[str, ...]
    _up: Mapping[str, _Up] = field(compare=False, repr=False)

    @classmethod
    def build(cls, links: Iterable[Link], root: str, more_roots: Iterable[str] = ()) -> Tree:
        """The tree of these links, which must be one; no links make a tree of the root alone."""
        links, more_roots = frozenset(links), tuple(more_roots)
        ports: defaultdict[str, list[tuple[int, str, int]]] = defaultdict(list)
        for link in links:
            ports[link.a].append((link.a_port, link.b, link.b_port))
            ports[link.b].append((link.b_port, link.a, link.a_port))
        up: dict[str, _Up] = {}
        roots = (root, *more_roots)
        for start in roots:
            up[start] = _Up(start, 0, 0, 0, start)
            order = [start]
            for parent in order:
                depth = up[parent].depth + 1
                for parent_port, child, port in ports[parent]:
                    if child not in up:
                        up[child] = _Up(parent, port, parent_port, depth, start)
                        order.append(child)
        # Each part has one link less than switches; fewer reached means that some lie apart.
        if len(up) != len(ports) or len(links) != len(up) - len(roots):
            raise NotATree(
                f"{len(links)} links with root {', '.join(roots)} reach {len(up)} of {len(ports)}"
                " switches; a tree reaches each in exactly one way"
            )
        return cls(links, root, more_roots, up)

    def joins(self, a: str, b: str) -> bool:
        """Whether there is a way from one switch to the other."""
        return self._place(a).root == self._place(b).root

    def depth(self, switch: str) -> int:
        """How many links lie between the root and a switch."""
        return self._place(switch).depth

    def continues(self, before: Tree) -> bool:
        """Whether this tree only adds links to another one, so that both may share a number.

        All ways of the other one stay as they are, and no mixture of the two has a loop.
        """
        return before.links <= self.links

    def distance(self, weights: Mapping[str, int]) -> int:
        """The length of all ways between pairs of switches that it joins, each by their weights."""
        below = {switch: weights.get(switch, 0) for switch in self._up}
        order = sorted(self._up, key=lambda switch: -self._up[switch].depth)
        for switch in order:
            if self._up[switch].depth:
                below[self._up[switch].parent] += below[switch]
        return sum(
            below[switch] * (below[self._up[switch].root] - below[switch])
            for switch in order
            if self._up[switch].depth
        )

    def path(self, a: str, b: str) -> tuple[str, ...]:
        """The switches from one to the other, both included."""
        return (*(switch for switch, _ in self.hops(a, b)), b)

    def hops(self, a: str, b: str) -> tuple[tuple[str, int], ...]:
        """Each switch on the path but the last, with the port that leads to the next.

        The tree must join the two.
        """
        rising: list[tuple[str, int]] = []
        falling: list[tuple[str, int]] = []
        at_a, at_b = self._place(a), self._place(b)
        while a != b:
            if at_a.depth >= at_b.depth:
                rising.append((a, at_a.port))
                a = at_a.parent
                at_a = self._up[a]
            else:
                falling.append((at_b.parent, at_b.parent_port))
                b = at_b.parent
                at_b = self._up[b]
        return (*rising, *reversed(falling))

    def _place(self, switch: str) -> _Up:
        try:
            return self._up[switch]
        except KeyError:
            raise UnknownSwitch(f"switch {switch!r} is not in the tree; grow a new one") from None


def legs(
    topology: Topology, tree: Tree, publisher: str, subscriber: str
) -> tuple[tuple[str, Leg], ...]:
    """The legs that take an event from one host to another, each with its switch, in order.

    There are none if the tree does not join them.
    """
    source, target = topology.host(publisher), topology.host(subscriber)
    if not tree.joins(source.switch, target.switch):
        return ()
    between = tree.hops(source.switch, target.switch)
    return (
        *((switch, ToSwitch(port)) for switch, port in between),
        (target.switch, ToHost(subscriber)),
    )


def spanning_trees(topology: Topology, count: int) -> tuple[Tree, ...]:
    """So many trees, each as disjoint from all before it as the topology allows.

    Where it allows nothing else (a line, say) trees repeat.
    """
    if count < 1:
        raise BadTreeCount(f"{count} trees are asked for; at least one is needed")
    used: Counter[Link] = Counter()
    trees: list[Tree] = []
    for _ in range(count):
        trees.append(spanning_tree(topology, used))
        used.update(trees[-1].links)
    return tuple(trees)


def spanning_tree(
    topology: Topology, used: Mapping[Link, int] = {}, root: str | None = None
) -> Tree:
    """The tree that reuses links as little as any tree can, and with that keeps paths short.

    `used` says how often each link is in use already; with nothing used, all paths from the root
    are shortest ones. Without a root, the one is taken that gives the shallowest tree.
    """
    graph = _Graph.of(topology, used)
    if root is not None:
        topology.switch(root)
        best = graph.grow(graph.names.index(root))
    else:
        best = graph.best(range(len(graph.names)))
    return Tree.build(best.links, graph.names[best.root])


def spanning_forest(
    topology: Topology, used: Mapping[Link, int] = {}, without: Collection[Link] = ()
) -> Tree:
    """The same where links are missing: spans each part that hangs together, the largest first."""
    graph = _Graph.of(topology, used, without)
    grown = [graph.best(part) for part in graph.parts()]
    links = [link for part in grown for link in part.links]
    root, *more = (graph.names[part.root] for part in grown)
    return Tree.build(links, root, more)


def extended_tree(tree: Tree, topology: Topology, without: Collection[Link] = ()) -> Tree:
    """The tree with more links, where they join its parts and the switches that it lacks.

    Its own links stay: the result `continues` it. The largest part has the first root.
    """
    parts = Parts(switch.id for switch in topology.switches)
    for link in tree.links:
        parts.join(link.a, link.b)
    links = set(tree.links)
    links.update(
        link for link in topology.links if link not in without and parts.join(link.a, link.b)
    )
    former = dict.fromkeys((tree.root, *tree.more_roots))
    roots: dict[str, str] = {}
    for switch in (*(root for root in former if root in parts), *parts):
        roots.setdefault(parts.find(switch), switch)
    sizes = Counter(map(parts.find, parts))
    # The sort is stable: among parts of one size, that of the former root stays the first.
    first, *more = (roots[part] for part in sorted(roots, key=lambda part: -sizes[part]))
    return Tree.build(links, first, more)


class Parts:
    """Switches that hang together, by the links that have joined them so far."""

    def __init__(self, switches: Iterable[str]) -> None:
        self._up = {switch: switch for switch in switches}

    def __iter__(self) -> Iterator[str]:
        return iter(self._up)

    def find(self, switch: str) -> str:
        """A switch that stands for the part of another one."""
        while self._up[switch] != switch:
            self._up[switch] = switch = self._up[self._up[switch]]
        return switch

    def join(self, a: str, b: str) -> bool:
        """Join two switches; returns whether they were in different parts."""
        one, other = self.find(a), self.find(b)
        self._up[one] = other
        return one != other


class _Way(NamedTuple):
    """A link as seen from one of its ends."""

    uses: int
    to: int
    port: int
    link: Link


class _Grown(NamedTuple):
    root: int
    links: list[Link]
    cost: tuple[int, int, int]


class _Graph(NamedTuple):
    """The switches as numbers in natural order, which thereby breaks ties, and their ways."""

    names: tuple[str, ...]
    ways: Sequence[Sequence[_Way]]

    @classmethod
    def of(
        cls, topology: Topology, used: Mapping[Link, int], without: Collection[Link] = ()
    ) -> _Graph:
        names = tuple(switch.id for switch in topology.switches)
        number = {name: i for i, name in enumerate(names)}
        ways: list[list[_Way]] = [[] for _ in names]
        for link in topology.links:
            if link in without:
                continue
            uses = used.get(link, 0)
            ways[number[link.a]].append(_Way(uses, number[link.b], link.a_port, link))
            ways[number[link.b]].append(_Way(uses, number[link.a], link.b_port, link))
        return cls(names, ways)

    def grow(self, root: int) -> _Grown:
        """Prim's algorithm: always the least used way out, of these the one nearest to the root."""
        depths = [-1] * len(self.names)
        links: list[Link] = []
        heap: list[tuple[int, int, int, int, int, Link | None]] = [(0, 0, root, root, 0, None)]
        while heap:
            _, depth, switch, _, _, link = heappop(heap)
            if depths[switch] >= 0:
                continue
            depths[switch] = depth
            if link is not None:
                links.append(link)
            for way in self.ways[switch]:
                if depths[way.to] < 0:
                    # From and port make each key unique: links are never compared.
                    key = (way.uses, depth + 1, way.to, switch, way.port, way.link)
                    heappush(heap, key)
        return _Grown(root, links, (max(depths), sum(depths), root))

    def best(self, part: Sequence[int]) -> _Grown:
        """The tree of the root that gives the shallowest one, in a part that hangs together."""
        # Every root reuses equally little, as minimum spanning trees do; only depths differ.
        return min((self.grow(start) for start in self.likely_roots(part)), key=lambda g: g.cost)

    def parts(self) -> list[list[int]]:
        """Switches that hang together, the largest part first."""
        found: list[list[int]] = []
        seen: set[int] = set()
        for start in range(len(self.names)):
            if start in seen:
                continue
            part = [start]
            seen.add(start)
            for switch in part:
                for way in self.ways[switch]:
                    if way.to not in seen:
                        seen.add(way.to)
                        part.append(way.to)
            found.append(sorted(part))
        return sorted(found, key=lambda part: -len(part))

    def likely_roots(self, everyone: Sequence[int]) -> Iterable[int]:
        """Roots among which the best is looked for: all, or in a large part a few."""
        if len(everyone) <= EVERY_ROOT_UP_TO:
            return everyone
        # Twice to the far end gives a path nearly as long as any: the centre is in its middle.
        longest = self._path_to_farthest(self._path_to_farthest(everyone[0])[-1])
        middle = {longest[len(longest) // 2], longest[(len(longest) - 1) // 2]}
        connected = nlargest(WELL_CONNECTED_ROOTS, everyone, key=lambda i: (len(self.ways[i]), -i))
        return sorted(middle.union(connected))

    def _path_to_farthest(self, start: int) -> list[int]:
        before = {start: start}
        queue = deque([start])
        last = start
        while queue:
            last = queue.popleft()
            for way in self.ways[last]:
                if way.to not in before:
                    before[way.to] = last
                    queue.append(way.to)
        path = [last]
        while path[-1] != start:
            path.append(before[path[-1]])
        return path[::-1]
