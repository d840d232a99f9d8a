"""A face like ONOS's REST interface over an emulated network, for tests and demonstrations.

It knows what the driver uses: rules that match IPv6 prefixes, devices, links and hosts. Like ONOS,
it answers before a switch has done anything, keeps no order, and refuses what ONOS refuses. Rules
reach the switches when they are confirmed, as late as can be, and it fails on command.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from random import Random
from types import TracebackType
from typing import Literal, Self

import msgspec

from sdn.emulator.network import EmulatedNetwork
from sdn.emulator.refused import Refused
from sdn.flows import FlowKey
from sdn.onos import face_plane
from sdn.onos.face_rules import BadRequest, Rule, read_named, read_posted
from sdn.onos.face_server import FaceServer, Reply, Request
from sdn.onos.wire import ADDED, FAILED, PENDING_ADD, PENDING_REMOVE, device_id
from sdn.topology import Host

Conduct = Literal["well", "stuck", "failing", "forgetful"]
"""How a switch behaves: as it should; it never does what it is told; what it is told to add fails;
ONOS forgets what it was asked to add."""


class _Answered(Exception):
    """An answer other than that all is well."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.content = msgspec.json.encode({"code": status, "message": message})


class Face:
    """An ONOS for an emulated network; all but HTTP happens in the loop that starts it.

    A rule is confirmed up to `delay` seconds after it was asked for. `id_bits` is the length of the
    hash in a rule's id; with fewer bits, more rules share one. `on_change` is called after each
    change to a switch.
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
    ) -> None:
        self.delay = delay
        self.on_change: Callable[[], None] | None = None
        self.asked: deque[Request] = deque(maxlen=10_000)  # the requests so far
        self._network = network
        self._id_bits = id_bits
        self._random = Random(seed)  # noqa: S311 in which order rules arrive is no secret
        self._switches = {device_id(s.dpid): s.id for s in network.topology.switches}
        self._rules: dict[str, dict[tuple[str, FlowKey], Rule]] = {d: {} for d in self._switches}
        self._conduct: dict[str, Conduct] = {}
        self._away: set[str] = set()
        self._failing: deque[tuple[int, str | None]] = deque()
        self._held = asyncio.Event()  # set while answers are given
        self._held.set()
        self._timers: dict[Rule, asyncio.TimerHandle] = {}
        self._server = FaceServer(user, password, self._answer)

    @property
    def url(self) -> str:
        """Where it answers."""
        return f"http://127.0.0.1:{self._server.port}"

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        """Answer requests, where it did before if it did."""
        await self._server.start()
        self._work_on(rule for rules in self._rules.values() for rule in rules.values())

    async def stop(self) -> None:
        """Answer no more; rules stay as they are."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        await self._server.stop()

    def rules(self, switch: str) -> list[Rule]:
        """All rules of a switch, of whatever application and in whatever state."""
        return list(self._rules[self._device(switch)].values())

    # Failing on command.

    def conduct(self, switch: str, how: Conduct) -> None:
        """From now on a switch behaves like this; what it has not done yet goes on if it does."""
        device = self._device(switch)
        self._conduct[device] = how
        self._work_on(self._rules[device].values())

    def disconnect(self, switch: str) -> None:
        """The switch is not connected to ONOS, until `connect`."""
        self._away.add(self._device(switch))

    def connect(self, switch: str) -> None:
        """The switch is connected."""
        self._away.discard(self._device(switch))

    def fail(self, status: int = 500, times: int = 1, method: str | None = None) -> None:
        """Answer the next requests (of a method) with an error, without doing anything."""
        self._failing.extend([(status, method)] * times)

    def hold(self) -> None:
        """Let all requests wait, before anything is done, until `release`."""
        self._held.clear()

    def release(self) -> None:
        """Answer what waits."""
        self._held.set()

    def lose(self, switch: str, which: Callable[[Rule], bool] = lambda _: True) -> int:
        """Forget rules, and take them off the switch; how many there were."""
        rules = self._rules[self._device(switch)]
        lost = [(place, rule) for place, rule in rules.items() if which(rule)]
        for place, rule in lost:
            del rules[place]
            self._take_off(rule)
        return len(lost)

    def post(self, body: bytes, app: str) -> list[Rule]:
        """Add rules as another application would."""
        rules = read_posted(body, app, self._id_bits)
        self._add(rules)
        return rules

    # Requests.

    async def _answer(self, request: Request) -> Reply:
        self.asked.append(request)
        await self._held.wait()
        try:
            if self._failing and self._failing[0][1] in (None, request.method):
                raise _Answered(self._failing.popleft()[0], "as you wish")
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
                # ONOS does not tell a device without rules from one that is not there.
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
        switches = self._network.switches
        return [
            rule.shown(*face_plane.counters(switches[self._switches[rule.device]], rule))
            for rule in rules
        ]

    # Rules.

    def _add(self, rules: list[Rule]) -> None:
        known = [
            rule
            for rule in rules
            # ONOS takes rules for devices that it does not know, and nothing ever comes of them.
            if rule.device in self._rules and self._conduct.get(rule.device) != "forgetful"
        ]
        for rule in known:
            self._rules[rule.device][rule.app, rule.key] = rule
        self._work_on(known)

    def _delete(self, rules: Iterable[Rule]) -> None:
        doomed = list(rules)
        for rule in doomed:
            rule.state = PENDING_REMOVE
        self._work_on(doomed)

    def _work_on(self, rules: Iterable[Rule]) -> None:
        """Confirm in a while, each by itself and in any order, what is pending."""
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
        conduct = self._conduct.get(rule.device, "well")
        if rules.get(place) is not rule or conduct == "stuck":
            return  # another rule has taken its place, or the switch does not do it
        if rule.state == PENDING_REMOVE:
            del rules[place]
            self._take_off(rule)
        elif conduct == "failing":
            rule.state = FAILED
        else:
            try:
                face_plane.put(self._network.switches[self._switches[rule.device]], rule)
                rule.state = ADDED
            except Refused:
                rule.state = FAILED
            self._changed()

    def _take_off(self, rule: Rule) -> None:
        face_plane.remove(self._network.switches[self._switches[rule.device]], rule)
        self._changed()

    def _changed(self) -> None:
        if self.on_change is not None:
            self.on_change()

    # The network.

    def _device(self, switch: str) -> str:
        return device_id(self._network.topology.switch(switch).dpid)

    def _device_json(self, device: str) -> dict[str, object]:
        available = device not in self._away
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


def _ok(**content: object) -> Reply:
    return 200, msgspec.json.encode(content)
