"""The components of a running service: how each is killed, and when the service is whole again."""

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
from bench.calls import CallFailed, Client
from bench.cpu import below

Component = Literal["configurator", "southbound", "network", "api", "etcd", "ray_head", "workers"]
COMPONENTS: tuple[Component, ...] = get_args(Component)
_CHILDREN = {"network": "network", "api": "api-1", "etcd": "etcd", "workers": "workers"}


class Started(NamedTuple):
    """A worker has started: its process, and when."""

    pid: int
    at: float


class Partition(Struct, frozen=True):
    """What is read of a partition."""

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
    """What the service says of itself; nothing, if it does not answer."""

    ready: bool = False
    partitions: tuple[Partition, ...] = ()
    switches: int = 0
    up: int = 0

    @property
    def whole(self) -> bool:
        """Whether everything is as it should be. What nobody has locked needs nothing."""
        served = all(p.state == "ready" or not p.configurator for p in self.partitions)
        return self.ready and served and 0 < self.switches == self.up


async def ask(client: Client) -> Status:
    """What the service says of itself now."""
    try:
        ready = await client.call("GET", "/readyz")
        partitions = await client.call("GET", "/partitions")
        switches = await client.call("GET", "/switches")
        states = [s.state for s in msgspec.json.decode(switches.body, type=_Switches).items]
        found = msgspec.json.decode(partitions.body, type=_Partitions).items
    except (CallFailed, OSError, TimeoutError, msgspec.DecodeError):
        return Status()
    return Status(ready.status == 200, tuple(found), len(states), states.count("up"))


class Victim:
    """A component that is to be killed; begins with how things are before."""

    def __init__(self, service: Service, component: Component, before: Status) -> None:
        self._service = service
        self._child = _CHILDREN.get(component)
        self._pid = service.pids[self._child] if self._child else 0
        self._head = _head(service) if component == "ray_head" else 0
        self._workers = {name: self._last(name) for name in _workers(service, component)}
        # Those whose owner is killed get a new one, and with it a new epoch.
        self._moving = {p.id: p.epoch for p in before.partitions if p.configurator in self._workers}
        self._returns = component != "configurator"
        all_of_them = {p.id for p in before.partitions}
        self.serves = all_of_them if self._returns else set(self._moving)

    def kill(self) -> None:
        """Kill it: all of its processes. Those of Ray end by themselves when its head is gone."""
        pids = [each.pid for each in self._workers.values()]
        if self._child:
            pids.append(self._pid)
        for pid in [self._head] if self._head else pids:
            os.kill(pid, signal.SIGKILL)

    def started(self) -> float | None:
        """When all its processes were there again, if they are, and as far as that is known."""
        if not self._workers:
            there = self._service.pids.get(self._child or "") not in (None, self._pid)
            return time.time() if there else None
        found = {name: self._last(name) for name in self._workers}
        if any(found[name].pid == before.pid for name, before in self._workers.items()):
            return None
        return max(each.at for each in found.values())

    def claimed(self, status: Status) -> bool:
        """Whether all partitions whose owner was killed have one again."""
        epochs = {p.id: p.epoch for p in status.partitions}
        return all(epochs.get(name, epoch) != epoch for name, epoch in self._moving.items())

    def replaced(self, status: Status) -> bool:
        """Whether what the status says is of the time after; a configurator need not come back."""
        return self.claimed(status) and not (self._returns and self.started() is None)

    @property
    def moves(self) -> bool:
        """Whether partitions get a new owner."""
        return bool(self._moving)

    def _last(self, worker: str) -> Started:
        """The last start of a worker, as it was logged."""
        path = log_folder(self._service.settings) / f"{worker}.log"
        return last_start(path.read_text(), worker)


def _workers(service: Service, component: Component) -> list[str]:
    """The workers on Ray that die with a component."""
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


def _head(service: Service) -> int:
    """The process that Ray cannot be without."""
    found = [
        pid
        for pid, command in below(service.pids["workers"]).items()
        if command.split(" ")[0].endswith("/gcs_server")
    ]
    if len(found) != 1:
        raise LookupError(f"{len(found)} processes look like the head of Ray")
    return found[0]


def last_start(log: str, worker: str) -> Started:
    """The last start of a worker that its log tells of; the last line may be unfinished."""
    for line in reversed(log.split("\n")[:-1]):
        said = json.loads(line)
        if said["message"] == f"{worker} starts":
            return Started(said["pid"], datetime.fromisoformat(said["time"]).timestamp())
    raise LookupError(f"{worker} has not started")
