"""The network that a service stores at its first start, and loads at later ones."""

from collections.abc import Iterable

from msgspec.structs import replace

from api.start.settings.settings import BadSettings, Settings
from configurators.state.network import (
    first_network,
    in_order,
    topology_of,
    undiscovered_network,
)
from configurators.store import keys
from configurators.store.documents import decode_network, encode
from configurators.store.etcd.client import Etcd, Put, absent, unchanged
from configurators.store.model import NetworkDoc
from dzflow.errors import BadInput
from sdn.network.topologies import topology
from sdn.network.topology import Switch


class AnotherNetwork(BadInput):
    """The stored network is not the one that the settings describe."""


async def load_or_store_network(etcd: Etcd, settings: Settings) -> NetworkDoc:
    """The stored network; if there is none, one is made from the settings and stored.

    What the settings say about the treatment of switches is brought up to date in it.
    AnotherNetwork if a setting that was given explicitly does not match the stored network.
    """
    while True:
        stored = await etcd.get(keys.NETWORK)
        if stored is None:
            doc, unless_changed = _new_network(settings), absent(keys.NETWORK)
        else:
            found = decode_network(stored.value)
            _compare(found, settings)
            doc = _up_to_date(found, settings)
            if doc == found:
                return found
            unless_changed = unchanged(keys.NETWORK, stored.revision)
        # Where parts are started apart, another one may do the same at this moment.
        if (await etcd.transact([unless_changed], [Put(keys.NETWORK, encode(doc))])).succeeded:
            return doc


def _new_network(settings: Settings) -> NetworkDoc:
    own = settings.data_plane in ("emulated", "ovs")
    if own or "topology" in settings.model_fields_set:
        doc = first_network(topology(settings.topology), settings.plan, settings.trees)
    elif settings.data_plane == "external" and settings.discovers:
        doc = undiscovered_network(settings.plan, settings.trees)
    else:
        raise BadSettings(
            "topology: say what your network is like: name a file that describes its switches,"
            " hosts and links (docs/reference/topologies.md); or, with OpenFlow, have it discovered"
            " (discovery.links)"
        )
    return _up_to_date(doc, settings)


def _up_to_date(doc: NetworkDoc, settings: Settings) -> NetworkDoc:
    """The network with what may change from one start to the next.

    OutOfTables or OutOfGroups if switches may not use as many any more as they need.
    """
    if "topology" in settings.model_fields_set:
        given = topology(settings.topology)  # whose switches and links are those of the document
        doc = replace(doc, switches=given.switches, unprobed=in_order(given.unprobed))
    pipeline = replace(doc.pipeline, other_traffic=settings.openflow.other_traffic)
    return replace(doc, pipeline=pipeline.extended(topology_of(doc)))


def _compare(doc: NetworkDoc, settings: Settings) -> None:
    given = settings.model_fields_set
    if "topology" in given:
        asked = topology(settings.topology)
        # Hosts come and go; switches and links are those of the first start.
        if (_names(asked.switches), asked.links) != (_names(doc.switches), doc.links):
            raise _refused(
                f"a network of {len(doc.switches)} switches and {len(doc.links)} links",
                f"{settings.topology} is another one",
                "--topology",
            )
    if "plan" in given and settings.plan != doc.pipeline.plan:
        raise _refused(
            f"tables of the plan {doc.pipeline.plan}",
            f"{settings.plan} is asked for",
            f"--plan, or with --plan {doc.pipeline.plan}",
        )
    if "trees" in given and settings.trees != doc.tree_count and _makes_others(doc, settings):
        raise _refused(
            f"{doc.tree_count} trees",
            f"{settings.trees} are asked for",
            f"--trees, or with --trees {doc.tree_count}",
        )


def _makes_others(doc: NetworkDoc, settings: Settings) -> bool:
    """Whether another number of trees leads to others: there may be fewer than are asked for."""
    if doc.discovered:
        return True
    made = first_network(topology_of(doc), settings.plan, settings.trees)
    return made.tree_count != doc.tree_count


def _names(switches: Iterable[Switch]) -> list[tuple[str, int]]:
    return [(switch.id, switch.dpid) for switch in switches]


def _refused(there: str, asked: str, option: str) -> AnotherNetwork:
    return AnotherNetwork(
        f"this data folder (or etcd) holds {there}; {asked}. Start without {option}, or with"
        " another --data-dir"
    )
