"""Removes switches and links of a discovered network that are gone for good. Pure."""

from collections.abc import Collection, Iterable

from msgspec.structs import replace

from configurators.state.network import topology_of, tree_doc, tree_of
from configurators.store.model import Lost, NetworkDoc
from dzflow.errors import BadInput, DzflowError
from sdn.network.topology import Link
from sdn.network.trees import Tree


class StillNeeded(DzflowError):
    """A switch or link cannot be removed yet; the message names all reasons."""


class Described(BadInput):
    """The network is the one that a topology file describes."""


def without_switch(doc: NetworkDoc, name: str) -> NetworkDoc:
    """The network without a switch and its links.

    StillNeeded while the switch is not lost, has hosts, or trees lead over it.
    """
    check_discovered(doc)
    reasons = []
    if name not in doc.lost.switches:
        reasons.append("it is not lost: if it is connected, disconnect it, or it is found again")
    if hosts := [host.id for host in doc.hosts if host.switch == name]:
        reasons.append(f"hosts are declared there: {', '.join(hosts[:20])}")
    gone = [link for link in doc.links if name in (link.a, link.b)]
    if used := _trees_with(doc, gone):
        reasons.append(f"trees lead over it: {used}; they are being replaced")
    _refuse(f"switch {name}", reasons)
    left = tuple(switch for switch in doc.switches if switch.id != name)
    lost = Lost(tuple(one for one in doc.lost.switches if one != name), doc.lost.links)
    trees = {number: tree_of(tree) for number, tree in doc.trees.items()}
    kept = {n: tree_doc(other) for n, tree in trees.items() if (other := _without_root(tree, name))}
    return without_links(replace(doc, switches=left, lost=lost, trees=kept), gone)


def without_link(doc: NetworkDoc, link: Link) -> NetworkDoc:
    """The network without a link; StillNeeded while it is not lost, or trees use it.

    A link that is not probed need not be lost; while trees use it, it is only withdrawn: other
    trees take their place, and then it goes.
    """
    check_discovered(doc)
    if link in doc.unprobed:
        if _trees_with(doc, [link]):
            return replace(doc, withdrawn=tuple(dict.fromkeys((*doc.withdrawn, link))))
        return without_links(doc, [link])
    reasons = []
    at_lost = {link.a, link.b} & set(doc.lost.switches)
    if link not in doc.lost.links and not at_lost:
        reasons.append("it is not lost: if the cable is there, unplug it, or it is found again")
    if used := _trees_with(doc, [link]):
        reasons.append(f"trees use it: {used}; they are being replaced")
    _refuse(f"link {link}", reasons)
    return without_links(doc, [link])


def check_discovered(doc: NetworkDoc) -> None:
    """Described if the network is one that was described at the first start."""
    if not doc.discovered:
        raise Described(
            "this network was described at the first start (by --topology, or because the service"
            " makes its switches itself); only a network that is discovered changes"
        )


def _trees_with(doc: NetworkDoc, links: list[Link]) -> str:
    """The numbers of the trees that use one of some links."""
    found = [n for n, tree in sorted(doc.trees.items()) if not set(links).isdisjoint(tree.links)]
    return ", ".join(map(str, found))


def _refuse(what: str, reasons: list[str]) -> None:
    if reasons:
        raise StillNeeded(f"{what} cannot be removed: {'; '.join(reasons)}")


def _without_root(tree: Tree, name: str) -> Tree | None:
    """A tree without a switch that it reaches by no link; None if nothing is left of it."""
    roots = [root for root in (tree.root, *tree.more_roots) if root != name]
    return Tree.build(tree.links, roots[0], roots[1:]) if roots else None


def without_links(doc: NetworkDoc, gone: Collection[Link]) -> NetworkDoc:
    """The network without links that no tree uses."""

    def left(links: Iterable[Link]) -> tuple[Link, ...]:
        return tuple(link for link in links if link not in gone)

    changed = replace(
        doc,
        links=left(doc.links),
        lost=Lost(doc.lost.switches, left(doc.lost.links)),
        unprobed=left(doc.unprobed),
        withdrawn=left(doc.withdrawn),
    )
    if not doc.trees:
        changed = replace(changed, current=None, retired={}, outdone=())
    topology_of(changed)  # which raises if it is none
    return changed
