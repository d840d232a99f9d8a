"""The harness of the dispatcher's tests: a network, a space, and configurators without switches.

`tests/dispatcher/whole.py` has the same with real configurators and emulated switches.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from random import Random
from types import TracebackType
from typing import Any, Self

from configurators.engine.partials import Request
from configurators.environment import Environment
from configurators.state.network import first_network
from configurators.state.spaces import LoadedSpace, new_space
from configurators.store.documents import decode_record, decode_space, encode
from configurators.store.etcd.client import Access, Etcd
from configurators.store.keys import CONFIGURATORS, NETWORK, OWNERS, RECORDS, SPACES, owner_key
from configurators.store.model import Process, SpaceDoc
from configurators.streams.listener import Listener
from configurators.streams.messages import Done, Dones, Task, Tasks
from configurators.streams.packing import pack_regions, unpack_regions
from configurators.streams.stream import Stream
from configurators.streams.task_numbers import Phase
from dispatcher.calls import Answer, RecordSpec
from dispatcher.dispatcher import Dispatcher
from dispatcher.errors import Problem
from dispatcher.options import DispatcherOptions
from dispatcher.views import RecordView
from sdn.network.topologies import topology
from sdn.tables.pipeline import PlanName
from tests.support import WAIT

TOKEN = b"a shared secret"
SCHEMA = {
    "attributes": [
        {"name": "price", "type": "float", "min": 0, "max": 1000},
        {"name": "volume", "type": "int", "min": 0, "max": 100000},
        {"name": "symbol", "type": "enum", "values": ["ACME", "EMCA", "XYZ"]},
    ]
}
TIMEOUT = WAIT
# On a busy machine, filters may take longer than hosts are allowed.
UNLIMITED: dict[str, Any] = {"work": None, "work_per_host": None}

Numbered = dict[str, tuple[int, bytes, bytes]]
"""What a partition has of each record: number of the task, regions, edge."""


def phase_of(task: Task) -> Phase:
    """The phase that a task belongs to: its number counts operations and their phases."""
    return Phase(task.seq % len(Phase))


Installed = dict[str, dict[str, tuple[bytes, bytes]]]
"""What each partition has of each record: regions, edge."""


class FakeConfigurator:
    """Carries out every task at once, unless a test says otherwise."""

    def __init__(self, access: Access, name: str) -> None:
        self.id = name
        self.partitions: dict[str, Numbered] = {}
        self.received: list[tuple[str, Task]] = []
        self.refuse: Callable[[Task], str | None] = lambda _: None
        self.holding = False  # tasks wait, and are not answered
        self._held: list[tuple[Stream, str, Task]] = []
        self._etcd = Etcd(access)
        self._listener = Listener("127.0.0.1:0", TOKEN, self._receive, Tasks, name)
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

    async def _receive(self, stream: Stream, message: Tasks) -> None:
        for partition, tasks in message.tasks.items():
            for task in tasks:
                self.received.append((partition, task))
                self._held.append((stream, partition, task))
        if not self.holding:
            await self._carry_out_held()

    async def release(self) -> None:
        """Carry out the tasks that wait, and all others from now on."""
        self.holding = False
        await self._carry_out_held()

    async def _carry_out_held(self) -> None:
        held, self._held = self._held, []
        page = await self._etcd.range(OWNERS)
        epochs = {item.key.removeprefix(OWNERS): item for item in page.items}
        answers: dict[Stream, list[Done]] = {}
        for stream, partition, task in held:
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
        shares = self.partitions.setdefault(partition, {})
        known = shares.get(task.id)
        if known and known[0] > task.seq:
            return done("superseded")
        if reason := self.refuse(task):
            return done("failed", reason)
        shares[task.id] = (task.seq, task.regions, task.edge)
        return done("done")

    def installed(self) -> Installed:
        """What its partitions have now, without what was removed."""
        found = {
            name: {id: (r, e) for id, (_, r, e) in shares.items() if r or e}
            for name, shares in self.partitions.items()
        }
        return {name: shares for name, shares in found.items() if shares}


class World:
    """One prefix of etcd with a network, a space and configurators."""

    def __init__(self, access: Access, etcd: Etcd, stack: AsyncExitStack) -> None:
        self.access = access
        self.etcd = etcd
        self.configurators: list[FakeConfigurator] = []
        self._stack = stack

    async def configurator(self, name: str) -> FakeConfigurator:
        """One more configurator."""
        made = await self._stack.enter_async_context(FakeConfigurator(self.access, name))
        self.configurators.append(made)
        return made

    def hold(self) -> None:
        """Have all configurators hold their tasks."""
        for configurator in self.configurators:
            configurator.holding = True

    async def release(self) -> None:
        """Have all configurators carry out the tasks that they hold."""
        for configurator in self.configurators:
            await configurator.release()

    def refuse(self, refuse: Callable[[Task], str | None]) -> None:
        """Have all configurators refuse the tasks for which a function gives a reason."""
        for configurator in self.configurators:
            configurator.refuse = refuse

    def received(self) -> list[tuple[str, Task]]:
        """The tasks that all configurators have received, with their partitions."""
        return [one for configurator in self.configurators for one in configurator.received]

    async def space(
        self, name: str = "stocks", number: int = 1, plan: PlanName = "legs"
    ) -> SpaceDoc:
        """A space whose partitions are spread over the configurators."""
        doc = new_space(name, number, SCHEMA, plan, 5)
        for place, partition in enumerate(LoadedSpace.of(doc).partitions()):
            owner = self.configurators[place % len(self.configurators)]
            await self.etcd.put(owner_key(partition), owner.id.encode())
        await self.etcd.put(SPACES + name, encode(doc))
        return doc

    def dispatcher(self, environment: Environment | None = None, **options: Any) -> Dispatcher:
        """A dispatcher, to be entered."""
        how = DispatcherOptions(**UNLIMITED | options)
        return Dispatcher(self.access, TOKEN, how, environment)

    def installed(self) -> Installed:
        """What all partitions have."""
        return {name: shares for c in self.configurators for name, shares in c.installed().items()}

    async def expected(self) -> Installed:
        """What all partitions should have: the active records, routed."""
        docs = (await self.etcd.range(SPACES)).items
        views = {}
        for item in docs:
            view = LoadedSpace.of(decode_space(item.value))
            views[view.name] = view
        found: Installed = {}
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
async def world(access: Access, configurators: int = 2) -> AsyncIterator[World]:
    """A world with a fat tree of ten switches, hosts h1 to h8, and the space stocks."""
    async with AsyncExitStack() as stack:
        etcd = await stack.enter_async_context(Etcd(access))
        await etcd.put(NETWORK, encode(first_network(topology("fat-tree:10"), "legs", 1)))
        made = World(access, etcd, stack)
        for number in range(configurators):
            await made.configurator(f"c{number + 1}")
        await made.space()
        yield made


def specs(count: int, host: str = "h1") -> list[RecordSpec]:
    """Subscriptions that differ in their filters."""
    return [
        RecordSpec(host, "stocks", {"price": {"gte": 6 * n, "lt": 6 * n + 5}}) for n in range(count)
    ]


def random_filter(rng: Random) -> dict[str, object]:
    """A filter for some prices."""
    low = rng.uniform(0, 900)
    return {"price": {"gte": low, "lt": low + rng.uniform(1, 90)}, "symbol": {"in": ["ACME"]}}


def views(answers: Sequence[Answer]) -> list[RecordView]:
    """The records of answers that all have one."""
    found = []
    for answer in answers:
        assert answer.record, answer.problem
        found.append(answer.record)
    return found


def problem(answer: Answer) -> Problem:
    """The problem of an answer that has one."""
    assert answer.problem
    return answer.problem
