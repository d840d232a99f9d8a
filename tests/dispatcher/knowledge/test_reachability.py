"""When a network counts as applied by all processes, and as installed on all switches."""

from typing import Literal

import pytest

from configurators.store.etcd.client import Access, Etcd
from configurators.streams.messages import Load, PartitionLoad
from dispatcher.knowledge.catalogue import Catalogue
from dispatcher.knowledge.fleet import Fleet
from dispatcher.knowledge.reachability import Reachability

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
