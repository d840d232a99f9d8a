"""Computes the next network when switches or links go down or come back. Pure.

Two different trees never share a number: a broken tree is replaced under a free number
(make-before-break). The new tree's entries are installed beside the old ones; when all are
installed, publishers are told; after a grace period the old tree is removed.
"""

from collections import Counter
from collections.abc import Iterable

from msgspec.structs import replace

from configurators.state.network import topology_of, tree_doc, tree_of
from configurators.state.removal import without_links
from configurators.store.model import Lost, NetworkDoc, TreeDoc
from dzflow.address import MAX_TREE
from sdn.network.topology import Link
from sdn.network.trees import Parts, Tree, extended_tree, spanning_forest


def next_network(
    doc: NetworkDoc, lost: Lost, taken_up: bool, now: float, grace: float
) -> NetworkDoc:
    """The next network; the same one if there is nothing to do.

    `taken_up` says that all configurators have installed this one; `now` and `grace` are seconds.
    Links that an operator has withdrawn count as lost; they are removed once no tree uses them.
    """
    changed = _without_retired(doc, now, grace)
    if taken_up:
        changed = _with_coming(changed, now)
    if changed.withdrawn:
        changed = _without_withdrawn(changed)
        gone = {*lost.links, *changed.withdrawn}
        lost = Lost(lost.switches, tuple(link for link in changed.links if link in gone))
    return _heal(changed, lost, now)


def coming(doc: NetworkDoc) -> frozenset[int]:
    """The trees whose entries are being installed; publishers do not use them yet."""
    return frozenset(doc.trees) - doc.usable - doc.retired.keys()


def cut_off(doc: NetworkDoc) -> dict[str, str]:
    """The hosts that most others cannot reach, each with the reason."""
    lost = frozenset(doc.lost.switches)
    found = {
        host.id: f"host {host.id} is at switch {host.switch}, which is lost"
        for host in doc.hosts
        if host.switch in lost
    }
    whole = next((tree for _, tree in sorted(doc.trees.items()) if is_good(doc, tree)), None)
    if whole is not None and whole.more_roots:
        tree = tree_of(whole)
        for host in doc.hosts:
            if host.switch not in lost and not tree.joins(whole.root, host.switch):
                found[host.id] = (
                    f"host {host.id} is at switch {host.switch}, which has no path to"
                    f" switch {whole.root} and most others"
                )
    return found


def _without_retired(doc: NetworkDoc, now: float, grace: float) -> NetworkDoc:
    # A clock that jumps must not keep a tree forever.
    over = {n for n, since in doc.retired.items() if not since <= now < since + grace}
    if not over:
        return doc
    return replace(
        doc,
        trees={n: tree for n, tree in doc.trees.items() if n not in over},
        retired={n: since for n, since in doc.retired.items() if n not in over},
    )


def _with_coming(doc: NetworkDoc, now: float) -> NetworkDoc:
    new = coming(doc)
    if not new:
        return doc
    good = {n for n in doc.usable - frozenset(doc.outdone) if is_good(doc, doc.trees[n])}
    # A broken tree may have grown meanwhile until it was good again.
    needed = frozenset(sorted(new)[: max(0, doc.tree_count - len(good))])
    trees = {n: tree for n, tree in doc.trees.items() if n not in new or n in needed}
    changed = replace(doc, trees=trees, outdone=())
    return retire(changed, good | needed, doc.usable - good, now)


def _without_withdrawn(doc: NetworkDoc) -> NetworkDoc:
    in_trees = {link for tree in doc.trees.values() for link in tree.links}
    unused = [link for link in doc.withdrawn if link not in in_trees]
    return without_links(doc, unused) if unused else doc


def _heal(doc: NetworkDoc, lost: Lost, now: float) -> NetworkDoc:
    if lost == doc.lost:
        return doc
    wanted = doc.tree_count
    # Trees that were to be outdone are kept: the better ones may be broken by now.
    doc = replace(doc, lost=lost, wanted=wanted, outdone=())
    if doc.discovered:
        # What has come back joins trees as what is found does: they keep their numbers.
        doc = replace(doc, trees=_grown(doc))
    new = coming(doc)
    bad = {n for n, tree in doc.trees.items() if not is_good(doc, tree)}
    kept = doc.usable - bad
    # Publishers do not use the new trees yet: those that are broken can go at once, and those that
    # are not needed any more, because what they were to replace is back.
    needed = frozenset(sorted(new - bad)[: max(0, wanted - len(kept))])
    trees = {n: tree for n, tree in doc.trees.items() if n not in new or n in needed}
    last = doc.last
    for tree in more_trees(doc, [trees[n] for n in kept | needed], wanted):
        number = free_number(trees, last)
        if number is None:
            break
        trees[number] = tree_doc(tree)
        last = number
    doc = replace(doc, trees=trees, current=tuple(sorted(doc.usable)), last=last)
    # If another tree is intact, publishers leave the broken ones at once.
    return retire(doc, kept, doc.usable - kept, now) if kept else doc


def _grown(doc: NetworkDoc) -> dict[int, TreeDoc]:
    """The trees; those with nothing that is gone reach all that they can now."""
    topology, gone = topology_of(doc), links_gone(doc)
    return {
        number: tree_doc(extended_tree(tree_of(tree), topology, gone))
        if gone.isdisjoint(tree.links)
        else tree
        for number, tree in doc.trees.items()
    }


def retire(
    doc: NetworkDoc, current: Iterable[int], retired: Iterable[int], now: float
) -> NetworkDoc:
    """Have publishers use the `current` trees only; the others go after a while."""
    since = doc.retired | dict.fromkeys(retired, now)
    return replace(doc, current=tuple(sorted(current)), retired=since)


def more_trees(doc: NetworkDoc, kept: Iterable[TreeDoc], wanted: int) -> Iterable[Tree]:
    """More trees, as different from the kept ones as possible, until there are enough.

    A tree with the same links as another one would only double entries.
    """
    topology, without = topology_of(doc), links_gone(doc)
    known = {frozenset(tree.links) for tree in kept}
    used = Counter(link for links in known for link in links)
    while len(known) < wanted:
        tree = spanning_forest(topology, used, without)
        if tree.links in known:
            return
        known.add(tree.links)
        used.update(tree.links)
        yield tree


def is_good(doc: NetworkDoc, tree: TreeDoc) -> bool:
    """Whether a tree avoids everything that is down, and reaches all that can be reached."""
    gone = links_gone(doc)
    return gone.isdisjoint(tree.links) and len(tree.links) == _spanning(doc, gone)


def links_gone(doc: NetworkDoc) -> frozenset[Link]:
    """Links that are down or withdrawn, or lead to a switch that is down."""
    switches = frozenset(doc.lost.switches)
    ends = (link for link in doc.links if link.a in switches or link.b in switches)
    return frozenset((*doc.lost.links, *doc.withdrawn, *ends))


def _spanning(doc: NetworkDoc, gone: frozenset[Link]) -> int:
    """How many links a tree has that connects all that can be connected."""
    parts = Parts(switch.id for switch in doc.switches)
    return sum(link not in gone and parts.join(link.a, link.b) for link in doc.links)


def free_number(trees: Iterable[int], last: int) -> int | None:
    """A free number, used as long ago as possible: a switch may still have its entries."""
    taken = set(trees)
    numbers = ((last + 1 + n) % (MAX_TREE + 1) for n in range(MAX_TREE + 1))
    return next((number for number in numbers if number not in taken), None)
