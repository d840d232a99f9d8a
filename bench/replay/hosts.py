"""Gives hosts of traces a place in a topology that may lack them. Pure."""

from collections.abc import Collection

from dzflow.errors import BadInput
from sdn.network.topology import Topology, natural_key


class NoHosts(BadInput):
    """A topology without hosts, on which nothing can be replayed."""


def place_hosts(traced: Collection[str], network: Topology) -> dict[str, str]:
    """The host of the topology for each traced host: itself, if the topology has it.

    The others get hosts that no traced one has, in natural order, then all hosts by turns. The same
    hosts and the same topology give the same places.
    """
    known = [host.id for host in network.hosts]
    if traced and not known:
        raise NoHosts("the topology has no hosts: name another one with --topology")
    taken = set(traced)
    free = [host for host in known if host not in taken]
    order = [*free, *known]
    found = {host: host for host in known if host in taken}
    missing = sorted(taken - found.keys(), key=natural_key)
    for place, host in enumerate(missing):
        # After the free ones, all hosts by turns.
        at = place if place < len(free) else len(free) + (place - len(free)) % len(known)
        found[host] = order[at]
    return found
