"""ONOS's REST interface over an emulated network.

The stand-in knows what the driver uses: rules that match IPv6 prefixes, devices, links and hosts.
Like ONOS, it answers before a switch has done anything, keeps no order, and refuses what ONOS
refuses. A rule reaches its switch only when the stand-in confirms it, and tests can make it fail.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from enum import Enum, auto
from random import Random
from types import TracebackType
from typing import Self

import msgspec

from sdn.emulator.network import EmulatedNetwork
from sdn.emulator.refused import Refused
from sdn.network.topology import Host
from sdn.onos.wire import ADDED, FAILED, PENDING_ADD, PENDING_REMOVE, device_id
from sdn.tables.flows import FlowKey
from tests.onos_standin import switches
from tests.onos_standin.http_server import HttpServer, Reply, Request
from tests.onos_standin.rules import BadRequest, Rule, read_named, read_posted


class Behaviour(Enum):
    """How a switch treats the rules that ONOS sends it."""

    NORMAL = auto()
    STUCK = auto()  # it never does what it is told
    FAILING = auto()  # it refuses every rule that is added
    FORGETFUL = auto()  # ONOS forgets the rules that it was asked to add


class _Answered(Exception):
    """The request gets an answer with an error status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.content = msgspec.json.encode({"code": status, "message": message})


class OnosStandIn:
    """An ONOS for an emulated network; all but HTTP happens in the loop that starts it.

    A rule is confirmed up to `delay` seconds after it was asked for. `id_bits` is the length of the
    hash in a rule's id; with fewer bits, more rules share one. `requests` has the
    requests so far.
    """

    def __init__(
        self,
        network: EmulatedNetwork,
        *,
        user: str = "onos",
        password: str = "rocks",  # noqa: S107 the one that every ONOS comes with
        delay: float = 0.0,
        id_bits: int = 32,
        seed: int = 0,
        port: int = 0,
    ) -> None:
        self.delay = delay
        self.requests: deque[Request] = deque(maxlen=10_000)
        self._on_change: Callable[[], None] = _ignore
        self._network = network
        self._id_bits = id_bits
        self._random = Random(seed)
        self._switches = {device_id(s.dpid): s.id for s in network.topology.switches}
        self._rules: dict[str, dict[tuple[str, FlowKey], Rule]] = {d: {} for d in self._switches}
        self._behaviours: dict[str, Behaviour] = {}
        self._disconnected: set[str] = set()
        self._ordered_failures: deque[tuple[int, str | None]] = deque()
        self._answering = asyncio.Event()  # set while answers are given
        self._answering.set()
        self._timers: dict[Rule, asyncio.TimerHandle] = {}
        self._server = HttpServer(user, password, self._answer, port)

    @property
    def url(self) -> str:
        """The base address of the REST interface, without `/onos/v1`."""
        return f"http://127.0.0.1:{self._server.port}"

    async def __aenter__(self) -> Self:
        self._server.reserve()
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()
        self._server.give_up()

    async def start(self) -> None:
        """Answer requests, on the same port as before."""
        await self._server.start()
        self._confirm_later(rule for rules in self._rules.values() for rule in rules.values())

    async def stop(self) -> None:
        """Stop answering; rules stay as they are."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        await self._server.stop()

    def rules(self, switch: str) -> list[Rule]:
        """All rules of a switch, of every application and in every state."""
        return list(self._rules[self._device(switch)].values())

    # Failures that a test orders.

    def set_behaviour(self, switch: str, behaviour: Behaviour) -> None:
        """Have a switch behave like this from now on; a normal one catches up on what it missed."""
        device = self._device(switch)
        self._behaviours[device] = behaviour
        self._confirm_later(self._rules[device].values())

    def disconnect(self, switch: str) -> None:
        """Disconnect a switch from ONOS until `connect`."""
        self._disconnected.add(self._device(switch))

    def connect(self, switch: str) -> None:
        """Connect a switch to ONOS."""
        self._disconnected.discard(self._device(switch))

    def fail(self, status: int = 500, times: int = 1, method: str | None = None) -> None:
        """Answer the next requests (of a method) with an error, without doing anything."""
        self._ordered_failures.extend([(status, method)] * times)

    def hold(self) -> None:
        """Keep all requests waiting, before anything is done, until `release`."""
        self._answering.clear()

    def release(self) -> None:
        """Answer the requests that wait."""
        self._answering.set()

    def drop_rules(self, switch: str, which: Callable[[Rule], bool] = lambda _: True) -> int:
        """Drop rules in ONOS and on the switch; returns how many there were."""
        rules = self._rules[self._device(switch)]
        lost = [(place, rule) for place, rule in rules.items() if which(rule)]
        for place, rule in lost:
            del rules[place]
            self._remove_from_switch(rule)
        return len(lost)

    def post(self, body: bytes, app: str) -> list[Rule]:
        """Add rules as another application would."""
        rules = read_posted(body, app, self._id_bits)
        self._add(rules)
        return rules

    @contextmanager
    def watched(self, on_change: Callable[[], None]) -> Iterator[None]:
        """Have `on_change` called after each change to a switch."""
        self._on_change = on_change
        try:
            yield
        finally:
            self._on_change = _ignore

    # Requests.

    async def _answer(self, request: Request) -> Reply:
        self.requests.append(request)
        await self._answering.wait()
        try:
            if self._ordered_failures and self._ordered_failures[0][1] in (None, request.method):
                raise _Answered(
                    self._ordered_failures.popleft()[0], "this answer was ordered by the test"
                )
            return self._route(request)
        except BadRequest as error:
            answered = _Answered(400, str(error))
        except _Answered as error:
            answered = error
        return answered.status, answered.content

    def _route(self, request: Request) -> Reply:
        match request.method, request.path[2:] if request.path[:2] == ("onos", "v1") else ():
            case "GET", ("devices",):
                return _ok(devices=[self._device_json(device) for device in self._switches])
            case "GET", ("devices", device) if device in self._switches:
                return 200, msgspec.json.encode(self._device_json(device))
            case "GET", ("links",):
                return _ok(links=list(self._links()))
            case "GET", ("hosts",):
                return _ok(hosts=[self._host(host) for host in self._network.topology.hosts])
            case "GET", ("flows",):
                every = [rule for rules in self._rules.values() for rule in rules.values()]
                return _ok(flows=self._shown(every))
            case "GET", ("flows", "application", app):
                return _ok(flows=self._shown(self._of(app)))
            case "GET", ("flows", device):
                # ONOS answers the same for a device without rules and an unknown device.
                if not self._rules.get(device):
                    raise _Answered(404, "Device is not found")
                return _ok(flows=self._shown(self._rules[device].values()))
            case "POST", ("flows",):
                rules = read_posted(request.body, request.query.get("appId"), self._id_bits)
                self._add(rules)
                return _ok(flows=[{"deviceId": r.device, "flowId": str(r.id)} for r in rules])
            case "DELETE", ("flows",):
                names = {(n.device_id, int(n.flow_id)) for n in read_named(request.body)}
                every = [rule for rules in self._rules.values() for rule in rules.values()]
                self._delete(rule for rule in every if (rule.device, rule.id) in names)
                return 204, b""
            case "DELETE", ("flows", "application", app):
                self._delete(self._of(app))
                return 204, b""
        raise _Answered(404, f"{'/'.join(request.path)} is not found")

    def _of(self, app: str) -> list[Rule]:
        return [r for rules in self._rules.values() for r in rules.values() if r.app == app]

    def _shown(self, rules: Iterable[Rule]) -> list[dict[str, object]]:
        emulated = self._network.switches
        return [
            rule.shown(*switches.counters(emulated[self._switches[rule.device]], rule))
            for rule in rules
        ]

    # Rules.

    def _add(self, rules: list[Rule]) -> None:
        known = [
            rule
            for rule in rules
            # ONOS accepts rules for unknown devices, and does nothing with them.
            if rule.device in self._rules
            and self._behaviour(rule.device) is not Behaviour.FORGETFUL
        ]
        for rule in known:
            self._rules[rule.device][rule.app, rule.key] = rule
        self._confirm_later(known)

    def _delete(self, rules: Iterable[Rule]) -> None:
        doomed = list(rules)
        for rule in doomed:
            rule.state = PENDING_REMOVE
        self._confirm_later(doomed)

    def _confirm_later(self, rules: Iterable[Rule]) -> None:
        """Confirm pending rules after the delay, each by itself and in any order."""
        pending = [rule for rule in rules if rule.state in (PENDING_ADD, PENDING_REMOVE)]
        self._random.shuffle(pending)  # without a delay, this is the order
        loop = asyncio.get_running_loop()
        for rule in pending:
            if rule in self._timers:
                self._timers[rule].cancel()
            delay = self.delay * self._random.uniform(0.5, 1.0)
            self._timers[rule] = loop.call_later(delay, self._confirm, rule)

    def _confirm(self, rule: Rule) -> None:
        del self._timers[rule]
        rules = self._rules[rule.device]
        place = rule.app, rule.key
        behaviour = self._behaviour(rule.device)
        if rules.get(place) is not rule or behaviour is Behaviour.STUCK:
            return  # another rule has replaced it, or the switch is stuck
        if rule.state == PENDING_REMOVE:
            del rules[place]
            self._remove_from_switch(rule)
        elif behaviour is Behaviour.FAILING:
            rule.state = FAILED
        else:
            try:
                switches.put(self._network.switches[self._switches[rule.device]], rule)
                rule.state = ADDED
            except Refused:
                rule.state = FAILED
            self._on_change()

    def _behaviour(self, device: str) -> Behaviour:
        return self._behaviours.get(device, Behaviour.NORMAL)

    def _remove_from_switch(self, rule: Rule) -> None:
        switches.remove(self._network.switches[self._switches[rule.device]], rule)
        self._on_change()

    # The network.

    def _device(self, switch: str) -> str:
        return device_id(self._network.topology.switch(switch).dpid)

    def _device_json(self, device: str) -> dict[str, object]:
        available = device not in self._disconnected
        return {"id": device, "type": "SWITCH", "available": available, "role": "MASTER"}

    def _links(self) -> Iterable[dict[str, object]]:
        for link in self._network.topology.links:
            if all(self._up(*end) for end in link.ends):
                for one, other in (link.ends, link.ends[::-1]):
                    src, dst = (
                        {"device": self._device(switch), "port": str(port)}
                        for switch, port in (one, other)
                    )
                    yield {"src": src, "dst": dst, "type": "DIRECT", "state": "ACTIVE"}

    def _host(self, host: Host) -> dict[str, object]:
        known = self._network.hosts[host.id]
        mac = known.mac.hex(":").upper()
        place = {"elementId": self._device(host.switch), "port": f"[{host.id}]({host.port})"}
        return {
            "id": f"{mac}/None",
            "mac": mac,
            "vlan": "None",
            "ipAddresses": [host.ipv6] if host.ipv6 else [],
            "locations": [place],
        }

    def _up(self, switch: str, port: int) -> bool:
        return any(p.number == port and p.up for p in self._network.switches[switch].ports)


def _ignore() -> None:
    """Called after a change that no test watches."""


def _ok(**content: object) -> Reply:
    return 200, msgspec.json.encode(content)
