"""The components of a running service: kill one, and see when the service is whole again."""

import json
import os
import signal
import time
from datetime import datetime
from typing import Literal, NamedTuple, get_args

import msgspec
from msgspec import Struct

from api.start.logs import log_folder
from api.start.up import Service
from bench.load.http_client import CallFailed, HttpClient
from bench.processes.cpu import process_tree

ComponentName = Literal[
    "configurator", "southbound", "network", "api", "etcd", "ray_head", "workers"
]
COMPONENTS: tuple[ComponentName, ...] = get_args(ComponentName)
_CHILDREN = {"network": "network", "api": "api-1", "etcd": "etcd", "workers": "workers"}


class Start(NamedTuple):
    """The start of a worker: its process, and the time."""

    pid: int
    at: float


class Partition(Struct, frozen=True):
    """The fields of a partition that the benchmark reads."""

    id: str
    configurator: str
    epoch: int
    state: str


class _Partitions(Struct):
    items: list[Partition]


class _Switch(Struct):
    state: str


class _Switches(Struct):
    items: list[_Switch]


class Status(NamedTuple):
    """The state of the service as it reports it; empty if it does not answer."""

    ready: bool = False
    partitions: tuple[Partition, ...] = ()
    switches: int = 0
    up: int = 0

    @property
    def whole(self) -> bool:
        """Whether all parts work. A partition that no configurator has locked needs nothing."""
        served = all(p.state == "ready" or not p.configurator for p in self.partitions)
        return self.ready and served and 0 < self.switches == self.up


async def read_status(client: HttpClient) -> Status:
    """The state that the service reports now."""
    try:
        ready = await client.call("GET", "/readyz")
        partitions = await client.call("GET", "/partitions")
        switches = await client.call("GET", "/switches")
        states = [s.state for s in msgspec.json.decode(switches.body, type=_Switches).items]
        found = msgspec.json.decode(partitions.body, type=_Partitions).items
    except (CallFailed, OSError, TimeoutError, msgspec.DecodeError):
        return Status()
    return Status(ready.status == 200, tuple(found), len(states), states.count("up"))


class Component:
    """One component of a service, to be killed; `before` is the state before the kill."""

    def __init__(self, service: Service, name: ComponentName, before: Status) -> None:
        self._service = service
        self._child = _CHILDREN.get(name)
        self._pid = service.pids[self._child] if self._child else 0
        self._head = _ray_head(service) if name == "ray_head" else 0
        self._workers = {worker: self._last_start(worker) for worker in _workers(service, name)}
        # Partitions of a killed owner get a new owner, and with it a new epoch.
        self._moving = {p.id: p.epoch for p in before.partitions if p.configurator in self._workers}
        self._must_restart = name != "configurator"  # the other configurator can take over
        everything = {p.id for p in before.partitions}
        self.serves = everything if self._must_restart else set(self._moving)

    def kill(self) -> None:
        """Kill all processes of the component. Ray's other processes end after their head."""
        pids = [each.pid for each in self._workers.values()]
        if self._child:
            pids.append(self._pid)
        for pid in [self._head] if self._head else pids:
            os.kill(pid, signal.SIGKILL)

    def restarted_at(self) -> float | None:
        """The time at which all its processes ran again; None if they do not yet."""
        if not self._workers:
            there = self._service.pids.get(self._child or "") not in (None, self._pid)
            return time.time() if there else None
        starts = {name: self._last_start(name) for name in self._workers}
        if any(starts[name].pid == before.pid for name, before in self._workers.items()):
            return None
        return max(each.at for each in starts.values())

    def claimed(self, status: Status) -> bool:
        """Whether all partitions of a killed owner have a new owner."""
        epochs = {p.id: p.epoch for p in status.partitions}
        return all(epochs.get(name, epoch) != epoch for name, epoch in self._moving.items())

    def replaced(self, status: Status) -> bool:
        """Whether the status describes the service after the kill, with the component replaced."""
        return self.claimed(status) and not (self._must_restart and self.restarted_at() is None)

    @property
    def moves_partitions(self) -> bool:
        """Whether the kill moves partitions to another owner."""
        return bool(self._moving)

    def _last_start(self, worker: str) -> Start:
        path = log_folder(self._service.settings) / f"{worker}.log"
        return last_start(path.read_text(), worker)


def _workers(service: Service, component: ComponentName) -> list[str]:
    """The workers on Ray that end with a component."""
    settings = service.settings
    configurators = [f"configurator-{n + 1}" for n in range(settings.configurators)]
    southbound = [f"southbound-{n + 1}" for n in range(settings.southbound)]
    match component:
        case "configurator":
            return configurators[:1]
        case "southbound":
            return southbound
        case "ray_head" | "workers":
            return configurators + southbound
        case _:
            return []


def _ray_head(service: Service) -> int:
    """The process id of Ray's head."""
    found = [
        pid
        for pid, command in process_tree(service.pids["workers"]).items()
        if command.split(" ")[0].endswith("/gcs_server")
    ]
    if len(found) != 1:
        raise LookupError(f"expected one gcs_server process, found {len(found)}")
    return found[0]


def last_start(log: str, worker: str) -> Start:
    """The last start of a worker in its log, whose last line may be incomplete."""
    for line in reversed(log.split("\n")[:-1]):
        entry = json.loads(line)
        if entry["message"] == f"{worker} starts":
            return Start(entry["pid"], datetime.fromisoformat(entry["time"]).timestamp())
    raise LookupError(f"the log of {worker} has no start")
