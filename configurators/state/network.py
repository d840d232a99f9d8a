"""The network as it is stored, and what follows from it: topology, trees, routes, plans."""

from collections.abc import Iterable, Mapping
from typing import Self

from msgspec.structs import replace

from configurators.store.documents import BadDocument, decode_network
from configurators.store.model import NetworkDoc, TreeDoc
from dzflow.address import MAX_TREE, Scope
from dzflow.errors import BadInput
from sdn.network.routes import Routes
from sdn.network.topology import Host, Leg, Link, ToHost, Topology, ToSwitch
from sdn.network.trees import BadTreeCount, Tree, spanning_trees
from sdn.tables.pipeline import Pipeline, PlanName
from sdn.tables.plans import Plan, make_plan


class Network:
    """A network at one revision; immutable. Plans are made when they are first needed.

    All engines share its routes. Routes `after` those of an earlier network continue them, so that
    an engine can change from that network to this one (`Engine.rewire`).
    """

    def __init__(
        self, topology: Topology, pipeline: Pipeline, trees: Mapping[int, Tree], routes: Routes
    ) -> None:
        self.topology = topology
        self.pipeline = pipeline
        self.trees = trees
        self.routes = routes
        self._plans: dict[Scope, Plan] = {}

    @classmethod
    def of(cls, doc: NetworkDoc, after: "Network | None" = None) -> Self:
        """The network of a document; `after` is the network before it, if any."""
        topology = topology_of(doc)
        trees = {number: tree_of(tree) for number, tree in doc.trees.items()}
        routes = Routes(topology, trees, after.routes if after else None)
        return cls(topology, doc.pipeline, trees, routes)

    def scope(self, space: int, version: int) -> Scope:
        """The events of one version of a space, under the prefix of this network's addresses."""
        return Scope(space, version, self.pipeline.prefix)

    def plan(self, scope: Scope) -> Plan:
        """The plan for the entries of a scope; always the same object."""
        known = self._plans.get(scope)
        if known is None:
            known = self._plans[scope] = make_plan(self.routes, self.pipeline, scope)
        return known


def read_network(data: bytes) -> NetworkDoc:
    """A network as it is stored; BadDocument if it cannot be used."""
    doc = decode_network(data)
    try:
        Scope(1, 0, doc.pipeline.prefix).check()
        for number in doc.trees:
            if not 0 <= number <= MAX_TREE:
                raise BadInput(f"tree number {number} is not within 0 to {MAX_TREE}")
        doc.pipeline.extended(Network.of(doc).topology)
    except (BadInput, ArithmeticError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise BadDocument(f"the network cannot be used: {error}") from error
    return doc


def steps(doc: NetworkDoc, after: Network | None) -> list[NetworkDoc]:
    """The networks to pass through to this one, if documents in between were missed.

    A tree number that has another meaning than before has to be given up first, and so has a table
    or group that another leg has now.
    """
    if after is None:
        return [doc]
    made = {number: tree_of(tree) for number, tree in doc.trees.items()}
    kept = {n: doc.trees[n] for n, tree in made.items() if tree.continues(after.trees.get(n, tree))}
    found = [doc] if len(kept) == len(doc.trees) else [replace(doc, trees=kept), doc]
    renumbered = _without_renumbered(doc, after)
    return found if renumbered is None else [renumbered, *found]


def _without_renumbered(doc: NetworkDoc, after: Network) -> NetworkDoc | None:
    """The network before this one without the legs that have other numbers now; None if none has.

    It still has the numbers of the network before, so that their entries can be deleted.
    """
    before = after.pipeline
    if before.tables == doc.pipeline.tables and before.groups == doc.pipeline.groups:
        return None

    def renumbered(switch: str, leg: Leg) -> bool:
        return before.differs(switch, leg, doc.pipeline)

    topology, trees = after.topology, after.trees
    gone = {host.id for host in topology.hosts if renumbered(host.switch, ToHost(host.id))}
    broken = {
        number
        for number, tree in trees.items()
        if any(renumbered(s, ToSwitch(port)) for link in tree.links for s, port in link.ends)
    }
    if not gone and not broken:
        return None
    return replace(
        doc,
        switches=topology.switches,
        links=topology.links,
        hosts=tuple(host for host in topology.hosts if host.id not in gone),
        pipeline=before,
        trees={n: tree_doc(tree) for n, tree in trees.items() if n not in broken},
    )


def tree_of(doc: TreeDoc) -> Tree:
    """The tree of a document."""
    return Tree.build(doc.links, doc.root, doc.more_roots)


def topology_of(doc: NetworkDoc) -> Topology:
    """The switches, links and hosts of a document."""
    return Topology.build(
        doc.switches, doc.links, doc.hosts, partial=doc.discovered, unprobed=doc.unprobed
    )


def first_network(
    topology: Topology, plan: PlanName, trees: int, pipeline: Pipeline | None = None
) -> NetworkDoc:
    """The first document of a network.

    It has at most `trees` trees: a tree with the same links as another one would only double
    entries. `pipeline` may set where tables and groups begin, and the prefix of addresses.
    """
    if not 1 <= trees <= MAX_TREE + 1:
        raise BadTreeCount(f"{trees} trees are not possible; choose from 1 to {MAX_TREE + 1}")
    different: dict[frozenset[Link], Tree] = {}
    for tree in spanning_trees(topology, trees):
        different.setdefault(tree.links, tree)
    tables = replace(pipeline or Pipeline(), plan=plan).extended(topology)
    return NetworkDoc(
        topology.switches,
        topology.links,
        topology.hosts,
        tables,
        {number: tree_doc(tree) for number, tree in enumerate(different.values())},
        wanted=len(different),
        last=len(different) - 1,
        unprobed=in_order(topology.unprobed),
    )


def undiscovered_network(plan: PlanName, trees: int) -> NetworkDoc:
    """The first document of a network that is discovered: nothing is known of it yet."""
    return NetworkDoc((), (), (), Pipeline(plan=plan), {}, wanted=trees, discovered=True)


def with_host(doc: NetworkDoc, host: Host) -> NetworkDoc:
    """The network with a host added or moved; TopologyError or OutOfTables if it does not fit."""
    return _with_topology(doc, topology_of(doc).with_host(host))


def without_host(doc: NetworkDoc, host: str) -> NetworkDoc:
    """The network without a host; its table and group stay its own until they are freed."""
    return _with_topology(doc, topology_of(doc).without_host(host))


def _with_topology(doc: NetworkDoc, topology: Topology) -> NetworkDoc:
    tables = doc.pipeline.extended(topology)
    return replace(doc, hosts=topology.hosts, pipeline=tables)


def tree_doc(tree: Tree) -> TreeDoc:
    """The document of a tree."""
    return TreeDoc(in_order(tree.links), tree.root, tree.more_roots)


def in_order(links: Iterable[Link]) -> tuple[Link, ...]:
    """Links in the order in which documents list them."""
    return tuple(sorted(links, key=lambda link: link.ends))
