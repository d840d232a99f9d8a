"""The same requests on every data plane: tables read back, real events to the right hosts."""

from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from sdn.network.topologies import topology
from sdn.network.topology import Topology
from sdn.openflow.protocol.constants import V1_3, V1_4
from sdn.tables.pipeline import Pipeline, PlanName
from sdn.tables.shadow import PartitionOf
from tests.certificates import make_keys
from tests.sdn.lab.support import needs_lab
from tests.sdn.southbound.planes import Plane, Round, emulated_plane, lab_plane, onos_plane

Start = Callable[[Topology, Pipeline, PartitionOf], AbstractAsyncContextManager[Plane]]


PLANES: dict[str, tuple[PlanName, Start]] = {
    "emulated-1.3-legs": ("legs", partial(emulated_plane, version=V1_3)),
    "emulated-1.4-legs": ("legs", partial(emulated_plane, version=V1_4)),
    "emulated-1.3-lpm": ("lpm", partial(emulated_plane, version=V1_3)),
    "onos-lpm": ("lpm", onos_plane),
    "ovs-1.3-legs": ("legs", partial(lab_plane, protocol="OpenFlow13")),
    "ovs-1.4-legs": ("legs", partial(lab_plane, protocol="OpenFlow14")),
    "ovs-1.4-lpm": ("lpm", partial(lab_plane, protocol="OpenFlow14")),
}
TLS: dict[str, Callable[..., AbstractAsyncContextManager[Plane]]] = {
    "emulated": emulated_plane,
    "ovs": lab_plane,
}


def names(planes: Iterable[str]) -> list[Any]:
    """Parameters, of which those that need a lab are skipped where it cannot be had."""
    return [pytest.param(n, marks=needs_lab) if n.startswith("ovs") else n for n in planes]


@pytest.mark.parametrize("network", ["line:3", "ring:4", "fat-tree:10"])
@pytest.mark.parametrize("name", names(PLANES))
async def test_every_host_gets_exactly_what_it_asked_for(name: str, network: str) -> None:
    plan, start = PLANES[name]
    await rounds(Round(plan, topology(network), seed=len(network)), start, 3)


@pytest.mark.parametrize("name", names(TLS))
async def test_the_same_holds_over_tls(name: str, tmp_path: Path) -> None:
    start = partial(TLS[name], keys=make_keys(tmp_path))
    await rounds(Round("legs", topology("line:3"), seed=1), start, 1)


async def rounds(work: Round, start: Start, count: int) -> None:
    async with start(work.plant.topology, work.plant.pipeline, work.partition_of) as plane:
        await work.add(plane, work.markers(advertised=True))
        await work.add(plane, work.markers(advertised=False))
        await work.add(plane, work.requests(True, 6))
        for _ in range(count):
            await work.add(plane, work.requests(False, 8))
            await work.check_tables(plane)
            await work.check_events(plane, 60)
            mine = [name for name in work.plant.active if name.startswith("r")]
            gone = work.random.sample(mine, len(mine) // 3)
            offers = {name for name in gone if work.plant.active[name].advertised}
            await work.remove(plane, sorted(offers))
            await work.remove(plane, sorted(set(gone) - offers))
            await work.check_tables(plane)
            await work.check_events(plane, 60)
