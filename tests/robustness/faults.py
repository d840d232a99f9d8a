"""How each kind of fault is injected and undone."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Protocol

from sdn.emulator import EmulatedNetwork
from sdn.lab import Lab
from tests.robustness.disturbed_work import move_in_phase, plan_in_phase
from tests.robustness.kinds import MOVE_PHASES, PLAN_PHASES, SWITCHES, PlannedFault
from tests.robustness.phase_faults import PhasedSystem, kill_in_phase
from tests.robustness.proxy import Proxy
from tests.robustness.record import Fault, Recorder

_LOOK = 0.1
_RESTART = 20.0  # seconds in which a process that is being restarted should appear


class System(PhasedSystem, Protocol):
    """The system that faults are injected into."""

    network: EmulatedNetwork | None
    lab: Lab | None
    lab_lock: asyncio.Lock
    proxies: Mapping[str, Proxy]

    async def ports(self, role: str) -> list[int]:
        """The ports at which processes of a role listen for streams of others."""
        ...


How = Callable[[PlannedFault, System], AbstractAsyncContextManager[str | None]]


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
    **{f"kill, move {phase}": kill_in_phase(move_in_phase(phase)) for phase in MOVE_PHASES},
    **{f"kill, plan {phase}": kill_in_phase(plan_in_phase(phase)) for phase in PLAN_PHASES},
}
