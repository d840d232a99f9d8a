"""How long it takes until 102 switches that connect at once are found, wired and ready.

Measured twice: with the driver alone, which knows the network and discovers its links, and with the
whole service, which knows nothing of the network at first.
"""

import asyncio
import time
from typing import Any

import httpx

from bench.processes.service import running_service
from bench.report import Progress, Row
from sdn.emulator import EmulatedNetwork
from sdn.network.events import LinkChanged, SwitchUp
from sdn.network.topologies import topology
from sdn.network.topology import Host, Link, Topology
from sdn.openflow.driver import DriverOptions, OpenFlowDriver
from sdn.tables.pipeline import Pipeline

TOPOLOGY = "fat-tree:102"
TIMEOUT = 60.0  # seconds
_POLL = 0.05  # seconds between two looks at the service
_SCHEMA = {"attributes": [{"name": "price", "type": "int", "min": 0, "max": 1023}]}


async def measure_driver() -> Row:
    """The time from the start of the switches until the driver has discovered all links."""
    network = topology(TOPOLOGY)
    pipeline = Pipeline().extended(network)
    async with OpenFlowDriver(
        network, pipeline, lambda _: "bench", {}, DriverOptions(port=0)
    ) as driver:
        began = time.perf_counter()
        async with EmulatedNetwork(network, controllers=[("127.0.0.1", driver.port)]):
            up: set[str] = set()
            links: set[Link] = set()
            async with asyncio.timeout(TIMEOUT):
                while len(up) < len(network.switches) or len(links) < len(network.links):
                    event = await driver.events.get()
                    if isinstance(event, SwitchUp):
                        up.add(event.switch)
                    elif isinstance(event, LinkChanged) and event.up:
                        links.add(event.link)
            took = time.perf_counter() - began
    return _row("start-up", network, seconds=took)


def measure_service(progress: Progress, southbound: int = 1) -> Row:
    """The same for the service, which discovers switches, too, and makes trees of what it finds.

    Also the time until a subscription is acknowledged that was made as soon as trees were whole.
    """
    progress(f"{TOPOLOGY}: starting the service, {southbound} southbound processes")
    openflow = {"host": "127.0.0.1", "ports": [0] * southbound}
    with running_service(
        data_plane="external", openflow=openflow, southbound=southbound
    ) as service:
        progress(f"{TOPOLOGY}: 102 switches connect")
        return asyncio.run(_watch(service.url, southbound))


async def _watch(url: str, southbound: int) -> Row:
    network = topology(TOPOLOGY)
    async with httpx.AsyncClient(base_url=url, timeout=TIMEOUT) as client:
        (await client.put("/spaces/stocks", json=_SCHEMA)).raise_for_status()
        addresses = [one["openflow"] for one in (await client.get("/southbound")).json()["items"]]
        controllers = [(host, int(port)) for host, port in (a.rsplit(":", 1) for a in addresses)]
        assert len(controllers) == southbound, addresses
        began = time.perf_counter()
        times: dict[str, float] = {}
        async with EmulatedNetwork(network, controllers=controllers), asyncio.timeout(TIMEOUT):
            while len(times) < 3:
                found = (await client.get("/topology")).json()
                now = time.perf_counter() - began
                for name in reached(found, network):
                    times.setdefault(name, now)
                await asyncio.sleep(_POLL)
            await _subscribe(client, network.hosts[0], network.hosts[-1])
            times["acknowledged_s"] = time.perf_counter() - began
    return _row("discovery", network, southbound=southbound, **times)


def reached(found: dict[str, Any], network: Topology) -> list[str]:
    """What the service has come to: all switches are up, all links are found, trees are whole."""
    ready = sum(one["state"] == "up" for one in found["switches"]) == len(network.switches)
    wired = sum(one["up"] for one in found["links"]) == len(network.links)
    spanning = len(network.switches) - 1
    trees = [tree for tree in found["trees"] if tree["used"]]
    whole = bool(trees) and all(t["whole"] and len(t["links"]) == spanning for t in trees)
    stages = {"switches_up_s": ready, "links_found_s": wired, "wired_s": ready and wired and whole}
    return [name for name, yes in stages.items() if yes]


async def _subscribe(client: httpx.AsyncClient, publisher: Host, subscriber: Host) -> None:
    for host in (publisher, subscriber):
        place = {"switch": host.switch, "port": host.port}
        (await client.put(f"/hosts/{host.id}", json=place)).raise_for_status()
    for call, host in (("advertise", publisher), ("subscribe", subscriber)):
        body = {"host": host.id, "space": "stocks", "filter": {}, "wait": 30}
        answer = await client.post(f"/{call}", json=body)
        assert answer.status_code == 201, answer.text


def _row(measure: str, network: Topology, **figures: float) -> Row:
    return {
        "measure": measure,
        "switches": len(network.switches),
        "links": len(network.links),
        **figures,
    }
