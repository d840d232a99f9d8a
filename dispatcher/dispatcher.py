"""The dispatcher: what the REST service asks, and everything behind it tied together."""

import asyncio
import secrets
import time
from collections.abc import Coroutine, Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Self

from configurators.store.client import Access, Etcd
from configurators.store.model import Record, RecordKind, State
from configurators.store.upkeep import SharedLeases
from dispatcher.answers import Answers
from dispatcher.asks import Answer, Ask, DispatcherOptions, Page, RecordView, Refused
from dispatcher.catalogue import Catalogue
from dispatcher.expiry import Expiry
from dispatcher.fleet import Fleet, stay_registered
from dispatcher.gather import Gatherer
from dispatcher.intake import Draft, Intake
from dispatcher.journal import Journal
from dispatcher.limits import Admission, Rates
from dispatcher.metrics import Metrics
from dispatcher.records import Records
from dispatcher.requests import Operation
from dispatcher.siblings import Siblings


class Dispatcher:
    """Serves requests on one etcd, beside any number of others. Use as an async context manager.

    Calls with several elements answer in their order, each with a record or a problem; they raise
    only what concerns the whole call (Conflict for an idempotency key, StoreError).
    """

    def __init__(
        self, access: Access, token: bytes, options: DispatcherOptions | None = None
    ) -> None:
        self.options = options = options or DispatcherOptions()
        self.id = options.id or f"d-{secrets.token_hex(4)}"
        self.metrics = metrics = Metrics()
        self._etcd = etcd = Etcd(access)
        self._catalogue = catalogue = Catalogue(etcd)
        self._journal = Journal(etcd, catalogue, SharedLeases(etcd, options.finished_ttl))
        self._fleet = Fleet(etcd, token, self.id)
        self._gatherer = Gatherer(etcd, catalogue, self._journal, metrics, self._fleet.stream_to)
        admission: Admission[Draft] = Admission(
            options.window, options.window_per_host, options.queue, options.queue_per_host
        )
        rates = Rates(options.rate, options.rate_per_host, options.burst_s)
        self._intake = intake = Intake(
            self.id, catalogue, self._journal, self._gatherer, admission, rates, metrics
        )
        self._siblings = Siblings(etcd, self.id, intake, self._gatherer, metrics)
        self._expiry = Expiry(etcd, intake, metrics, self._siblings.rank)
        self._answers = Answers(etcd, catalogue, self._expiry.expires)
        key_leases = SharedLeases(etcd, options.key_ttl)
        self._records = Records(
            etcd, catalogue, intake, self._gatherer, self._answers, self._expiry, key_leases
        )
        self._fleet.on_dones = self._gatherer.hear_dones
        self._fleet.on_waiting = self._gatherer.hear_waiting
        self._fleet.on_connected = self._gatherer.connected
        self._gatherer.on_end = self._ended
        self._intake.on_elsewhere = self._elsewhere
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._etcd)
            ready = asyncio.Event()
            options = self.options
            _run(
                stack,
                stay_registered(self._etcd, self.id, options.node, options.lease_ttl, ready),
            )
            await ready.wait()
            stack.push_async_callback(self._catalogue.stop)
            await self._catalogue.start()
            await stack.enter_async_context(self._fleet)
            for part in (self._journal, self._gatherer, self._intake, self._answers):
                stack.push_async_callback(part.close)
            for follower in (self._siblings, self._expiry):
                stack.push_async_callback(follower.close)
                await follower.start()
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        await self._stack.aclose()

    # Subscriptions and advertisements

    async def begin(
        self,
        kind: RecordKind,
        asks: Sequence[Ask | Refused],
        *,
        wait: float,
        key: str | None = None,
        who: str = "",
    ) -> list[Answer]:
        """Subscribe or advertise; waits so many seconds for the switches to acknowledge."""
        return await self._records.begin(kind, asks, wait=wait, key=key, who=who)

    async def end(
        self,
        kind: RecordKind,
        ids: Sequence[str | Refused],
        *,
        wait: float,
        key: str | None = None,
        who: str = "",
    ) -> list[Answer]:
        """Unsubscribe or unadvertise; waits so many seconds for the switches to acknowledge."""
        return await self._records.end(kind, ids, wait=wait, key=key, who=who)

    async def update(self, kind: RecordKind, id: str, filter: Any, *, wait: float) -> Answer:
        """Replace a filter; what both filters want is never interrupted."""
        return await self._records.update(kind, id, filter, wait=wait)

    async def renew(self, kind: RecordKind, id: str) -> RecordView:
        """Let a record with a ttl live on; NotFound if it is gone, Conflict if it has no ttl."""
        return await self._records.renew(kind, id)

    async def record(self, id: str, kind: RecordKind | None = None) -> RecordView:
        """A record, also one that was removed or has failed lately; NotFound if there is none."""
        return await self._records.record(id, kind)

    async def records(
        self,
        kind: RecordKind,
        *,
        host: str | None = None,
        space: str | None = None,
        state: State | None = None,
        limit: int = 100,
        after: str | None = None,
    ) -> Page:
        """Records of a kind, a page at a time; removed and failed ones if asked for by state."""
        return await self._records.records(
            kind, host=host, space=space, state=state, limit=limit, after=after
        )

    # In between

    def _ended(self, operation: Operation, record: Record, outcome: str) -> None:
        self._intake.admission.release(record.host)
        self.metrics.finished(
            record.kind, operation.action, outcome, time.monotonic() - operation.received
        )
        self._answers.ended(operation, record, outcome)
        self._intake.pump()

    def _elsewhere(self, draft: Draft, record: Record) -> None:
        if draft.call:
            self._answers.follow(draft.call, draft.place, draft.action, record)


def _run(stack: AsyncExitStack, work: Coroutine[Any, Any, None]) -> None:
    """Work in the background until the stack is left."""
    task = asyncio.create_task(work)

    async def stop() -> None:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    stack.push_async_callback(stop)
