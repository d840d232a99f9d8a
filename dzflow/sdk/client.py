"""Subscribes, advertises and closes for one application; lives in one event loop."""

import asyncio
from contextlib import suppress

from dzflow.filters import parse_filter
from dzflow.sdk.errors import CLIENT_CLOSED, Closed, NoHost, NotFound
from dzflow.sdk.events.inbox import Inbox
from dzflow.sdk.events.links import EmulatedLink, Link, open_link
from dzflow.sdk.events.sorter import Counters, Interest
from dzflow.sdk.handles import Advertised, AdvertisementHandle, Handle, SubscriptionHandle
from dzflow.sdk.host_agent import HostAgent
from dzflow.sdk.renewals import OwnRecord
from dzflow.sdk.rest.api_protocol import Json, Kind
from dzflow.sdk.rest.async_rest import AsyncRest
from dzflow.sdk.space_view import Expression

TTL = 60.0  # seconds after which the records of a crashed application expire
QUEUE = 10_000  # events that a subscription queues
_END_ALL = 5.0  # seconds to end all records when the client is closed; the ttl ends the others


class Client:
    """The subscriptions and advertisements of one application on one host."""

    def __init__(
        self,
        rest: AsyncRest,
        host: str | None,
        *,
        endpoint: str | None,
        interface: str | None,
        timeout: float,
        reports: bool,
    ) -> None:
        self._rest = rest
        self._host = host
        self._endpoint = endpoint
        self._interface = interface
        self._timeout = timeout
        self._reports = reports
        self._starting = asyncio.Lock()
        self._agent: HostAgent | None = None
        self._handles: set[Handle] = set()
        self._closed = False

    async def subscribe(
        self, space: str, source: Json, inbox: Inbox, label: str | None, ttl: float | None
    ) -> SubscriptionHandle:
        """Subscribe; matching events are put into the inbox."""
        agent = await self._started()
        view = await agent.spaces.open(space)
        parse_filter(view.space, source)
        interest = Interest(inbox, (Expression(source),))
        await agent.receiver.join(self._timeout)
        # Before the request, so that the first event that the switches deliver is not missed.
        agent.sorter.add(view.number, interest)
        try:
            record = await self._begin("subscription", space, source, label, ttl)
            handle = SubscriptionHandle(agent, record, view.number, interest)
            self._keep(handle)
        except BaseException:
            agent.sorter.remove(view.number, interest)
            raise
        await self._get_keys(handle)
        return handle

    async def advertise(
        self, space: str, source: Json, label: str | None, ttl: float | None
    ) -> AdvertisementHandle:
        """Advertise; matching events can be published."""
        agent = await self._started()
        view = await agent.spaces.open(space)
        parse_filter(view.space, source)
        record = await self._begin("advertisement", space, source, label, ttl)
        handle = AdvertisementHandle(agent, record)
        self._keep(handle)
        await self._get_keys(handle)
        return handle

    async def advertised(self, space: str) -> Advertised:
        """All that the host has advertised in a space until now, by any application."""
        agent = await self._started()
        await agent.spaces.open(space)
        records = await self._rest.records(
            "advertisement", host=self._host, space=space, state="active"
        )
        if records:  # any one of them entitles to the key
            await agent.keys.add_host(space, records[0]["host"], records[0]["id"])
        return Advertised(agent, space, [Expression(record["filter"]) for record in records])

    async def update(self, handle: Handle, source: Json) -> None:
        """Replace the filter; events that match both filters are delivered throughout."""
        record = handle.record
        if record.closed:
            raise Closed(f"the {record.kind} is closed; open another one with the new filter")
        parse_filter(handle.view.space, source)
        with handle.replace_filter(source):
            await self._rest.update(record.kind, record.id, source)

    async def end(self, handle: Handle) -> None:
        """End a subscription or advertisement, if it has not ended."""
        if not self._release(handle):
            return
        with suppress(NotFound):  # it has expired, or another client has ended it
            await self._rest.end(handle.record.kind, handle.record.id)

    async def close(self) -> None:
        """End all subscriptions and advertisements, and stop the agent."""
        self._closed = True
        agent, self._agent = self._agent, None
        if agent is None:
            return
        try:
            kinds: tuple[Kind, ...] = ("subscription", "advertisement")
            for kind in kinds:
                same = [handle for handle in self._handles if handle.record.kind == kind]
                ids = [handle.record.id for handle in same if self._release(handle)]
                if ids:
                    await self._rest.end_all(kind, ids, _END_ALL)
        finally:
            await agent.close()

    def counters(self) -> dict[str, Counters]:
        """The counters of each space in use; from any thread."""
        agent = self._agent
        return agent.counters() if agent is not None else {}

    def undecodable(self) -> int:
        """How many datagrams arrived that are not events; from any thread."""
        agent = self._agent
        return agent.sorter.undecodable if agent is not None else 0

    async def _begin(
        self, kind: Kind, space: str, source: Json, label: str | None, ttl: float | None
    ) -> OwnRecord:
        host = self._host
        assert host is not None
        made = await self._rest.begin(kind, host, space, source, label=label, ttl=ttl)
        return OwnRecord(kind, host, space, source, label, ttl, made["id"])

    def _keep(self, handle: Handle) -> None:
        if self._closed:  # while the request was under way; the ttl ends the record
            raise Closed(CLIENT_CLOSED)
        handle.agent.renewals.add(handle.record)
        self._handles.add(handle)

    async def _get_keys(self, handle: Handle) -> None:
        """Get the keys for a new record, if its space asks for tags; without them, end it."""
        try:
            await handle.agent.keys.add(handle.record)
        except BaseException:
            await self.end(handle)
            raise

    def _release(self, handle: Handle) -> bool:
        """Forget an open handle; False if it was closed before."""
        if handle not in self._handles:
            return False
        self._handles.discard(handle)
        handle.release()
        return True

    async def _started(self) -> HostAgent:
        """The agent, started with the first subscription or advertisement."""
        async with self._starting:
            if self._agent is None and not self._closed:
                host, link = await self._open_link()
                if self._closed:
                    link.close()
                else:
                    find = self._endpoint is None
                    self._agent = HostAgent(
                        self._rest, host, link, find_endpoint=find, reports=self._reports
                    )
                    self._agent.start()
        if self._agent is None:
            raise Closed(CLIENT_CLOSED)
        return self._agent

    async def _open_link(self) -> tuple[str, Link]:
        if self._host is None:
            raise NoHost('the client needs a host for events: ControlPlane(…, host="h1")')
        if self._endpoint is not None:
            return self._host, EmulatedLink(self._endpoint)
        for known in await self._rest.hosts():
            if known["id"] == self._host:
                return self._host, open_link(known, self._interface)
        raise NoHost(f"the control plane knows no host {self._host!r}")
