"""Computes the next network when discovery finds switches and links. Pure.

Trees grow: a switch or link that joins them adds to a tree, which keeps its number, because all
other ways stay as they are. When nothing has joined for a while, trees that are longer than needed
are replaced under free numbers (make-before-break).
"""

from collections import Counter
from collections.abc import Collection, Iterable

from msgspec import Struct
from msgspec.structs import replace

from configurators.state.healing import coming, free_number, is_good, links_gone, more_trees, retire
from configurators.state.network import topology_of, tree_doc, tree_of
from configurators.store.model import Lost, NetworkDoc, TreeDoc
from sdn.network.topology import Leg, Link, Switch, ToSwitch
from sdn.network.trees import Tree, extended_tree
from sdn.tables.pipeline import Pipeline

MAX_SWITCHES = 1_000
"""Switches that join by themselves: a client that may connect could claim any number of them."""

MARGIN = 0.2
"""New trees take the place of others if ways between hosts get shorter by this part at least."""

_SHORT_DPID = 0xFFFF


class Found(Struct, frozen=True):
    """What all southbound processes have found: datapath ids that the network lacks, links."""

    switches: frozenset[int] = frozenset()
    links: frozenset[Link] = frozenset()


def with_found(doc: NetworkDoc, found: Found) -> NetworkDoc:
    """The network with what was found; the same one if there is nothing new, or it is declared.

    A link takes the place of lost ones at its ports, once no tree uses these. A link that does not
    fit (a port is taken, or the switch has no table left) does not join.
    """
    if not doc.discovered:
        return doc
    switches = (*doc.switches, *_new_switches(doc, found.switches))
    links = _joined_links(doc, found.links, {switch.id for switch in switches})
    if len(switches) == len(doc.switches) and links == doc.links:
        return doc
    lost = tuple(link for link in doc.lost.links if link in links)
    changed = replace(doc, switches=switches, links=links, lost=Lost(doc.lost.switches, lost))
    topology = topology_of(changed)
    tables = doc.pipeline.extended(topology)
    changed = replace(changed, switches=topology.switches, links=topology.links, pipeline=tables)
    return with_grown_trees(changed)


def with_grown_trees(doc: NetworkDoc) -> NetworkDoc:
    """The network with trees that reach all switches; those that there are keep their links."""
    if not doc.switches:
        return doc
    if not doc.trees:
        return _with_new_trees(doc, more_trees(doc, (), doc.tree_count))
    topology, gone = topology_of(doc), links_gone(doc)
    trees = {
        number: tree_doc(extended_tree(tree_of(tree), topology, gone))
        for number, tree in doc.trees.items()
    }
    return replace(doc, trees=trees)


def with_better_trees(doc: NetworkDoc, now: float) -> NetworkDoc:
    """The network with new trees beside those in use, if that pays; else the same one.

    It pays if there are fewer trees than wanted, or if ways between hosts (without hosts, between
    switches) get shorter by `MARGIN`. Not while trees are being replaced. Trees that have grown
    until they are the same are retired first, but for one of them; `now` is in seconds.
    """
    used = {number: doc.trees[number] for number in sorted(doc.usable)}
    if not used or doc.retired or coming(doc):
        return doc
    if not all(is_good(doc, tree) for tree in used.values()):
        return doc
    different = {frozenset(tree.links): number for number, tree in reversed(used.items())}
    if len(different) < len(used):
        kept = frozenset(different.values())
        return retire(doc, kept, used.keys() - kept, now)
    best = tuple(map(tree_doc, more_trees(doc, (), doc.tree_count)))
    weights = Counter(host.switch for host in doc.hosts)
    if len(weights) < 2:
        weights = Counter(switch.id for switch in doc.switches)
    pays = _mean_distance(best, weights) <= (1 - MARGIN) * _mean_distance(used.values(), weights)
    wanted = best if pays else map(tree_doc, more_trees(doc, used.values(), doc.tree_count))
    known = different.keys()
    new = [tree for tree in wanted if frozenset(tree.links) not in known]
    if not new:
        return doc
    stay = {frozenset(tree.links) for tree in best} if pays else known
    outdone = tuple(n for n, tree in used.items() if frozenset(tree.links) not in stay)
    changed = _with_new_trees(replace(doc, current=tuple(used)), map(tree_of, new))
    return replace(changed, outdone=outdone)


def _with_new_trees(doc: NetworkDoc, trees: Iterable[Tree]) -> NetworkDoc:
    found, last = dict(doc.trees), doc.last
    for tree in trees:
        number = free_number(found, last)
        if number is None:
            break
        found[number] = tree_doc(tree)
        last = number
    return replace(doc, trees=found, last=last)


def _mean_distance(trees: Collection[TreeDoc], weights: Counter[str]) -> float:
    return sum(tree_of(tree).distance(weights) for tree in trees) / len(trees)


def _new_switches(doc: NetworkDoc, dpids: Iterable[int]) -> list[Switch]:
    known = {switch.dpid for switch in doc.switches}
    names = {switch.id for switch in doc.switches}
    found = []
    for dpid in sorted(set(dpids) - known)[: max(0, MAX_SWITCHES - len(known))]:
        short = f"s{dpid}"
        name = short if dpid <= _SHORT_DPID and short not in names else f"dpid-{dpid:016x}"
        if name not in names:
            names.add(name)
            found.append(Switch(name, dpid))
    return found


def _joined_links(
    doc: NetworkDoc, found: Iterable[Link], switches: Collection[str]
) -> tuple[Link, ...]:
    """The links that there are with the new ones that fit, and without those these replace."""
    kept = dict.fromkeys(doc.links)
    ends: dict[tuple[str, int], Link | None] = dict.fromkeys(
        (host.switch, host.port) for host in doc.hosts
    )
    ends.update((end, link) for link in doc.links for end in link.ends)
    lost = set(doc.lost.links)
    in_trees = {link for tree in doc.trees.values() for link in tree.links}
    tables = {name: list(legs) for name, legs in doc.pipeline.tables.items()}
    for link in sorted(set(found) - set(kept), key=str):
        before = {ends[end] for end in link.ends if end in ends}
        if not {link.a, link.b} <= set(switches) or None in before:
            continue
        replaced = {one for one in before if one is not None}
        if not replaced <= lost or replaced & in_trees or not _has_room(doc.pipeline, tables, link):
            continue
        for one in replaced:
            del kept[one]
            for end in one.ends:
                del ends[end]
        kept[link] = None
        for switch, port in link.ends:
            ends[switch, port] = link
            legs = tables.setdefault(switch, [])
            if ToSwitch(port) not in legs:
                legs.append(ToSwitch(port))
    return tuple(kept)


def _has_room(pipeline: Pipeline, tables: dict[str, list[Leg | None]], link: Link) -> bool:
    """Whether both switches of a link have a table for it."""
    if pipeline.plan != "legs":
        return True
    return all(
        ToSwitch(port) in (legs := tables.get(switch, []))
        or sum(leg is not None for leg in legs) < pipeline.leg_tables(switch)
        for switch, port in link.ends
    )
