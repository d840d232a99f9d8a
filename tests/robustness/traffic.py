"""Traffic against a running service, drawn from a seed, and recorded.

Control requests of several hosts come and go; a few publishers and subscribers stay all the time.
"""

import asyncio
import time
from contextlib import AsyncExitStack, suppress
from functools import partial
from random import Random
from types import TracebackType
from typing import Any, Self

import httpx
from msgspec import Struct

from dzflow.errors import DzflowError
from dzflow.filters import Filter
from dzflow.sdk import AsyncAdvertisement, AsyncControlPlane, AsyncSubscription
from dzflow.sdk.events.datagrams import decode
from dzflow.sdk.events.links import EmulatedLink
from tests.end_to_end.world import Json, World
from tests.robustness.calls import (
    PATIENCE,
    PAUSE,
    TRY_SECONDS,
    CallResult,
    Calls,
    elements,
    eventually,
    updated,
)
from tests.robustness.record import Outcome, Published, Received, Recorder, Request, Steady
from tests.support import until

BYSTANDER = "h4"
"""A host that never subscribes or advertises."""

HOSTS = ("h1", "h2", "h3")
_CLIENTS = 4
_MOST = 40  # records that come and go, at a time
_BATCHES, _BATCH = 0.1, 12  # how often several are begun in one call, and how many
_WAIT = 5  # seconds that the service may take before it answers 202
_GAP = 0.05  # seconds between the events of a publisher
_OPENING = 60.0
_JOIN_EVERY = 5.0
_SILENCE, _MOST_SILENCES = 3.0, 10
_SEEN: dict[str, Outcome] = {
    "active": "ok",
    "removed": "absent",
    "failed": "absent",
    "pending": "unknown",  # it neither exists nor is gone
    "removing": "unknown",
}


class _Known(Struct):
    """A record that was asked for."""

    label: str
    id: str
    kind: str
    host: str


class Traffic:
    """Requests while `flowing` is set, events while `publishing` is; a context manager."""

    def __init__(
        self, url: str, world: World, random: Random, recorder: Recorder, events: bool = True
    ) -> None:
        self.flowing = asyncio.Event()
        self.publishing = asyncio.Event()
        self._url = url
        self._with_events = events
        self._world = world
        self._random = random
        self._recorder = recorder
        self._known: list[_Known] = []
        self._names = 0
        self._events = 0
        self._wanted: list[tuple[str, str, Filter]] = []  # steady: name, host, filter
        self._publishers: dict[int, str] = {}  # of each event
        self._last_received: dict[str, int] = {}  # steady: the last event that came over switches
        self._received = 0
        self._active = 0  # requests under way
        self._idle = asyncio.Event()
        self._opened = AsyncExitStack()
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        limits = httpx.Limits(max_connections=2 * _CLIENTS)
        self._http = await self._opened.enter_async_context(
            httpx.AsyncClient(
                base_url=self._url, timeout=TRY_SECONDS, limits=limits, trust_env=False
            )
        )
        self._calls = Calls(self._http)
        put = await self._http.put(f"/spaces/{self._world.name}", json=self._world.schema)
        put.raise_for_status()
        if self._with_events:
            await self._start_steady()
            await self._watch_bystander()
        for number in range(_CLIENTS):
            random = Random(f"{self._random.random()}/{number}")
            self._start(self._client(number, random))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for task in self._tasks:
            task.cancel()
        ends = await asyncio.gather(*self._tasks, return_exceptions=True)
        # The records end with the service, which may not be able to answer any more.
        with suppress(TimeoutError, DzflowError):
            async with asyncio.timeout(TRY_SECONDS):
                await self._opened.aclose()
        for end in ends:
            if isinstance(end, Exception):
                raise end

    async def drain(self, timeout: float) -> None:
        """Begin no new request, and wait for those under way; events go on."""
        self.flowing.clear()
        async with asyncio.timeout(timeout):
            while self._active:
                self._idle.clear()
                await self._idle.wait()

    async def stop_publishing(self) -> None:
        """Publish no more events, and wait until none arrives any more."""
        self.publishing.clear()
        for _ in range(_MOST_SILENCES):
            before = self._received
            await asyncio.sleep(_SILENCE)
            if self._received == before:
                return

    def check(self) -> None:
        """Raise what a task has failed with, if one has."""
        for task in self._tasks:
            if task.done() and not task.cancelled():
                task.result()

    def _start(self, work: Any) -> None:
        self._tasks.append(asyncio.create_task(work))

    # Those that stay

    async def _start_steady(self) -> None:
        world = self._world
        planes = {
            host: await self._opened.enter_async_context(
                AsyncControlPlane(self._url, host, timeout=_OPENING, reports=False)
            )
            for host in HOSTS
        }
        for plane in planes.values():
            # The API process that it calls may hear late of a space that another one has made.
            await until(partial(_knows, plane, world.name))
        for host in ("h1", "h2", "h2", "h3", "h3"):
            name, source = f"stays-{len(self._wanted)}", self._selective_filter()
            made = await planes[host].subscribe(
                world.name, source, label=name, ttl=None, queue=1 << 20
            )
            self._wanted.append((name, host, world.parsed(source)))
            self._recorder.add(
                Steady(name, "subscription", host, source, made.id, since=time.time())
            )
            self._start(self._receive(name, host, made))
        for host, source in (("h1", {}), ("h2", self._selective_filter()), ("h3", {})):
            name = f"publishes-{host}"
            offer = await planes[host].advertise(world.name, source, label=name, ttl=None)
            self._recorder.add(Steady(name, "advertisement", host, source, offer.id, time.time()))
            self._start(self._publish(host, offer, world.parsed(source)))

    def _selective_filter(self) -> Json:
        """A filter that some events match, but not most."""
        events = [self._world.event() for _ in range(100)]
        while True:
            source = self._world.filter()
            parsed = self._world.parsed(source)
            if 15 <= sum(self._world.matches(parsed, event) for event in events) <= 70:
                return source

    async def _receive(self, name: str, host: str, subscription: AsyncSubscription) -> None:
        async for event in subscription:
            self._recorder.add(Received(event["n"], time.time(), host, name))
            self._received += 1
            if (
                self._publishers[event["n"]] != host
            ):  # else it is a local copy that passed no switch
                self._last_received[name] = event["n"]

    async def _publish(self, host: str, advertisement: AsyncAdvertisement, offer: Filter) -> None:
        while True:
            await self.publishing.wait()
            event = self._world.event()
            if not self._world.matches(offer, event):
                continue
            self._events += 1
            event["n"] = self._events
            self._publishers[self._events] = host
            wanted = tuple(
                name
                for name, where, source in self._wanted
                if where != host and self._world.matches(source, event)
            )
            # Recorded first: the event may arrive before this task runs again.
            self._recorder.add(Published(self._events, time.time(), host, wanted))
            await advertisement.publish(event)
            await asyncio.sleep(_GAP)

    async def wait_until_all_receive(self, timeout: float) -> str:
        """Wait until each steady subscription has received a new event; which have not, if any."""
        first = self._events

        async def without_events() -> str:
            names = [
                name for name, _, _ in self._wanted if self._last_received.get(name, 0) <= first
            ]
            return f"no events arrive at {', '.join(names)}" if names else ""

        return await eventually(without_events, timeout)

    async def _watch_bystander(self) -> None:
        """Listen at a host that has subscribed to nothing."""
        hosts = (await self._http.get("/hosts")).json()["items"]
        wire = next(host["wire"] for host in hosts if host["id"] == BYSTANDER)
        link = EmulatedLink(wire)
        self._opened.callback(link.close)
        loop = asyncio.get_running_loop()

        def readable() -> None:
            for payload in link.receive():
                event = decode(payload) if payload is not None else None
                number = -1 if event is None else event.event.get("n", -1)
                self._recorder.add(Received(number, time.time(), BYSTANDER))

        loop.add_reader(link.fileno(), readable)
        self._opened.callback(loop.remove_reader, link.fileno())

        async def stay() -> None:
            while True:
                link.join()
                await asyncio.sleep(_JOIN_EVERY)

        self._start(stay())

    # Those that come and go

    async def _client(self, number: int, random: Random) -> None:
        while True:
            await self.flowing.wait()
            self._active += 1
            try:
                await self._do_something(number, random)
            finally:
                self._active -= 1
                if not self._active:
                    self._idle.set()
            await asyncio.sleep(random.uniform(0, 2 * PAUSE))

    async def _do_something(self, number: int, random: Random) -> None:
        known = random.choice(self._known) if self._known else None
        draw = random.random()
        few = len(self._known) < _MOST
        if few and draw < _BATCHES:
            await self._begin_many(number, random)
        elif known is None or draw < (0.4 if few else 0.1):
            await self._begin(number, random)
        elif draw < 0.65:
            await self._update(known)
        elif draw < 0.9:
            await self._end(known)
        else:
            await self._read(known)

    async def _begin(self, number: int, random: Random) -> None:
        kind = random.choices(("subscription", "advertisement"), (4, 1))[0]
        body = self._body(number, random)
        verb = "subscribe" if kind == "subscription" else "advertise"
        key = f"{body['label']}-{random.random()}"
        result = await self._calls.ask("POST", f"/{verb}", body, key)
        await self._begun(kind, body, result)

    async def _begin_many(self, number: int, random: Random) -> None:
        """Begin a batch under one key; each of its elements is a request."""
        bodies = [self._body(number, random) for _ in range(_BATCH)]
        key = f"{bodies[0]['label']}-{random.random()}"
        result = await self._calls.ask("POST", "/subscribe", bodies, key)
        parts = elements(result, len(bodies))
        begun = (self._begun("subscription", *each) for each in zip(bodies, parts, strict=True))
        await asyncio.gather(*begun)

    def _body(self, number: int, random: Random) -> Json:
        self._names += 1
        return {
            "host": random.choice(HOSTS),
            "space": self._world.name,
            "filter": self._world.filter(),
            "label": f"c{number}-{self._names}",
            "wait": _WAIT,
        }

    async def _begun(self, kind: str, body: Json, result: CallResult) -> None:
        label, host = body["label"], body["host"]
        # Without an answer there is no id; the label shows at the end whether the record exists.
        if result.outcome == "ok" and result.record is not None:
            self._known.append(_Known(label, result.record["id"], kind, host))
            result = await self._calls.settle(
                result, result.record, lambda r: r["state"] == "active"
            )
        self._write("begin", label, kind, host, body["filter"], result)

    async def _update(self, known: _Known) -> None:
        """Update a record; each attempt is a request, because updates have no idempotency key."""
        source = self._world.filter()
        deadline = time.monotonic() + PATIENCE
        while True:
            result = await self._calls.once("PUT", _path(known), {"filter": source, "wait": _WAIT})
            if result.outcome == "ok" and result.record is not None:
                result = await self._calls.settle(
                    result, result.record, lambda r: r["state"] == "active" and not r["updating"]
                )
                result = updated(result, source)
            self._write("update", known.label, known.kind, known.host, source, result, known.id)
            if result.outcome != "unknown" or time.monotonic() > deadline or not result.again:
                return
            await asyncio.sleep(PAUSE)

    async def _end(self, known: _Known) -> None:
        if known in self._known:
            self._known.remove(known)
        verb = "unsubscribe" if known.kind == "subscription" else "unadvertise"
        body = {"id": known.id, "wait": _WAIT}
        result = await self._calls.ask(
            "POST", f"/{verb}", body, key=f"end-{known.label}-{time.time()}"
        )
        if result.outcome == "ok" and result.record is not None:
            result = await self._calls.settle(
                result, result.record, lambda r: r["state"] == "removed"
            )
        self._write("end", known.label, known.kind, known.host, None, result, known.id)

    async def _read(self, known: _Known) -> None:
        result = await self._calls.once("GET", _path(known), None)
        record = result.record or {}
        if result.outcome == "ok":
            result.outcome = _SEEN[record["state"]]
        source = record.get("filter")
        self._write("read", known.label, known.kind, known.host, source, result, known.id)

    def _write(
        self,
        action: Any,
        label: str,
        kind: str,
        host: str,
        source: Any,
        result: CallResult,
        id: str = "",
    ) -> None:
        found = id or (result.record or {}).get("id", "")
        self._recorder.add(
            Request(
                action,
                label,
                result.start,
                result.end,
                result.outcome,
                kind,
                host,
                source,
                found,
                result.status,
                result.detail,
                result.tries,
            )
        )


def _path(known: _Known) -> str:
    return f"/{known.kind}s/{known.id}"


async def _knows(plane: AsyncControlPlane, space: str) -> bool:
    return any(each["name"] == space for each in await plane.spaces())
