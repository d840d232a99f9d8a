"""The dispatchers that are alive, and what is done for those that died."""

import asyncio
import hashlib
import logging
from collections.abc import Callable

from configurators.store.etcd.client import Etcd, StoreError
from configurators.store.keys import DISPATCHERS
from configurators.store.mirror import Mirror
from dispatcher.reports.metrics import Metrics
from dispatcher.requests.driver import Gatherer
from dispatcher.requests.intake import Draft, Intake
from dispatcher.requests.operation import action_of
from dispatcher.requests.reading import Held, scan
from dzflow.aio import log_failure

_log = logging.getLogger(__name__)

_PAUSE = 1.0
_LOOK_EVERY = 60.0  # seconds: whatever was overlooked is found then
_TURN = 200


class Siblings:
    """Who is alive, this one included; adopts the open operations of those who are not."""

    def __init__(
        self, etcd: Etcd, me: str, intake: Intake, gatherer: Gatherer, metrics: Metrics
    ) -> None:
        self.alive: set[str] = {me}
        self.on_look: list[Callable[[], None]] = []  # for other things that may be left behind
        self._etcd = etcd
        self._me = me
        self._intake = intake
        self._gatherer = gatherer
        self._metrics = metrics
        self._mirror = Mirror(etcd, DISPATCHERS, bytes, self._take)
        self._look = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Get to know the others, and look for what the dead have left behind."""
        await self._mirror.start()
        self._look.set()
        self._task = asyncio.create_task(self._run(), name="adopt")
        self._task.add_done_callback(log_failure)

    async def close(self) -> None:
        """Look no more."""
        await self._mirror.stop()
        if self._task:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def tasks(self) -> list["asyncio.Task[None]"]:
        """What goes on in the background, and never ends by itself."""
        return [*self._mirror.tasks(), *([self._task] if self._task else [])]

    def rank(self, name: str) -> int:
        """Whose turn it is to do something: all who are alive have different ranks for a name."""
        order = sorted(
            self.alive, key=lambda who: hashlib.sha256(f"{name} {who}".encode()).digest()
        )
        return order.index(self._me)

    def _take(self, name: str, value: bytes | None, revision: int) -> None:  # noqa: ARG002
        if value is not None:
            self.alive.add(name)
        elif name != self._me:
            self.alive.discard(name)
            _log.warning("dispatcher %s is gone; its open operations are taken over", name)
            self._look.set()

    async def _run(self) -> None:
        while True:
            try:
                async with asyncio.timeout(_LOOK_EVERY):
                    await self._look.wait()
            except TimeoutError:
                self._tell_to_look()
                if not self._intake.orphans:
                    continue
            self._look.clear()
            self._tell_to_look()
            self._intake.orphans = False
            try:
                await self._adopt()
            except StoreError as error:
                _log.warning("cannot look for what was left behind: %s", error)
                self._look.set()
                await asyncio.sleep(_PAUSE)

    def _tell_to_look(self) -> None:
        for tell in self.on_look:
            tell()

    async def _adopt(self) -> None:
        looked = 0
        async for _, held in scan(self._etcd):
            looked += 1
            if not looked % _TURN:
                await asyncio.sleep(0)
            if held.record.open and self._is_left_behind(held):
                self.adopt(held)

    def _is_left_behind(self, held: Held) -> bool:
        by = held.record.by
        if by == self._me:
            known = self._gatherer.operations.get(held.record.id)
            return known is None and not self._intake.concerns(held.record.id)
        return by not in self.alive

    def adopt(self, held: Held) -> None:
        """Go on with a record's open operation."""
        record = held.record
        draft = Draft(action_of(record), record.kind, None, 0)
        draft.id, draft.record, draft.revision = record.id, record, held.revision
        draft.given = record.next.filter if record.next else None
        self._metrics.adopted += 1
        self._intake.take_over(draft)
