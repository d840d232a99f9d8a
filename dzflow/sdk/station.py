"""What an application has on its host: link, subscriptions, and what it knows of spaces.

Everything that goes on by itself runs in the background: receiving, following the control plane's
changes, renewing records, reporting. All other methods may be called from any thread.
"""

import asyncio
import logging
import random
import threading
import time
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import Future
from contextlib import aclosing, suppress
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from dzflow.errors import DzflowError
from dzflow.intervals import Key
from dzflow.sdk import datagrams
from dzflow.sdk.async_rest import AsyncRest
from dzflow.sdk.background import BACKGROUND
from dzflow.sdk.errors import Closed, NotFound, Refused, Unreachable
from dzflow.sdk.links import EmulatedLink, Link
from dzflow.sdk.rest import Access
from dzflow.sdk.sorter import Counters, Sorter
from dzflow.sdk.talk import Json, Kind
from dzflow.sdk.views import Expression, SpaceView

_log = logging.getLogger("dzflow.sdk")

JOIN_EVERY = 5.0  # seconds; an emulated host forgets after 30
REPORT_EVERY = 10.0
OTHERS_FOR = 5.0  # how long what is known of the host's other filters counts as fresh
SAMPLES = 20  # events in a report
MOST_OTHERS = 1_000  # filters of other applications that are looked at
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 10.0
_POLL_EVERY = 2.0  # without a stream; an old version is kept for longer after a new one is told
_SILENCE = 60.0  # after which the stream of changes counts as broken; it has a beat of its own
_AT_ONCE = 16  # renewals


class Kept(Struct, eq=False):
    """A record of ours that is to last: renewed while it has a ttl, made anew if it was lost."""

    kind: Kind
    space: str
    filter: Json
    label: str | None
    ttl: float | None
    id: str
    closed: bool = False
    lost: int = 0  # how often it had ended and was made anew


class Station:
    """An application's place on its host."""

    def __init__(self, access: Access, host: str, link: Link, mend: bool, report: bool) -> None:
        self.sorter = Sorter()
        self._access = access
        self._host = host
        self._link = link
        self._mend = mend  # whether a wire that has moved is looked for
        self._report = report
        self._ids = datagrams.EventIds()
        self._lock = threading.Lock()
        self._views: dict[str, SpaceView] = {}
        self._names: set[str] = set()
        self._samples: list[dict[str, Any]] = []
        self._sampled = 0
        self._closing = False
        self._reported: dict[str, Counters] = {}
        # From here on: for the background only.
        self._tasks: dict[object, asyncio.Task[None]] = {}
        self._others: dict[int, list[Expression]] | None = None
        self._others_until = 0.0
        self._known_others: dict[str, Expression] = {}
        BACKGROUND.enter()
        BACKGROUND.start(self._open()).result()

    def joining(self, timeout: float) -> "Future[None]":
        """Begin to get the host's events; done when they come."""
        return BACKGROUND.start(self._join(timeout))

    def close(self) -> "Future[None]":
        """Stop everything in the background; done when all is closed. Then call `closed`."""
        self._closing = True
        return BACKGROUND.start(self._close())

    def closed(self) -> None:
        """Let go of the background."""
        BACKGROUND.leave()

    # Spaces

    def watch(self, name: str) -> None:
        """Follow the changes of a space; to be called before it is read."""
        self._names.add(name)

    def view(self, name: str) -> SpaceView | None:
        """A space as it is now, if it was learned."""
        return self._views.get(name)

    def learn(self, told: Mapping[str, Any], *, news: bool = False) -> SpaceView:
        """Take up a space as the control plane tells of it.

        Who has asked may have an answer that is older than what was heard since: only news, which
        come in order, replace what is known.
        """
        with self._lock:
            before = self._views.get(told["name"])
            if before is not None and not news:
                return before
            view = SpaceView.from_json(told, before)
            self.sorter.see(view)
            self._views[view.space.name] = view
            return view

    # Events

    def send(self, view: SpaceView, keys: Sequence[Key], event: Mapping[str, object]) -> int:
        """Send an event into the network, and to the other applications here; gives its id."""
        if self._closing:
            raise Closed("the control plane's client is closed; make another one")
        event_id = self._ids.next(view.number, view.version)
        payload = datagrams.encode(event_id, event)
        self._link.send(view.address(keys, event_id), payload)
        self._link.copy(datagrams.copy(payload))
        with self._lock:
            self.sorter.counters(view.number).published += 1
            if self._report:
                self._sample(view.space.name, event)
        return event_id

    def counters(self) -> dict[str, Counters]:
        """What became of the events of each space that is known here, until now."""
        with self._lock:
            found = self.sorter.all_counters()
            views = self._views.items()
            return {name: found[v.number] + Counters() for name, v in views if v.number in found}

    # Records

    def keep(self, kept: Kept) -> None:
        """Renew a record from now on, until it is closed."""
        if kept.ttl is not None:
            BACKGROUND.loop.call_soon_threadsafe(self._start, kept, self._renew(kept))

    def drop(self, kept: Kept) -> None:
        """Renew a record no more."""
        kept.closed = True
        if kept.ttl is not None:
            BACKGROUND.loop.call_soon_threadsafe(self._cancel, kept)

    # In the background

    async def _open(self) -> None:
        access = self._access
        self._rest = AsyncRest(
            access.url,
            access.token,
            verify=access.verify,
            ca=access.ca,
            timeout=access.timeout,
        )
        self._unsorted = asyncio.Event()
        self._renewing = asyncio.Semaphore(_AT_ONCE)
        self._start("follow", self._follow())
        self._start("sort", self._sort_the_rest())
        if isinstance(self._link, EmulatedLink):
            self._start("tend", self._tend(self._link))
        if self._report:
            self._start("report", self._report_often())

    async def _join(self, timeout: float) -> None:
        if not self._link.joined:
            try:
                async with asyncio.timeout(timeout):
                    while not self._link.joined:
                        self._link.join()
                        if not self._link.joined:
                            # The answer is waited for here, so that an error goes to the caller.
                            await asyncio.sleep(0.01)
                            self._receive()
            except TimeoutError:
                text = f"host {self._host} does not let us join within {timeout:g} s"
                raise Unreachable(f"{text}; is the emulated network running?") from None
            asyncio.get_running_loop().add_reader(self._link.fileno(), self._readable)

    async def _close(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        asyncio.get_running_loop().remove_reader(self._link.fileno())
        self._link.close()
        if self._report:
            with suppress(TimeoutError, DzflowError):
                async with asyncio.timeout(1.0):
                    await self._send_report()
        await self._rest.close()

    def _start(self, name: object, work: Coroutine[Any, Any, None]) -> None:
        self._tasks[name] = asyncio.get_running_loop().create_task(work)

    def _cancel(self, name: object) -> None:
        if task := self._tasks.pop(name, None):
            task.cancel()

    def _readable(self) -> None:
        try:
            self._receive()
        except DzflowError as error:
            _log.warning("%s", error)

    def _receive(self) -> None:
        for payload in self._link.receive():
            self.sorter.take(payload)
        if self.sorter.held or self.sorter.unmatched:
            self._unsorted.set()

    async def _tend(self, link: EmulatedLink) -> None:
        """Stay a member; find the wire again if the emulated network was started anew."""
        while True:
            await asyncio.sleep(JOIN_EVERY if not link.trouble else 0.5)
            if link.trouble and self._mend:
                await self._find_wire(link)
            if link.joined:
                try:
                    link.join()
                except (DzflowError, OSError) as error:
                    _log.warning("host %s may forget us, trying again: %s", self._host, error)

    async def _find_wire(self, link: EmulatedLink) -> None:
        try:
            for host in await self._rest.hosts():
                if host["id"] == self._host and host.get("wire"):
                    link.connect(host["wire"])
        except (DzflowError, OSError) as error:
            _log.info("the wire of host %s is not found yet: %s", self._host, error)

    async def _follow(self) -> None:
        """Hear of changes of our spaces; on each connection they are read anew.

        A control plane that has no stream left for us is asked now and then instead.
        """
        pause = _FIRST_PAUSE
        while True:
            try:
                async with aclosing(self._rest.stream("space", _SILENCE)) as changes:
                    async for told in changes:
                        pause = _FIRST_PAUSE
                        if told is None:
                            await self._read_spaces()
                        elif told.type == "space":
                            self._heard(told.data)
            except Refused as error:
                _log.info("changes cannot be followed, spaces are read instead: %s", error)
                try:
                    await self._read_spaces()
                except (DzflowError, OSError) as unread:
                    _log.info("spaces cannot be read, trying again: %s", unread)
                pause = min(pause, _POLL_EVERY)
            except (DzflowError, OSError) as error:
                _log.info("changes cannot be followed, trying again: %s", error)
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311
            pause = min(_LONGEST_PAUSE, pause * 2)

    async def _read_spaces(self) -> None:
        for known in await self._rest.spaces():
            self._heard(known)

    def _heard(self, told: Mapping[str, Any]) -> None:
        if told.get("name") in self._names and not told.get("deleted"):
            self.learn(told, news=True)

    async def _renew(self, kept: Kept) -> None:
        assert kept.ttl is not None
        pause = kept.ttl / 3
        while True:
            await asyncio.sleep(pause * random.uniform(0.8, 1.0))  # noqa: S311
            pause = kept.ttl / 3
            try:
                async with self._renewing:
                    await self._rest.renew(kept.kind, kept.id)
            except NotFound:
                _log.warning("%s %s had ended; it is made anew", kept.kind, kept.id)
                pause = await self._make_anew(kept)
            except (DzflowError, OSError) as error:
                _log.warning("%s %s is not renewed yet: %s", kept.kind, kept.id, error)
                pause = kept.ttl / 10

    async def _make_anew(self, kept: Kept) -> float:
        """Make a lost record again; gives the time until something should be done next."""
        assert kept.ttl is not None
        try:
            record = await self._rest.begin(
                kept.kind, self._host, kept.space, kept.filter, label=kept.label, ttl=kept.ttl
            )
        except (DzflowError, OSError) as error:
            _log.warning("%s %s cannot be made anew yet: %s", kept.kind, kept.id, error)
            return kept.ttl / 10
        kept.id = record["id"]
        kept.lost += 1
        return kept.ttl / 3

    async def _sort_the_rest(self) -> None:
        """Find out about versions that events came under, and about filters of others."""
        while True:
            await self._unsorted.wait()
            self._unsorted.clear()
            try:
                if self.sorter.held:
                    await self._learn_versions()
                if self.sorter.unmatched and time.monotonic() > self._others_until:
                    self._others = await self._read_others()
                    self._others_until = time.monotonic() + OTHERS_FOR
            except (DzflowError, OSError) as error:
                _log.info("what became of some events cannot be told: %s", error)
            self.sorter.take_held()
            self.sorter.classify(self._others)
            await asyncio.sleep(0.1)  # so that many events cost one round only

    async def _learn_versions(self) -> None:
        """Learn versions that events come under before we have heard of them.

        What publishers use does not change by that: only the stream tells it in the right order.
        """
        for told in await self._rest.spaces():
            if told["name"] in self._names:
                self.sorter.see_new(SpaceView.from_json(told))

    async def _read_others(self) -> dict[int, list[Expression]] | None:
        page = await self._rest.get("/subscriptions", host=self._host, limit=MOST_OTHERS)
        if page.get("next") is not None:
            return None
        known = self._known_others
        self._known_others = {}
        found: dict[int, list[Expression]] = {}
        for record in page["items"]:
            expression = known.get(record["id"])
            if expression is None or expression.source != record["filter"]:
                expression = Expression(record["filter"])
            self._known_others[record["id"]] = expression
            number = int(record["id"][1:].partition("-")[0], 16)  # an id names the space
            found.setdefault(number, []).append(expression)
        return found

    def _sample(self, space: str, event: Mapping[str, object]) -> None:
        """Take each event of a period with the same chance, so many in all."""
        self._sampled += 1
        sample = {"space": space, "time_us": time.time_ns() // 1_000, "values": dict(event)}
        if len(self._samples) < SAMPLES:
            self._samples.append(sample)
        elif (place := int(random.random() * self._sampled)) < SAMPLES:  # noqa: S311
            self._samples[place] = sample

    async def _report_often(self) -> None:
        while True:
            await asyncio.sleep(REPORT_EVERY)
            try:
                await self._send_report()
            except (DzflowError, OSError) as error:
                _log.info("no report: %s", error)

    async def _send_report(self) -> None:
        now = self.counters()
        with self._lock:
            samples, self._samples, self._sampled = self._samples, [], 0
        news = {
            space: found - self._reported.get(space, Counters()) for space, found in now.items()
        }
        counters = {
            space: {name: count for name, count in asdict(changed).items() if count}
            for space, changed in news.items()
            if changed != Counters()
        }
        if counters or samples:
            body = {"host": self._host, "counters": counters, "events": samples}
            await self._rest.post("/reports", body)
            self._reported = now
