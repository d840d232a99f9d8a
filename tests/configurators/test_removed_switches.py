"""Configurators when a switch is lost and then removed from the network for good."""

from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from configurators.state.healing import next_network
from configurators.state.network import without_host
from configurators.state.removal import without_switch
from configurators.store import keys
from configurators.store.documents import encode
from configurators.store.model import Lost, NetworkDoc
from tests.configurators.cluster import Cluster, cluster
from tests.etcd import TestEtcd


def _documents(doc: NetworkDoc) -> Iterator[NetworkDoc]:
    """The networks from the loss of s2, with another tree, to its removal with its host."""
    lost = Lost(("s2",), ())
    doc = next_network(replace(doc, discovered=True), lost, True, 0.0, 0.0)
    yield doc
    for now in (1.0, 2.0):
        doc = next_network(doc, lost, True, now, 0.0)
        yield doc
    doc = without_host(doc, "h2")
    yield doc
    yield without_switch(doc, "s2")


@pytest.mark.parametrize("together", [False, True], ids=["one by one", "together"])
async def test_nothing_waits_for_a_switch_that_was_removed(
    etcd_server: TestEtcd, together: bool
) -> None:
    async with cluster(etcd_server.access(), "ring:4", partitions=1) as it, it.configurator():
        await it.ready()
        ended = it.subscribe("x < 50", "h3")
        await it.do(it.advertise("x < 100"), it.subscribe("x >= 90", "h3"), ended)
        it.network.agents["s2"].drop()
        documents = list(_documents(it.doc))
        await _store(it, documents[0])
        await _taken_up(it)
        await it.do(ended, gone=True)
        for doc in documents[1:]:
            await _store(it, doc)
            if not together:
                await _taken_up(it)
        await _taken_up(it)
        await it.until(lambda: it.loads["c1"].declared)


async def _store(it: Cluster, doc: NetworkDoc) -> None:
    it.doc = doc
    await it.etcd.put(keys.NETWORK, encode(doc))


async def _taken_up(it: Cluster) -> None:
    """Wait until all partitions of c1 have the network that was stored last."""
    stored = await it.etcd.get(keys.NETWORK)
    assert stored
    await it.until(lambda: it.loads["c1"].network >= stored.revision)
