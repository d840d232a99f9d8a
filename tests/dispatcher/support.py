"""A small world for dispatchers: a network, a space, and configurators without switches."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from types import TracebackType
from typing import Any, Self

from configurators.engine.partials import Request
from configurators.state.network import first_network
from configurators.state.spaces import SpaceView, new_space
from configurators.store.documents import decode_record, decode_space, encode
from configurators.store.etcd.client import Access, Etcd
from configurators.store.keys import CONFIGURATORS, NETWORK, OWNERS, RECORDS, SPACES, owner_key
from configurators.store.model import Process, SpaceDoc
from configurators.streams.listener import Listener
from configurators.streams.messages import Done, Dones, Task, Tasks
from configurators.streams.packing import pack_regions, unpack_regions
from configurators.streams.stream import Stream
from dispatcher.dispatcher import Dispatcher
from dispatcher.views import DispatcherOptions
from sdn.pipeline import PlanName
from sdn.topologies import topology

TOKEN = b"a shared secret"
SCHEMA = {
    "attributes": [
        {"name": "price", "type": "float", "min": 0, "max": 1000},
        {"name": "volume", "type": "int", "min": 0, "max": 100000},
        {"name": "symbol", "type": "enum", "values": ["ACME", "EMCA", "XYZ"]},
    ]
}
TIMEOUT = 30.0

Held = dict[str, tuple[int, bytes, bytes]]
"""What a partition has of each record: seq, regions, edge."""


class Worker:
    """A configurator that carries out every task at once, unless it is told otherwise."""

    def __init__(self, access: Access, name: str) -> None:
        self.id = name
        self.partitions: dict[str, Held] = {}
        self.heard: list[tuple[str, Task]] = []
        self.refuse: Callable[[Task], str | None] = lambda _: None
        self.holding = False  # tasks are kept, not answered
        self.changed = asyncio.Event()
        self._kept: list[tuple[Stream, str, Task]] = []
        self._etcd = Etcd(access)
        self._listener = Listener("127.0.0.1:0", TOKEN, self._hear, Tasks, name)
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._etcd)
            await stack.enter_async_context(self._listener)
            lease = await stack.enter_async_context(self._etcd.lease(60))
            process = Process(self.id, self._listener.address, 1, "here")
            await self._etcd.put(CONFIGURATORS + self.id, encode(process), lease.id)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        await self._stack.aclose()

    async def _hear(self, stream: Stream, message: Tasks) -> None:
        for partition, tasks in message.tasks.items():
            for task in tasks:
                self.heard.append((partition, task))
                self._kept.append((stream, partition, task))
        self.changed.set()
        if not self.holding:
            await self.release()

    async def release(self) -> None:
        """Carry out what was kept."""
        kept, self._kept = self._kept, []
        page = await self._etcd.range(OWNERS)
        epochs = {item.key.removeprefix(OWNERS): item for item in page.items}
        answers: dict[Stream, list[Done]] = {}
        for stream, partition, task in kept:
            owner = epochs.get(partition)
            epoch = owner.revision if owner else 0
            mine = owner is not None and owner.value.decode() == self.id
            answers.setdefault(stream, []).append(self._carry_out(partition, task, epoch, mine))
        for stream, dones in answers.items():
            if not stream.closed.is_set():
                stream.tell(Dones(dones))

    def _carry_out(self, partition: str, task: Task, epoch: int, mine: bool) -> Done:
        def done(outcome: Any, reason: str | None = None) -> Done:
            return Done(
                partition, task.id, task.seq, epoch, outcome, reason, 10, 20, 1, 1, 2, 0, 1, 3
            )

        if not mine:
            return done("moved")
        held = self.partitions.setdefault(partition, {})
        known = held.get(task.id)
        if known and known[0] > task.seq:
            return done("superseded")
        if reason := self.refuse(task):
            return done("failed", reason)
        held[task.id] = (task.seq, task.regions, task.edge)
        return done("done")

    def has(self) -> dict[str, dict[str, tuple[bytes, bytes]]]:
        """What its partitions have now, without what was removed."""
        found = {
            name: {i: (r, e) for i, (_, r, e) in held.items() if r or e}
            for name, held in self.partitions.items()
        }
        return {name: held for name, held in found.items() if held}


class World:
    """One prefix of etcd with a network, a space and configurators."""

    def __init__(self, access: Access, etcd: Etcd, stack: AsyncExitStack) -> None:
        self.access = access
        self.etcd = etcd
        self.workers: list[Worker] = []
        self._stack = stack

    async def worker(self, name: str) -> Worker:
        """One more configurator."""
        worker = await self._stack.enter_async_context(Worker(self.access, name))
        self.workers.append(worker)
        return worker

    async def space(
        self, name: str = "stocks", number: int = 1, plan: PlanName = "legs"
    ) -> SpaceDoc:
        """A space whose partitions are spread over the configurators."""
        doc = new_space(name, number, SCHEMA, plan, 5)
        for place, partition in enumerate(SpaceView.of(doc).partitions()):
            worker = self.workers[place % len(self.workers)]
            await self.etcd.put(owner_key(partition), worker.id.encode())
        await self.etcd.put(SPACES + name, encode(doc))
        return doc

    def dispatcher(self, **options: Any) -> Dispatcher:
        """A dispatcher, to be entered."""
        return Dispatcher(self.access, TOKEN, DispatcherOptions(**options))

    def has(self) -> dict[str, dict[str, tuple[bytes, bytes]]]:
        """What all partitions have."""
        return {name: held for worker in self.workers for name, held in worker.has().items()}

    async def expected(self) -> dict[str, dict[str, tuple[bytes, bytes]]]:
        """What all partitions should have: the active records, routed."""
        docs = (await self.etcd.range(SPACES)).items
        views = {}
        for item in docs:
            view = SpaceView.of(decode_space(item.value))
            views[view.name] = view
        found: dict[str, dict[str, tuple[bytes, bytes]]] = {}
        for item in (await self.etcd.range(RECORDS)).items:
            record = decode_record(item.value)
            if record.state != "active":
                continue
            view = views[record.space]
            for version, packed in record.regions.items():
                request = Request(
                    record.kind == "advertisement", record.id, record.host, unpack_regions(packed)
                )
                for name, partial in view.versions[version].route(request).items():
                    share = pack_regions(partial.regions), pack_regions(partial.edge)
                    found.setdefault(name, {})[record.id] = share
        return found


@asynccontextmanager
async def world(access: Access, workers: int = 2) -> AsyncIterator[World]:
    """A world with a fat tree of ten switches, hosts h1 to h8, and the space stocks."""
    async with AsyncExitStack() as stack:
        etcd = await stack.enter_async_context(Etcd(access))
        await etcd.put(NETWORK, encode(first_network(topology("fat-tree:10"), "legs", 1)))
        made = World(access, etcd, stack)
        for number in range(workers):
            await made.worker(f"c{number + 1}")
        await made.space()
        yield made


async def eventually(holds: Callable[[], Awaitable[bool]], timeout: float = TIMEOUT) -> None:
    """Wait until something holds that nothing tells of."""
    async with asyncio.timeout(timeout):
        while not await holds():
            await asyncio.sleep(0.02)
