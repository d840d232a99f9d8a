"""Keeps this application's records alive while the process lives."""

import asyncio
import logging
import random

from msgspec import Struct

from dzflow.aio import BackgroundTasks
from dzflow.errors import DzflowError
from dzflow.sdk.errors import NotFound
from dzflow.sdk.rest.api_protocol import ApiProtocol, Json, Kind

_log = logging.getLogger("dzflow.sdk")

_AT_ONCE = 16  # renewals, and as many creations


class OwnRecord(Struct, eq=False):
    """A subscription or advertisement of this application."""

    kind: Kind
    host: str
    space: str
    filter: Json
    label: str | None
    ttl: float | None
    id: str  # another one after the record had expired and was created again
    closed: bool = False


class Renewals:
    """Renews records that have a ttl, and creates those again that expired nevertheless."""

    def __init__(self, protocol: ApiProtocol) -> None:
        self._protocol = protocol
        self._renewing = asyncio.Semaphore(_AT_ONCE)
        # Apart from renewals, which must not wait for the switches.
        self._creating = asyncio.Semaphore(_AT_ONCE)
        self._background = BackgroundTasks()
        self._tasks: dict[OwnRecord, asyncio.Task[None]] = {}

    def add(self, record: OwnRecord) -> None:
        """Renew a record from now on, if it has a ttl."""
        if record.ttl is not None:
            work = self._keep_alive(record, record.ttl)
            self._tasks[record] = self._background.spawn(work, f"renewal of {record.id}")

    def remove(self, record: OwnRecord) -> None:
        """Stop renewing a record."""
        if task := self._tasks.pop(record, None):
            task.cancel()

    async def close(self) -> None:
        """Stop renewing all records."""
        await self._background.cancel()

    async def _keep_alive(self, record: OwnRecord, ttl: float) -> None:
        pause = ttl / 3
        while True:
            await asyncio.sleep(pause * random.uniform(0.8, 1.0))  # noqa: S311
            try:
                await self._renew(record, ttl)
                pause = ttl / 3
            except (DzflowError, OSError) as error:
                _log.warning("cannot renew %s %s yet: %s", record.kind, record.id, error)
                pause = ttl / 10

    async def _renew(self, record: OwnRecord, ttl: float) -> None:
        try:
            async with self._renewing:
                await self._protocol.renew(record.kind, record.id)
        except NotFound:
            _log.warning("%s %s has expired; creating it again", record.kind, record.id)
            async with self._creating:
                made = await self._protocol.begin(
                    record.kind,
                    record.host,
                    record.space,
                    record.filter,
                    label=record.label,
                    ttl=ttl,
                )
            record.id = made["id"]
