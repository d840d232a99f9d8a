"""When a network counts as applied by all processes, and as installed on all switches."""

from typing import Literal

import pytest

from configurators.engine.partition_map import Node, PartitionMap
from configurators.state.network import first_network
from configurators.state.spaces import new_space, with_map, with_settled_map
from configurators.store.documents import encode
from configurators.store.etcd.client import Access, Etcd
from configurators.store.keys import NETWORK as NETWORK_KEY
from configurators.store.keys import SOUTHBOUND, SPACES
from configurators.store.model import Process, SpaceDoc
from configurators.streams.messages import Load, PartitionLoad, SwitchReport
from dispatcher.knowledge.catalogue import Catalogue
from dispatcher.knowledge.fleet import Fleet
from dispatcher.knowledge.reachability import Reachability
from sdn.network.topologies import topology
from sdn.tables.pipeline import PlanName
from tests.etcd import TestEtcd
from tests.support import until

State = Literal["loading", "ready", "waiting"]

PARTITION = "1.0/all"
NETWORK = 5
NOWHERE = Access(("127.0.0.1:1",))


def reported(*loads: Load) -> Reachability:
    """One partition, whose owner is c1 by epoch 7, and what configurators have reported."""
    etcd = Etcd(NOWHERE)  # nothing is read: what is known is given here
    catalogue, fleet = Catalogue(etcd), Fleet(etcd, b"token", "d1")
    catalogue.network_revision = NETWORK
    catalogue.owners[PARTITION] = "c1", 7
    fleet.loads.update((load.configurator, load) for load in loads)
    return Reachability(catalogue, fleet)


def owner(
    state: State = "ready", network: int = NETWORK, epoch: int = 7, declared: bool = True
) -> Load:
    partition = PartitionLoad(PARTITION, epoch, state, 0, 0, 0, 0)
    return Load("c1", network, [partition], declared=declared)


@pytest.mark.parametrize(
    ("load", "applied"),
    [
        (owner(), True),
        (owner("waiting"), True),
        (owner("loading"), False),
        (owner(network=NETWORK - 1), False),
        (owner(epoch=6), False),
    ],
)
def test_a_network_is_applied_when_the_owners_have_it(load: Load, applied: bool) -> None:
    assert reported(load).network_applied() is applied


def test_a_network_is_installed_when_switches_have_what_owners_declared() -> None:
    assert reported(owner()).network_installed()
    refused = reported(owner("waiting", declared=False))
    assert refused.network_applied()
    assert not refused.network_installed()


def test_a_configurator_without_partitions_has_nothing_to_install() -> None:
    assert reported(owner(), Load("c2", NETWORK, [], declared=False)).network_installed()


@pytest.mark.parametrize(("plan", "hides"), [("lpm", True), ("legs", False)])
async def test_under_lpm_events_follow_the_network_when_nothing_is_left_of_former_maps(
    etcd_server: TestEtcd, plan: PlanName, hides: bool
) -> None:
    schema = {"attributes": [{"name": "x", "type": "int", "min": 0, "max": 255}]}
    async with Etcd(etcd_server.access()) as etcd:
        catalogue, fleet = Catalogue(etcd), Fleet(etcd, b"token", "d1")
        reachability = Reachability(catalogue, fleet)

        async def stored(space: SpaceDoc) -> int:
            revision = await etcd.put(SPACES + space.name, encode(space))
            await catalogue.refresh_spaces()
            return revision

        def cleaned(revision: int) -> None:
            fleet.switch_reports["b1"] = SwitchReport("b1", [], {}, 1, [], cleaned=revision)

        nowhere = Process("b1", "127.0.0.1:1", 1, "")
        await etcd.put(SOUTHBOUND + nowhere.id, encode(nowhere))
        await etcd.put(NETWORK_KEY, encode(first_network(topology("line:3"), plan, 1)))
        space = new_space("small", 5, schema, plan, 1)
        revision = await etcd.put(SPACES + space.name, encode(space))
        await catalogue.start()
        try:
            async with fleet:
                await until(lambda: bool(fleet.southbound.processes))
            cleaned(revision)
            assert not reachability.unsettled_maps()
            space = with_map(space, 0, PartitionMap(plan, Node(0)))
            cleaned(await stored(space))
            assert bool(reachability.unsettled_maps()) is hides
            revision = await stored(with_settled_map(space, 0))
            assert bool(reachability.unsettled_maps()) is hides
            cleaned(revision)
            assert not reachability.unsettled_maps()
        finally:
            await catalogue.stop()
