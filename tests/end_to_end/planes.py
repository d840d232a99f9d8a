"""The whole service with real applications, on an emulated network and on Open vSwitch."""

import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from configurators.store.etcd.client import Access
from configurators.store.server.server import free_ports
from sdn.lab import Lab
from sdn.network.topologies import topology
from sdn.tables.pipeline import PlanName
from tests.end_to_end.crowd import WAIT, Crowd, here
from tests.service import running

TOPOLOGY = "ring:4"
HOSTS = ("h1", "h2", "h3", "h4")
COMMON: dict[str, Any] = {
    "topology": TOPOLOGY,
    "partitions": 5,
    "balancing": {"hand_over": 30.0},  # a move does not fail because the machine is busy
}


class Plane:
    """A running service, with what a test needs of its network."""

    def __init__(self, url: str, access: Access, crowd: Crowd, settled: Callable[[], None]) -> None:
        self.access = access
        self.crowd = crowd
        self.settled = settled  # returns when new tables are in force for events, too
        self.rest = httpx.Client(base_url=url, timeout=WAIT, trust_env=False)


@contextmanager
def emulated(folder: Path, plan: PlanName, mode: str = "sna") -> Iterator[Plane]:
    with (
        running(folder, plan=plan, mode=mode, **COMMON) as service,
        Crowd(service.url, HOSTS, here) as crowd,
    ):
        yield Plane(service.url, service.access, crowd, lambda: None)


@contextmanager
def open_vswitch(folder: Path, plan: PlanName) -> Iterator[Plane]:
    """The service before switches that are not its own; the test has the lab, to ask it things."""
    (port,) = free_ports(1)
    with (
        running(
            folder,
            plan=plan,
            data_plane="external",
            openflow={"ports": [port]},
            **COMMON,
        ) as service,
        Lab(topology(TOPOLOGY), f"tcp:127.0.0.1:{port}") as lab,
    ):
        lab.relay(int(service.url.rpartition(":")[2]))

        def start(host: str, command: list[str]) -> "subprocess.Popen[Any]":
            pipe = subprocess.PIPE
            return lab.popen(host, command, stdin=pipe, stdout=pipe, text=True)

        with Crowd(service.url, HOSTS, start) as crowd:
            yield Plane(service.url, service.access, crowd, lab.wait_cache)


PLANES: dict[str, Callable[[Path, PlanName], AbstractContextManager[Plane]]]
PLANES = {"emulated": emulated, "shared": partial(emulated, mode="sea"), "ovs": open_vswitch}
