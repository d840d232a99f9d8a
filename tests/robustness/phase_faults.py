"""Kills a process at a certain step of a move (mode `sna`), or of a change of a partition map.

The fault asks for the work by itself and follows its document in etcd. As soon as that is in the
wanted phase, the leading API process, which alone takes moves and plans further, is paused. If the
phase has not passed by then, the victim is killed, and the leader goes on. So a kill strikes in its
phase, however short that is, except for a write of the leader that is already on its way.
"""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    aclosing,
    asynccontextmanager,
    contextmanager,
    suppress,
)
from random import Random
from typing import Any, NamedTuple, Protocol

import httpx

from configurators.store.documents import decode_process
from configurators.store.etcd.client import Access, Etcd, StoreError
from configurators.store.keys import CONFIGURATORS, DISPATCHERS, LEADER, SOUTHBOUND
from tests.robustness.kinds import PlannedFault

_PATIENCE = 25.0  # seconds in which the work should come to the phase
_ONE_ATTEMPT = 5.0  # seconds
_PAUSE = 0.1  # seconds before the next one
_LONGEST_HOLD = 0.05  # seconds between the beginning of the phase and the kill


class PhasedSystem(Protocol):
    """A system whose partitions can be moved, and cut."""

    access: Access

    @property
    def url(self) -> str:
        """Where the REST interface is."""
        ...

    async def pids(self, role: str) -> list[int]:
        """The processes that have a role now."""
        ...


class Processes(NamedTuple):
    """The processes that are alive, by their names; the values are process ids."""

    configurators: dict[str, int]
    southbound: dict[str, int]
    leader: int
    etcd: int


class Attempt(NamedTuple):
    """Work to ask for, the key of the document that shows how far it is, and who is to die."""

    path: str
    body: dict[str, Any]
    key: str
    after: int  # the revision after which the document is followed
    reached: Callable[[bytes], bool | None]
    """Whether a document is in the wanted phase; None if it will not come there any more."""
    describe: Callable[[bytes], str]
    """What a document is about. It may be that of another operator."""
    leader: int
    victim: int


Choose = Callable[[Etcd, Processes, str, Random], Awaitable[Attempt | None]]
"""Chooses work that is possible now, and the process of the given role in it; None: there is none.
"""


def kill_in_phase(
    choose: Choose,
) -> Callable[[PlannedFault, PhasedSystem], AbstractAsyncContextManager[str | None]]:
    """A fault that kills its target while the chosen work is in its phase."""

    @asynccontextmanager
    async def how(planned: PlannedFault, system: PhasedSystem) -> AsyncIterator[str | None]:
        yield await _kill(choose, planned, system)

    return how


async def _kill(choose: Choose, planned: PlannedFault, system: PhasedSystem) -> str | None:
    """Try again and again; what was disturbed, or None if it has not come to a kill."""
    random = Random(planned.index)
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline:
        # Other faults may strike at the same time: then the next attempt may succeed.
        with suppress(StoreError, httpx.HTTPError, TimeoutError, ProcessLookupError):
            async with Etcd(system.access) as etcd:
                processes = await _processes(etcd, system)
                attempt = processes and await choose(etcd, processes, planned.target, random)
                if attempt and (detail := await _carry_out(attempt, etcd, system.url, random)):
                    return detail
        await asyncio.sleep(_PAUSE)
    return None


async def _processes(etcd: Etcd, system: PhasedSystem) -> Processes | None:
    """The processes that are alive; None if nobody leads, or etcd is just being started."""
    configurators, southbound, dispatchers = [
        {
            (process := decode_process(item.value)).id: process.pid
            for item in (await etcd.range(prefix)).items
        }
        for prefix in (CONFIGURATORS, SOUTHBOUND, DISPATCHERS)
    ]
    leader = await etcd.get(LEADER)
    leading = dispatchers.get(leader.value.decode()) if leader else None
    servers = await system.pids("etcd")
    if not (leading and servers):
        return None
    return Processes(configurators, southbound, leading, servers[0])


async def _carry_out(attempt: Attempt, etcd: Etcd, url: str, random: Random) -> str | None:
    """Ask for the work, and kill the victim in the phase; None if the phase was missed."""
    hold = random.uniform(0.0, _LONGEST_HOLD)
    http = httpx.AsyncClient(base_url=url, timeout=_ONE_ATTEMPT, trust_env=False)
    with _handle(attempt.leader) as leader, _handle(attempt.victim) as victim:
        striking = asyncio.create_task(_strike(attempt, etcd, leader, victim, hold))
        try:
            async with asyncio.timeout(_ONE_ATTEMPT), http:
                answer = await http.post(attempt.path, json=attempt.body)
                if answer.is_error and not striking.done():
                    return None  # refused, or the service cannot be reached
                return await striking
        except httpx.HTTPError:
            # The kill may have hit the process that was to answer.
            return striking.result() if striking.done() and not striking.exception() else None
        finally:
            striking.cancel()
            await asyncio.gather(striking, return_exceptions=True)


async def _strike(
    attempt: Attempt, etcd: Etcd, leader: int, victim: int, hold: float
) -> str | None:
    """Follow the document until it is in the phase, and kill the victim then."""
    key = attempt.key  # it may be the beginning of another one
    async with aclosing(etcd.watch(key, attempt.after)) as batches:
        async for batch in batches:
            for event in batch.events:
                if event.key != key:
                    continue
                document = event.value
                reached = None if document is None else attempt.reached(document)
                if document is None or reached is None:
                    return None
                if not reached:
                    continue
                with _paused(leader):
                    stored = await etcd.get(key)
                    if stored is None or stored.value != document:
                        return None  # it has come further
                    await asyncio.sleep(hold)
                    signal.pidfd_send_signal(victim, signal.SIGKILL)
                return attempt.describe(document)
    return None


@contextmanager
def _handle(pid: int) -> Iterator[int]:
    handle = os.pidfd_open(pid)
    try:
        yield handle
    finally:
        os.close(handle)


@contextmanager
def _paused(handle: int) -> Iterator[None]:
    signal.pidfd_send_signal(handle, signal.SIGSTOP)
    try:
        yield
    finally:
        with suppress(ProcessLookupError):  # it was the victim, or another fault has killed it
            signal.pidfd_send_signal(handle, signal.SIGCONT)
