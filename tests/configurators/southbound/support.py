"""The harness of southbound processes: processes, and a configurator's end of streams."""

import asyncio
import contextlib
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, NamedTuple

from configurators.environment import Environment
from configurators.southbound.options import SouthboundOptions
from configurators.southbound.process import SouthboundProcess
from configurators.state.network import first_network
from configurators.state.spaces import (
    LoadedSpace,
    new_space,
)
from configurators.store.documents import decode_connections, encode
from configurators.store.etcd.client import Access, Etcd
from configurators.store.keys import CONNECTIONS, NETWORK, SPACES, owner_key
from configurators.store.model import Connections
from configurators.streams.addresses import split_address
from configurators.streams.listener import connect
from configurators.streams.messages import (
    Applied,
    Apply,
    Declare,
    Flows,
    FromSouthbound,
    Raised,
    RaiseEpochs,
    ReadFlows,
    SouthboundCounters,
    SwitchReport,
)
from configurators.streams.packing import pack_entries, pack_ops, unpack_entries
from configurators.streams.stream import Stream
from dzflow.address import Scope
from dzflow.region import Region
from sdn.emulator import EmulatedNetwork
from sdn.network.topologies import topology
from sdn.network.topology import Topology
from sdn.openflow.options import RoleName
from sdn.tables.flows import Change, FlowEntry, FlowOp, Output
from sdn.tables.pipeline import MATCH_PRIORITY, PlanName
from tests.support import WAIT, until

LINE = topology("line:3")
NAMES = {"s1", "s2", "s3"}
TOKEN = b"token"
SCHEMA = {"attributes": [{"name": "x", "type": "int", "min": 0, "max": 65535, "bits": 16}]}
SPACE = 5


def view(plan: PlanName = "legs") -> LoadedSpace:
    return LoadedSpace.of(new_space("stocks", SPACE, SCHEMA, plan, 1))


PARTITION = view().partitions()[0]


def entry(number: int, port: int = 1, space: int = SPACE) -> FlowEntry:
    match = Scope(space).match(Region(number << 80, 0xFFFF << 80), 0)
    return FlowEntry(1, MATCH_PRIORITY, match, (Output(port),), 2)


def adds(*numbers: int) -> bytes:
    return pack_ops([FlowOp(Change.ADD, entry(number)) for number in numbers])


async def store(access: Access, network: Topology = LINE, plan: PlanName = "legs") -> int:
    """Store a network, a space and an owner; returns the owner's epoch."""
    async with Etcd(access) as etcd:
        await etcd.put(SPACES + "stocks", encode(view(plan).doc))
        await etcd.put(NETWORK, encode(first_network(network, plan, 1)))
        return await etcd.put(owner_key(view(plan).partitions()[0]), b"c1")


class Client:
    """A configurator's end of a stream."""

    def __init__(self) -> None:
        self.stream: Stream
        self.report: SwitchReport | None = None
        self.seen: list[SwitchReport] = []
        self.counters: SouthboundCounters | None = None
        self._changed = asyncio.Event()

    def hear(self, _: Stream, message: Any) -> None:
        if isinstance(message, SouthboundCounters):
            self.counters = message
            return
        assert isinstance(message, SwitchReport)
        self.report = message
        self.seen.append(message)
        self._changed.set()

    async def until(self, condition: Callable[[SwitchReport], bool]) -> SwitchReport:
        async with asyncio.timeout(WAIT):
            while not (self.report and condition(self.report)):
                self._changed.clear()
                await self._changed.wait()
        return self.report

    async def holding(self, *switches: str) -> SwitchReport:
        return await self.until(lambda report: set(report.switches) == set(switches))

    async def apply(
        self, batch: Mapping[str, bytes], epoch: int, partition: str = PARTITION
    ) -> Applied:
        answer = await self.stream.ask(Apply(partition, epoch, dict(batch)), WAIT)
        assert isinstance(answer, Applied)
        return answer

    async def declare(
        self,
        epoch: int,
        entries: Mapping[str, list[FlowEntry]] | None = None,
        switches: list[str] | None = None,
        check: bool = True,
        partition: str = PARTITION,
    ) -> Applied:
        packed = {switch: pack_entries(found) for switch, found in (entries or {}).items()}
        message = Declare({partition: epoch}, {partition: packed}, check, switches)
        answer = await self.stream.ask(message, WAIT)
        assert isinstance(answer, Applied)
        return answer

    async def raise_epoch(self, epoch: int) -> Raised:
        answer = await self.stream.ask(RaiseEpochs({PARTITION: epoch}), WAIT)
        assert isinstance(answer, Raised)
        return answer

    async def flows(self, switch: str) -> Flows:
        answer = await self.stream.ask(ReadFlows(switch), WAIT)
        assert isinstance(answer, Flows)
        return answer


@contextlib.asynccontextmanager
async def process(
    access: Access,
    id: str = "b1",
    openflow: str = "127.0.0.1:0",
    environment: Environment | None = None,
    **options: Any,
) -> AsyncIterator[SouthboundProcess]:
    settings = SouthboundOptions(**{"timeout": WAIT, **options})
    made = SouthboundProcess(
        access, TOKEN, id, "127.0.0.1:0", openflow, options=settings, environment=environment
    )
    async with running(made):
        yield made


@contextlib.asynccontextmanager
async def running(made: SouthboundProcess) -> AsyncIterator[None]:
    stop = asyncio.Event()
    task = asyncio.create_task(made.run(stop))
    try:
        ready = asyncio.create_task(made.ready.wait())
        await asyncio.wait([ready, task], timeout=WAIT, return_when=asyncio.FIRST_COMPLETED)
        ready.cancel()
        if task.done():
            task.result()
        assert made.ready.is_set()
        yield
    finally:
        stop.set()
        await asyncio.wait_for(task, WAIT)


@contextlib.asynccontextmanager
async def client(address: str) -> AsyncIterator[Client]:
    made = Client()
    made.stream = await connect(address, TOKEN, made.hear, FromSouthbound, "c1")
    try:
        yield made
    finally:
        made.stream.close()
        await made.stream.closed.wait()


class Line(NamedTuple):
    """A process that has all switches of LINE, and a configurator's stream to it.

    `epoch` is that of the stored partition's owner.
    """

    client: Client
    epoch: int
    network: EmulatedNetwork
    process: SouthboundProcess


@contextlib.asynccontextmanager
async def line(access: Access, **options: Any) -> AsyncIterator[Line]:
    """Store a network, a space and an owner, and start a process with its switches."""
    epoch = await store(access)
    async with (
        process(access, **options) as p,
        EmulatedNetwork(LINE, controllers(p)) as network,
        client(p.listen) as c,
    ):
        await c.holding(*NAMES)
        yield Line(c, epoch, network, p)


async def published(
    access: Access, id: str, condition: Callable[[Connections], bool]
) -> Connections:
    """Wait until a process has published something that fulfils a condition."""
    found: list[Connections] = []

    async with Etcd(access) as etcd:

        async def fulfilled() -> bool:
            stored = await etcd.get(CONNECTIONS + id)
            if stored is None or not condition(decode_connections(stored.value)):
                return False
            found.append(decode_connections(stored.value))
            return True

        await until(fulfilled)
    return found[0]


def controllers(*processes: "SouthboundProcess | Child") -> list[tuple[str, int]]:
    """Where switches connect to processes."""
    return [split_address(one.openflow) for one in processes]


async def on_switch(client: Client, switch: str, space: int = SPACE) -> set[FlowEntry]:
    """Entries of a space as the switch has them."""
    found = unpack_entries((await client.flows(switch)).entries)
    ours = Scope(space).match(Region(0, 0))
    return {e for e in found if e.match and ours.holds(e.match.address)}


FOUR = topology("line:4")

_SCRIPT = """
import asyncio, sys
from configurators.southbound.options import SouthboundOptions
from configurators.southbound.process import SouthboundProcess
from configurators.store.etcd.client import Access

async def main():
    endpoint, prefix, token, id, openflow, ttl, stable_after, role = sys.argv[1:]
    process = SouthboundProcess(
        Access((endpoint,), prefix), token.encode(), id, "127.0.0.1:0", openflow,
        options=SouthboundOptions(ttl=int(ttl), stable_after=float(stable_after), role=role),
    )
    running = asyncio.create_task(process.run(asyncio.Event()))
    await process.ready.wait()
    print(process.listen, process.openflow, flush=True)
    await running

asyncio.run(main())
"""


class Child:
    """A southbound process that can be killed; where it listens for streams and for switches."""

    def __init__(self, process: asyncio.subprocess.Process, listen: str, openflow: str) -> None:
        self.listen = listen
        self.openflow = openflow
        self._process = process

    def pause(self) -> None:
        """Stop it, as a machine that is busy with something else."""
        self._process.send_signal(signal.SIGSTOP)

    def wake_up(self) -> None:
        """Let it go on after a pause."""
        self._process.send_signal(signal.SIGCONT)

    async def kill(self) -> None:
        """Kill it, as a crash would."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()


@contextlib.asynccontextmanager
async def child(
    access: Access,
    id: str,
    openflow: str = "127.0.0.1:0",
    ttl: int = 2,
    stable_after: float = 2.0,
    role: RoleName = "master",
) -> AsyncIterator[Child]:
    """A southbound process in a process of its own."""
    started = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", _SCRIPT, access.endpoints[0], access.prefix, TOKEN.decode()),
        *(id, openflow, str(ttl), str(stable_after), role),
        stdout=asyncio.subprocess.PIPE,
    )
    assert started.stdout
    found: Child | None = None
    try:
        line = await asyncio.wait_for(started.stdout.readline(), WAIT)
        found = Child(started, *line.decode().split())
        yield found
    finally:
        await (found or Child(started, "", "")).kill()
