"""Clients of a simulated control plane: their requests, and the answers they get.

They record what they see as the fault harness does, for the same checker.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from random import Random
from typing import Any

from msgspec import Struct

from configurators.store.model import RecordKind
from dispatcher.calls import Answer, RecordSpec
from dispatcher.dispatcher import Dispatcher
from dispatcher.errors import problem_of
from dispatcher.views import RecordView
from dzflow.errors import DzflowError
from tests.robustness.record import Entry, Outcome, Request, Steady
from tests.simulation.events import FILTERS, Events, Stable
from tests.simulation.loop import Node
from tests.simulation.world import SPACE, World

BYSTANDER = "h3"
"""A host that never subscribes to anything."""

_CALL = 8.0
_WAIT = 3.0
_PATIENCE = 25.0


class Known(Struct):
    """A record that a client has requested."""

    label: str
    id: str
    kind: RecordKind
    host: str


class Told(Struct):
    """The result of a call."""

    outcome: Outcome
    record: RecordView | None = None
    status: int = 0
    detail: str = ""
    again: bool = False
    start: float = 0.0
    end: float = 0.0


class Traffic:
    """The clients, and what they have seen."""

    def __init__(self, world: World, random: Random) -> None:
        self.world = world
        self.loop = world.loop
        self.random = random
        self.node = Node("clients")
        self.events = Events(world, random)
        self.entries: list[Entry] = []
        self.known: list[Known] = []
        self._changed: set[str] = set()  # labels of records that a client has begun to change
        self._names = 0

    # Records that stay throughout the run

    async def settle_in(self) -> None:
        """Begin the records that stay throughout the run, before the first fault."""
        plan: list[tuple[RecordKind, str, int]] = [
            ("advertisement", "h1", 0),
            ("subscription", "h2", self.random.randrange(len(FILTERS))),
        ]
        for kind, host, filter in plan:
            label = f"stays-{host}"
            self.events.asked.add(host)
            given = (kind, host, filter, label, label)
            told = await self._until_known(partial(self._begin_there, given))
            assert told.outcome == "ok", told
            assert told.record
            since = self.loop.now
            self.entries.append(Steady(label, kind, host, FILTERS[filter], told.record.id, since))
            self.events.stable[label] = Stable(kind, host, filter)

    # Records that come and go

    async def client(self, number: int, count: int, random: Random) -> None:
        """Make requests, one after the other."""
        for _ in range(count):
            await asyncio.sleep(random.expovariate(2.0))
            # Prefer recent records: operations on them are likely to overlap.
            recent = self.known[-2:] if random.random() < 0.5 else self.known
            known = random.choice(recent) if recent else None
            draw = random.random()
            if known is None or draw < 0.4:
                await self._begin(number, random)
            elif draw < 0.62:
                await self._update(known, random)
            elif draw < 0.92:
                await self.end(known)
            else:
                await self._read(known)

    async def _begin(self, number: int, random: Random) -> None:
        self._names += 1
        label = f"c{number}-{self._names}"
        kind: RecordKind = "subscription" if random.random() < 0.7 else "advertisement"
        hosts = [host.id for host in self.world.topology.hosts]
        if kind == "subscription":
            hosts = [host for host in hosts if host != BYSTANDER]
        host, filter = random.choice(hosts), random.randrange(len(FILTERS))
        if kind == "subscription":
            self.events.asked.add(host)
        hasty = random.random() < 0.4  # it does not wait, and ends the record at once
        told = await self._until_known(
            lambda d: self._begin_at(
                d, kind, host, filter, label, f"key-{label}", 0.0 if hasty else _WAIT
            )
        )
        ending: asyncio.Task[Outcome] | None = None
        if told.outcome == "ok" and told.record is not None:
            known = Known(label, told.record.id, kind, host)
            self.known.append(known)
            if hasty:
                self._change(known)
                ending = asyncio.create_task(self.end(known))
            told = await self._settle(told, lambda r: r.state == "active")
            if told.outcome == "ok" and label not in self._changed:
                self.events.stable[label] = Stable(kind, host, filter)
        self._write("begin", label, kind, host, FILTERS[filter], told)
        if ending:
            await ending

    async def subscribe(self, host: str, random: Random) -> Known | None:
        """Have a host subscribe to something; None if that has failed."""
        self._names += 1
        label, filter = f"{host}-{self._names}", random.randrange(len(FILTERS))
        self.events.asked.add(host)
        given: tuple[RecordKind, str, int, str, str] = (
            "subscription",
            host,
            filter,
            label,
            f"key-{label}",
        )
        told = await self._until_known(partial(self._begin_there, given))
        while told.again:  # it may have begun: the host cannot go without knowing its id
            told = await self._until_known(partial(self._begin_there, given))
        known = Known(label, told.record.id, "subscription", host) if told.record else None
        if known and told.outcome == "ok":
            told = await self._settle(told, lambda r: r.state == "active")
            if told.outcome == "ok" and label not in self._changed:
                self.events.stable[label] = Stable("subscription", host, filter)
        self._write("begin", label, "subscription", host, FILTERS[filter], told)
        return known

    async def _begin_there(
        self, given: tuple[RecordKind, str, int, str, str], d: Dispatcher
    ) -> Answer:
        return await self._begin_at(d, *given)

    async def _begin_at(
        self,
        d: Dispatcher,
        kind: RecordKind,
        host: str,
        filter: int,
        label: str,
        key: str,
        wait: float = _WAIT,
    ) -> Answer:
        spec = RecordSpec(host, SPACE, FILTERS[filter], label)
        return (await d.begin(kind, [spec], wait=wait, key=key))[0]

    async def _update(self, known: Known, random: Random) -> None:
        filter = random.randrange(len(FILTERS))
        self._change(known)
        for _ in range(3):
            told = await self.once(
                lambda d: d.update(known.kind, known.id, FILTERS[filter], wait=_WAIT)
            )
            if told.outcome == "ok" and told.record is not None:
                told = await self._settle(told, lambda r: r.state == "active" and not r.updating)
                if told.status == 202 and told.record and told.record.filter != FILTERS[filter]:
                    told.outcome = "unknown"  # refused, or changed once more
            self._write(
                "update", known.label, known.kind, known.host, FILTERS[filter], told, known.id
            )
            if not told.again:
                return
            await asyncio.sleep(0.5)

    def _change(self, known: Known) -> None:
        """Note that the state of a record is unknown from now on."""
        self._changed.add(known.label)
        self.events.stable.pop(known.label, None)

    async def end(self, known: Known) -> Outcome:
        """End a record; returns whether that was done."""
        if known in self.known:
            self.known.remove(known)
        self._change(known)
        key = f"end-{known.label}-{self.loop.now}"

        async def end(d: Dispatcher) -> Answer:
            return (await d.end(known.kind, [known.id], wait=_WAIT, key=key))[0]

        told = await self._until_known(end)
        if told.outcome == "ok" and told.record is not None:
            told = await self._settle(told, lambda r: r.state == "removed")
        self._write("end", known.label, known.kind, known.host, None, told, known.id)
        return told.outcome

    async def _read(self, known: Known) -> None:
        async def read(d: Dispatcher) -> Answer:
            return Answer(200, await d.record(known.id, known.kind))

        told = await self.once(read)
        if told.outcome == "ok" and told.record is not None:
            told.outcome = {"active": "ok", "removed": "absent", "failed": "absent"}.get(
                told.record.state, "unknown"
            )  # type: ignore[assignment]
        source = told.record.filter if told.record else None
        self._write("read", known.label, known.kind, known.host, source, told, known.id)

    # Calls

    async def _until_known(self, ask: Callable[[Dispatcher], Awaitable[Answer]]) -> Told:
        """Repeat a call with its idempotency key until there is an answer, as the SDK does."""
        start = self.loop.now
        while True:
            told = await self.once(ask)
            told.start = start
            if not told.again or self.loop.now > start + _PATIENCE:
                return told
            await asyncio.sleep(0.5)

    async def once(self, ask: Callable[[Dispatcher], Awaitable[Answer]]) -> Told:
        """Make a call of some dispatcher."""
        start = self.loop.now
        told = await self._call(ask)
        told.start, told.end = start, self.loop.now
        return told

    async def _call(self, ask: Callable[[Dispatcher], Awaitable[Answer]]) -> Told:
        loop = self.loop
        await asyncio.sleep(self.world.wires.delay())
        chosen = [p for p in self.world.of("dispatcher") if p.main is not None]
        if not chosen:
            await asyncio.sleep(0.2)
            return Told("unknown", detail="no dispatcher runs", again=True)
        process = self.random.choice(chosen)
        answer: asyncio.Future[Answer | None] = loop.create_future()

        async def serve() -> None:
            try:
                found = await ask(process.main)
            except DzflowError as error:
                problem = problem_of(error)
                found = Answer(problem.status, problem=problem)
            when = loop.now + self.world.wires.delay()
            loop.at(when, self.node.context, _settle, answer, found)

        loop.at(
            loop.now + self.world.wires.delay(),
            process.node.context,
            lambda: loop.create_task(serve()),
        )
        process.calls.add(answer)
        try:
            async with asyncio.timeout(_CALL):
                found = await answer
        except TimeoutError:
            return Told("unknown", detail="no answer in time", again=True)
        finally:
            process.calls.discard(answer)
        if found is None:
            return Told("unknown", detail="the connection broke", again=True)
        return _told(found)

    async def _settle(self, told: Told, settled: Callable[[RecordView], bool]) -> Told:
        """Wait until an accepted request is settled; unknown if that takes too long."""
        deadline = self.loop.now + _PATIENCE
        record = told.record
        assert record
        while told.status == 202 and not settled(record):
            if record.state in ("failed", "removed"):
                told.outcome = "failed" if record.state == "failed" else "unknown"
                break
            if self.loop.now > deadline:
                told.outcome, told.detail = "unknown", f"still {record.state}"
                break
            await asyncio.sleep(0.5)
            name = record.id

            async def look(d: Dispatcher, name: str = name) -> Answer:
                return Answer(200, await d.record(name))

            looked = await self.once(look)
            record = looked.record or record
        told.record, told.end = record, self.loop.now
        return told

    def _write(
        self,
        action: Any,
        label: str,
        kind: str,
        host: str,
        source: Any,
        told: Told,
        id: str = "",
    ) -> None:
        self.world.note(f"client: {action} {label} {source} is {told.outcome} {told.detail}")
        found = id or (told.record.id if told.record else "")
        self.entries.append(
            Request(
                action,
                label,
                told.start,
                told.end,
                told.outcome,
                kind,
                host,
                source,
                found,
                told.status,
                told.detail,
            )
        )


def _settle(answer: "asyncio.Future[Answer | None]", found: Answer) -> None:
    if not answer.done():
        answer.set_result(found)


def _told(answer: Answer) -> Told:
    status = answer.status
    detail = answer.problem.detail if answer.problem else ""
    if 200 <= status < 300:
        return Told("ok", answer.record, status)
    if status in (429, 503):
        return Told("unknown", None, status, detail, True)
    if status == 404:
        return Told("absent", None, status, detail)
    if status in (400, 413, 422, 502):
        return Told("failed", answer.record, status, detail)
    return Told("unknown", answer.record, status, detail)
