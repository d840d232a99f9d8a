"""Faults: the kinds that exist, which of them a round gets, and how each is injected and undone."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from random import Random
from typing import Protocol

from msgspec import Struct

from sdn.emulator import EmulatedNetwork
from sdn.lab import Lab
from tests.robustness.proxy import Proxy
from tests.robustness.record import Fault, Recorder

SWITCHES = ("s1", "s2", "s3", "s4")
_LEASE = 10.0  # seconds after which a process that does not renew its lease counts as dead
_LOOK = 0.1
_RESTART = 20.0  # seconds in which a process that is being restarted should appear


class System(Protocol):
    """The system that faults are injected into."""

    network: EmulatedNetwork | None
    lab: Lab | None
    lab_lock: asyncio.Lock
    proxies: Mapping[str, Proxy]

    async def pids(self, role: str) -> list[int]:
        """The processes that have a role now."""
        ...

    async def ports(self, role: str) -> list[int]:
        """The ports at which processes of a role listen for streams of others."""
        ...


class Kind(Struct, frozen=True):
    """A kind of fault: its targets, how long it lasts, and whether it cuts the paths of events."""

    name: str
    targets: tuple[str, ...]
    shortest: float = 0.0
    longest: float = 0.0
    cuts: bool = False  # at the target switch, or everywhere if it is the network process
    strands: bool = False  # the switch may count as lost, which cuts off its own hosts only
    weight: int = 2  # how often it is drawn, relative to others


class PlannedFault(Struct, frozen=True):
    """A fault of a round, `at` so many seconds after the round begins."""

    kind: Kind
    target: str
    at: float
    lasts: float
    index: int  # which of several processes: modulo their number


How = Callable[[PlannedFault, System], AbstractAsyncContextManager[str | None]]

_PROCESSES = ("api", "configurator", "southbound", "etcd")
_STREAMS = ("configurator", "southbound")

WHOLE = (
    Kind("kill", _PROCESSES, weight=8),
    Kind("kill", ("raylet", "gcs", "workers")),
    Kind("stop", (*_PROCESSES, "workers"), _LEASE + 1, _LEASE + 4, weight=4),
    Kind("stop briefly", (*_PROCESSES, "raylet", "gcs"), 0.5, 4.0, weight=4),
    # Rare, because they excuse missed events.
    Kind("kill", ("network",), cuts=True, weight=1),
    Kind("stop briefly", ("network",), 0.5, 3.0, cuts=True, weight=1),
    Kind("cut streams", _STREAMS, 0.0, 3.0),
)
_LINES = (
    Kind("kill", _PROCESSES, weight=6),
    Kind("stop", _PROCESSES, _LEASE + 1, _LEASE + 4),
    Kind("stop briefly", _PROCESSES, 0.5, 4.0),
    Kind("cut", ("etcd", "openflow"), 0.0, 6.0),
    Kind("hang", ("etcd", "openflow"), 1.0, _LEASE + 4),
    Kind("delay", ("etcd", "openflow"), 2.0, 8.0),
    Kind("cut streams", _STREAMS, 0.0, 3.0),
)
WIRED = (
    *_LINES,
    Kind("switch drops", SWITCHES, 0.0, 6.0, strands=True),
    Kind("switch restarts", SWITCHES, 0.0, 4.0, cuts=True),
    Kind("switch ignores barriers", SWITCHES, 2.0, 8.0, strands=True),
    Kind("switch answers early", SWITCHES, 1.0, 5.0, cuts=True),
    Kind("switch loses flow-mods", SWITCHES, 1.0, 5.0, cuts=True),
    Kind("switch refuses", SWITCHES, 1.0, 5.0),
)
LAB = (
    *_LINES,
    Kind("Open vSwitch: bridge restarts", SWITCHES, 0.0, 4.0),
    Kind("Open vSwitch: bridge disconnects", SWITCHES, 0.0, 6.0),
    Kind("Open vSwitch: daemon killed", ("all",), 0.0, 4.0),
)


def plan_round(random: Random, kinds: Sequence[Kind], most: int = 4) -> list[PlannedFault]:
    """The faults of a round: some, at times that may overlap."""
    found = []
    for _ in range(random.randint(1, most)):
        (kind,) = random.choices(kinds, [kind.weight for kind in kinds])
        found.append(
            PlannedFault(
                kind,
                random.choice(kind.targets),
                round(random.uniform(0.5, 5.0), 2),
                round(random.uniform(kind.shortest, kind.longest), 2),
                random.randrange(1000),
            )
        )
    return sorted(found, key=lambda planned: planned.at)


async def carry_out(
    planned: Sequence[PlannedFault], system: System, recorder: Recorder
) -> list[Fault]:
    """Inject faults at their times, and undo each after its own; all are undone on return."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(_carry_out(each, system)) for each in planned]
    done = [fault for task in tasks if (fault := task.result())]
    for fault in done:
        recorder.add(fault)
    return done


async def _carry_out(planned: PlannedFault, system: System) -> Fault | None:
    await asyncio.sleep(planned.at)
    kind, target = planned.kind, planned.target
    cuts: tuple[str, ...] = ()
    if kind.cuts:
        cuts = (target,) if target in SWITCHES else ("*",)
    elif kind.strands:
        cuts = (f"@{target}",)
    begin = time.time()
    async with _HOW[kind.name](planned, system) as detail:
        if detail is None:
            return None  # its target does not exist now
        await asyncio.sleep(planned.lasts)
    return Fault(kind.name, target, begin, time.time(), cuts, detail)


# How each is injected. Each yields a detail for the record, or None if it has no target now.


@asynccontextmanager
async def _kill(planned: PlannedFault, system: System) -> AsyncIterator[str | None]:
    async with _process(planned, system) as handle:
        if handle is not None:
            signal.pidfd_send_signal(handle, signal.SIGKILL)
        yield None if handle is None else ""


@asynccontextmanager
async def _stop(planned: PlannedFault, system: System) -> AsyncIterator[str | None]:
    async with _process(planned, system) as handle:
        if handle is None:
            yield None
            return
        signal.pidfd_send_signal(handle, signal.SIGSTOP)
        try:
            yield f"for {planned.lasts} s"
        finally:
            with suppress(
                ProcessLookupError
            ):  # it may have been killed meanwhile, because it did not answer
                signal.pidfd_send_signal(handle, signal.SIGCONT)


@asynccontextmanager
async def _process(planned: PlannedFault, system: System) -> AsyncIterator[int | None]:
    """A handle of the target process; None if there is none for a while."""
    deadline = time.monotonic() + _RESTART
    while not (pids := sorted(await system.pids(planned.target))):
        if time.monotonic() > deadline:
            yield None
            return
        await asyncio.sleep(_LOOK)
    try:
        handle = os.pidfd_open(pids[planned.index % len(pids)])
    except ProcessLookupError:
        yield None
        return
    try:
        yield handle
    except ProcessLookupError:
        pass  # it was gone before the signal
    finally:
        os.close(handle)


@asynccontextmanager
async def _cut_streams(planned: PlannedFault, system: System) -> AsyncIterator[str | None]:
    """Have the kernel reset all connections to a process again and again, as a bad network does."""
    ports = sorted(await system.ports(planned.target))
    if not ports:
        yield None
        return
    port = ports[planned.index % len(ports)]

    async def cut() -> None:
        while True:
            words = ["ss", "-K", "-n", "dst", "127.0.0.1", "dport", "=", f":{port}"]
            quiet = asyncio.subprocess.DEVNULL
            process = await asyncio.create_subprocess_exec(*words, stdout=quiet, stderr=quiet)
            await process.wait()
            await asyncio.sleep(5 * _LOOK)

    task = asyncio.create_task(cut())
    try:
        await asyncio.sleep(_LOOK)
        yield f"port {port}"
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _proxied(begin: Callable[[Proxy, PlannedFault], None]) -> How:
    @asynccontextmanager
    async def how(planned: PlannedFault, system: System) -> AsyncIterator[str | None]:
        proxy = system.proxies[planned.target]
        begin(proxy, planned)
        try:
            yield f"for {planned.lasts} s"
        finally:
            proxy.heal()

    return how


def _delay(proxy: Proxy, planned: PlannedFault) -> None:
    proxy.delay = 0.05 + planned.index % 10 * 0.05


def _switch(begin: str, reconnect: bool = False) -> How:
    """Let a switch fail in some way, then behave.

    The next audit finds the flow-mods that a lying switch has lost: after five minutes, or, so that
    the test need not wait, after a reconnection.
    """

    @asynccontextmanager
    async def how(planned: PlannedFault, system: System) -> AsyncIterator[str | None]:
        assert system.network is not None
        switch = system.network.switches[planned.target]
        agent = system.network.agents[planned.target]
        match begin:
            case "drop":
                agent.drop(None)
            case "restart":
                agent.restart(keep_tables=False, seconds=None)
            case "ignore":
                switch.ignore_barriers()
            case "lie":
                switch.lie(None)
            case "lose":
                switch.lose(times=None, skip=planned.index % 3)
            case "refuse":
                switch.refuse(times=1 + planned.index % 5)
        try:
            yield f"for {planned.lasts} s"
        finally:
            switch.behave()
            if reconnect:
                agent.drop(0.0)
            else:
                agent.come_back()

    return how


def _lab(begin: Callable[[Lab, str], None], end: Callable[[Lab, str], None]) -> How:
    """Let real switches fail; one such fault after the other."""

    @asynccontextmanager
    async def how(planned: PlannedFault, system: System) -> AsyncIterator[str | None]:
        assert system.lab is not None
        async with system.lab_lock:
            await asyncio.to_thread(begin, system.lab, planned.target)
            try:
                yield f"for {planned.lasts} s"
            finally:
                await asyncio.to_thread(end, system.lab, planned.target)

    return how


_HOW: dict[str, How] = {
    "kill": _kill,
    "stop": _stop,
    "stop briefly": _stop,
    "cut streams": _cut_streams,
    "cut": _proxied(lambda proxy, _: proxy.cut()),
    "hang": _proxied(lambda proxy, _: proxy.hold()),
    "delay": _proxied(_delay),
    "switch drops": _switch("drop"),
    "switch restarts": _switch("restart"),
    "switch ignores barriers": _switch("ignore", reconnect=True),
    "switch answers early": _switch("lie", reconnect=True),
    "switch loses flow-mods": _switch("lose", reconnect=True),
    "switch refuses": _switch("refuse"),
    "Open vSwitch: bridge restarts": _lab(Lab.stop_switch, Lab.start_switch),
    "Open vSwitch: bridge disconnects": _lab(Lab.disconnect, Lab.reconnect),
    "Open vSwitch: daemon killed": _lab(
        lambda lab, _: lab.kill_switches(), lambda lab, _: lab.start_switches()
    ),
}
